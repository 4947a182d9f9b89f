"""The exact likelihood against what the minibatches believe it to be."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES

SERIES = {"estimate": "as the minibatches see it", "exact": "exact"}


class Estimate(View):
    """NLML by passes over all rows, and its estimate by the minibatches of each step."""

    key: ClassVar[str] = "stochastic-estimate"
    title: ClassVar[str] = "Likelihood, exact and estimated"
    help: ClassVar[str] = "Does the estimate stay with the exact value, or does a biased method chase another one?"
    family: ClassVar[str] = "minibatches"
    order: ClassVar[int] = 20

    def data(self, run: Run, at: int) -> Layers:
        """NLML against epochs, up to record `at`."""
        table = run.table().iloc[: at + 1]
        table = table[table["phase"] == "learn"] if "phase" in table else table[table["epoch"].notna()]
        epochs = table["epoch"].to_numpy(float)
        layers = {}
        for name, column in (("estimate", "estimate"), ("exact", "objective")):
            values = table[column].to_numpy(float)
            known = np.isfinite(values)
            layers[name] = pd.DataFrame({"x": epochs[known], "y": values[known]})
        title = f"{len(layers['exact'])} exact values" if len(layers["estimate"]) else "no minibatches yet: take a step"
        layers["exact"].attrs |= {"xlabel": "epochs", "ylabel": "NLML [nat]", "title": title}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """A line of estimates, points where the exact value is known."""
        line = hv.Curve(layers["estimate"], "x", "y", label=SERIES["estimate"])
        points = hv.Scatter(layers["exact"], "x", "y", label=SERIES["exact"])
        parts = [
            layer(line, "estimate", color=ROLES["data"], line_width=1.5),
            layer(points, "exact", color=ROLES["mean"], size=6),
        ]
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=2, responsive=True, show_grid=True, **labels(layers["exact"])
        )
