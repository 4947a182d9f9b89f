"""The swap landscape: what every row would be worth in the place of the point that is offered next."""

from __future__ import annotations

from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param

from ...linalg.ranks import ranks
from ...methods.inducing.forced import forced
from ...methods.inducing.swapping.swap_landscape import Landscape, landscape
from ...problem import Step
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing import run_rows
from ..drawing.palette import ROLES, SEQUENTIAL

LARGEST = 4e7  # entries n m of a factor: beyond it the picture would hold up the run
COLUMNS = ("x", "y", "row", "exact", "approx")
FALL = "fall of the objective [nat]"
FLAT, SCATTER, RANKS = "over the data", "predicted against exact", "ranks"
MOVED = "the points have left their rows: there is no swap to score"


class SwapLandscape(View):
    """Approximate and exact falls of the objective, over the data or against each other."""

    key: ClassVar[str] = "landscape"
    title: ClassVar[str] = "Swap landscape"
    help: ClassVar[str] = "Where the pivots guess the largest fall, is the exact one largest too?"
    family: ClassVar[str] = "inducing"
    order: ClassVar[int] = 20
    click: ClassVar[str] = "Click a row to force its swap."

    show: Any = param.Selector(
        default=FLAT,
        objects=[FLAT, SCATTER, RANKS],
        label="Axes",
        doc="Scores over the inputs, or their first two principal components; or one score against the other.",
    )
    colour: Any = param.Selector(
        default="exact",
        objects=["exact", "predicted"],
        label="Colour",
        doc="Which score colours the rows where they lie on a plane.",
    )

    def applies(self, run: Run) -> bool:
        """CholQR, where a factor is cheap to rebuild."""
        size = len(run.problem.train) * getattr(run.method, "num_inducing", 0)
        return super().applies(run) and run.method.key == "cholqr" and size <= LARGEST

    def data(self, run: Run, at: int) -> Layers:
        """Both scores over one input, as a colour on the plane, or against each other; ranks from 1, the best."""
        method: Any = run.method
        state = run.trace[at].step.state
        if state.Z is not None:
            return self._left(run)
        found = landscape(method, run.problem, state)
        shown = scored(found)
        flat = self.show == FLAT and run_rows.numeric(run)
        layers = _line(run, shown, found) if flat and run.problem.train.d == 1 else {}
        layers = layers or (self._plane(run, shown, found) if flat else self._against(shown))
        pivots = shown["row"].isin(found.pivots.tolist()).to_numpy()
        layers["pivots"] = layers["exact"][pivots].drop(columns="value", errors="ignore")
        title = f"instead of row {found.removed}: rank correlation {found.correlation:.2f}"
        layers["exact"].attrs["title"] = title
        return layers

    def _plane(self, run: Run, held: pd.DataFrame, found: Landscape) -> Layers:
        plane, names = run_rows.plane(run)
        at = plane[held["row"].to_numpy(int)]
        shown = held.assign(x=at[:, 0], y=at[:, 1], value=held["exact" if self.colour == "exact" else "approx"])
        best = shown.iloc[[int(shown["value"].argmax())]] if len(shown) else shown
        shown.attrs = {"xlabel": names[0], "ylabel": names[1]}
        out = pd.DataFrame({"x": plane[[found.removed], 0], "y": plane[[found.removed], 1]})
        return {"exact": shown, "best": best[["x", "y"]], "removed": out}

    def _against(self, held: pd.DataFrame) -> Layers:
        shown, word = held.assign(x=held["approx"], y=held["exact"]), FALL
        if self.show == RANKS:
            shown["x"], shown["y"] = (ranks(-held[c].to_numpy()) for c in ("approx", "exact"))
            word = "rank among the candidates, 1 the best"
        ends = [float(shown["y"].min()), float(shown["y"].max())] if len(shown) else [0.0, 1.0]
        shown.attrs = {"xlabel": f"predicted {word}", "ylabel": f"exact {word}"}
        return {"exact": shown, "equal": pd.DataFrame({"x": ends, "y": ends})}

    def _left(self, run: Run) -> Layers:
        """A polished state: no row can come in any more."""
        none = pd.DataFrame({name: np.empty(0) for name in COLUMNS})
        layers = self._against(none) | {"pivots": none}
        layers["exact"].attrs["title"] = MOVED
        return layers

    def clicked(self, run: Run, at: int, x: float, y: float) -> Step | None:
        """The swap for the row nearest to the click, each axis measured by its spread."""
        shown = self.data(run, at)["exact"]
        if not len(shown):
            return None
        far = [(shown[c].to_numpy() - to) / (np.ptp(shown[c].to_numpy()) or 1.0) for c, to in (("x", x), ("y", y))]
        row = int(shown["row"].iloc[int(np.argmin(far[0] ** 2 + far[1] ** 2))])
        method: Any = run.method
        return forced(method, run.problem, run.trace[at].step.state, row)

    def plot(self, layers: Layers) -> hv.Overlay:
        """Points for exact scores, a line for approximate ones (1-D) or for equality; colours on a plane."""
        parts = _coloured(layers) if "removed" in layers else _points(layers)
        pivots = hv.Scatter(layers["pivots"], "x", "y", label="information pivots")
        parts.append(
            layer(
                pivots, "pivots", fill_alpha=0.0, line_color=ROLES["inducing"], size=10, marker="diamond", line_width=2
            )
        )
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=2, responsive=True, show_grid=True, **labels(layers["exact"])
        )


def scored(found: Landscape) -> pd.DataFrame:
    """Rows with both scores."""
    approx, exact = (v.cpu().double().numpy() for v in (found.approx, found.exact))
    known = np.flatnonzero(np.isfinite(exact) & np.isfinite(approx))
    return pd.DataFrame({"row": known, "exact": exact[known], "approx": approx[known]})


def _line(run: Run, held: pd.DataFrame, found: Landscape) -> Layers:
    """One input: exact scores as points, approximate ones of every row as a line."""
    x, approx = run_rows.inputs_of(run.problem.train)[:, 0], found.approx.cpu().double().numpy()
    order = np.argsort(x)
    order = order[np.isfinite(approx[order])]
    shown = held.assign(x=x[held["row"].to_numpy(int)], y=held["exact"])
    shown.attrs = {"xlabel": run_rows.input_name(run, 0), "ylabel": FALL}
    return {"exact": shown, "approx": pd.DataFrame({"x": x[order], "y": approx[order]})}


def _points(layers: Layers) -> list[hv.Element]:
    exact = hv.Scatter(layers["exact"], "x", ["y", "row"], label="exact")
    parts = [layer(exact, "exact", color=ROLES["mean"], size=5, alpha=0.7)]
    if "approx" in layers:
        line = hv.Curve(layers["approx"], "x", "y", label="approximate")
        return [*parts, layer(line, "approx", color=ROLES["test"], line_width=2)]
    line = hv.Curve(layers["equal"], "x", "y", label="predicted = exact")
    return [*parts, layer(line, "equal", color=ROLES["reference"], line_dash="dashed")]


def _coloured(layers: Layers) -> list[hv.Element]:
    """Rows on a plane, coloured by their score; the point that goes out, and the row of the best score."""
    exact = hv.Points(layers["exact"], ["x", "y"], ["value", "row"], label="rows")
    gone = hv.Scatter(layers["removed"], "x", "y", label="goes out")
    best = hv.Scatter(layers["best"], "x", "y", label="best score")
    return [
        layer(exact, "exact", color="value", cmap=SEQUENTIAL, colorbar=True, clabel=FALL, size=6, line_color=None),
        layer(gone, "removed", color=ROLES["removed"], size=13, marker="x", line_width=3),
        layer(best, "best", fill_alpha=0.0, line_color=ROLES["proposed"], size=16, marker="circle", line_width=3),
    ]
