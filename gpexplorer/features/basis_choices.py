"""Finite sets of p basis functions as functions of theta, which one likelihood and one posterior can use.

    Leading       the p largest eigenfunctions of a grid, by Nyström's formula              Evans and Nair (2018), eq 3
    Interpolated  the same for a kernel interpolated from the grid, E K_UU E'               section 4.2, by theorem 2
    Fourier       random Fourier features of the Gaussian kernel, one lengthscale per input Rahimi and Recht (2007)

Which functions are used is decided once; at any theta they are then a function X [n, d] -> Phi' [p, n] through which
autograd can differentiate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..linalg.deferred_reads import is_traced
from .grid_eigenfunctions import Eigenfunctions, Grid, OneInput, on_grid
from .random_fourier import RandomFourier

Basis = Callable[[Tensor], Tensor]  # X [n, d] -> Phi' [p, n]
NEIGHBOURS = 4  # grid points from which a value is interpolated: a cubic polynomial


class Choice(Protocol):
    """A choice of p basis functions."""

    def __len__(self) -> int:
        """Return the number p of functions."""

    def __call__(self, theta: Tensor) -> Basis:
        """Return the functions at this theta."""

    def keeping(self, theta: Tensor) -> Choice:
        """Return the choice with all that its functions at this theta depend on, for weights that belong to them."""

    def outside(self, X: Tensor) -> Tensor:
        """Return a mask [t] of the rows where the functions do not represent the kernel at all."""

    def fingerprint(self, theta: Tensor) -> bytes:
        """Return bytes that are equal if, on the same rows, the functions are equal; the noise does not matter."""


@dataclass(frozen=True, eq=False)
class Leading:
    """Eigenfunctions of a grid by Nyström's formula.

    Parameters
    ----------
    index : tensor [p, d]
        The index of the 1-D eigenvalue on each axis, as in `Spectrum.axis_indices`.
    """

    functions: ClassVar[type[Eigenfunctions]] = Eigenfunctions

    grid: Grid
    index: Int[Tensor, "p d"]

    def __len__(self) -> int:
        return len(self.index)

    def __call__(self, theta: Tensor) -> Basis:
        return for_row_scales(on_grid(self.functions, self.grid, theta, self.index), len(self.grid.axes))

    def keeping(self, theta: Tensor) -> Leading:
        """Return the choice with the eigenvectors of each axis at this theta."""
        return type(self)(self.grid.keeping(theta), self.index)

    def outside(self, X: Tensor) -> Tensor:
        """Return a mask [t] of the rows outside the grid, where the functions decay to 0."""
        return self.grid.outside(X)

    def fingerprint(self, theta: Tensor) -> bytes:
        """Return bytes of theta without the noise, of the grid, and of the indices."""
        return _fingerprint(f"{type(self).__name__} {self.grid.kernel.key}", theta[:-1], self.index, *self.grid.axes)


class _Interpolated(Eigenfunctions):
    """psi_j(x) = prod_i (e_i(x_i)' Q_i Lambda_i^(1/2))[j_i], where e_i(x_i) are interpolation weights."""

    def axis_table(self, values: Tensor, vectors: Tensor) -> Tensor:
        return vectors * values.sqrt()

    def axis_columns(self, q: int, x: Tensor) -> Tensor:
        return interpolation(self.axes[q], x)

    @staticmethod
    def represented(k: OneInput, U: Tensor, values: Tensor, vectors: Tensor, x: Tensor) -> Tensor:
        """Return the variance at x [n] less that of the error of interpolation, 2 e(x)'k(U, x) - e(x)'K_UU e(x)."""
        weights = interpolation(U, x)  # [mbar, n]
        return 2.0 * (weights * k(U, x)).sum(0) - (weights.T @ vectors).square() @ values


class Interpolated(Leading):
    """The eigenfunctions of the kernel that is interpolated from the grid (section 4.2).

    The kernel is evaluated at grid points only, and at rows outside the grid, for which a choice answers that keeps
    its eigenvectors (`keeping`). Nothing can be interpolated there, and the functions are those of Nyström's formula.
    On an axis that a row leaves, both have the same value at its end.
    """

    functions: ClassVar[type[Eigenfunctions]] = _Interpolated

    def __call__(self, theta: Tensor) -> Basis:
        interpolated = super().__call__(theta)
        if self.grid.kept is None:  # while theta is learned: training rows are all inside
            return interpolated
        nystrom = Leading(self.grid, self.index)(theta)

        def basis(X: Tensor) -> Tensor:
            outside = self.outside(X)  # [n]
            if not is_traced() and not bool(outside.any()):
                return interpolated(X)
            return torch.where(outside, nystrom(X), interpolated(X))

        return basis


def interpolation(U: Float[Tensor, " mbar"], x: Float[Tensor, " n"]) -> Float[Tensor, "mbar n"]:
    """Return the weights of the grid values in cubic interpolation.

    Parameters
    ----------
    U : tensor [mbar]
        An equispaced axis.
    x : tensor [n]
        Where to interpolate.

    Returns
    -------
    tensor [mbar, n]
        Column i holds the Lagrange weights of the four grid points nearest to x_i; it is 0 where x_i lies outside
        the axis.
    """
    k = min(NEIGHBOURS, len(U))
    t = (x - U[0]) / (U[1] - U[0])  # [n] position in units of the spacing
    first = (t.floor() - (k // 2 - 1)).clamp(0, len(U) - k)  # [n] the first of the k neighbours
    offset = t - first
    inside = is_within(U, x).to(x)
    weights = x.new_zeros(len(U), x.shape[0])  # [mbar, n]
    for j in range(k):
        weight = inside.clone()
        for i in range(k):
            if i != j:
                weight = weight * (offset - i) / (j - i)
        weights.scatter_(0, (first.long() + j)[None], weight[None])
    return weights


def is_within(U: Float[Tensor, " mbar"], x: Float[Tensor, " n"]) -> Tensor:
    """Return a mask [n] of the values between the two ends of an axis."""
    return (x >= U[0]) & (x <= U[-1])


@dataclass(frozen=True, eq=False)
class Fourier:
    """Random Fourier features whose frequencies are drawn once.

    theta = (log standard deviation, log lengthscales (1 or d of them), log noise standard deviation).
    """

    waves: RandomFourier

    def __len__(self) -> int:
        return self.waves.width

    def __call__(self, theta: Tensor) -> Basis:
        logs = torch.stack([torch.zeros_like(theta[0]), theta[0]])  # [2] lengthscale 1, and the standard deviation
        basis = lambda X: self.waves(logs, X * (-theta[1:-1]).exp()).T  # noqa: E731 - wrapped in the next line
        return for_row_scales(basis, self.waves.Omega.shape[1])

    def keeping(self, theta: Tensor) -> Fourier:
        """Return the choice itself: its functions depend on theta alone."""
        return self

    def outside(self, X: Tensor) -> Tensor:
        """Return a mask [t] without any row: the features represent the kernel everywhere."""
        return torch.zeros(X.shape[0], dtype=torch.bool, device=X.device)

    def fingerprint(self, theta: Tensor) -> bytes:
        """Return bytes of theta without the noise, and of the frequencies."""
        return _fingerprint(f"Fourier {self.waves.kind}", theta[:-1], self.waves.Omega, self.waves.c)


def for_row_scales(basis: Basis, d: int) -> Basis:
    """Return a basis of d inputs that also takes rows with a number in one more column, and multiplies by it.

    See `kernels.row_scaled`.
    """
    return lambda X: basis(X) if X.shape[1] == d else basis(X[:, :d]) * X[:, d]


class ChosenFeatures:
    """The functions of a choice at one theta, as features of a regression.

    Parameters
    ----------
    theta : Tensor [P]
    """

    def __init__(self, choice: Choice, theta: Tensor) -> None:
        self.choice, self.theta = choice.keeping(theta), theta.detach()
        self._basis: Basis | None = None

    def __len__(self) -> int:
        return len(self.choice)

    def __call__(self, X: Tensor) -> Tensor:
        """Features [p, b] of one block of rows."""
        if self._basis is None:
            self._basis = self.choice(self.theta)
        return self._basis(X)

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes the functions again, of what the choice has kept."""
        return {**self.__dict__, "_basis": None}


def _fingerprint(name: str, *tensors: Tensor) -> bytes:
    """A digest of a name and of tensors."""
    digest = hashlib.blake2b(name.encode(), digest_size=16)
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.digest()
