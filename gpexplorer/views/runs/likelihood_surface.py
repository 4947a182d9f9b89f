"""Surfaces over two log-hyperparameters: of any function, and of the exact likelihood with the way of the run.

A surface is computed again while a run moves over it; when, its base class decides.
"""

from __future__ import annotations

import math
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import holoviews as hv
import numpy as np
import pandas as pd
import param
import torch

from ...data.quoting import joined
from ...errors import NotPositiveDefinite
from ...kernels.row_scaled import plain_rows
from ...kernels.theta.restrictions import Parameter, kernel_parameters, log_prior
from ...linalg.cholesky import cholesky, logdet
from ...objectives import evidence, noise_variance
from ...runs.run import Run
from ..base import Layers, View, dots, image, line, named, on_plane, overlay
from ..drawing.palette import ROLES

QUIET = 0.3  # seconds at one record after which its own surface is computed
ACROSS = "The hyperparameter along x."
UPWARD = "The hyperparameter along y."
SQUARES = "Points per side of the surface; each costs one kernel matrix."
MARGIN = 0.6  # log-hyperparameters around the paths


class _Surface(NamedTuple):
    """The surface drawn last: of which run, options and record; for which record it was asked last, and since when."""

    run: weakref.ref[Run]
    options: tuple[Any, ...]
    at: int
    asked: int
    since: float
    stale: bool
    frame: pd.DataFrame


class ThetaSurface(View):
    """A picture with a surface over two log-hyperparameters; the others have the values of the record shown."""

    first = param.Selector(default="", objects=[""], label="Across", doc=ACROSS)
    second = param.Selector(default="", objects=[""], label="Upward", doc=UPWARD)
    side = param.Integer(9, bounds=(2, 60), softbounds=(5, 25), label="Squares per side", doc=SQUARES)

    _surface: _Surface | None = None

    @abstractmethod
    def height(self, run: Run) -> Callable[[torch.Tensor], float]:
        """Return the function theta [p] -> value that the surface shows."""

    def unfinished(self, run: Run, at: int) -> bool:
        """Return whether the surface drawn last belongs to another record: a run that plays need not wait for it."""
        return self._surface is not None and self._surface.stale

    def axes_of(self, run: Run) -> tuple[int, int]:
        """Return which entries of theta lie along x and y: by default the second one, and the noise."""
        names = [each.name for each in _parameters(run)]
        chosen = zip((self.first, self.second), (min(1, len(names) - 1), len(names) - 1), strict=True)
        x, y = (names.index(name) if name in names else default for name, default in chosen)
        return x, y

    def offer_names(self, run: Run) -> bool:
        """Let the two hyperparameters be chosen by their names; returns True."""
        names = [each.name for each in _parameters(run)]
        axes = self.axes_of(run)
        self.param.first.objects = self.param.second.objects = names
        self.first, self.second = (names[axis] for axis in axes)
        return True

    def members(self, run: Run) -> tuple[list[int], list[int]]:
        """Return the entries of theta that move along x and along y: those tied to each other move together."""
        restrictions = getattr(run.problem.kernel, "restrictions", None)
        groups = [-1] * len(run.problem.theta) if restrictions is None else restrictions.parameters.group.tolist()
        x, y = (
            [axis] if groups[axis] < 0 else [entry for entry, group in enumerate(groups) if group == groups[axis]]
            for axis in self.axes_of(run)
        )
        return x, y

    def placed(self, run: Run, centre: torch.Tensor, point: Sequence[float]) -> torch.Tensor:
        """Return theta [p] at a point of the plane, with all else as at the centre."""
        theta = centre.clone()
        for axis, entries, value in zip(self.axes_of(run), self.members(run), point, strict=True):
            theta[entries] += value - float(centre[axis])  # tied entries differ by constants
        return theta

    def surface(self, run: Run, at: int, centre: torch.Tensor, around: np.ndarray, margin: float) -> pd.DataFrame:
        """Return the surface (x, y, value) around these points [k, 2]; that of an earlier record while it is of use.

        The surface of an earlier record stays while the points are inside it and the run moves on: one surface costs
        as much as many steps. A record that is looked at for longer gets its own.
        """
        previous, low, high = self._surface, around.min(0), around.max(0)
        options = (self.axes_of(run), self.side)
        if previous is not None and previous.run() is run and previous.options == options:
            frame = previous.frame
            corners = frame[["x", "y"]]
            is_inside = bool((corners.min() <= low).all() and (high <= corners.max()).all())
            if previous.asked != at:
                previous = previous._replace(asked=at, since=time.monotonic())
            if previous.at == at or (is_inside and time.monotonic() - previous.since < QUIET):
                self._surface = previous._replace(stale=previous.at != at)
                return frame.copy()
        frame = self._evaluated(run, centre, low - margin, high + margin)
        self._surface = _Surface(weakref.ref(run), options, at, at, time.monotonic(), False, frame)
        return frame.copy()

    def _evaluated(self, run: Run, centre: torch.Tensor, low: np.ndarray, high: np.ndarray) -> pd.DataFrame:
        """Evaluate the height at `side`^2 points."""
        height, sides = self.height(run), np.linspace(low, high, self.side).T
        points = [(x, y, height(self.placed(run, centre, (x, y)))) for y in sides[1] for x in sides[0]]
        return pd.DataFrame(points, columns=["x", "y", "value"]).replace([np.inf, -np.inf], np.nan)


MAX_ROWS = 600  # with more rows, the surface would block the page
WIDER = 1.6  # log-hyperparameters around the path: a factor of five
DECADES = 3.0  # of 1 + nat above the lowest point: the ends of the colour scale
MOST_NAMED = 3  # hyperparameters that are not on the axes
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
        is_cheap = len(run.problem.train) <= MAX_ROWS and len(run.problem.theta) > 1
        return has_theta and is_cheap and self.offer_names(run)

    def data(self, run: Run, at: int) -> Layers:
        """Return the surface as log10 of 1 + nat above its lowest point, the path, and the lowest point.

        The axes are decimal logarithms of values in the units of the file.
        """
        theta, axes = run.trace[at].step.state.theta, self.axes_of(run)
        thetas = np.stack([record.step.state.theta.cpu().double().numpy() for record in run.trace[: at + 1]])
        around = thetas[:, axes]
        surface = self.surface(run, at, theta, around, WIDER)
        best, lowest = self._lowest(run, theta, surface)
        here = self.height(run)(theta)
        lowest = min(lowest, here)
        surface["value"] = np.log10(1.0 + (surface["value"] - lowest).clip(lower=0.0))
        parameters = [_parameters(run)[axis] for axis in axes]
        layers = {"surface": surface, "path": on_plane(around), "begin": on_plane(around[:1])}
        layers |= {"now": on_plane(around[-1:]), "lowest": on_plane(best)}
        for frame in layers.values():
            for column, each in zip("xy", parameters, strict=True):
                frame[column] = (frame[column] + math.log(each.factor)) / math.log(10.0)
        names, moved = _names(run), {entry for entries in self.members(run) for entry in entries}
        xlabel, ylabel = (
            f"log10 {names[each.entry]}{'' if each.unit in ('', each.input) else f' [{each.unit}]'}"
            for each in parameters
        )
        kept = [name for entry, name in enumerate(names) if entry not in moved]
        title = f"here {round(here - lowest, 2):.3g} nat above the lowest point" if math.isfinite(here) else ""
        if title and kept:
            title += f" with the same {joined(kept, MOST_NAMED)}"
        named(surface, xlabel, ylabel, title, colours=(0.0, DECADES))
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
        from scipy.optimize import minimize  # on first use: it takes an eighth of the time until a page is there

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


def _names(run: Run) -> list[str]:
    """What each entry of theta is called on an axis, with the part of the kernel where there are several."""
    parameters = _parameters(run)
    has_parts = len({each.part for each in parameters if each.part}) > 1
    names = [f"{each.what} of {each.input}" if each.input else each.what for each in parameters]
    parts = [each.part if has_parts else "" for each in parameters]
    return [f"{name} of {part}" if part else name for name, part in zip(names, parts, strict=True)]


def _parameters(run: Run) -> tuple[Parameter, ...]:
    return kernel_parameters(run.problem.kernel, plain_rows(run.problem))
