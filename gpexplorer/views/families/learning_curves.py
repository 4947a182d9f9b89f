"""What minibatches estimate, beside the exact values: the likelihood, and the Gram matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...methods.capabilities import KeepsGramMatrix
from ...problem import Step
from ...runs.run import Run
from ..base import Layers, Line, Series, dots, overlay, points
from ..drawing.palette import ROLES


class Estimate(Series):
    """The NLML of all rows, and its estimate from the minibatches of each step, each at the moment it speaks of.

    An estimate is the mean over the minibatches of a step, each of which is evaluated before it moves the parameters:
    it speaks of the middle of the step. The exact value is computed after the step. Both drawn at the end of the step,
    an exact method would look biased, by the distance that it moves in a step.
    """

    key: ClassVar[str] = "stochastic-estimate"
    title: ClassVar[str] = "Likelihood, exact and estimated"
    help: ClassVar[str] = "Does the estimate stay close to the exact value? The estimate of a biased method does not."
    family: ClassVar[str] = "minibatches"
    order: ClassVar[int] = 20
    hero: ClassVar[bool] = True
    axes: ClassVar[tuple[str, str]] = ("epochs", "NLML [nat]")
    over: ClassVar[str] = "epoch"
    shortest: ClassVar[int] = 1
    lines: ClassVar[Mapping[str, Line]] = {
        "estimate": Line("estimated from the minibatches", ROLES["data"], style={"line_width": 1.5}),
        "exact": Line("exact", ROLES["mean"], "objective"),
    }

    def table(self, run: Run, at: int) -> pd.DataFrame:
        """Return the steps that learn: the others have no minibatches."""
        table = super().table(run, at)
        return table[table["phase"] == "learn"] if "phase" in table else table[table["epoch"].notna()]

    def series(self, run: Run, at: int) -> Layers:
        """Return both series against epochs."""
        table = self.table(run, at)
        taken = np.array([run.trace[k].step.state.batches for k in table["index"]], float)  # after each step
        before = np.append(0.0, taken[:-1])
        per_batch = table["epoch"].to_numpy(float) / taken
        middle = (before + taken - 1.0) / 2.0 * per_batch  # epochs, of the minibatches before, ..., taken - 1
        return super().series(run, at) | {"estimate": points(middle, table["estimate"])}

    def caption(self, run: Run, at: int, layers: Layers) -> str:
        """How many exact values there are."""
        if not len(layers["estimate"]):
            return "no minibatches yet: press Play"
        count = len(layers["exact"])
        return f"{count} exact value{'s' * (count != 1)}"

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the estimates as a line and the exact values as points."""
        exact = dots(layers, "exact", self.lines["exact"].label, color=ROLES["mean"], size=6)
        return overlay([*self.curves({"estimate": layers["estimate"]}), exact], layers["estimate"])


class Gap(Series):
    """Relative error of the method's Gram matrix, its penalty and the norm of the multiplier, as log10.

    The lines of the penalty and the multiplier are empty for SCGD.
    """

    key: ClassVar[str] = "stochastic-gap"
    title: ClassVar[str] = "Gram matrix against the exact one"
    help: ClassVar[str] = "A matrix that differs from the exact one gives a wrong gradient. Does the gap become small?"
    order: ClassVar[int] = 30
    needs: ClassVar[type] = KeepsGramMatrix
    axes: ClassVar[tuple[str, str]] = ("epochs", "log10 of the relative gap")
    over: ClassVar[str] = "epoch"
    log10: ClassVar[bool] = True
    lines: ClassVar[Mapping[str, Line]] = {
        "gap": Line("|A - F| / |F|", ROLES["mean"]),
        "penalty": Line("penalty mu |A - F| / |A|", ROLES["inducing"]),
        "multiplier": Line("multiplier |B|", ROLES["proposed"], style={"line_dash": "dashed"}),
    }

    def table(self, run: Run, at: int) -> pd.DataFrame:
        """Return the steps, with the norm of the multiplier where the exact likelihood was evaluated."""
        multiplier = [_multiplier(run, record.step) for record in run.trace[: at + 1]]
        return super().table(run, at).assign(multiplier=multiplier)

    def caption(self, run: Run, at: int, layers: Layers) -> str:
        """The newest gap."""
        return f"gap {10 ** layers['gap']['y'].iloc[-1]:.2g}" if len(layers["gap"]) else "not measured yet: press Play"


def _multiplier(run: Run, step: Step) -> float:
    """The norm of the multiplier, at the steps that also measured the penalty."""
    method = run.method
    measured = isinstance(method, KeepsGramMatrix) and np.isfinite(step.info.penalty)
    return method.multiplier_norm(step.state) if measured else np.nan
