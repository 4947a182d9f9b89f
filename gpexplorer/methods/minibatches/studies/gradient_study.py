"""From a method's start, so many minibatches: the exact likelihood on the way, for pictures that compare sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....errors import NotPositiveDefinite
from ....linalg.randomness import generator, random_rows
from ....problem import Problem
from ..exact_likelihood import exact
from ..model import Model

ROWS = 1000  # learned from, at most


def few(problem: Problem) -> Problem:
    """The same problem with at most 1000 of its rows, drawn once."""
    n = len(problem.train)
    rows = random_rows(n, ROWS, generator(0, "study")).sort().values
    return problem if n <= ROWS else Problem(problem.train.rows(rows), problem.kernel, problem.theta)


def course(method: Any, problem: Problem, minibatches: int, points: int) -> Iterator[tuple[int, float | None]]:
    """After every minibatch, how many are done; NLML a row at `points` equal distances, None between.

    Ends where the method diverges. The cost is that of the minibatches, and of a pass over the rows a point.
    """
    model = Model(method, problem, method.validation)
    learner = method.learner(model, next(method.steps(problem)).state)
    ends = {k * minibatches // points for k in range(points + 1)}
    try:
        for t in range(minibatches + 1):
            if t in ends and not learner.inside():
                return
            yield t, exact(model, learner.point.theta).value / model.n if t in ends else None
            if t < minibatches:
                learner.move(t)
    except NotPositiveDefinite:
        return
