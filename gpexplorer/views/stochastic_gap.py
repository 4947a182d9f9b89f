"""How far the matrix that stands for F is from F, and what MINIMAX pays for it."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ..runs.run import Run
from .base import Layers, View, labels, layer
from .palette import ROLES

SERIES = {"gap": "|A - F| / |F|", "penalty": "penalty mu |A - F| / |A|"}
COLOURS = {"gap": ROLES["mean"], "penalty": ROLES["inducing"]}


class Gap(View):
    """Relative error of the running or free Gram matrix, and its penalty, in decades."""

    key: ClassVar[str] = "stochastic-gap"
    title: ClassVar[str] = "Gram matrix against the exact one"
    help: ClassVar[str] = "A matrix that lags or leaves F gives theta a wrong gradient: does the gap close?"
    family: ClassVar[str] = "stochastic"
    order: ClassVar[int] = 30

    def applies(self, run: Run) -> bool:
        """Methods that keep such a matrix."""
        return super().applies(run) and run.method.key in ("scgd", "minimax")

    def data(self, run: Run, at: int) -> Layers:
        """log10 of both against epochs, where a pass over all rows has measured them."""
        table, layers = run.table().iloc[: at + 1], {}
        for name in SERIES:
            values = table[name].to_numpy(float)
            known = np.isfinite(values) & (values > 0.0)
            layers[name] = pd.DataFrame({"x": table["epoch"].to_numpy(float)[known], "y": np.log10(values[known])})
        layers["gap"].attrs |= {"xlabel": "epochs", "ylabel": "log10 of the relative gap"}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Two lines; the penalty's is empty for SCGD, which has none."""
        lines = [
            layer(hv.Curve(layers[name], "x", "y", label=label), name, color=COLOURS[name], line_width=2)
            for name, label in SERIES.items()
        ]
        return hv.Overlay(lines).opts(
            legend_position="top", legend_cols=2, responsive=True, show_grid=True, **labels(layers["gap"])
        )
