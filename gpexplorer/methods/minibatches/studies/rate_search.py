"""The learning rate, chosen on rows set aside from those to learn from: no test row has a say."""

from __future__ import annotations

from typing import Any

from ....problem import Problem
from ..loop import Minibatches

SHARE, RATES, EPOCHS = 0.1, 5, 5  # of the rows; tried, half a decade apart; for which each is tried


def trying(method: Minibatches, rows: int) -> dict[str, Any]:
    """Settings with which this method, on so many rows, tries its rates before it learns: the cost of 25 epochs."""
    per_epoch = max(int((1.0 - SHARE) * rows) // getattr(method, "batch_size", rows), 1)
    return {"validation": SHARE, "search": RATES, "trial": EPOCHS * per_epoch, "epochs": EPOCHS}


def by_validation(method: Minibatches, problem: Problem) -> float:
    """The rate around the method's own with the lowest error on a tenth of the rows, after 5 epochs on the others.

    Each trial goes through the whole of its schedule. The method is left as it is; learn with this rate on all rows
    then.
    """
    values = {name: getattr(method, name) for name in method.param if name != "name"}
    other = type(method)(**values | trying(method, len(problem.train)))
    other.features = method.features
    return next(float(step.info.rate) for step in other.steps(problem) if step.info.phase == "learn")
