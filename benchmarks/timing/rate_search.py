"""The search for a learning rate on validation rows that are set aside from the training rows."""

from __future__ import annotations

from typing import Any

from gpexplorer.errors import SettingError
from gpexplorer.methods.minibatches.loop import Minibatches
from gpexplorer.problem import Problem

VALIDATION, RATES, EPOCHS = 0.1, 5, 5  # fraction of the rows; rates tried, half a decade apart; epochs per trial


def search_settings(method: Minibatches, rows: int) -> dict[str, Any]:
    """Return the settings with which a method tries its rates on this many rows; the cost is that of 25 epochs."""
    per_epoch = max(int((1.0 - VALIDATION) * rows) // getattr(method, "batch_size", rows), 1)
    return {"validation": VALIDATION, "search": RATES, "trial": EPOCHS * per_epoch, "epochs": EPOCHS}


def best_validation_rate(method: Minibatches, problem: Problem) -> float:
    """Return the rate with the lowest error on a tenth of the rows, after 5 epochs on the other rows.

    The rates tried lie around the method's own. Each trial goes through its whole schedule. The method itself is not
    changed; use the rate to learn on all rows.

    Raises
    ------
    SettingError
        If the method diverges with every rate.
    """
    values = {name: getattr(method, name) for name in method.param if name != "name"}
    settings = values | search_settings(method, len(problem.train))
    candidate = method.on_same_features(type(method), **settings)
    for step in candidate.steps(problem):
        if step.info.phase == "learn":
            return float(step.info.rate)
    raise SettingError(f"{method.title} diverges with each of {RATES} learning rates around {method.rate:.3g}.")
