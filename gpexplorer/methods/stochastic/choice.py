"""The learning rate, chosen on rows set aside from those to learn from: no test row has a say."""

from __future__ import annotations

from ...problem import Problem
from .walking import Minibatches

SHARE, RATES, EPOCHS = 0.1, 5, 5  # of the rows; tried, half a decade apart; for which each is tried


def by_validation(method: Minibatches, problem: Problem) -> float:
    """The rate around the method's own with the lowest error on a tenth of the rows, after 5 epochs on the others.

    Each trial goes through the whole of its schedule. The cost is that of 25 epochs. The method is left as it is;
    learn with this rate on all rows then.
    """
    values = {name: getattr(method, name) for name in method.param if name != "name"}
    per_epoch = max(int((1.0 - SHARE) * len(problem.train)) // getattr(method, "batch_size", len(problem.train)), 1)
    values |= {"validation": SHARE, "search": RATES, "trial": EPOCHS * per_epoch, "epochs": EPOCHS}
    trying = type(method)(**values)
    trying.features = method.features
    return next(float(step.info.rate) for step in trying.steps(problem) if step.info.phase == "learn")
