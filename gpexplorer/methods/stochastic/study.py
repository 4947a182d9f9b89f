"""From a method's start, so many minibatches: the exact likelihood on the way, for pictures that compare sizes."""

from __future__ import annotations

from typing import Any

from ...errors import NotPositiveDefinite
from ...linalg.randomness import generator, some
from ...problem import Problem
from .exact import exact
from .model import Model

ROWS = 1000  # learned from, at most


def few(problem: Problem) -> Problem:
    """The same problem with at most 1000 of its rows, drawn once."""
    n = len(problem.train)
    rows = some(n, ROWS, generator(0, "study")).sort().values
    return problem if n <= ROWS else Problem(problem.train.rows(rows), problem.kernel, problem.theta)


def course(method: Any, problem: Problem, minibatches: int, points: int) -> list[tuple[int, float]]:
    """Minibatches done and NLML a row, at equal distances; shorter where the method diverges.

    The cost is that of the minibatches, and of a pass over the rows a point.
    """
    model = Model(method, problem, method.validation)
    learner = method.learner(model, next(method.steps(problem)).state)
    found = list[tuple[int, float]]()
    for k in range(points + 1):
        end = k * minibatches // points
        try:
            for t in range(found[-1][0] if found else 0, end):
                learner.move(t)
            if not learner.inside():
                return found
            found.append((end, exact(model, learner.point.theta).value / model.n))
        except NotPositiveDefinite:
            return found
    return found
