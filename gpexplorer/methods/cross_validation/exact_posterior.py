"""The posterior of the exact GP at one theta, by a Cholesky factor or by conjugate gradients.

    A    = K + s2 I [n, n],   alpha = A^-1 y [n]
    mean = k(x*, X) alpha
    var  = k(x*, x*) - k(x*, X) A^-1 k(X, x*)            Rasmussen and Williams (2006), eqs 2.25 and 2.26

Every method of this family predicts with it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...linalg.blocks import row_blocks
from ...linalg.cholesky import cholesky
from ...linalg.conjugate_gradients import begin, cg
from ...linalg.kernel_columns import KernelColumns
from ...objectives import noise_variance
from ...problem import Posterior, Prediction, Problem
from .settings import GIGABYTE

MAX_ITERATIONS = 1000  # of conjugate gradients


def by_cholesky(problem: Problem, theta: Tensor) -> Posterior:
    """Return the posterior of f by a Cholesky factor of A.

    Notes
    -----
    The factor costs n^3 / 3 flops and n^2 numbers once; a variance costs n^2 flops per test row.
    """
    kernel, train = problem.kernel, problem.train
    A = kernel(theta, train.X, train.X)  # [n, n]
    A.diagonal().add_(noise_variance(theta))
    L = cholesky(A, "K + s2 I").L
    alpha = torch.cholesky_solve(train.y[:, None], L)[:, 0]

    def predict(X: Any) -> Prediction:
        mean, var = train.y.new_empty(len(X)), kernel.diag(theta, X)
        for rows in row_blocks(len(X), 2 * mean.element_size() * len(train)):
            K = kernel(theta, train.X, X[rows])  # [n, block]
            mean[rows] = K.T @ alpha
            var[rows] -= torch.linalg.solve_triangular(L, K, upper=False).square().sum(0)
        return Prediction(mean, var.clamp_min_(0.0))

    return predict


def by_conjugate_gradients(problem: Problem, theta: Tensor, gigabytes: float, tolerance: float = 1e-6) -> Posterior:
    """Return the posterior of f by products with A alone.

    Parameters
    ----------
    problem : Problem
    theta : Tensor [p]
    gigabytes : float
        Memory for rows of K. Rows beyond it are computed again in every product.
    tolerance : float
        Conjugate gradients stop where every residual is this share of its right-hand side.

    Notes
    -----
    An iteration costs n^2 flops per right-hand side, and memory for n numbers per test row of a block. Conjugate
    gradients approach k' A^-1 k from below, so that no variance is too small, except for rounding.
    """
    kernel, train, s2 = problem.kernel, problem.train, noise_variance(theta)
    columns = KernelColumns(kernel, theta, train.X, gigabytes * GIGABYTE)

    def solve(B: Tensor) -> Tensor:
        def product(V: Tensor) -> Tensor:
            return columns.product(V).add_(V, alpha=s2)

        first, largest_residual = begin(product, B, torch.zeros_like(B)), tolerance * B.norm(dim=0)
        for k, iterate in enumerate(cg(product, first), start=1):
            if k >= MAX_ITERATIONS or bool((iterate.r.norm(dim=0) <= largest_residual).all()):
                break
        return iterate.x

    alpha = solve(train.y)

    def predict(X: Any) -> Prediction:
        mean, var = train.y.new_empty(len(X)), kernel.diag(theta, X)
        for rows in row_blocks(len(X), 8 * mean.element_size() * len(train)):
            K = kernel(theta, train.X, X[rows])  # [n, block]
            mean[rows] = K.T @ alpha
            var[rows] -= (K * solve(K)).sum(0)
        return Prediction(mean, var.clamp_min_(0.0))

    return predict


def exact_posterior(problem: Problem, theta: Tensor, refit: str, gigabytes: float) -> Posterior:
    """Return the posterior of f by the algorithm that the setting `refit` names: "cholesky" or "cg"."""
    return by_conjugate_gradients(problem, theta, gigabytes) if refit == "cg" else by_cholesky(problem, theta)
