"""The exact likelihood beside its estimate from the minibatches."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES

SERIES = {"estimate": "estimated from the minibatches", "exact": "exact"}


class Estimate(View):
    """The NLML of all rows, and its estimate from the minibatches of each step."""

    key: ClassVar[str] = "stochastic-estimate"
    title: ClassVar[str] = "Likelihood, exact and estimated"
    help: ClassVar[str] = "Does the estimate stay close to the exact value? The estimate of a biased method does not."
    family: ClassVar[str] = "minibatches"
    order: ClassVar[int] = 20
    hero: ClassVar[bool] = True

    def data(self, run: Run, at: int) -> Layers:
        """Return the NLML against epochs, up to record `at`."""
        table = run.table().iloc[: at + 1]
        table = table[table["phase"] == "learn"] if "phase" in table else table[table["epoch"].notna()]
        epochs = table["epoch"].to_numpy(float)
        layers = {}
        for name, column in (("estimate", "estimate"), ("exact", "objective")):
            values = table[column].to_numpy(float)
            finite = np.isfinite(values)
            layers[name] = pd.DataFrame({"x": epochs[finite], "y": values[finite]})
        title = (
            f"{len(layers['exact'])} exact value{'s' * (len(layers['exact']) != 1)}"
            if len(layers["estimate"])
            else "no minibatches yet: press Play"
        )
        layers["exact"].attrs |= {"xlabel": "epochs", "ylabel": "NLML [nat]", "title": title}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the estimates as a line and the exact values as points."""
        line = hv.Curve(layers["estimate"], "x", "y", label=SERIES["estimate"])
        points = hv.Scatter(layers["exact"], "x", "y", label=SERIES["exact"])
        parts = [
            layer(line, "estimate", color=ROLES["data"], line_width=1.5),
            layer(points, "exact", color=ROLES["mean"], size=6),
        ]
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=2, responsive=True, show_grid=True, **labels(layers["exact"])
        )
