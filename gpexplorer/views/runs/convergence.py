"""Any channel or score against steps, seconds, kernel entries, or epochs where a method counts them."""

from __future__ import annotations

from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param

from ...problem import Channel
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES

AXES = {"step": ("index", "step"), "seconds": ("seconds", "seconds of work"), "entries": ("entries", "kernel entries")}
EPOCH = "epoch"  # the channel of methods that pass over the rows again and again
SCORES = (
    Channel("smse", "SMSE on held-out rows"),
    Channel("snlp", "SNLP on held-out rows", "nat"),
    Channel("rmse", "RMSE on held-out rows", "units of the target"),
    Channel("nlpd", "NLPD on held-out rows", "nat"),
    Channel("coverage95", "share of held-out rows in the 95 % interval"),
)
SHOWN = 4000  # points drawn of a longer run


class Convergence(View):
    """One number over the course of a run."""

    key: ClassVar[str] = "convergence"
    title: ClassVar[str] = "Convergence"
    help: ClassVar[str] = "Does it still fall, and does the held-out error fall with it?"
    order: ClassVar[int] = 10

    channel = param.Selector(default="objective", objects=["objective"], label="Show", doc="What is drawn.")
    against = param.Selector(default="step", objects=list(AXES), label="Against", doc="What it is drawn against.")
    log = param.Boolean(False, label="Log scale", doc="Draw positive values on a logarithmic axis.")

    def applies(self, run: Run) -> bool:
        """Every run; the choice of channels is the method's, and the scores."""
        known = [channel.name for channel in (*run.method.channels, *SCORES)]
        self.param.channel.objects = known
        if self.channel not in known:
            self.channel = known[0]
        self.param.against.objects = [*AXES, *({EPOCH} & set(known))]
        if self.against not in self.param.against.objects:
            self.against = next(iter(AXES))
        return True

    def data(self, run: Run, at: int) -> Layers:
        """The series so far, and the record looked at."""
        table = run.table()
        channel = next(c for c in (*run.method.channels, *SCORES) if c.name == self.channel)
        column, label = AXES.get(self.against, (EPOCH, "epochs"))
        held = channel.name in table
        values = table[channel.name].to_numpy(float) if held else np.full(len(table), np.nan)
        series = pd.DataFrame({"x": table[column].to_numpy(float), "y": values})
        now = series.iloc[[at]] if len(series) else series
        series = series[_drawn(series) & ((series["y"] > 0) | (not self.log))]
        series = series.iloc[:: max(1, len(series) // SHOWN)].reset_index(drop=True)
        unit = f" [{channel.unit}]" if channel.unit else ""
        series.attrs |= {"xlabel": label, "ylabel": f"{channel.label}{unit}"}
        return {"series": series, "dots": series, "now": now[_drawn(now)].reset_index(drop=True)}

    def plot(self, layers: Layers) -> hv.Overlay:
        """A line, and a dot at the record looked at."""
        parts = [
            layer(hv.Curve(layers["series"], "x", "y"), "series", color=ROLES["mean"], line_width=2),
            layer(hv.Scatter(layers["series"], "x", "y"), "dots", color=ROLES["mean"], size=4),
            layer(hv.Scatter(layers["now"], "x", "y"), "now", color=ROLES["inducing"], size=9),
        ]
        return hv.Overlay(parts).opts(
            logy=self.log, responsive=True, show_grid=True, show_legend=False, **labels(layers["series"])
        )


def _drawn(frame: pd.DataFrame) -> Any:
    """Rows that have a place on both axes."""
    return np.isfinite(frame["x"]) & np.isfinite(frame["y"])
