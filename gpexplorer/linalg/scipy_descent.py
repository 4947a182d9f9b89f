"""SciPy's descent on a handful of parameters, evaluation by evaluation, that never loses the best point."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from .ask_tell import evaluations

SPAN = 12.0  # parameters stay this close to where the descent began


class Evaluated(NamedTuple):
    """The function at one point."""

    value: float
    gradient: np.ndarray  # [p]
    extra: Any  # what the caller wants back with the best point


class Best(NamedTuple):
    """The best point so far."""

    point: np.ndarray  # [p]
    value: float
    extra: Any


def descend(
    evaluate: Callable[[np.ndarray], Evaluated | None], start: np.ndarray, optimiser: str, limit: int
) -> Generator[Best, None, None]:
    """Yield the best point so far after each of at most `limit` evaluations; its value never rises.

    A point where `evaluate` gives None (the function does not exist there), or beyond SPAN, counts as very bad.
    """
    options = {"CG": {"gtol": 1e-6, "norm": np.inf}, "L-BFGS-B": {"maxfun": limit}}[optimiser]
    asked = evaluations(lambda fun: optimize.minimize(fun, start, jac=True, method=optimiser, options=options))
    best, answer = Best(start, np.inf, None), None
    try:
        for _ in range(limit):
            try:
                point = next(asked) if answer is None else asked.send(answer)
            except StopIteration:
                return
            inside = np.isfinite(point).all() and np.abs(point - start).max() <= SPAN
            here = evaluate(point) if inside else None
            if here is None:
                answer = (10.0 * abs(best.value) + 1e3, np.zeros_like(point))
                continue
            if here.value < best.value:
                best = Best(point, here.value, here.extra)
            answer = (here.value, here.gradient)
            yield best
    finally:
        asked.close()
