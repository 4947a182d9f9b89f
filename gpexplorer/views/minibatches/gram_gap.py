"""How far the matrix that stands for F is from F, and what MINIMAX pays for it."""

from __future__ import annotations

from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES

SERIES = {"gap": "|A - F| / |F|", "penalty": "penalty mu |A - F| / |A|", "multiplier": "multiplier |B|"}
COLOURS = {"gap": ROLES["mean"], "penalty": ROLES["inducing"], "multiplier": ROLES["proposed"]}


class Gap(View):
    """Relative error of the running or free Gram matrix, its penalty and the multiplier's size, in decades."""

    key: ClassVar[str] = "stochastic-gap"
    title: ClassVar[str] = "Gram matrix against the exact one"
    help: ClassVar[str] = "A matrix that lags or leaves F gives theta a wrong gradient: does the gap close?"
    family: ClassVar[str] = "minibatches"
    order: ClassVar[int] = 30

    def applies(self, run: Run) -> bool:
        """Methods that keep such a matrix."""
        return super().applies(run) and run.method.key in ("scgd", "minimax")

    def data(self, run: Run, at: int) -> Layers:
        """log10 of each against epochs, where a pass over all rows has measured the gap."""
        table, layers = run.table().iloc[: at + 1].copy(), {}
        table["multiplier"] = [_size(record.step) for record in run.trace[: at + 1]]
        for name in SERIES:
            values = table[name].to_numpy(float)
            known = np.isfinite(values) & (values > 0.0)
            layers[name] = pd.DataFrame({"x": table["epoch"].to_numpy(float)[known], "y": np.log10(values[known])})
        last = f"gap {10 ** layers['gap']['y'].iloc[-1]:.2g}" if len(layers["gap"]) else "not measured yet: take a step"
        layers["gap"].attrs |= {"xlabel": "epochs", "ylabel": "log10 of the relative gap", "title": last}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Three lines; the penalty's and the multiplier's are empty for SCGD, which has none."""
        lines = [
            layer(hv.Curve(layers[name], "x", "y", label=label), name, color=COLOURS[name], line_width=2)
            for name, label in SERIES.items()
        ]
        return hv.Overlay(lines).opts(
            legend_position="top", legend_cols=3, responsive=True, show_grid=True, **labels(layers["gap"])
        )


def _size(step: Any) -> float:
    """|B|, at most 1, where the gap was measured too."""
    held = step.state.matrices
    return float(held[1].norm()) if np.isfinite(step.info.penalty) and len(held) > 1 else np.nan
