"""The terms of the objective, and which of them decreases."""

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
    """Change of data fit, complexity and trace over the steps."""

    key: ClassVar[str] = "terms"
    title: ClassVar[str] = "Objective, term by term"
    help: ClassVar[str] = "Swaps decrease the trace and the data fit term; learning balances these against complexity."
    order: ClassVar[int] = 40

    def applies(self, run: Run) -> bool:
        """Return whether the method reports these terms."""
        return set(TERMS) <= {channel.name for channel in run.method.channels}

    def data(self, run: Run, at: int) -> Layers:
        """Compute one series per term: its change since the first step that reports it."""
        table, layers = run.table().iloc[: len(run.trace)], {}
        for name in TERMS:
            finite = table[np.isfinite(table[name])]
            change = finite[name] - finite[name].iloc[0] if len(finite) else finite[name]
            layers[name] = pd.DataFrame({"x": finite["index"].to_numpy(float), "y": change.to_numpy(float)})
        layers["fit"].attrs |= {"xlabel": "step", "ylabel": "change since the first step [nat]"}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw one line per term."""
        lines = [
            layer(hv.Curve(layers[name], "x", "y", label=label), name, color=COLOURS[name], line_width=2)
            for name, label in TERMS.items()
        ]
        return hv.Overlay(lines).opts(
            legend_position="top", legend_cols=3, responsive=True, show_grid=True, **labels(layers["fit"])
        )
