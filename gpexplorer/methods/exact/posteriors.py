"""Predictions of an exact GP from alpha: the mean needs no factor; each variance is one more system to solve.

mean = k(x*, X) alpha
var  = k(x*, x*) - k' (K + s2 I)^-1 k,   k = k(X, x*)           by CG for many x* at once; the answer is an upper bound
     <= k(x*, x*) - k_S' (K_SS + s2 I)^-1 k_S                   S a random subset of the rows, where that is wanted

With any v in the place of the solution of A v = k, k(x*, x*) - 2 k'v + v'A v is no less than the variance: the GP's
variance is the least over v, so a solve stopped early errs on the safe side, and twice as many digits are right.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from ...linalg.blocks import row_blocks
from ...linalg.cholesky import cholesky
from ...linalg.conjugate_gradients import begin, cg
from ...linalg.kernel_columns import few_rows, rows_of
from ...linalg.preconditioners import nystrom_root, woodbury
from ...linalg.randomness import generator
from ...objectives import noise_variance
from ...problem import Posterior, Prediction, Problem
from .loop import State
from .system import System

TOGETHER, RANK = 256, 500  # right-hand sides at a time: n numbers each, five times over; rank of the preconditioner
TOLERANCE, TURNS = 1e-3, 500  # of the residual beside its right-hand side: squared, that is the error of a variance

Explained = Callable[[Any], Tensor]  # inputs [t, d] -> k' (K + s2 I)^-1 k [t], or less


def exact_posterior(problem: Problem, state: State, most: int, seed: int) -> Posterior:
    """Of f. A kernel entry a point for the mean and each row whose alpha is not 0, as most are at the first steps.

    With `most` 0 every variance is exact, else that of so many rows.
    """
    kernel, theta, train = problem.kernel, state.theta, problem.train
    n = len(train)
    used = state.alpha.nonzero()[:, 0]
    rows_used, alpha = train.rows(used), state.alpha[used]
    explained = by_rows(problem, theta, min(most, n), seed) if most or n <= RANK else by_cg(problem, theta, seed)

    def predict(X: Any) -> Prediction:
        mean, var = train.y.new_zeros(len(X)), kernel.diag(theta, X)
        for rows in few_rows(len(X), 2 * train.y.element_size() * len(used)):
            mean[rows] = rows_of(kernel, theta, X[rows], rows_used.X) @ alpha
        var -= explained(X)
        return Prediction(mean, var.clamp_min_(0.0))

    return predict


def by_rows(problem: Problem, theta: Tensor, most: int, seed: int) -> Explained:
    """What `most` random rows explain (all where 0): one Cholesky, most^3 / 3 flops."""
    kernel, train = problem.kernel, problem.train
    n = len(train)
    chosen = torch.arange(n) if most in (0, n) else torch.randperm(n, generator=generator(seed, "variance"))[:most]
    S = train.rows(chosen.to(train.y.device)).X
    A = kernel(theta, S, S)
    A.diagonal().add_(noise_variance(theta))
    L = cholesky(A, "K + s2 I of the predictive variance").L

    def explained(X: Any) -> Tensor:
        found = train.y.new_empty(len(X))
        for rows in row_blocks(len(X), 2 * train.y.element_size() * len(S)):
            found[rows] = torch.linalg.solve_triangular(L, kernel(theta, S, X[rows]), upper=False).square().sum(0)
        return found

    return explained


def by_cg(problem: Problem, theta: Tensor, seed: int, tolerance: float = TOLERANCE) -> Explained:
    """What all rows explain: preconditioned CG for up to 256 points together, n^2 / 2 kernel entries an iteration."""
    system = System(problem, theta, 0.0)
    order = torch.randperm(system.n, generator=generator(seed, "variance"))[:RANK].to(system.y.device)
    apply = woodbury(nystrom_root(lambda rows: system.columns(rows).T, order), system.s2)

    def explained(X: Any) -> Tensor:
        found = [
            _solved(system, apply, problem, theta, X[k : k + TOGETHER], tolerance) for k in range(0, len(X), TOGETHER)
        ]
        return torch.cat(found) if found else system.y.new_empty(0)

    return explained


def _solved(
    system: System, apply: Callable[[Tensor], Tensor], problem: Problem, theta: Tensor, X: Any, tolerance: float
) -> Tensor:
    """2 k'v - v'A v = k'v + v'r [t], with r = k - A v what is left."""
    K = problem.kernel(theta, problem.train.X, X)  # [n, t]
    start, least = begin(system.product, K, torch.zeros_like(K), apply), tolerance * K.norm(dim=0)
    for last in islice(cg(system.product, start, apply), TURNS):
        if bool((last.r.norm(dim=0) <= least).all()):
            break
    return ((K + last.r) * last.x).sum(0)
