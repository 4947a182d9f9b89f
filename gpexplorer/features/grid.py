"""Nystrom eigenfunctions of a product kernel on a full grid that is never formed.

The grid U_1 x ... x U_d has mbar^d points; its kernel matrix is a Kronecker product, so that its eigenvalues are
products of 1-D ones and its eigenvectors Kronecker products of 1-D ones. With K_i = Q_i Lambda_i Q_i' on grid axis i,

    phi_j(x) = prod_i T_i(x_i)[j_i],   T_i(x) = k_i(x, U_i) Q_i Lambda_i^(-1/2)         Evans and Nair (2018), theorem 2
    K ~ Phi Phi',  Phi [n, p] of the p largest eigenvalues                              eq 8

The largest products are found in logarithms, axis by axis, keeping p at a time (algorithm 1): exact, since a product
can only be among the p largest if its first factors are, and finite where mbar^d is 10^200.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import KernelError
from ..problem import Kernel

MARGIN = 0.1  # of an input's range, beyond it on each side
LEAST = 1e-10  # of the largest 1-D eigenvalue: below it eigenvectors, and their slopes in theta, are rounding


class Spectrum(NamedTuple):
    """The largest eigenvalues of a Kronecker product, largest first."""

    log: Tensor  # [p] their logarithms
    made_of: Tensor  # [p, d] which 1-D eigenvalue on each axis


def largest_products(logs: list[Float[Tensor, " k"]], p: int) -> Spectrum:
    """The p largest of all products of one eigenvalue an axis, given their logarithms. O(d p mbar log p).

    Fewer where there are fewer; ties in the order of their indices, so that equal spectra give equal answers.
    """
    log, index = logs[0].new_zeros(1), torch.zeros(1, 0, dtype=torch.int64, device=logs[0].device)
    for axis in logs:
        sums = (log[:, None] + axis[None]).flatten()
        order = torch.sort(sums, descending=True, stable=True).indices[:p]
        rows, which = order // len(axis), order % len(axis)
        log, index = sums[order], torch.cat([index[rows], which[:, None]], 1)
    return Spectrum(log, index)


def axes(X: Float[Tensor, "n d"], points: int) -> list[Float[Tensor, " mbar"]]:
    """One equispaced axis an input, with a margin beyond its range; constant inputs get a range of one."""
    low, high = X.min(0).values, X.max(0).values
    room = torch.where(high > low, MARGIN * (high - low), torch.full_like(low, 0.5))
    return [torch.linspace(float(a), float(b), points).to(X) for a, b in zip(low - room, high + room, strict=True)]


class Grid:
    """The axes of one data set, and the eigenfunctions on them of any theta."""

    def __init__(self, kernel: Kernel, X: Float[Tensor, "n d"], points: int) -> None:
        self.kernel, self.axes = kernel, axes(X, points)

    def factors(self, theta: Float[Tensor, " p"]) -> list[Callable[[Tensor, Tensor], Tensor]]:
        """1-D covariances whose product is the kernel. Raises KernelError where it does not factor over inputs."""
        found = self.kernel.by_input(theta) if hasattr(self.kernel, "by_input") else None
        if found is None:
            raise KernelError(
                f"Kernel {self.kernel.key!r} is no product over its inputs, which a grid needs; choose se or se-ard, "
                "or a product of kernels that are."
            )
        return found

    def eigen(self, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
        """(eigenvalues, largest first; eigenvectors) an axis; values lost in rounding are dropped. O(d mbar^3)."""
        pairs = []
        for k, U in zip(self.factors(theta), self.axes, strict=True):
            values, vectors = torch.linalg.eigh(k(U, U))
            values, vectors = values.flip(0), vectors.flip(1)
            least = max(LEAST, 10.0 * len(U) * torch.finfo(values.dtype).eps)
            kept = values.detach() > least * values.detach()[0]
            pairs.append((values[kept], vectors[:, kept]))
        return pairs

    def spectrum(self, theta: Tensor, p: int) -> Spectrum:
        """The p largest eigenvalues of the whole grid's kernel matrix."""
        return largest_products([values.detach().log() for values, _ in self.eigen(theta)], p)

    def features(self, theta: Tensor, X: Float[Tensor, "n d"], index: Int[Tensor, "p d"]) -> Float[Tensor, "n p"]:
        """Phi [n, p]: n p d multiplications, n mbar d kernel entries; differentiable in theta."""
        Phi: Tensor | None = None
        for q, (k, (values, vectors)) in enumerate(zip(self.factors(theta), self.eigen(theta), strict=True)):
            T = k(X[:, q], self.axes[q]) @ (vectors * values.rsqrt())  # [n, mbar]
            Phi = T[:, index[:, q]] if Phi is None else Phi * T[:, index[:, q]]
        assert Phi is not None
        return Phi

    def outside(self, X: Float[Tensor, "t d"]) -> Tensor:
        """Which rows [t] lie beyond the grid on some axis: there the eigenfunctions say nothing."""
        low = torch.stack([U[0] for U in self.axes])
        high = torch.stack([U[-1] for U in self.axes])
        return ((X < low) | (X > high)).any(1)
