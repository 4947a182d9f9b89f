"""The paths of the folds of GPCV-ADMM over a slice of the error, and curves of residuals, rho and convergence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import param
import torch

from ...methods.cross_validation.fold_steps import score_folds
from ...methods.cross_validation.folds import ordered_by_fold, split
from ...methods.cross_validation.gpcv import GPCV
from ...runs.run import Run
from ..base import Layers, Line, Series, dots, image, line, named, on_plane, overlay, points
from ..drawing.palette import ROLES, cycled
from ..runs.likelihood_surface import MARGIN, ThetaSurface

HYPERPARAMETER = "a hyperparameter"
CURVES = {  # option -> channel, label, whether log10 is drawn
    "norm of z": ("z_norm", "|z|", False),
    "distance of z": ("z_gap", "log10 |z - C^-1 y|^2", True),
    "Lagrangian": ("lagrangian", "augmented Lagrangian", False),
}


class Residuals(Series):
    """The violation of Cz = y, the gradient of L, the disagreement of the folds, and rho; rollbacks are marked."""

    key: ClassVar[str] = "admm-residuals"
    title: ClassVar[str] = "Primal and dual residuals"
    help: ClassVar[str] = (
        "Both residuals should decrease together. If one stays far above the other, change rho or use balance."
    )
    needs: ClassVar[type] = GPCV
    order: ClassVar[int] = 30
    axes: ClassVar[tuple[str, str]] = ("step", "log10 of the residuals and of rho")
    log10: ClassVar[bool] = True
    columns: ClassVar[int] = 5
    lines: ClassVar[Mapping[str, Line]] = {
        "primal": Line("primal", ROLES["inducing"], "gap"),
        "dual": Line("dual", ROLES["mean"], "slope"),
        "disagreement": Line("disagreement", ROLES["complexity"], style={"line_dash": "dotdash"}),
        "rho": Line("rho", ROLES["reference"], style={"line_dash": "dashed"}),
    }

    def series(self, run: Run, at: int) -> Layers:
        """Return log10 of each quantity, and the points of rho at the steps that were taken back."""
        table, layers = self.table(run, at), super().series(run, at)
        steps = table["index"][table["rolled_back"] > 0]
        layers["taken back"] = layers["rho"][layers["rho"]["x"].isin(steps)].reset_index(drop=True)
        return layers

    def caption(self, run: Run, at: int, layers: Layers) -> str:
        """The newest rho, and how many steps were taken back."""
        if not len(layers["rho"]):
            return "no iteration yet"
        count = len(layers["taken back"])
        rho = 10.0 ** float(layers["rho"]["y"].iloc[-1])
        return f"rho is {rho:.3g}" + (f", {count:,} steps taken back" if count else "")

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw one line per quantity, and a cross on rho for each step that was taken back."""
        crosses = dots(layers, "taken back", "taken back", color=ROLES["removed"], marker="x", size=9, line_width=2)
        lines = self.curves({name: layers[name] for name in self.lines})
        return overlay([*lines, crosses], layers["primal"], self.columns)


class Curves(Series):
    """One of the four curves of figure 2 of Xu et al. (2019) at a time; an option selects it."""

    key: ClassVar[str] = "admm-curves"
    title: ClassVar[str] = "Convergence, as in the paper"
    help: ClassVar[str] = "All four curves become flat within some tens of iterations. If they do not, change rho."
    needs: ClassVar[type] = GPCV
    order: ClassVar[int] = 20
    columns: ClassVar[int] = 0
    shortest: ClassVar[int] = 1
    lines: ClassVar[Mapping[str, Line]] = {"curve": Line("now", ROLES["mean"])}

    curve: Any = param.Selector(
        default=HYPERPARAMETER, objects=[HYPERPARAMETER, *CURVES], doc="Which of the four curves to draw."
    )
    which = param.Integer(1, bounds=(0, None), softbounds=(0, 10), doc="Which hyperparameter: 0 is the first.")

    def series(self, run: Run, at: int) -> Layers:
        """Return the selected curve: a hyperparameter of the consensus, |z|, |z - C^-1 y|^2, or L."""
        if self.curve == HYPERPARAMETER:
            which = min(self.which, len(run.problem.theta) - 1)
            infos = [(record.index, record.step.info) for record in run.trace[: at + 1]]
            values = [(k, float(info.consensus[which].exp())) for k, info in infos if len(info.consensus)]
            frame = points(*zip(*values, strict=True)) if values else points([], [])
            frame.attrs["ylabel"] = f"{run.problem.kernel.names[which]} (scaled space)"
        else:
            column, label, log10 = CURVES[self.curve]
            table = self.table(run, at)
            frame = points(table["index"], table[column], log10)
            frame.attrs["ylabel"] = label
        return {"curve": frame}

    def caption(self, run: Run, at: int, layers: Layers) -> str:
        """The number of steps."""
        count = len(layers["curve"])
        return f"{count} step{'s' * (count != 1)}"

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw a line with its points."""
        marks = dots(layers, "curve", "steps", color=ROLES["mean"], size=4)
        return overlay([*self.curves(layers), marks], layers["curve"], self.columns)


MAX_ROWS = 3000  # with more rows, the slice would block the page


class Paths(ThetaSurface):
    """Paths of the folds over two hyperparameters; all others have the values of the consensus at this record."""

    key: ClassVar[str] = "admm-paths"
    title: ClassVar[str] = "Paths of the folds"
    help: ClassVar[str] = "Consensus brings the paths together. Do they end where the error is lowest?"
    needs: ClassVar[type] = GPCV
    order: ClassVar[int] = 40
    hero: ClassVar[bool] = True

    def applies(self, run: Run) -> bool:
        """Return whether the run iterates over folds and has at most MAX_ROWS rows."""
        return super().applies(run) and len(run.problem.train) <= MAX_ROWS and self.offer_names(run)

    def data(self, run: Run, at: int) -> Layers:
        """Return one path per fold in natural logarithms, and the surface (x, y, value): log10 of the error."""
        theta, axes = run.problem.theta, list(self.axes_of(run))
        infos = [record.step.info for record in run.trace[: at + 1] if len(record.step.info.consensus)]
        copies = [info.thetas[:, axes].cpu().double().numpy() for info in infos]
        mean = np.array([info.consensus[axes].tolist() for info in infos]).reshape(-1, 2)
        consensus = on_plane(mean)
        layers = {"consensus": consensus, "now": consensus.tail(1).reset_index(drop=True)}
        method, train = _method(run), run.problem.train
        _, validation = ordered_by_fold(train, method.validation(len(train)), method.seed)
        layers |= {f"fold {k + 1}": on_plane([thetas[k] for thetas in copies]) for k in range(len(validation))}
        around = np.concatenate([mean, *copies]) if copies else np.array([theta[axes].tolist()])
        centre = infos[-1].consensus if infos else theta
        layers["surface"] = self.surface(run, at, centre, around, MARGIN)
        xlabel, ylabel = (f"log {run.problem.kernel.names[axis]}" for axis in axes)
        named(layers["surface"], xlabel, ylabel, "log10 of the cross-validated error")
        return layers

    def height(self, run: Run) -> Callable[[torch.Tensor], float]:
        """Return the logarithm of the mean squared error of all folds."""
        method = _method(run)
        validation = method.validation(len(run.problem.train))
        [group] = split(run.problem, validation, method.seed, method.memory, shared=True)
        zeros = [torch.zeros_like(z) for z in group.vectors(group.T)]

        def log_error(theta: torch.Tensor) -> float:
            loss = score_folds(group, theta, zeros, method.fold_settings()).loss
            return float(np.log10(max(loss / group.validation_rows, 1e-300)))

        return log_error

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the surface in colour, the consensus as a broad line, and a thin line per fold on it."""
        folds = [name for name in layers if name.startswith("fold ")]
        parts = [
            image(layers, "surface", alpha=0.7, clabel="log10 error"),
            line(layers, "consensus", "consensus", color=ROLES["reference"], line_width=7),
            *(line(layers, name, name, **cycled(k)) for k, name in enumerate(folds)),
            dots(layers, "now", "this step", color=ROLES["inducing"], size=10),
        ]
        return overlay(parts, layers["surface"], 4, show_grid=False)


def _method(run: Run) -> GPCV:
    assert isinstance(run.method, GPCV)
    return run.method
