"""The exact GP at one theta, by a Cholesky factor or by conjugate gradients: how every method here predicts.

A = K + s2 I,  alpha = A^-1 y
mean = k(x*, X) alpha
var  = k(x*, x*) - k(x*, X) A^-1 k(X, x*)                      Rasmussen and Williams (2006), eqs 2.25 and 2.26
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

GIGABYTE = 1e9
MOST = 1000  # iterations of conjugate gradients


def by_cholesky(problem: Problem, theta: Tensor) -> Posterior:
    """Of f. n^3 / 3 flops and n^2 numbers once, n^2 flops a point for the variance."""
    kernel, train = problem.kernel, problem.train
    A = kernel(theta, train.X, train.X)
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


def by_products(problem: Problem, theta: Tensor, budget: float, tolerance: float = 1e-6) -> Posterior:
    """Of f, from products with A alone: n^2 an iteration, n times the block of numbers beside `budget` GB of rows.

    Conjugate gradients approach k' A^-1 k from below, so the variance is not too small, up to rounding.
    """
    kernel, train, s2 = problem.kernel, problem.train, noise_variance(theta)
    columns = KernelColumns(kernel, theta, train.X, budget * GIGABYTE)

    def solve(B: Tensor) -> Tensor:
        def product(V: Tensor) -> Tensor:
            return columns.product(V).add_(V, alpha=s2)

        first, most = begin(product, B, torch.zeros_like(B)), tolerance * B.norm(dim=0)
        for k, at in enumerate(cg(product, first), start=1):
            if k >= MOST or bool((at.r.norm(dim=0) <= most).all()):
                break
        return at.x

    alpha = solve(train.y)

    def predict(X: Any) -> Prediction:
        mean, var = train.y.new_empty(len(X)), kernel.diag(theta, X)
        for rows in row_blocks(len(X), 8 * mean.element_size() * len(train)):
            K = kernel(theta, train.X, X[rows])  # [n, block]
            mean[rows] = K.T @ alpha
            var[rows] -= (K * solve(K)).sum(0)
        return Prediction(mean, var.clamp_min_(0.0))

    return predict


def posterior(problem: Problem, theta: Tensor, refit: str, budget: float) -> Posterior:
    """By one or the other: `refit` is "cholesky" or "cg"."""
    return by_products(problem, theta, budget) if refit == "cg" else by_cholesky(problem, theta)
