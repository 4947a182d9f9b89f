"""Bayesian linear regression on p basis functions: likelihood and gradient in two passes over the rows.

    K ~ Phi Phi',  A = Phi'Phi + s2 I [p, p],  c = Phi'y [p],  w = A^-1 c [p]
    NLML = ((y'y - c'w) / s2 + (n - p) log s2 + log |A|) / 2                              eq 18 with W = I, P = A
    dNLML/dPhi = Phi (A^-1 + w w' / s2) - y w' / s2
    dNLML/ds2  = (-(y'y - c'w) / s2^2 + w'w / s2 + (n - p) / s2 + tr A^-1) / 2

Equation numbers refer to Evans and Nair (2018). The constant n/2 log 2 pi is omitted. The rows are read in strips, so
that memory is O(p^2) and one block of Phi.
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
from ...linalg.reduction import Map, Sums, add_gram_, sum_of_squares, sum_over_rows, symmetric_from_lower
from ...objectives import noise_variance
from ...problem import Dataset

AXIS_NUMBERS = 32  # numbers per row and input that an evaluation of Phi needs: about four per grid point of an axis


class Regression(NamedTuple):
    """The fitted weights and the likelihood, in O(p^2) numbers."""

    L: Tensor  # [p, p] Cholesky factor of A
    w: Tensor  # [p] posterior mean of the weights
    s2: float  # noise variance
    value: float  # NLML without its constant
    fit: float  # (y'y - c'w) / s2


def regress(choice: Choice, theta: Tensor, train: Dataset, mapper: Map = map) -> Regression:
    """Fit the weights of the basis functions and evaluate the likelihood.

    Parameters
    ----------
    choice : Choice
        The p basis functions.
    theta : tensor [P]
        Hyperparameters; the last entry is the log noise standard deviation.
    train : Dataset
        n rows.
    mapper : callable, default the builtin map
        Does the strips of rows, perhaps on a cluster.

    Returns
    -------
    Regression

    Raises
    ------
    NotPositiveDefinite
        If A has no Cholesky factor.

    Notes
    -----
    The cost is n p^2 flops and O(p^2 + block) memory.
    """
    n, p, s2 = len(train), len(choice), noise_variance(theta)
    A, c = gram_products(choice, theta, train, mapper)  # [p, p], [p]
    A.diagonal().add_(s2)
    L = cholesky(A, "Phi'Phi + s2 I").L  # [p, p]
    w = torch.cholesky_solve(c[:, None], L)[:, 0]  # [p]
    fit = (sum_of_squares(train.y) - float(c @ w)) / s2  # eq 18, first line
    return Regression(L, w, s2, 0.5 * (fit + (n - p) * math.log(s2) + logdet(L)), fit)  # eq 18, second line


def gram_products(choice: Choice, theta: Tensor, train: Dataset, mapper: Map = map) -> tuple[Tensor, Tensor]:
    """Return Phi'Phi [p, p] and Phi'y [p] from one pass over the rows. n p^2 flops; memory O(p^2 + block)."""
    A, c = sum_over_rows(partial(strip_products, choice, theta.detach()), (train.X, train.y), mapper)
    return symmetric_from_lower(A), c


def strip_products(choice: Choice, theta: Tensor, strip: tuple[Tensor, ...]) -> Sums:
    """Return the lower triangle of Phi'Phi [p, p], and Phi'y [p], of one strip of rows."""
    (X, y), p = strip, len(choice)
    A, c = y.new_zeros(p, p), y.new_zeros(p)
    with torch.no_grad():
        basis = choice(theta)
        for rows in row_blocks(len(y), _row_bytes(choice, X, 1.5)):
            F = basis(X[rows])  # [p, block]
            add_gram_(A, F)
            c.addmv_(F, y[rows])
    return A, c


def evidence_gradient(
    choice: Choice, theta: Tensor, train: Dataset, regression: Regression, mapper: Map = map
) -> Tensor:
    """Return dNLML/dtheta [P] while the choice of functions stays the same.

    Parameters
    ----------
    choice, theta, train, mapper : Choice or Tensor or Dataset or Map
        As in `regress`.
    regression : Regression
        The result of `regress` at the same theta.

    Notes
    -----
    The cost is 2 n p^2 flops and a backward pass through Phi.
    """
    n, p, s2 = len(train), len(choice), regression.s2
    inverse = torch.cholesky_inverse(regression.L)  # [p, p] A^-1
    middle = inverse.addr(regression.w, regression.w, alpha=1.0 / s2)  # [p, p] A^-1 + w w' / s2
    part = partial(strip_gradient, choice, theta.detach(), (middle, regression.w / s2))
    (gradient,) = sum_over_rows(part, (train.X, train.y), mapper)  # [P]
    trace = float(inverse.diagonal().sum())
    by_noise = 0.5 * (-regression.fit / s2 + float(regression.w @ regression.w) / s2 + (n - p) / s2 + trace)
    gradient[-1] += 2.0 * s2 * by_noise  # d s2 / d log s = 2 s2
    return gradient


def strip_gradient(choice: Choice, theta: Tensor, factors: tuple[Tensor, Tensor], strip: tuple[Tensor, ...]) -> Sums:
    """Return the part of dNLML/dtheta [P] that goes through Phi, of one strip of rows."""
    (X, y), (middle, w), total = strip, factors, torch.zeros_like(theta)
    for rows in row_blocks(len(y), _row_bytes(choice, X, 3.0)):
        leaf = theta.clone().requires_grad_(True)
        with torch.enable_grad():
            F = choice(leaf)(X[rows])  # [p, block]
            G = (middle @ F.detach()).addr_(w, y[rows], alpha=-1.0)  # [p, block] dNLML/dPhi'
            (gradient,) = torch.autograd.grad((F * G).sum(), leaf)
        total += gradient
    return (total,)


def _row_bytes(choice: Choice, X: Tensor, copies: float) -> int:
    """Bytes per row of a block: `copies` of its functions, and its covariances with the grid points of each axis."""
    return int(X.element_size() * (copies * len(choice) + AXIS_NUMBERS * X.shape[1]))
