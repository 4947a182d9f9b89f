"""The four curves of figure 2 of Xu et al. (2019), by which the paper shows that ADMM converges."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import holoviews as hv
import pandas as pd
import param

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES
from .residuals import iterates_folds, series

HYPERPARAMETER = "a hyperparameter"


class Curve(NamedTuple):
    """One curve of the figure."""

    field: str  # of Info
    label: str
    log: bool = False


CURVES = {
    "norm of z": Curve("z_norm", "|z|"),
    "distance of z": Curve("z_gap", "log10 |z - C^-1 y|^2", log=True),
    "Lagrangian": Curve("lagrangian", "augmented Lagrangian"),
}


class Curves(View):
    """One curve of figure 2 at a time; an option selects it."""

    key: ClassVar[str] = "admm-curves"
    title: ClassVar[str] = "Convergence, as in the paper"
    help: ClassVar[str] = "All four curves become flat within some tens of iterations. If they do not, change rho."
    family: ClassVar[str] = "cross_validation"
    order: ClassVar[int] = 20

    curve: Any = param.Selector(
        default=HYPERPARAMETER, objects=[HYPERPARAMETER, *CURVES], doc="Which of the four curves to draw."
    )
    which = param.Integer(1, bounds=(0, None), softbounds=(0, 10), doc="Which hyperparameter: 0 is the first.")

    def applies(self, run: Run) -> bool:
        """Return whether the run iterates over folds."""
        return super().applies(run) and iterates_folds(run)

    def data(self, run: Run, at: int) -> Layers:
        """Return the selected curve against the step: a hyperparameter of the consensus, |z|, |z - C^-1 y|^2, or L."""
        if self.curve == HYPERPARAMETER:
            which = min(self.which, len(run.problem.theta) - 1)
            infos = [(record.index, record.step.info) for record in run.trace[: at + 1]]
            points = [(k, float(info.consensus[which].exp())) for k, info in infos if len(info.consensus)]
            frame, label = pd.DataFrame(points, columns=["x", "y"]), f"{run.problem.kernel.names[which]} (scaled space)"
        else:
            curve = CURVES[self.curve]
            frame, label = series(run, at, curve.field, log=curve.log), curve.label
        frame.attrs |= {"xlabel": "step", "ylabel": label, "title": f"{len(frame)} step{'s' * (len(frame) != 1)}"}
        return {"curve": frame}

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw a line with its points."""
        frame = layers["curve"]
        parts = [
            layer(hv.Curve(frame, "x", "y", label="now"), "curve", color=ROLES["mean"], line_width=2),
            layer(hv.Scatter(frame, "x", "y", label="steps"), "curve", color=ROLES["mean"], size=4),
        ]
        return hv.Overlay(parts).opts(responsive=True, show_grid=True, show_legend=False, **labels(frame))
