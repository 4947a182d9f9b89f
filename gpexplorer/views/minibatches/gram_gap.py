"""The distance of the running Gram matrix from the exact one, and the penalty that MINIMAX pays for it."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...methods.capabilities import KeepsGramMatrix
from ...problem import Step
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES

SERIES = {"gap": "|A - F| / |F|", "penalty": "penalty mu |A - F| / |A|", "multiplier": "multiplier |B|"}
COLOURS = {"gap": ROLES["mean"], "penalty": ROLES["inducing"], "multiplier": ROLES["proposed"]}


class Gap(View):
    """Relative error of the method's Gram matrix, its penalty and the norm of the multiplier, as log10."""

    key: ClassVar[str] = "stochastic-gap"
    title: ClassVar[str] = "Gram matrix against the exact one"
    help: ClassVar[str] = "A matrix that differs from the exact one gives a wrong gradient. Does the gap become small?"
    family: ClassVar[str] = "minibatches"
    order: ClassVar[int] = 30

    def applies(self, run: Run) -> bool:
        """Return whether the method keeps such a matrix."""
        return super().applies(run) and isinstance(run.method, KeepsGramMatrix)

    def data(self, run: Run, at: int) -> Layers:
        """Return log10 of each quantity against epochs, at the steps that evaluated the exact likelihood."""
        table, layers = run.table().iloc[: at + 1].copy(), {}
        table["multiplier"] = [_multiplier(run, record.step) for record in run.trace[: at + 1]]
        for name in SERIES:
            values = table[name].to_numpy(float)
            drawable = np.isfinite(values) & (values > 0.0)
            layers[name] = pd.DataFrame(
                {"x": table["epoch"].to_numpy(float)[drawable], "y": np.log10(values[drawable])}
            )
        title = f"gap {10 ** layers['gap']['y'].iloc[-1]:.2g}" if len(layers["gap"]) else "not measured yet: press Play"
        layers["gap"].attrs |= {"xlabel": "epochs", "ylabel": "log10 of the relative gap", "title": title}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw three lines; those of the penalty and the multiplier are empty for SCGD."""
        lines = [
            layer(hv.Curve(layers[name], "x", "y", label=label), name, color=COLOURS[name], line_width=2)
            for name, label in SERIES.items()
        ]
        return hv.Overlay(lines).opts(
            legend_position="top", legend_cols=3, responsive=True, show_grid=True, **labels(layers["gap"])
        )


def _multiplier(run: Run, step: Step) -> float:
    """The norm of the multiplier, at the steps that also measured the penalty."""
    method = run.method
    measured = isinstance(method, KeepsGramMatrix) and np.isfinite(step.info.penalty)
    return method.multiplier_norm(step.state) if measured else np.nan
