"""The swap landscape: what every row would be worth in the place of the point that is offered next."""

from __future__ import annotations

from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ..methods.cholqr.forced import forced
from ..methods.cholqr.landscape import landscape
from ..problem import Step
from ..runs.run import Run
from . import rows
from .base import Layers, View, labels, layer
from .palette import ROLES

LARGEST = 4e7  # entries n m of a factor: beyond it the picture would hold up the run


class SwapLandscape(View):
    """Approximate and exact falls of the objective, over the data or against each other."""

    key: ClassVar[str] = "landscape"
    title: ClassVar[str] = "Swap landscape"
    help: ClassVar[str] = "The proposal is the highest approximate score; is the exact one highest there too?"
    family: ClassVar[str] = "cholqr"
    order: ClassVar[int] = 20
    click: ClassVar[str] = "Click a row to force its swap."

    def applies(self, run: Run) -> bool:
        """CholQR, where a factor is cheap to rebuild."""
        size = len(run.problem.train) * getattr(run.method, "num_inducing", 0)
        return super().applies(run) and run.method.key == "cholqr" and size <= LARGEST

    def data(self, run: Run, at: int) -> Layers:
        """In one dimension both scores over the input; otherwise exact against approximate."""
        method: Any = run.method
        found = landscape(method, run.problem, run.trace[at].step.state)
        approx, exact = (v.cpu().double().numpy() for v in (found.approx, found.exact))
        one = rows.numeric(run) and run.problem.train.d == 1
        x = rows.inputs_of(run.problem.train)[:, 0] if one else approx
        known = np.isfinite(exact) & np.isfinite(approx)
        layers = {"exact": pd.DataFrame({"x": x[known], "y": exact[known], "row": np.flatnonzero(known)})}
        if one:
            order = np.argsort(x)
            order = order[np.isfinite(approx[order])]
            layers["approx"] = pd.DataFrame({"x": x[order], "y": approx[order]})
            layers["exact"].attrs["xlabel"] = rows.input_name(run, 0)
        else:
            ends = [float(exact[known].min()), float(exact[known].max())] if known.any() else [0.0, 1.0]
            layers["equal"] = pd.DataFrame({"x": ends, "y": ends})
            layers["exact"].attrs["xlabel"] = "predicted fall of the objective [nat]"
        marks = known & np.isin(np.arange(len(x)), found.pivots.cpu().numpy())
        layers["pivots"] = pd.DataFrame({"x": x[marks], "y": exact[marks]})
        title = f"instead of row {found.removed}: rank correlation {found.correlation:.2f} of predicted and exact"
        layers["exact"].attrs |= {"ylabel": "fall of the objective [nat]", "title": title}
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
        """Points for exact scores, a line for approximate ones (1-D) or for equality."""
        exact = hv.Scatter(layers["exact"], "x", "y", label="exact")
        pivots = hv.Scatter(layers["pivots"], "x", "y", label="information pivots")
        parts = [layer(exact, "exact", color=ROLES["mean"], size=5, alpha=0.7)]
        if "approx" in layers:
            line = hv.Curve(layers["approx"], "x", "y", label="approximate")
            parts.append(layer(line, "approx", color=ROLES["test"], line_width=2))
        else:
            line = hv.Curve(layers["equal"], "x", "y", label="predicted = exact")
            parts.append(layer(line, "equal", color=ROLES["reference"], line_dash="dashed"))
        parts.append(layer(pivots, "pivots", color=ROLES["inducing"], size=8, marker="diamond"))
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=3, responsive=True, show_grid=True, **labels(layers["exact"])
        )
