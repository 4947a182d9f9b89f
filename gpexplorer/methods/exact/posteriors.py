"""Predictions of the exact GP from alpha: the mean needs no factor; each variance is one more linear system.

    mean = k(x*, X) alpha                                                                                     eq 1
    var  = k(x*, x*) - k' (K + s2 I)^-1 k,   k = k(X, x*)         eq 2, by a factor, or for many x* at once (`joint`)
         <= k(x*, x*) - k_S' (K_SS + s2 I)^-1 k_S                              S a random subset of the rows

Before a solver has converged its mean is not yet that of the GP, and the GP's variance says nothing about the
difference k' A^-1 (y - A alpha). It is estimated on the rows S, and its square is added to the variance:

    error = k_S' (K_SS + s2 I)^-1 (y - A alpha)_S,   var + error^2

At alpha = 0 these are the bands of a GP of the rows S around a mean of zero; at the solution nothing is added.
Equation numbers are those of Bo and Sminchisescu (2008).

Apart because predictions begin where a solver has ended: they know its weights and not its rule.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...linalg.kernel_columns import kernel_rows, large_blocks
from ...linalg.randomness import generator
from ...objectives import noise_variance
from ...posteriors import CholeskySolver, Posterior, RowsPosterior, UnsolvedPosterior, exact_gp_posterior
from ...problem import Problem, take
from .joint.posterior import JointPosterior, JointSolver
from .state import State

FACTOR_ROWS = 5000  # up to this many rows, the factor of the whole matrix takes about a second and 0.2 GB
FACTOR_BYTES = 1e9  # a factor up to this size needs a sixth of the operations of iterations: 11 180 rows in float64
ROWS_UNSOLVED = 2000  # that variances use before a solver has converged, if all rows are asked for
VARIANCES = "K + s2 I of the predictive variance"


class Bands(NamedTuple):
    """Which rows the variances use, and how exactly."""

    rows: int  # 0 means all
    seed: int  # of the choice of rows
    tolerance: float = 0.01  # largest relative error of a variance of y, if it is found by iterations
    cache: float = 0.0  # bytes of kernel rows that are kept, or of a factor of the whole matrix
    solved: bool = True  # whether alpha is the solution


def exact_posterior(problem: Problem, state: State, bands: Bands) -> Posterior:
    """Predictive distribution of f at the alpha of this state.

    Parameters
    ----------
    problem : Problem
        Training rows and kernel.
    state : State
        Its theta and alpha are used.
    bands : Bands
        Which rows the variances use. With fewer than all, they are upper bounds.

    Returns
    -------
    Posterior
        If alpha is not the solution, variances contain the square of the estimated error of the mean, and use at most
        2000 rows.

    Notes
    -----
    A mean takes one kernel entry per test point and training row with nonzero alpha (in the first steps most are zero).
    The estimated error takes as many per row that the variances use. With all rows, the variances come from a Cholesky
    factor if it takes at most 1 GB or fits into the memory of the cache, and otherwise from iterations.
    """
    kernel, theta, train, n = problem.kernel, state.theta, problem.train, len(problem.train)
    nonzero = state.alpha.nonzero()[:, 0]
    mean_rows = (train.X, state.alpha) if len(nonzero) == n else (train.rows(nonzero).X, state.alpha[nonzero])
    if bands.solved and not bands.rows and train.y.element_size() * n * n > max(FACTOR_BYTES, bands.cache):
        solver = JointSolver(problem, theta, bands.cache, bands.tolerance, bands.seed)
        return JointPosterior(kernel, theta, mean_rows, train.X, solver)
    count = bands.rows if bands.solved else bands.rows or ROWS_UNSOLVED
    chosen = variance_rows(problem, count, bands.seed)
    S = train.X if len(chosen) == n else take(train.X, chosen)
    factor = CholeskySolver(kernel, theta, S, VARIANCES)
    if bands.solved:
        return RowsPosterior(kernel, theta, mean_rows, S, factor)
    weights = factor.solve(_residual(problem, state, chosen)[:, None])[:, 0]  # [s]
    return UnsolvedPosterior(kernel, theta, mean_rows, S, factor, weights)


def posterior_of_subset(problem: Problem, theta: Tensor, rows: Tensor, count: int = 0) -> Posterior:
    """The exact GP of these rows [s] alone; variances use the first `count` of them, 0 means all. s^3 / 3 flops."""
    kernel, posterior = problem.kernel, exact_gp_posterior(problem.kernel, theta, problem.train.rows(rows))
    if not count:
        return posterior
    S = take(posterior.X, torch.arange(count, device=rows.device))
    return RowsPosterior(kernel, theta, (posterior.X, posterior.alpha), S, CholeskySolver(kernel, theta, S, VARIANCES))


def variance_rows(problem: Problem, count: int, seed: int) -> Tensor:
    """Indices of `count` random training rows; all rows in their order if `count` is 0 or not less than n."""
    n = len(problem.train)
    rows = torch.randperm(n, generator=generator(seed, "variance"))[:count] if 0 < count < n else torch.arange(n)
    return rows.to(problem.train.y.device)


def _residual(problem: Problem, state: State, rows: Tensor) -> Tensor:
    """Entries [r] of y - A alpha at these rows; one kernel entry per row and nonzero coefficient."""
    train, out = problem.train, problem.train.y[rows] - noise_variance(state.theta) * state.alpha[rows]
    nonzero = state.alpha.nonzero()[:, 0]
    X, alpha, chosen = take(train.X, nonzero), state.alpha[nonzero], take(train.X, rows)
    for part in large_blocks(len(rows), 2 * alpha.element_size() * len(nonzero), alpha):
        out[part] -= kernel_rows(problem.kernel, state.theta, chosen[part], X) @ alpha
    return out
