"""The four curves by which the paper shows that ADMM converges."""

from __future__ import annotations

from typing import Any, ClassVar

import holoviews as hv
import pandas as pd
import param

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES
from .residuals import iterated, series

CURVES = {
    "a hyperparameter": "hyperparameter",
    "norm of z": "z_norm",
    "distance of z": "z_gap",
    "Lagrangian": "lagrangian",
}


class Curves(View):
    """One of figure 2's curves at a time; the option chooses which."""

    key: ClassVar[str] = "admm-curves"
    title: ClassVar[str] = "Convergence, as in the paper"
    help: ClassVar[str] = "All four flatten within a few dozen iterations, or the penalty is wrong."
    family: ClassVar[str] = "cross_validation"
    order: ClassVar[int] = 20

    curve: Any = param.Selector(default="a hyperparameter", objects=list(CURVES), doc="Which of the four to draw.")
    which = param.Integer(1, bounds=(0, None), softbounds=(0, 10), doc="Which hyperparameter: 0 is the first.")

    def applies(self, run: Run) -> bool:
        """Runs that iterate over folds."""
        return super().applies(run) and iterated(run)

    def data(self, run: Run, at: int) -> Layers:
        """Against iterations: the consensus's hyperparameter, |z|, |z - C^-1 y|^2 or L."""
        if self.curve == "a hyperparameter":
            which = min(self.which, len(run.problem.theta) - 1)
            infos = [(record.index, record.step.info) for record in run.trace[: at + 1]]
            points = [(k, float(info.consensus[which].exp())) for k, info in infos if len(info.consensus)]
            frame, label = pd.DataFrame(points, columns=["x", "y"]), f"{run.problem.kernel.names[which]} (scaled space)"
        else:
            names = {"norm of z": "|z|", "distance of z": "log10 |z - C^-1 y|^2", "Lagrangian": "augmented Lagrangian"}
            frame = series(run, at, CURVES[self.curve], log=self.curve == "distance of z")
            label = names[self.curve]
        frame.attrs |= {"xlabel": "step", "ylabel": label, "title": f"{len(frame)} steps"}
        return {"curve": frame}

    def plot(self, layers: Layers) -> hv.Overlay:
        """A line with its points."""
        frame = layers["curve"]
        parts = [
            layer(hv.Curve(frame, "x", "y", label="now"), "curve", color=ROLES["mean"], line_width=2),
            layer(hv.Scatter(frame, "x", "y", label="steps"), "curve", color=ROLES["mean"], size=4),
        ]
        return hv.Overlay(parts).opts(responsive=True, show_grid=True, show_legend=False, **labels(frame))
