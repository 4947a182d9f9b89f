"""Gradients of minibatches at one theta: bias and spread against the exact one, and the exact likelihood over a run.

Apart because it is a study of gradients, and the picture only draws it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...linalg.randomness import generator, random_rows
from ...problem import Problem
from .exact_likelihood import exact_gradient, exact_likelihood
from .loop import LikelihoodGradient, Minibatches
from .model import Model
from .state import MinibatchState

MAX_ROWS = 1000  # rows of a study


def study_problem(problem: Problem) -> Problem:
    """Return the problem with at most 1000 of its rows, drawn at random with a fixed seed."""
    n = len(problem.train)
    rows = random_rows(n, MAX_ROWS, generator(0, "study")).sort().values
    return problem if n <= MAX_ROWS else Problem(problem.train.rows(rows), problem.kernel, problem.theta)


def likelihood_course(
    method: Minibatches, problem: Problem, minibatches: int, points: int
) -> Iterator[tuple[int, float | None]]:
    """Take minibatches from the start of a method and report the exact likelihood at equal distances.

    Parameters
    ----------
    minibatches : int
        Number of minibatches.
    points : int
        Number of intervals between evaluations of the exact likelihood.

    Yields
    ------
    After every minibatch, the number of minibatches done, and the NLML per row if it was evaluated, else None. The
    iterator ends early if the method diverges.
    """
    model = Model(method, problem, method.validation)
    learner = method.learner(model, next(method.steps(problem)).state)
    evaluated = {k * minibatches // points for k in range(points + 1)}
    try:
        for t in range(minibatches + 1):
            if t in evaluated and not learner.within_bounds():
                return
            yield t, exact_likelihood(model, learner.parameters.theta).value / model.n if t in evaluated else None
            if t < minibatches:
                learner.move(t)
    except NotPositiveDefinite:
        return


class GradientSpread(NamedTuple):
    """Statistics of minibatch gradients with respect to theta, in units of the norm of the exact gradient."""

    bias: float  # |mean - exact|, corrected for the sampling error of the mean
    sd: float  # root mean squared distance of a minibatch gradient from the mean
    along: Tensor  # [draws] component along the exact gradient; 1 for a minibatch gradient that is exact
    interval: tuple[float, float]  # of the bias, two standard errors of its square to either side


def gradient_spread(
    method: LikelihoodGradient, problem: Problem, theta: Float[Tensor, " p"], draws: int
) -> GradientSpread:
    """Compare the minibatch gradients of a method with the exact gradient.

    Parameters
    ----------
    method : LikelihoodGradient
        The method; its running matrices are set to the values at which they would stay at this theta.
    theta : Tensor [p]
        Parameters of the kernel [p].
    draws : int
        Number of minibatches.

    Notes
    -----
    Cost: two passes over the rows, and `draws` minibatches. The squared bias is a U-statistic of the gradients' errors
    e_i, the mean of e_i'e_j over all pairs i != j, which is unbiased; the jackknife gives its standard error.
    """
    model = Model(method, problem, method.validation)
    exact = exact_likelihood(model, theta)
    target = exact_gradient(model, theta, exact) / model.n  # [p]
    matrices = method.stationary_matrices(model, exact)
    state, gradients = MinibatchState(1, "learn", 1, theta, exact.w, (), matrices, method.rate), []
    for k in range(draws):
        learner = method.learner(model, state)
        order = torch.randperm(model.n, generator=generator(method.seed, "microscope", k))
        learner.gradient(order[: learner.rows.size], 0)
        gradients.append(learner.parameters.g[len(state.w) : len(state.w) + model.size].clone())
    G, size = torch.stack(gradients), float(target.norm())  # [draws, p]
    variance = float((G - G.mean(0)).square().sum()) / max(draws - 1, 1)
    squared, error = _squared_mean(G - target)
    low, high = (math.sqrt(max(squared + sign * 2.0 * error, 0.0)) / size for sign in (-1.0, 1.0))
    along = (G @ target) / size**2
    return GradientSpread(math.sqrt(max(squared, 0.0)) / size, math.sqrt(variance) / size, along, (low, high))


def _squared_mean(E: Float[Tensor, "k p"]) -> tuple[float, float]:
    """The squared norm of the expected row of E without bias, and its standard error; infinite for two rows."""
    k = len(E)
    products = E @ E.T
    products.fill_diagonal_(0.0)
    row_sums, total = products.sum(1), float(products.sum())
    if k < 3:
        return total / (k * (k - 1)), math.inf
    left_out = (total - 2.0 * row_sums) / ((k - 1) * (k - 2))  # [k], the statistic without each row
    error = math.sqrt((k - 1) / k * float((left_out - left_out.mean()).square().sum()))
    return total / (k * (k - 1)), error
