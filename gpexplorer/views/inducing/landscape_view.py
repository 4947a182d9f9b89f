"""The swap landscape: what every row would bring in the place of the inducing point that is offered next."""

from __future__ import annotations

import math
from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param

from ...linalg.ranks import ranks
from ...methods.capabilities import HasSwapLandscape, Landscape
from ...problem import Step
from ...runs.run import Run
from ..base import Layers, View, dots, layer, line, overlay
from ..drawing import run_rows
from ..drawing.palette import ROLES, SEQUENTIAL

MOST_ENTRIES = 4e7  # entries of a factor: with more of them the picture would delay the run
COLUMNS = ("x", "y", "row", "exact", "approx")
DECREASE = "decrease of the objective [nat]"
OVER_DATA, SCATTER, RANKS = "over the data", "predicted against exact", "ranks"
AXES = "Decrease over the inputs or their first two principal components, or predicted against exact decrease."
COLOUR = "Which decrease colours the rows where both axes are inputs."
POINTS_MOVED = "The inducing points are no longer rows of the data, so there is no swap to evaluate."


class SwapLandscape(View):
    """Approximate and exact decrease of the objective, over the data or against each other."""

    key: ClassVar[str] = "landscape"
    title: ClassVar[str] = "Swap landscape"
    help: ClassVar[str] = "Is the exact decrease largest where the information pivots predict the largest decrease?"
    family: ClassVar[str] = "inducing"
    order: ClassVar[int] = 20
    hero: ClassVar[bool] = True
    click: ClassVar[str] = "Click a row to force its swap."

    show = param.Selector(default=OVER_DATA, objects=[OVER_DATA, SCATTER, RANKS], label="Axes", doc=AXES)
    colour = param.Selector(default="exact", objects=["exact", "predicted"], label="Colour", doc=COLOUR)

    def applies(self, run: Run) -> bool:
        """Return whether the method swaps rows and its factor is cheap to compute again."""
        return super().applies(run) and has_cheap_landscape(run)

    def data(self, run: Run, at: int) -> Layers:
        """Both values over one input, as a colour on the plane, or against each other; rank 1 is the best."""
        landscape = landscape_at(run, at)
        if landscape is None:
            return self._no_swaps()
        frame = both_values(landscape)
        over_data = self.show == OVER_DATA and run_rows.numeric(run)
        if over_data and run.problem.train.d == 1:
            layers = _over_one_input(run, frame, landscape)
        elif over_data:
            layers = self._over_plane(run, frame, landscape)
        else:
            layers = self._against_each_other(frame)
        pivots = frame["row"].isin(landscape.pivots.tolist()).to_numpy()
        layers["pivots"] = layers["exact"][pivots].drop(columns="value", errors="ignore")
        title = f"in place of row {landscape.removed}"
        if math.isfinite(landscape.correlation):  # it takes at least two different values of each kind
            title += f": rank correlation {landscape.correlation:.2f}"
        layers["exact"].attrs["title"] = title
        return layers

    def _over_plane(self, run: Run, frame: pd.DataFrame, landscape: Landscape) -> Layers:
        plane, names = run_rows.plane(run)
        xy = plane[frame["row"].to_numpy(int)]
        value = frame["exact" if self.colour == "exact" else "approx"]
        exact = frame.assign(x=xy[:, 0], y=xy[:, 1], value=value)
        best = exact.iloc[[int(exact["value"].argmax())]] if len(exact) else exact
        exact.attrs = {"map": True, "xlabel": names[0], "ylabel": names[1]}
        removed = pd.DataFrame({"x": plane[[landscape.removed], 0], "y": plane[[landscape.removed], 1]})
        return {"exact": exact, "best": best[["x", "y"]], "removed": removed}

    def _against_each_other(self, frame: pd.DataFrame) -> Layers:
        exact, quantity = frame.assign(x=frame["approx"], y=frame["exact"]), DECREASE
        if self.show == RANKS:
            exact["x"], exact["y"] = (ranks(-frame[column].to_numpy()) for column in ("approx", "exact"))
            quantity = "rank among the candidates; 1 is the best"
        ends = [float(exact["y"].min()), float(exact["y"].max())] if len(exact) else [0.0, 1.0]
        exact.attrs = {"xlabel": f"predicted {quantity}", "ylabel": f"exact {quantity}"}
        return {"exact": exact, "equal": pd.DataFrame({"x": ends, "y": ends})}

    def _no_swaps(self) -> Layers:
        """Return empty layers for a polished state, whose points are no longer rows."""
        empty = pd.DataFrame({name: np.empty(0) for name in COLUMNS})
        layers = self._against_each_other(empty) | {"pivots": empty}
        layers["exact"].attrs["title"] = POINTS_MOVED
        return layers

    def clicked(self, run: Run, at: int, x: float, y: float) -> Step | None:
        """Force the swap for the row nearest to the click, each axis being measured by its range."""
        exact = self.data(run, at)["exact"]
        if not len(exact) or not isinstance(run.method, HasSwapLandscape):
            return None
        dx, dy = (
            (exact[axis].to_numpy() - value) / (np.ptp(exact[axis].to_numpy()) or 1.0)
            for axis, value in (("x", x), ("y", y))
        )
        row = int(exact["row"].iloc[int(np.argmin(dx**2 + dy**2))])
        return run.method.force_swap(run.problem, run.trace[at].step.state, row)

    def plot(self, layers: Layers) -> hv.Overlay:
        """Exact values as points; approximate ones as a line over one input; colours on a plane."""
        parts = _coloured(layers) if "removed" in layers else _points(layers)
        rings = {"fill_alpha": 0.0, "line_color": ROLES["inducing"], "size": 10, "marker": "diamond", "line_width": 2}
        parts.append(dots(layers, "pivots", "information pivots", **rings))
        return overlay(parts, layers["exact"])


def has_cheap_landscape(run: Run) -> bool:
    """Return whether the method can evaluate every row for a swap, fast enough for a picture that follows the run."""
    method = run.method
    return isinstance(method, HasSwapLandscape) and method.landscape_entries(run.problem) <= MOST_ENTRIES


def landscape_at(run: Run, at: int) -> Landscape | None:
    """Return the landscape of a record; None where the inducing points are no longer rows."""
    assert isinstance(run.method, HasSwapLandscape), "applies() accepts no other method"
    return run.method.swap_landscape(run.problem, run.trace[at].step.state)


def both_values(landscape: Landscape) -> pd.DataFrame:
    """Return the rows that have both an approximate and an exact value."""
    approx, exact = (values.cpu().double().numpy() for values in (landscape.approx, landscape.exact))
    rows = np.flatnonzero(np.isfinite(exact) & np.isfinite(approx))
    return pd.DataFrame({"row": rows, "exact": exact[rows], "approx": approx[rows]})


def _over_one_input(run: Run, frame: pd.DataFrame, landscape: Landscape) -> Layers:
    """Return exact values as points, and the approximate ones of every row as a line."""
    x, approx = run_rows.inputs_of(run.problem.train)[:, 0], landscape.approx.cpu().double().numpy()
    order = np.argsort(x)
    order = order[np.isfinite(approx[order])]
    exact = frame.assign(x=x[frame["row"].to_numpy(int)], y=frame["exact"])
    exact.attrs = {"xlabel": run_rows.input_name(run, 0), "ylabel": DECREASE}
    return {"exact": exact, "approx": pd.DataFrame({"x": x[order], "y": approx[order]})}


def _points(layers: Layers) -> list[hv.Element]:
    exact = hv.Scatter(layers["exact"], "x", ["y", "row"], label="exact")
    parts = [layer(exact, "exact", color=ROLES["mean"], size=5, alpha=0.7)]
    if "approx" in layers:
        return [*parts, line(layers, "approx", "approximate", color=ROLES["test"], line_width=2)]
    return [*parts, line(layers, "equal", "predicted = exact", color=ROLES["reference"], line_dash="dashed")]


def _coloured(layers: Layers) -> list[hv.Element]:
    """Return rows on a plane coloured by their value, the point that is removed, and the row of the best value."""
    exact = hv.Points(layers["exact"], ["x", "y"], ["value", "row"], label="rows")
    ring = {"fill_alpha": 0.0, "line_color": ROLES["proposed"], "size": 16, "marker": "circle", "line_width": 3}
    return [
        layer(exact, "exact", color="value", cmap=SEQUENTIAL, colorbar=True, clabel=DECREASE, size=6, line_color=None),
        dots(layers, "removed", "removed", color=ROLES["removed"], size=13, marker="x", line_width=3),
        dots(layers, "best", "best row", **ring),
    ]
