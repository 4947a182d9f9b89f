"""Finite sets of p basis functions that follow theta: what one marginal likelihood and one posterior serve.

    Leading       the p largest eigenfunctions of a grid, by Nystrom's formula             Evans and Nair (2018), eq 3
    Interpolated  the same of a kernel that is interpolated from the grid: E K_UU E'       section 4.2, by theorem 2
    Fourier       random waves of the Gaussian kernel, one lengthscale an input            Rahimi and Recht (2007)

A choice made at one theta gives, at any theta, a function X [n, d] -> Phi' [p, n] that autograd can go through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .grid_eigenfunctions import Eigenfunctions, Grid
from .random_fourier import RandomFourier

Basis = Callable[[Tensor], Tensor]  # X [n, d] -> Phi' [p, n]
NEIGHBOURS = 4  # grid points a value is interpolated from: a cubic


class Choice(Protocol):
    """Which basis functions: their number, and what they are at a theta."""

    def __len__(self) -> int:
        """Their number p."""

    def __call__(self, theta: Tensor) -> Basis:
        """Phi' of any rows, at this theta."""


@dataclass(frozen=True, eq=False)
class Leading:
    """Eigenfunctions `index` [p, d] of a grid."""

    grid: Grid
    index: Int[Tensor, "p d"]

    def __len__(self) -> int:
        return len(self.index)

    def __call__(self, theta: Tensor) -> Basis:
        return Eigenfunctions(self.grid, theta, self.index)


class Interpolated(Leading):
    """The eigenfunctions that interpolation from the grid gives: no kernel entry but the grid's own."""

    def __call__(self, theta: Tensor) -> Basis:
        return _Interpolated(self.grid, theta, self.index)


class _Interpolated(Eigenfunctions):
    """psi_j(x) = prod_i (e_i(x_i)' Q_i Lambda_i^(1/2))[j_i], e_i the weights of interpolation."""

    def table(self, values: Tensor, vectors: Tensor) -> Tensor:
        return vectors * values.sqrt()

    def left(self, q: int, x: Tensor) -> Tensor:
        return interpolation(self.axes[q], x)


def interpolation(U: Float[Tensor, " mbar"], x: Float[Tensor, " n"]) -> Float[Tensor, "mbar n"]:
    """Weights of grid values: the cubic through the four nearest points of an equispaced axis; 0 beyond it."""
    k = min(NEIGHBOURS, len(U))
    t = (x - U[0]) / (U[1] - U[0])
    first = (t.floor() - (k // 2 - 1)).clamp(0, len(U) - k)
    near = t - first
    within = ((t >= 0) & (t <= len(U) - 1)).to(x)
    out = x.new_zeros(len(U), len(x))
    for j in range(k):
        weight = within.clone()
        for i in range(k):
            if i != j:
                weight = weight * (near - i) / (j - i)
        out.scatter_(0, (first.long() + j)[None], weight[None])
    return out


@dataclass(frozen=True, eq=False)
class Fourier:
    """Waves of frequencies drawn once; theta = (log sd, log lengthscales, one or d, log noise sd)."""

    waves: RandomFourier

    def __len__(self) -> int:
        return self.waves.width

    def __call__(self, theta: Tensor) -> Basis:
        logs = torch.stack([torch.zeros_like(theta[0]), theta[0]])
        return lambda X: self.waves(logs, X * (-theta[1:-1]).exp()).T
