"""The exact likelihood over two hyperparameters: valleys, the way of the run, and the lowest point."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param
import torch
from scipy.optimize import minimize

from ...errors import NotPositiveDefinite
from ...kernels.row_scaled import plain_rows
from ...kernels.theta.named_parameters import Parameter, kernel_parameters
from ...kernels.theta.restrictions import log_prior
from ...linalg.cholesky import cholesky, logdet
from ...objectives import evidence, noise_variance
from ...runs.run import Run
from ..base import Layers, dots, image, line, overlay
from ..drawing.palette import ROLES
from ..theta_surface import SQUARES, ThetaSurface

MAX_ROWS = 600  # with more rows, the surface would block the page
WIDER = 1.6  # log-hyperparameters around the path: a factor of five
DECADES = 3.0  # of 1 + nat above the lowest point: the ends of the colour scale
EVALUATIONS = 40  # from the lowest point of the grid, at most


class Likelihood(ThetaSurface):
    """Negative log marginal likelihood of the exact GP over two hyperparameters, with the path of the run."""

    key: ClassVar[str] = "likelihood"
    title: ClassVar[str] = "Likelihood"
    help: ClassVar[str] = "Does the run descend into the valley where the exact model fits best?"
    click: ClassVar[str] = "Click a place to go on from there."
    order: ClassVar[int] = 55

    side = param.Integer(13, bounds=(2, 60), softbounds=(5, 25), label="Squares per side", doc=SQUARES)

    def applies(self, run: Run) -> bool:
        """Return whether the method has the kernel's hyperparameters, and at most MAX_ROWS rows."""
        has_theta = hasattr(run.method.State, "theta") and not run.method.own_kernel
        return has_theta and len(run.problem.train) <= MAX_ROWS and len(run.problem.theta) > 1

    def data(self, run: Run, at: int) -> Layers:
        """Return the surface as log10 of 1 + nat above its lowest point, the path, and the lowest point.

        The axes are decimal logarithms of values in the units of the file.
        """
        theta, axes = run.trace[at].step.state.theta, self.axes_of(run)
        thetas = np.stack([record.step.state.theta.cpu().double().numpy() for record in run.trace[: at + 1]])
        around = thetas[:, axes]
        surface = self.surface(run, at, theta, around, WIDER)
        height = self.height(run)
        best, lowest = self._lowest(run, theta, surface)
        here = height(theta)
        lowest = min(lowest, here)
        surface["value"] = np.log10(1.0 + (surface["value"] - lowest).clip(lower=0.0))
        parameters = [_parameters(run)[axis] for axis in axes]
        layers = {"surface": surface, "path": _frame(around), "begin": _frame(around[:1])}
        layers |= {"now": _frame(around[-1:]), "lowest": _frame(best[None])}
        for frame in layers.values():
            for column, each in zip("xy", parameters, strict=True):
                frame[column] = (frame[column] + math.log(each.factor)) / math.log(10.0)
        xlabel, ylabel = (f"log10 {each.own_name}{each.unit and f' [{each.unit}]'}" for each in parameters)
        title = f"here {here - lowest:.3g} nat above the lowest point" if math.isfinite(here) else ""
        surface.attrs |= {"xlabel": xlabel, "ylabel": ylabel, "title": title, "colours": (0.0, DECADES)}
        return layers

    def height(self, run: Run) -> Callable[[torch.Tensor], float]:
        """Return the objective of the exact model: NLML, minus the log prior density where there are priors."""
        kernel, train = run.problem.kernel, run.problem.train

        def objective(theta: torch.Tensor) -> float:
            A = kernel(theta, train.X, train.X)  # [n, n]
            A.diagonal().add_(noise_variance(theta))
            try:
                L, _ = cholesky(A, "K + s2 I")
            except NotPositiveDefinite:
                return math.inf
            w = torch.linalg.solve_triangular(L, train.y[:, None], upper=False)
            return 0.5 * (float(w.square().sum()) + float(logdet(L))) - log_prior(kernel, theta)

        return objective

    def _lowest(self, run: Run, theta: torch.Tensor, surface: pd.DataFrame) -> tuple[np.ndarray, float]:
        """Return the lowest point [2] over the two axes, and its height: a descent from the best point of the grid."""
        problem, members = run.problem, self.members(run)
        restrictions = getattr(problem.kernel, "restrictions", None)
        corners, values = surface[["x", "y"]], surface["value"].to_numpy(float)
        if np.isnan(values).all():
            return corners.to_numpy().mean(0), math.inf
        start = corners.to_numpy()[int(np.nanargmin(values))]

        def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
            there = self.placed(run, theta, point.tolist())
            try:
                value, gradient = evidence(problem.kernel, there, problem.train)
            except NotPositiveDefinite:
                return 1e10, np.zeros(2)
            if restrictions is not None:
                penalty = restrictions.penalty(there)
                value, gradient = value + penalty[0], gradient + penalty[1]
            return float(value), np.array([float(gradient[entries].sum()) for entries in members])

        bounds = list(zip(corners.min(), corners.max(), strict=True))
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxfun": EVALUATIONS})
        return found.x, float(found.fun)

    def hyperparameters_clicked(self, run: Run, at: int, x: float, y: float) -> dict[str, float]:
        """Return the two hyperparameters at the place of the click, and those that are tied to them."""
        parameters = _parameters(run)
        places = zip(self.members(run), (x, y), strict=True)
        return {parameters[entry].name: 10.0**position for entries, position in places for entry in entries}

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the surface in colour, the path as a line, and the lowest point as a star."""
        ring = {"fill_alpha": 0.0, "line_width": 2, "size": 9}
        parts = [
            image(layers, "surface", alpha=0.75, clabel="log10 (1 + nat above the lowest)"),
            line(layers, "path", "path of the run", color=ROLES["reference"], line_width=2),
            dots(layers, "begin", "begin", line_color=ROLES["reference"], **ring),
            dots(layers, "now", "this step", color=ROLES["inducing"], size=10),
            dots(layers, "lowest", "lowest point", color=ROLES["proposed"], marker="star", size=14),
        ]
        return overlay(parts, layers["surface"], 4, show_grid=False)


def _parameters(run: Run) -> tuple[Parameter, ...]:
    return kernel_parameters(run.problem.kernel, plain_rows(run.problem))


def _frame(points: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(np.asarray(points, float).reshape(-1, 2), columns=["x", "y"])
