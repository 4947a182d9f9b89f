"""A surface over two log-hyperparameters, and when it is computed again while a run moves over it."""

from __future__ import annotations

import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import param
import torch

from ..runs.run import Run
from .base import View

QUIET = 0.3  # seconds at one record after which its own surface is computed
ACROSS = "Number of the hyperparameter along x; 0 is the first."
UPWARD = "Number of the hyperparameter along y; -1 is the last, the noise."
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

    first = param.Integer(1, bounds=(0, None), softbounds=(0, 10), label="Across", doc=ACROSS)
    second = param.Integer(-1, bounds=(-1, None), softbounds=(-1, 10), label="Upward", doc=UPWARD)
    side = param.Integer(9, bounds=(2, 60), softbounds=(5, 25), label="Squares per side", doc=SQUARES)

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._surface: _Surface | None = None

    @abstractmethod
    def height(self, run: Run) -> Callable[[torch.Tensor], float]:
        """Return the function theta [p] -> value that the surface shows."""

    def unfinished(self, run: Run, at: int) -> bool:
        """Return whether the surface drawn last belongs to another record: a run that plays need not wait for it."""
        return self._surface is not None and self._surface.stale

    def axes_of(self, run: Run) -> tuple[int, int]:
        """Return which entries of theta lie along x and y."""
        p = len(run.problem.theta)
        return min(self.first, p - 1), self.second % p

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
        height, points = self.height(run), []
        for x in np.linspace(low[0], high[0], self.side):
            for y in np.linspace(low[1], high[1], self.side):
                points.append((x, y, height(self.placed(run, centre, (x, y)))))
        frame = pd.DataFrame(points, columns=["x", "y", "value"]).replace([np.inf, -np.inf], np.nan)
        return frame.sort_values(["y", "x"]).reset_index(drop=True)
