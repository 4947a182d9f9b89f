"""Turn an optimiser that calls back into one that is asked: the caller evaluates, step by step.

SciPy's optimisers own their loop. Here that loop runs in a thread of its own which does nothing but SciPy's algebra
on [p] vectors; each point it wants evaluated is handed to the generator, and the generator's owner, in its own
thread, answers with value and gradient. Closing the generator unwinds the optimiser's thread at once.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

Point = np.ndarray
Answer = tuple[float, np.ndarray]


class _Abandoned(BaseException):
    """Raised inside the optimiser's thread when nobody will ask again."""


def evaluations(optimiser: Callable[[Callable[[Point], Answer]], Any]) -> Generator[Point, Answer | None, Any]:
    """Yield each point the optimiser wants evaluated; `send` (value, gradient) back; return the optimiser's result.

    `optimiser(fun)` is a call such as ``lambda fun: scipy.optimize.minimize(fun, x0, jac=True, method="CG")``.
    An exception of the optimiser is raised here.
    """
    questions: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()

    def fun(x: Point) -> Answer:
        questions.put(("point", np.array(x, dtype=float)))
        answer = answers.get()
        if answer is None:
            raise _Abandoned
        return answer

    def loop() -> None:
        try:
            questions.put(("result", optimiser(fun)))
        except _Abandoned:
            return
        except Exception as error:
            questions.put(("error", error))

    thread = threading.Thread(target=loop, name="optimiser", daemon=True)
    thread.start()
    try:
        while True:
            kind, payload = questions.get()
            if kind == "result":
                return payload
            if kind == "error":
                raise payload
            answers.put((yield payload))
    finally:
        answers.put(None)
        thread.join()
