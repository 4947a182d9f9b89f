"""The lanes of a race: one curve per method over its own seconds of computation."""

from __future__ import annotations

import holoviews as hv
import numpy as np
import pandas as pd

from ...runs.studies.race import METRICS
from ..base import Layers, labels, layer, legend_cols
from ..drawing.palette import CYCLE


class Lanes:
    """The picture of one metric of a race.

    Parameters
    ----------
    names : names of the lanes; their curves are empty until the first turn.
    metric : a key of `METRICS`, such as "smse".
    """

    def __init__(self, names: list[str], metric: str) -> None:
        self.names, self.metric = names, metric

    def data(self, board: pd.DataFrame) -> Layers:
        """Return one frame per lane from the board of a race."""
        layers = {}
        for name in self.names:
            lane_rows = board[board["lane"] == name]
            values = lane_rows[self.metric].to_numpy(float)
            drawable = np.isfinite(values) & ((values > 0) | (self.metric != "smse"))
            layers[name] = pd.DataFrame({"x": lane_rows["seconds"].to_numpy(float)[drawable], "y": values[drawable]})
            label = METRICS[self.metric]
            layers[name].attrs |= {"xlabel": "seconds of computation", "ylabel": f"{label} on test rows"}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw one curve per lane with a dot at each score, SMSE on a logarithmic axis."""
        colours = {name: CYCLE[k % len(CYCLE)] for k, name in enumerate(self.names)}
        curves = [
            layer(hv.Curve(layers[name], "x", "y", label=name), name, color=colours[name], line_width=2)
            for name in self.names
        ]
        dots = [
            layer(hv.Scatter(layers[name], "x", "y"), name, color=colours[name], size=5, show_legend=False)
            for name in self.names
        ]
        return hv.Overlay(curves + dots).opts(
            logy=self.metric == "smse", legend_position="top", legend_cols=legend_cols(self.names),
            responsive=True, show_grid=True, **labels(layers[self.names[0]]),
        )  # fmt: skip
