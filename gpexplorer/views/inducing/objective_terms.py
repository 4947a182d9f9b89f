"""The objective cut into its terms: which of them pays for the fall."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES

TERMS = {"fit": "data fit", "logdet": "complexity", "trace": "trace"}
COLOURS = {"fit": ROLES["fit"], "logdet": ROLES["complexity"], "trace": ROLES["trace"]}


class Terms(View):
    """Fit, complexity and trace over the steps."""

    key: ClassVar[str] = "terms"
    title: ClassVar[str] = "Objective, term by term"
    help: ClassVar[str] = "Swaps lower the trace and the misfit; learning trades them against complexity."
    order: ClassVar[int] = 40

    def applies(self, run: Run) -> bool:
        """Methods that report these terms."""
        return set(TERMS) <= {channel.name for channel in run.method.channels}

    def data(self, run: Run, at: int) -> Layers:
        """One series a term, each as the change since the first step that had it."""
        table, layers = run.table().iloc[: len(run.trace)], {}
        for name in TERMS:
            held = table[np.isfinite(table[name])]
            change = held[name] - held[name].iloc[0] if len(held) else held[name]
            layers[name] = pd.DataFrame({"x": held["index"].to_numpy(float), "y": change.to_numpy(float)})
        layers["fit"].attrs |= {"xlabel": "step", "ylabel": "change since the first step [nat]"}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Three lines."""
        lines = [
            layer(hv.Curve(layers[name], "x", "y", label=label), name, color=COLOURS[name], line_width=2)
            for name, label in TERMS.items()
        ]
        return hv.Overlay(lines).opts(
            legend_position="top", legend_cols=3, responsive=True, show_grid=True, **labels(layers["fit"])
        )
