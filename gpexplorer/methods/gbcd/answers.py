"""Predictions of an exact GP from alpha: the mean needs no factor, the variance is that of as many rows as one affords.

mean = k(x*, X) alpha
var  = k(x*, x*) - k(x*, S) (K_SS + s2 I)^-1 k(S, x*)        S all rows, or a random subset: then an upper bound
"""

from __future__ import annotations

from typing import Any

import torch

from ...linalg.blocks import row_blocks
from ...linalg.cholesky import cholesky
from ...linalg.randomness import generator
from ...objectives import noise_variance
from ...problem import Posterior, Prediction, Problem
from .solving import State


def exact_posterior(problem: Problem, state: State, most: int, seed: int) -> Posterior:
    """Of f. A Cholesky of min(n, most) rows once, n kernel entries a point for the mean."""
    kernel, theta, train = problem.kernel, state.theta, problem.train
    n = len(train)
    chosen = torch.arange(n) if n <= most else torch.randperm(n, generator=generator(seed, "variance"))[:most]
    S = train.rows(chosen.to(train.y.device)).X
    A = kernel(theta, S, S)
    A.diagonal().add_(noise_variance(theta))
    L = cholesky(A, "K + s2 I of the predictive variance").L

    def predict(X: Any) -> Prediction:
        mean, var = train.y.new_empty(len(X)), kernel.diag(theta, X)
        for rows in row_blocks(len(X), 2 * train.y.element_size() * n):
            mean[rows] = kernel(theta, X[rows], train.X) @ state.alpha
            half = torch.linalg.solve_triangular(L, kernel(theta, S, X[rows]), upper=False)
            var[rows] -= half.square().sum(0)
        return Prediction(mean, var.clamp_min_(0.0))

    return predict
