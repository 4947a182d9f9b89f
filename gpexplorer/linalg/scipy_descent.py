"""SciPy's optimisers, one evaluation at a time, as generators.

An optimiser of SciPy owns its loop and calls a function. Here the loop runs in a thread of its own, which computes
nothing but SciPy's algebra on [p] vectors. Each point that the optimiser wants evaluated is yielded by `evaluations`,
and the caller, in its own thread, sends back value and gradient. Closing the generator ends the thread at once.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

MAX_DISTANCE = 12.0  # a parameter stays this close to its initial value
Point = np.ndarray  # [p]
ValueAndGradient = tuple[float, np.ndarray]


class Evaluated(NamedTuple):
    """Value and gradient of the function at one point."""

    value: float
    gradient: np.ndarray  # [p]
    extra: Any  # what the caller wants returned with the best point


class Best(NamedTuple):
    """The best point so far."""

    point: np.ndarray  # [p]
    value: float
    extra: Any


def descend(
    evaluate: Callable[[np.ndarray], Evaluated | None], start: np.ndarray, optimiser: str, limit: int
) -> Generator[Best, None, None]:
    """Minimise a function of a few parameters, and yield the best point so far after each evaluation.

    Parameters
    ----------
    evaluate : callable
        Maps a point [p] to value, gradient and anything else; None where the function does not exist.
    start : ndarray [p]
        Initial point.
    optimiser : {"CG", "L-BFGS-B"}
        Nonlinear conjugate gradients, or limited-memory BFGS.
    limit : int
        Largest number of evaluations.

    Yields
    ------
    Best
        Its value never rises.

    Notes
    -----
    A point where the function does not exist, or farther than MAX_DISTANCE from `start` in any parameter, gets a very
    large value and the gradient 0, so that the optimiser's line search goes back.
    """
    options = {"CG": {"gtol": 1e-6, "norm": np.inf}, "L-BFGS-B": {"maxfun": limit}}[optimiser]
    requests = evaluations(lambda fun: optimize.minimize(fun, start, jac=True, method=optimiser, options=options))
    best, answer = Best(start, np.inf, None), None
    try:
        for _ in range(limit):
            try:
                point = next(requests) if answer is None else requests.send(answer)
            except StopIteration:
                return
            inside = np.isfinite(point).all() and np.abs(point - start).max() <= MAX_DISTANCE
            current = evaluate(point) if inside else None
            if current is None:
                answer = (10.0 * abs(best.value) + 1e3, np.zeros_like(point))
                continue
            if current.value < best.value:
                best = Best(point, current.value, current.extra)
            answer = (current.value, current.gradient)
            yield best
    finally:
        requests.close()


class _Abandoned(BaseException):
    """Raised inside the optimiser's thread when the generator is closed."""


def evaluations(
    optimiser: Callable[[Callable[[Point], ValueAndGradient]], Any],
) -> Generator[Point, ValueAndGradient | None, Any]:
    """Yield each point that an optimiser wants evaluated; `send` back (value, gradient).

    Parameters
    ----------
    optimiser : callable
        A call such as ``lambda fun: scipy.optimize.minimize(fun, x0, jac=True, method="CG")``.

    Returns
    -------
    object
        The result of the optimiser. An exception of the optimiser is raised here.
    """
    requests: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    answers: queue.SimpleQueue[ValueAndGradient | None] = queue.SimpleQueue()

    def fun(x: Point) -> ValueAndGradient:
        requests.put(("point", np.array(x, dtype=float)))
        answer = answers.get()
        if answer is None:
            raise _Abandoned
        return answer

    def loop() -> None:
        try:
            requests.put(("result", optimiser(fun)))
        except _Abandoned:
            return
        except Exception as error:
            requests.put(("error", error))

    thread = threading.Thread(target=loop, name="optimiser", daemon=True)
    thread.start()
    try:
        while True:
            kind, payload = requests.get()
            if kind == "result":
                return payload
            if kind == "error":
                raise payload
            answers.put((yield payload))
    finally:
        answers.put(None)
        if sys is not None and not sys.is_finalizing():  # while Python 3.13 ends, its other threads do not run any more
            thread.join()
