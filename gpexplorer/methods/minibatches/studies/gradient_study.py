"""The exact likelihood of a method over its first minibatches, for pictures that compare batch sizes."""

from __future__ import annotations

from collections.abc import Iterator

from ....errors import NotPositiveDefinite
from ....linalg.randomness import generator, random_rows
from ....problem import Problem
from ..exact_likelihood import exact_likelihood
from ..loop import Minibatches
from ..model import Model

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
