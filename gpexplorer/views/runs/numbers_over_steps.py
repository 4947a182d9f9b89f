"""Numbers of a run over its steps: the terms of the objective, and the hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from ...runs.run import Run
from ..base import Layers, Line, Series, points
from ..drawing.palette import ROLES

MAX_PATHS = 10  # of a longer theta the first nine and the noise are drawn, and the axis label says so


class Terms(Series):
    """Change of data fit, complexity and trace over the steps, since the first step that reports each."""

    key: ClassVar[str] = "terms"
    title: ClassVar[str] = "Objective, term by term"
    help: ClassVar[str] = "Swaps decrease the trace and the data fit term; learning balances these against complexity."
    order: ClassVar[int] = 40
    axes: ClassVar[tuple[str, str]] = ("step", "change since the first step [nat]")
    lines: ClassVar[Mapping[str, Line]] = {
        "fit": Line("data fit", ROLES["fit"]),
        "logdet": Line("complexity", ROLES["complexity"]),
        "trace": Line("trace", ROLES["trace"], style={"line_dash": "dashed"}),
    }

    def applies(self, run: Run) -> bool:
        """Return whether the method reports these terms."""
        return set(self.lines) <= {channel.name for channel in run.method.channels}

    def table(self, run: Run, at: int) -> pd.DataFrame:
        """Return the whole run, with each term as its change."""
        table = run.table()
        return table.assign(**{name: table[name] - table[name].bfill().iloc[0] for name in self.lines})


class Hyperparameters(Series):
    """exp(theta) over the steps, for inputs and targets scaled to standard deviation 1."""

    key: ClassVar[str] = "hyperparameters"
    title: ClassVar[str] = "Hyperparameters"
    help: ClassVar[str] = (
        "For inputs and target scaled to sd 1. A lengthscale that keeps growing belongs to an input without influence."
    )
    order: ClassVar[int] = 50
    options: ClassVar[Mapping[str, Any]] = {"logy": True}

    def applies(self, run: Run) -> bool:
        """Return whether the states of the method contain theta."""
        return hasattr(getattr(run.method, "State", None), "theta")

    def series(self, run: Run, at: int) -> Layers:
        """Return the whole path of each hyperparameter, with the names of the kernel."""
        paths = np.exp([record.step.state.theta.cpu().double().numpy() for record in run.trace])
        names = run.problem.kernel.names
        shown = [*range(min(len(names), MAX_PATHS) - 1), len(names) - 1]
        layers = {names[i]: points(np.arange(len(paths)), paths[:, i]) for i in shown}
        share = "" if len(shown) == len(names) else f", {len(shown)} of {len(names)} shown"
        layers[names[shown[0]]].attrs["ylabel"] = f"scaled value{share}"
        return layers
