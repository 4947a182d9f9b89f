"""The likelihood of Bayesian linear regression on eigenfunctions, and its slope, in two passes over the rows.

K ~ Phi Phi',  A = Phi'Phi + s2 I,  c = Phi'y,  w = A^-1 c
NLML = ((y'y - c'w) / s2 + (n - p) log s2 + log |A|) / 2                       Evans and Nair (2018), section 3.2
dNLML/dPhi = Phi (A^-1 + w w' / s2) - y w' / s2
dNLML/ds2  = (-(y'y - c'w) / s2^2 + w'w / s2 + (n - p) / s2 + tr A^-1) / 2
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...features.grid import Grid
from ...linalg.blocks import row_blocks
from ...linalg.cholesky import cholesky, logdet
from ...objectives import noise_variance
from ...problem import Dataset


class Gram(NamedTuple):
    """What one pass over the rows leaves behind, in O(p^2)."""

    L: Tensor  # [p, p] Cholesky factor of A
    w: Tensor  # [p]
    s2: float
    value: float  # NLML, without its constant
    fit: float  # (y'y - c'w) / s2


def gram(grid: Grid, theta: Tensor, train: Dataset, index: Tensor) -> Gram:
    """A, w and the NLML. n p^2 flops; memory O(p^2 + block)."""
    n, p, s2 = len(train), len(index), noise_variance(theta)
    A, c = products(grid, theta, train, index)
    A.diagonal().add_(s2)
    L = cholesky(A, "Phi'Phi + s2 I").L
    w = torch.cholesky_solve(c[:, None], L)[:, 0]
    fit = (float(train.y @ train.y) - float(c @ w)) / s2
    return Gram(L, w, s2, 0.5 * (fit + (n - p) * math.log(s2) + logdet(L)), fit)


def products(grid: Grid, theta: Tensor, train: Dataset, index: Tensor) -> tuple[Tensor, Tensor]:
    """Phi'Phi [p, p] and Phi'y [p], in one pass over the rows. n p^2 flops; memory O(p^2 + block)."""
    p = len(index)
    A, c = train.y.new_zeros(p, p), train.y.new_zeros(p)
    for rows in row_blocks(len(train), 3 * train.y.element_size() * p):
        with torch.no_grad():
            Phi = grid.features(theta, train.X[rows], index)
        A.addmm_(Phi.T, Phi)
        c.addmv_(Phi.T, train.y[rows])
    return A, c


def gradient(grid: Grid, theta: Tensor, train: Dataset, index: Tensor, now: Gram) -> Tensor:
    """dNLML/dtheta [P], the eigenfunctions chosen held fixed. 2 n p^2 flops and a backward pass through Phi."""
    n, p, s2, total = len(train), len(index), now.s2, torch.zeros_like(theta)
    inverse = torch.cholesky_inverse(now.L)
    middle = inverse.addr(now.w, now.w, alpha=1.0 / s2)
    for rows in row_blocks(n, 8 * train.y.element_size() * p):
        at = theta.detach().clone().requires_grad_(True)
        with torch.enable_grad():
            Phi = grid.features(at, train.X[rows], index)
            G = (Phi.detach() @ middle).addr_(train.y[rows], now.w, alpha=-1.0 / s2)
            (slope,) = torch.autograd.grad((Phi * G).sum(), at)
        total += slope
    trace = float(inverse.diagonal().sum())
    noise = 0.5 * (-now.fit / s2 + float(now.w @ now.w) / s2 + (n - p) / s2 + trace)
    total[-1] += 2.0 * s2 * noise
    return total
