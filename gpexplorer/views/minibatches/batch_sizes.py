"""What becomes of each method as its minibatches shrink: one small panel a size, all on the same axes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import holoviews as hv
import numpy as np
import pandas as pd
import param

from ...methods.base import registry
from ...methods.minibatches.studies.gradient_study import course, few
from ...problem import Problem
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES
from .gradient_bias import DASHES, METHODS, alike

SIZES = (8, 32, 128)
POINTS, WIDTH = 6, 0.86  # values a line; the share of a panel's unit that its lines take
LARGEST = 256  # features: a minibatch costs their cube


class Batches(View):
    """The exact likelihood against minibatches, by batch size and method, from the run's own start."""

    key: ClassVar[str] = "stochastic-batches"
    title: ClassVar[str] = "Smaller and smaller batches"
    help: ClassVar[str] = "From right to left batches shrink: which lines still fall, and which end higher than before?"
    family: ClassVar[str] = "minibatches"
    order: ClassVar[int] = 45

    minibatches = param.Integer(
        100, bounds=(POINTS, 5000), softbounds=(30, 500), doc="Minibatches that each method takes in each panel."
    )

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._studied: WeakKeyDictionary[Run, dict[int, Study]] = WeakKeyDictionary()

    def applies(self, run: Run) -> bool:
        """Methods of the family, SVGP apart, with features few enough for a study beside the run."""
        method: Any = run.method
        if not super().applies(run) or method.key not in (*METHODS, "full-batch"):
            return False
        return (method.num_features if method.kernel == "gaussian" else method.width) <= LARGEST

    def data(self, run: Run, at: int) -> Layers:
        """A line a method, broken between panels; none at the start, so that opening a page costs nothing.

        The study does not depend on the record: it is made once, in parts where `patience` is short.
        """
        sizes = _sizes(len(run.problem.train))
        walls = pd.DataFrame({"x": [float(k) for k in range(1, len(sizes))]})
        panels = pd.DataFrame({"x": [k + 0.5 * WIDTH for k in range(len(sizes))], "size": sizes})
        if not at:
            empty = pd.DataFrame({"x": np.empty(0), "y": np.empty(0)})
            return self._titled({**{key: empty.copy() for key in METHODS}, "walls": walls, "panels": panels}, "")
        held = self._studied.setdefault(run, {})
        if self.minibatches not in held:
            held[self.minibatches] = Study(run.method, few(run.problem), sizes, self.minibatches)
        study = held[self.minibatches]
        if study.layers is None or study.left:
            study.go_on(self.patience)
            study.layers = self._titled({**study.frames(), "walls": walls, "panels": panels}, study.title)
        return study.layers

    def unfinished(self, run: Run, at: int) -> bool:
        """While minibatches are left."""
        study = self._studied.get(run, {}).get(self.minibatches)
        return at > 0 and study is not None and study.left > 0

    def _titled(self, layers: Layers, title: str) -> Layers:
        layers["minimax"].attrs |= {
            "xlabel": "minibatches, from left to right in each panel",
            "ylabel": "NLML a row [nat]",
            "title": title or "nothing to compare yet: take a step",
        }
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Three lines in every panel, walls between."""
        walls = hv.VLines(layers["walls"], "x")
        lines = [
            layer(hv.Curve(layers[key], "x", "y", label=registry[key].title), key, color=colour, **DASHES[key])
            for key, colour in METHODS.items()
        ]
        panels = layers["panels"]
        ticks = [(x, f"{size} rows") for x, size in zip(panels["x"], panels["size"], strict=True)]
        walls = layer(walls, "walls", color=ROLES["reference"], line_width=1, line_dash="dotted")
        return (
            hv.Overlay([walls, *lines])
            .opts(
                hv.opts.Overlay(legend_position="top", legend_cols=3, responsive=True, xticks=ticks),
            )
            .opts(show_grid=True, **labels(layers["minimax"]))
        )


class Study:
    """Every method in every panel, from left to right; it can be left after any minibatch and gone on with."""

    def __init__(self, method: Any, problem: Problem, sizes: list[int], minibatches: int) -> None:
        self.layers: Layers | None = None
        self._lines: dict[str, list[tuple[float, float]]] = {key: [] for key in METHODS}
        self._rows, self._minibatches, self._seconds = len(problem.train), minibatches, 0.0
        self.total = self.left = len(METHODS) * len(sizes) * minibatches
        self._work = self._steps(method, problem, sizes)

    def go_on(self, seconds: float) -> None:
        """Minibatches for so many seconds, one at least."""
        begin = time.perf_counter()
        for left in self._work:
            self.left = left
            if time.perf_counter() - begin >= seconds:
                break
        self._seconds += time.perf_counter() - begin

    def frames(self) -> Layers:
        """The lines so far."""
        return {key: pd.DataFrame(rows, columns=["x", "y"], dtype=float) for key, rows in self._lines.items()}

    @property
    def title(self) -> str:
        """What was studied, or how far the study is and how long the rest should take."""
        if not self.left:
            return f"{self._minibatches} minibatches a panel, {self._rows} rows"
        done = self.total - self.left
        eta = self._seconds * self.left / max(done, 1)
        return f"{done / self.total:.0%} of the minibatches done, about {eta:.0f} s to go"

    def _steps(self, method: Any, problem: Problem, sizes: list[int]) -> Iterator[int]:
        """Minibatches left, after each."""
        left = self.total
        for k, size in enumerate(sizes):
            for key, line in self._lines.items():
                for done, value in course(alike(method, key, size), problem, self._minibatches, POINTS):
                    line += [] if value is None else [(k + WIDTH * done / self._minibatches, value)]
                    yield max(left - done, 1)
                left -= self._minibatches
                line.append((np.nan, np.nan))
        yield 0


def _sizes(n: int) -> list[int]:
    """Rows of a minibatch in each panel, at most half of all."""
    return [size for size in SIZES if size <= n // 2] or [max(n // 2, 1)]
