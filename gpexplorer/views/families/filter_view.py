"""A filter that walks along a series: its band closes at each row and opens in a gap."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import pandas as pd
import param
import torch

from ...data.standardising import inputs_in_units, targets
from ...kernels.row_scaled import plain_rows
from ...methods.capabilities import FiltersRows
from ...runs.run import Run
from ..base import Layers, View, band, dots, line, named, overlay
from ..drawing import run_rows
from ..drawing.palette import ROLES

BEHIND, AHEAD = 60, 25  # rows that are shown before and after the last one seen
CURVE_POINTS = 500


class Filter(View):
    """What the rows until each time say about the function there, and about the time to come."""

    key: ClassVar[str] = "filter"
    title: ClassVar[str] = "A filter walks along the series"
    help: ClassVar[str] = (
        "Move the place: the band at each time knows the rows before it only. It closes at each row and opens in a gap "
        "and ahead. The dashed line knows all rows."
    )
    order: ClassVar[int] = 20
    hero: ClassVar[bool] = True
    needs: ClassVar[type] = FiltersRows

    place = param.Number(
        0.6, bounds=(0.0, 1.0), label="place in the series", doc="Which row was seen last: 0 is the first, 1 the last."
    )

    def data(self, run: Run, at: int) -> Layers:
        """Rows seen and rows ahead, the band of the filter, its forecast, and the mean from all rows."""
        method, state, train = run.method, run.trace[at].step.state, plain_rows(run.problem)
        assert isinstance(method, FiltersRows)
        order = train.X[:, 0].argsort(stable=True).cpu()
        now = round(self.place * (len(order) - 1))
        shown = order[max(now - BEHIND, 0) : now + AHEAD + 1]
        t, x = train.X[:, 0].double().cpu(), run_rows.inputs_of(train)[:, 0]
        until, low, high = float(t[order[now]]), float(t[shown].min()), float(t[shown].max())
        room = 0.04 * (high - low) + 1e-9
        grid = torch.linspace(low - room, high + room, CURVE_POINTS, dtype=torch.float64)
        # Right before each row, and at it
        grid = torch.cat([grid, t[shown], t[shown] - 1e-6 * room]).sort().values
        mean, var = (each.cpu() for each in method.filtered(run.problem, state, grid, until))
        ends = [targets(mean + k * var.clamp_min(0.0).sqrt(), train).numpy() for k in (-2.0, 2.0)]
        X = inputs_in_units(grid[:, None], train)
        bands = pd.DataFrame({"x": X[:, 0], "lower": ends[0], "upper": ends[1]})
        is_seen, in_past = (grid <= until).numpy(), t[shown].numpy() <= until
        rows = pd.DataFrame({"x": x[shown], "y": run_rows.targets_of(train)[shown]})
        means = pd.DataFrame({"x": X[:, 0], "y": targets(mean, train).numpy()})
        title = f"{now + 1:,} of {len(order):,} rows seen"
        return {
            "filter": bands[is_seen],
            "forecast": bands[~is_seen],
            "mean": named(means, run_rows.input_name(run, 0), train.target, title),
            "all": pd.DataFrame({"x": X[:, 0], "y": run.posterior(at).mean(X).cpu().numpy()}),
            "seen": rows[in_past],
            "ahead": rows[~in_past],
        }

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the bands, the two means, and the rows on top."""
        parts = [
            band(layers, "filter", "filter ± 2 sd", color=ROLES["band"], fill_alpha=0.45, line_alpha=0),
            band(layers, "forecast", "forecast ± 2 sd", color=ROLES["proposed"], fill_alpha=0.2, line_alpha=0),
            line(layers, "all", "mean from all rows", color=ROLES["reference"], line_dash="dashed"),
            line(layers, "mean", "mean so far", color=ROLES["mean"], line_width=2),
            dots(layers, "seen", "rows seen", color=ROLES["data"], size=5),
            dots(layers, "ahead", "rows ahead", color=ROLES["data"], size=5, fill_alpha=0.0),
        ]
        return overlay(parts, layers["mean"], 3)
