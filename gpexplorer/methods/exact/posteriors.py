"""Predictions of the exact GP from alpha: the mean needs no factor; each variance is one more linear system.

    mean = k(x*, X) alpha                                                                                     eq 1
    var  = k(x*, x*) - k' (K + s2 I)^-1 k,   k = k(X, x*)                      eq 2, by CG for many x* at once
         <= k(x*, x*) - k_S' (K_SS + s2 I)^-1 k_S                              S a random subset of the rows

For any v in place of the solution of A v = k, the number k(x*, x*) - 2 k'v + v'A v is at least the variance, because
the variance is its minimum over v. Conjugate gradients that stop early therefore give an upper bound, and its error is
the square of the residual. Equation numbers are those of Bo and Sminchisescu (2008).
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
from ...linalg.kernel_columns import kernel_rows, large_blocks
from ...linalg.preconditioners import nystrom_root, woodbury
from ...linalg.randomness import generator
from ...objectives import noise_variance
from ...problem import Posterior, Prediction, Problem
from .state import State
from .system import System

POINTS_TOGETHER = 256  # right-hand sides that are solved together: five arrays of n numbers each
RANK = 500  # of the preconditioner
TOLERANCE = 1e-3  # residual norm over right-hand side norm; its square bounds the relative error of a variance
MAX_ITERATIONS = 500

ExplainedVariance = Callable[[Any], Tensor]  # inputs [t, d] -> k' (K + s2 I)^-1 k [t], or a lower bound of it


def exact_posterior(problem: Problem, state: State, variance_rows: int, seed: int) -> Posterior:
    """Predictive distribution of f at the alpha of this state.

    Parameters
    ----------
    problem : Problem
        Training rows and kernel.
    state : State
        Its theta and alpha are used.
    variance_rows : int
        Number of random training rows that the variances use; they are then upper bounds. 0 uses all rows.
    seed : int
        Seed of the choice of these rows.

    Returns
    -------
    Posterior
        Function from inputs [t, d] to mean [t] and variance [t] of f.

    Notes
    -----
    A mean takes one kernel entry per test point and training row with nonzero alpha (in the first steps most are zero).
    """
    kernel, theta, train = problem.kernel, state.theta, problem.train
    n = len(train)
    nonzero = state.alpha.nonzero()[:, 0]
    rows_used, alpha = train.rows(nonzero), state.alpha[nonzero]
    if variance_rows or n <= RANK:
        explained = explained_by_rows(problem, theta, min(variance_rows, n), seed)
    else:
        explained = explained_by_cg(problem, theta, seed)

    def predict(X: Any) -> Prediction:
        mean, var = train.y.new_zeros(len(X)), kernel.diag(theta, X)
        for part in large_blocks(len(X), 2 * train.y.element_size() * len(nonzero)):
            mean[part] = kernel_rows(kernel, theta, X[part], rows_used.X) @ alpha  # eq 1
        var -= explained(X)  # eq 2
        return Prediction(mean, var.clamp_min_(0.0))

    return predict


def explained_by_rows(problem: Problem, theta: Tensor, count: int, seed: int) -> ExplainedVariance:
    """Variance explained by `count` random rows (0 means all): one Cholesky factor, count^3 / 3 flops."""
    kernel, train = problem.kernel, problem.train
    n = len(train)
    chosen = torch.arange(n) if count in (0, n) else torch.randperm(n, generator=generator(seed, "variance"))[:count]
    S = train.rows(chosen.to(train.y.device)).X
    A_SS = kernel(theta, S, S)  # [count, count]
    A_SS.diagonal().add_(noise_variance(theta))
    L = cholesky(A_SS, "K + s2 I of the predictive variance").L

    def explained(X: Any) -> Tensor:
        out = train.y.new_empty(len(X))
        for part in row_blocks(len(X), 2 * train.y.element_size() * len(S)):
            out[part] = torch.linalg.solve_triangular(L, kernel(theta, S, X[part]), upper=False).square().sum(0)
        return out

    return explained


def explained_by_cg(problem: Problem, theta: Tensor, seed: int, tolerance: float = TOLERANCE) -> ExplainedVariance:
    """Variance explained by all rows: preconditioned CG for up to 256 points at a time.

    Parameters
    ----------
    problem : Problem
        Training rows and kernel.
    theta : Tensor [p]
        Log-hyperparameters.
    seed : int
        Seed of the rows of the Nyström preconditioner.
    tolerance : float, default 1e-3
        Largest ratio of residual norm to right-hand side norm at which CG stops.

    Returns
    -------
    ExplainedVariance
        Function from inputs [t, d] to a lower bound of k'A^-1 k [t]; n^2 / 2 kernel entries per CG iteration.
    """
    system = System(problem, theta, 0.0)
    order = torch.randperm(system.n, generator=generator(seed, "variance"))[:RANK].to(system.y.device)
    precondition = woodbury(nystrom_root(lambda rows: system.columns(rows).T, order), system.s2)

    def explained(X: Any) -> Tensor:
        parts = []
        for first in range(0, len(X), POINTS_TOGETHER):
            K = problem.kernel(theta, problem.train.X, X[first : first + POINTS_TOGETHER])  # [n, t]
            start, largest = begin(system.product, K, torch.zeros_like(K), precondition), tolerance * K.norm(dim=0)
            for last in islice(cg(system.product, start, precondition), MAX_ITERATIONS):
                if bool((last.r.norm(dim=0) <= largest).all()):
                    break
            parts.append(((K + last.r) * last.x).sum(0))  # 2 k'v - v'A v = k'v + v'r with r = k - A v
        return torch.cat(parts) if parts else system.y.new_empty(0)

    return explained
