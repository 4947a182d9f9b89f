"""Primal against dual residual, and the penalty between them."""

from __future__ import annotations

import math
from typing import ClassVar

import holoviews as hv
import pandas as pd

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES

SHOWN = {"primal": ("gap", "inducing"), "dual": ("slope", "mean"), "folds apart": ("disagreement", "complexity")}


def iterated(run: Run) -> bool:
    """Whether this run iterates over folds."""
    return "lagrangian" in run.method.Info._fields  # type: ignore[attr-defined]


def series(run: Run, at: int, name: str, log: bool = False) -> pd.DataFrame:
    """A field of the info against steps, where it is a number (and positive, for its log10)."""
    found = [(record.index, float(getattr(record.step.info, name))) for record in run.trace[: at + 1]]
    kept = [(k, math.log10(v) if log else v) for k, v in found if math.isfinite(v) and (v > 0.0 or not log)]
    return pd.DataFrame(kept, columns=["x", "y"], dtype=float)


class Residuals(View):
    """How far Cz is from y, how steep L still is, how far folds are apart, rho, and the steps taken back."""

    key: ClassVar[str] = "admm-residuals"
    title: ClassVar[str] = "Primal and dual residuals"
    help: ClassVar[str] = "Both should fall together: one far above the other asks for another rho, or for balancing."
    family: ClassVar[str] = "cross_validation"
    order: ClassVar[int] = 30

    def applies(self, run: Run) -> bool:
        """Runs that iterate over folds."""
        return super().applies(run) and iterated(run)

    def data(self, run: Run, at: int) -> Layers:
        """log10 of each, against steps."""
        layers = {name: series(run, at, field, log=True) for name, (field, _) in SHOWN.items()}
        layers["rho"] = series(run, at, "rho", log=True)
        back = series(run, at, "rolled_back")
        layers["taken back"] = layers["rho"][layers["rho"]["x"].isin(back["x"][back["y"] > 0])].reset_index(drop=True)
        rho = 10.0 ** float(layers["rho"]["y"].iloc[-1]) if len(layers["rho"]) else math.nan
        taken = f", {len(layers['taken back'])} steps taken back" if len(layers["taken back"]) else ""
        title = f"rho is {rho:.3g}{taken}" if math.isfinite(rho) else "not started"
        layers["primal"].attrs |= {"xlabel": "step", "ylabel": "log10 of the residual", "title": title}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """A line each, the penalty dashed, a cross on it where a step was taken back."""
        parts = [
            layer(hv.Curve(layers[name], "x", "y", label=name), name, color=ROLES[role], line_width=2)
            for name, (_, role) in SHOWN.items()
        ]
        rho = hv.Curve(layers["rho"], "x", "y", label="rho")
        parts.append(layer(rho, "rho", color=ROLES["reference"], line_dash="dashed"))
        back = hv.Scatter(layers["taken back"], "x", "y", label="taken back")
        parts.append(layer(back, "taken back", color=ROLES["removed"], marker="x", size=9, line_width=2))
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=5, responsive=True, show_grid=True, **labels(layers["primal"])
        )
