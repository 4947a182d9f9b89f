"""Primal and dual residuals of GPCV-ADMM, the penalty rho, and what the pictures of this family share."""

from __future__ import annotations

import math
from typing import ClassVar

import holoviews as hv
import pandas as pd

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES

LINES = {  # name of the layer -> field of Info, colour role
    "primal": ("gap", "inducing"),
    "dual": ("slope", "mean"),
    "disagreement": ("disagreement", "complexity"),
}


def iterates_folds(run: Run) -> bool:
    """Return whether the run's method iterates over folds: its reports have an augmented Lagrangian."""
    return "lagrangian" in run.method.Info._fields  # type: ignore[attr-defined]


def series(run: Run, at: int, name: str, log: bool = False) -> pd.DataFrame:
    """Return a field of the reports up to record `at`, as columns x (step) and y.

    Values that are not finite are omitted. With `log`, y is log10 of the value, and only positive values are kept.
    """
    values = [(record.index, float(getattr(record.step.info, name))) for record in run.trace[: at + 1]]
    points = [(k, math.log10(v) if log else v) for k, v in values if math.isfinite(v) and (v > 0.0 or not log)]
    return pd.DataFrame(points, columns=["x", "y"], dtype=float)


class Residuals(View):
    """The violation of Cz = y, the gradient of L, the disagreement of the folds, and rho; rollbacks are marked."""

    key: ClassVar[str] = "admm-residuals"
    title: ClassVar[str] = "Primal and dual residuals"
    help: ClassVar[str] = (
        "Both residuals should decrease together. If one stays far above the other, change rho or use balance."
    )
    family: ClassVar[str] = "cross_validation"
    order: ClassVar[int] = 30

    def applies(self, run: Run) -> bool:
        """Return whether the run iterates over folds."""
        return super().applies(run) and iterates_folds(run)

    def data(self, run: Run, at: int) -> Layers:
        """Return log10 of each quantity against the step."""
        layers = {name: series(run, at, field, log=True) for name, (field, _) in LINES.items()}
        layers["rho"] = series(run, at, "rho", log=True)
        rolled_back = series(run, at, "rolled_back")
        steps = rolled_back["x"][rolled_back["y"] > 0]
        layers["taken back"] = layers["rho"][layers["rho"]["x"].isin(steps)].reset_index(drop=True)
        rho = 10.0 ** float(layers["rho"]["y"].iloc[-1]) if len(layers["rho"]) else math.nan
        count = len(layers["taken back"])
        title = f"rho is {rho:.3g}" + (f", {count} steps taken back" if count else "")
        if not math.isfinite(rho):
            title = "no iteration yet"
        layers["primal"].attrs |= {"xlabel": "step", "ylabel": "log10 of the residual", "title": title}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw one line per quantity; rho is dashed, and a cross on it marks each step that was taken back."""
        parts = [
            layer(hv.Curve(layers[name], "x", "y", label=name), name, color=ROLES[role], line_width=2)
            for name, (_, role) in LINES.items()
        ]
        rho = hv.Curve(layers["rho"], "x", "y", label="rho")
        parts.append(layer(rho, "rho", color=ROLES["reference"], line_dash="dashed"))
        crosses = hv.Scatter(layers["taken back"], "x", "y", label="taken back")
        parts.append(layer(crosses, "taken back", color=ROLES["removed"], marker="x", size=9, line_width=2))
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=5, responsive=True, show_grid=True, **labels(layers["primal"])
        )
