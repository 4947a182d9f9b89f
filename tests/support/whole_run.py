"""A run to its end."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any


def whole_run(steps: Generator[Any, None, Any]) -> tuple[list[Any], Any]:
    """Return all that a generator yields, and what it returns: the steps of a method, and its outcome."""
    result = []
    while True:
        try:
            result.append(next(steps))
        except StopIteration as end:
            return result, end.value


def finished(method: Any, task: Any, resume: Any = None) -> tuple[list[Any], Any]:
    """Return the steps of a method on a task, from the beginning or after the state `resume`, and its outcome."""
    return whole_run(method.steps(task, resume))
