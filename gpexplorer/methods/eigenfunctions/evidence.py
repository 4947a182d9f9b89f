"""The likelihood of Bayesian linear regression on basis functions, and its slope, in two passes over the rows.

K ~ Phi Phi',  A = Phi'Phi + s2 I,  c = Phi'y,  w = A^-1 c
NLML = ((y'y - c'w) / s2 + (n - p) log s2 + log |A|) / 2                       Evans and Nair (2018), section 3.2
dNLML/dPhi = Phi (A^-1 + w w' / s2) - y w' / s2
dNLML/ds2  = (-(y'y - c'w) / s2^2 + w'w / s2 + (n - p) / s2 + tr A^-1) / 2
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ...features.basis_choices import Choice
from ...linalg.blocks import row_blocks
from ...linalg.cholesky import cholesky, logdet
from ...linalg.reduction import Map, Sums, add_gram_, mirrored, sum_of_squares, sum_over_rows
from ...objectives import noise_variance
from ...problem import Dataset

ON_AXES = 32  # numbers a row and input: about four an axis point


class Gram(NamedTuple):
    """What one pass over the rows leaves behind, in O(p^2)."""

    L: Tensor  # [p, p] Cholesky factor of A
    w: Tensor  # [p]
    s2: float
    value: float  # NLML, without its constant
    fit: float  # (y'y - c'w) / s2


def gram(choice: Choice, theta: Tensor, train: Dataset, apply: Map = map) -> Gram:
    """A, w and the NLML. n p^2 flops; memory O(p^2 + block)."""
    n, p, s2 = len(train), len(choice), noise_variance(theta)
    A, c = products(choice, theta, train, apply)
    A.diagonal().add_(s2)
    L = cholesky(A, "Phi'Phi + s2 I").L
    w = torch.cholesky_solve(c[:, None], L)[:, 0]
    fit = (sum_of_squares(train.y) - float(c @ w)) / s2
    return Gram(L, w, s2, 0.5 * (fit + (n - p) * math.log(s2) + logdet(L)), fit)


def products(choice: Choice, theta: Tensor, train: Dataset, apply: Map = map) -> tuple[Tensor, Tensor]:
    """Phi'Phi [p, p] and Phi'y [p], in one pass over the rows. n p^2 flops; memory O(p^2 + block)."""
    A, c = sum_over_rows(partial(strip_products, choice, theta.detach()), (train.X, train.y), apply)
    return mirrored(A), c


def strip_products(choice: Choice, theta: Tensor, strip: tuple[Tensor, ...]) -> Sums:
    """The lower triangle of Phi'Phi, and Phi'y, of one strip of rows."""
    (X, y), p = strip, len(choice)
    A, c = y.new_zeros(p, p), y.new_zeros(p)
    with torch.no_grad():
        basis = choice(theta)
        for rows in row_blocks(len(y), _row_bytes(choice, X, 1.5)):
            F = basis(X[rows])  # [p, block]
            add_gram_(A, F)
            c.addmv_(F, y[rows])
    return A, c


def gradient(choice: Choice, theta: Tensor, train: Dataset, now: Gram, apply: Map = map) -> Tensor:
    """dNLML/dtheta [P], the functions chosen held fixed. 2 n p^2 flops and a backward pass through Phi."""
    n, p, s2 = len(train), len(choice), now.s2
    inverse = torch.cholesky_inverse(now.L)
    middle = inverse.addr(now.w, now.w, alpha=1.0 / s2)
    part = partial(strip_slope, choice, theta.detach(), (middle, now.w / s2))
    (total,) = sum_over_rows(part, (train.X, train.y), apply)
    trace = float(inverse.diagonal().sum())
    noise = 0.5 * (-now.fit / s2 + float(now.w @ now.w) / s2 + (n - p) / s2 + trace)
    total[-1] += 2.0 * s2 * noise
    return total


def strip_slope(choice: Choice, theta: Tensor, outer: tuple[Tensor, Tensor], strip: tuple[Tensor, ...]) -> Sums:
    """The part of dNLML/dtheta that goes through Phi, of one strip of rows."""
    (X, y), (middle, w), total = strip, outer, torch.zeros_like(theta)
    for rows in row_blocks(len(y), _row_bytes(choice, X, 3.0)):
        at = theta.clone().requires_grad_(True)
        with torch.enable_grad():
            F = choice(at)(X[rows])  # [p, block]
            G = (middle @ F.detach()).addr_(w, y[rows], alpha=-1.0)
            (slope,) = torch.autograd.grad((F * G).sum(), at)
        total += slope
    return (total,)


def _row_bytes(choice: Choice, X: Tensor, times: float) -> int:
    """What a row takes: its functions, so many `times` with what they are made of, and covariances with each axis."""
    return int(X.element_size() * (times * len(choice) + ON_AXES * X.shape[1]))
