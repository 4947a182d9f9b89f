"""Predictions of the exact GP from alpha: the mean needs no factor; each variance is one more linear system.

    mean = k(x*, X) alpha                                                                                     eq 1
    var  = k(x*, x*) - k' (K + s2 I)^-1 k,   k = k(X, x*)                      eq 2, by CG for many x* at once
         <= k(x*, x*) - k_S' (K_SS + s2 I)^-1 k_S                              S a random subset of the rows

For any v in place of the solution of A v = k, the number k(x*, x*) - 2 k'v + v'A v is at least the variance, because
the variance is its minimum over v. Conjugate gradients that stop early therefore give an upper bound, and its error is
the square of the residual. Equation numbers are those of Bo and Sminchisescu (2008).

Before a solver has converged its mean is not yet that of the GP, and the GP's variance says nothing about the
difference k' A^-1 (y - A alpha). It is estimated on the rows S, and its square is added to the variance:

    error = k_S' (K_SS + s2 I)^-1 (y - A alpha)_S,   var + error^2

At alpha = 0 these are the bands of a GP of the rows S around a mean of zero; at the solution nothing is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from ...posteriors import MarginalPosterior, Posterior
from ...problem import Prediction, Problem, take
from .state import State
from .system import System

POINTS_TOGETHER = 256  # right-hand sides that are solved together: five arrays of n numbers each
RANK = 500  # of the preconditioner
TOLERANCE = 1e-3  # residual norm over right-hand side norm; its square bounds the relative error of a variance
MAX_ITERATIONS = 500
EXACT_ROWS = 5000  # up to this many rows, the factor of the whole matrix takes about a second and 0.4 GB
ROWS_UNSOLVED = 2000  # that variances use before a solver has converged, if all rows are asked for

ExplainedVariance = Callable[[Any], Tensor]  # inputs [t, d] -> k' (K + s2 I)^-1 k [t], or a lower bound of it


def exact_posterior(problem: Problem, state: State, variance_rows: int, seed: int, solved: bool = True) -> Posterior:
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
    solved : bool, default True
        Whether alpha is the solution. If not, variances contain the square of the estimated error of the mean, and use
        at most 2000 rows.

    Returns
    -------
    Posterior
        Function from inputs [t, d] to mean [t] and variance [t] of f.

    Notes
    -----
    A mean takes one kernel entry per test point and training row with nonzero alpha (in the first steps most are zero).
    The estimated error takes as many per row that the variances use.
    """
    kernel, theta, train = problem.kernel, state.theta, problem.train
    n = len(train)
    nonzero = state.alpha.nonzero()[:, 0]
    rows_used, alpha = train.rows(nonzero), state.alpha[nonzero]
    count = variance_rows if solved else variance_rows or ROWS_UNSOLVED
    if not count and n > EXACT_ROWS:
        explained = explained_by_cg(problem, theta, seed)
    else:
        subset = SubsetGP(problem, theta, min(count, n), seed)
        explained = subset.explained if solved else subset.explained_less_error(_residual(problem, state, subset.rows))

    def predict(X: Any) -> Prediction:
        mean, var = train.y.new_zeros(len(X)), kernel.diag(theta, X)
        for part in large_blocks(len(X), 2 * train.y.element_size() * len(nonzero)):
            mean[part] = kernel_rows(kernel, theta, X[part], rows_used.X) @ alpha  # eq 1
        var -= explained(X)  # eq 2
        return Prediction(mean, var.clamp_min_(0.0))

    return MarginalPosterior(predict, train.y, noise_variance(theta))


def _residual(problem: Problem, state: State, rows: Tensor) -> Tensor:
    """Entries [r] of y - A alpha at these rows; one kernel entry per row and nonzero coefficient."""
    train, out = problem.train, problem.train.y[rows] - noise_variance(state.theta) * state.alpha[rows]
    nonzero = state.alpha.nonzero()[:, 0]
    X, alpha, chosen = take(train.X, nonzero), state.alpha[nonzero], take(train.X, rows)
    for part in large_blocks(len(rows), 2 * alpha.element_size() * len(nonzero)):
        out[part] -= kernel_rows(problem.kernel, state.theta, chosen[part], X) @ alpha
    return out


class SubsetGP:
    """The exact GP of some random rows, or of all rows: one Cholesky factor, count^3 / 3 flops.

    Parameters
    ----------
    problem : Problem
        Training rows and kernel.
    theta : Tensor [p]
        Log-hyperparameters.
    count : int
        Number of rows; 0 means all.
    seed : int
        Seed of their choice.

    Attributes
    ----------
    rows : Tensor [count]
        The rows S.
    """

    def __init__(self, problem: Problem, theta: Tensor, count: int, seed: int) -> None:
        self.kernel, self.theta, n = problem.kernel, theta, len(problem.train)
        chosen = (
            torch.arange(n) if count in (0, n) else torch.randperm(n, generator=generator(seed, "variance"))[:count]
        )
        self.rows = chosen.to(problem.train.y.device)
        self.S = take(problem.train.X, self.rows)
        A_SS = self.kernel(theta, self.S, self.S)  # [count, count]
        A_SS.diagonal().add_(noise_variance(theta))
        self.L = cholesky(A_SS, "K + s2 I of the predictive variance").L

    def explained(self, X: Any) -> Tensor:
        """Variance [t] that the rows explain."""
        parts = [root.square().sum(0) for root in self._roots(X)]
        return torch.cat(parts) if parts else self.L.new_empty(0)

    def explained_less_error(self, residual: Tensor) -> ExplainedVariance:
        """Variance that the rows explain, minus the square of the mean that they would give for targets `residual`."""
        weights = torch.linalg.solve_triangular(self.L, residual[:, None], upper=False)[:, 0]  # [count]

        def explained(X: Any) -> Tensor:
            parts = [root.square().sum(0) - (weights @ root).square() for root in self._roots(X)]
            return torch.cat(parts) if parts else self.L.new_empty(0)

        return explained

    def _roots(self, X: Any) -> Iterator[Tensor]:
        """L^-1 k(S, X) [count, t] for blocks of inputs."""
        for part in row_blocks(len(X), 2 * self.L.element_size() * len(self.L)):
            yield torch.linalg.solve_triangular(self.L, self.kernel(self.theta, self.S, X[part]), upper=False)


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
