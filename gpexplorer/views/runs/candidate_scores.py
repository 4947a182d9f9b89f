"""The candidates of a recommendation: the held-out NLPD of each with its interval, the best one on top."""

from __future__ import annotations

import holoviews as hv
import numpy as np
import pandas as pd

from ..base import Layers, layer
from ..drawing.palette import CYCLE

CHOSEN, OTHERS, SIMPLE, EARLY = "chosen", "other methods", "simple models", "given up early, on fewer rows"
AVERAGE = "average of models"
COLOURS = {CHOSEN: CYCLE[1], OTHERS: CYCLE[0], SIMPLE: CYCLE[2], EARLY: CYCLE[3], AVERAGE: CYCLE[4]}
MOST = 12  # models in the picture
LONGEST = 34  # letters of a name beside the axis
WORSE = 6.0  # a model that is farther from the best than this many times the spread of the better half is left out


class CandidateScores:
    """The picture of a table of `recommend`.

    Parameters
    ----------
    table : DataFrame
        As `Recommendation.table`, the best model first.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        scored = table[np.isfinite(table["nlpd"].to_numpy(float))].head(MOST)
        if len(scored) > 3:
            values = scored["nlpd"].to_numpy(float)
            spread = max(float(np.median(values) - values[0]), 0.05)
            scored = scored[values <= values[0] + WORSE * spread]
        self.table = scored.reset_index(drop=True)

    def data(self) -> Layers:
        """Return one frame per kind of model, and one of intervals: x is the NLPD, y the place from the bottom."""
        table = self.table.assign(y=np.arange(len(self.table), 0, -1.0), x=self.table["nlpd"])
        is_average = table["model"].str.startswith("average of ")
        kinds = [table["sentence"] == "Chosen.", table["sentence"] == "A simple model.", is_average, self._early()]
        kind = np.select(kinds, [CHOSEN, SIMPLE, AVERAGE, EARLY], OTHERS)
        shown = [name for name in COLOURS if name != AVERAGE or is_average.any()]
        layers = {name: table.loc[kind == name, ["x", "y", "model"]].reset_index(drop=True) for name in shown}
        ends = table[["nlpd_low", "y", "nlpd_high", "y"]].to_numpy(float)
        layers["95 % interval"] = pd.DataFrame(ends, columns=["x0", "y0", "x1", "y1"])
        return layers

    def _early(self) -> pd.Series:
        """Which models have scores on fewer held-out rows than others, so that theirs cannot be compared."""
        held_out = self.table["held_out"]
        return held_out < held_out.max()

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw a point per model, and its interval as a line."""
        count = len(self.table)
        ticks = [(float(count - k), str(name)[:LONGEST]) for k, name in enumerate(self.table["model"])]
        interval = layers["95 % interval"]
        parts = [
            layer(hv.Segments(interval, ["x0", "y0", "x1", "y1"], label="95 % interval"), "95 % interval",
                  color="#8a949e", line_width=2),
            *(
                layer(hv.Points(layers[name], ["x", "y"], "model", label=name), name, color=colour, size=9)
                for name, colour in COLOURS.items() if name in layers
            ),
        ]  # fmt: skip
        return hv.Overlay(parts).opts(
            yticks=ticks, xlabel="NLPD (lower is better)", ylabel="", ylim=(0.3, count + 0.7),
            legend_position="top", legend_cols=2, responsive=True, show_grid=True,
        )  # fmt: skip
