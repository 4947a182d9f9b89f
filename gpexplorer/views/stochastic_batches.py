"""What becomes of each method as its minibatches shrink: one small panel a size, all on the same axes."""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import holoviews as hv
import numpy as np
import pandas as pd
import param

from ..methods.base import registry
from ..methods.stochastic.study import course, few
from ..runs.run import Run
from .base import Layers, View, labels, layer
from .palette import ROLES
from .stochastic_gradients import DASHES, METHODS, alike

SIZES = (8, 32, 128)
POINTS, WIDTH = 6, 0.86  # values a line; the share of a panel's unit that its lines take
LARGEST = 256  # features: a minibatch costs their cube


class Batches(View):
    """The exact likelihood against minibatches, by batch size and method, from the run's own start."""

    key: ClassVar[str] = "stochastic-batches"
    title: ClassVar[str] = "Smaller and smaller batches"
    help: ClassVar[str] = "From right to left batches shrink: which lines still fall, and which end higher than before?"
    family: ClassVar[str] = "stochastic"
    order: ClassVar[int] = 45

    minibatches = param.Integer(
        100, bounds=(POINTS, 5000), softbounds=(30, 500), doc="Minibatches that each method takes in each panel."
    )

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._studied: WeakKeyDictionary[Run, dict[int, Layers]] = WeakKeyDictionary()

    def applies(self, run: Run) -> bool:
        """Methods of the family, SVGP apart, with features few enough for a study beside the run."""
        method: Any = run.method
        if not super().applies(run) or method.key not in (*METHODS, "full-batch"):
            return False
        return (method.num_features if method.kernel == "gaussian" else method.width) <= LARGEST

    def data(self, run: Run, at: int) -> Layers:
        """A line a method, broken between panels; none at the start, so that opening a page costs nothing."""
        sizes = _sizes(len(run.problem.train))
        walls = pd.DataFrame({"x": [float(k) for k in range(1, len(sizes))]})
        panels = pd.DataFrame({"x": [k + 0.5 * WIDTH for k in range(len(sizes))], "size": sizes})
        if not at:
            empty = pd.DataFrame({"x": np.empty(0), "y": np.empty(0)})
            return self._titled({**{key: empty.copy() for key in METHODS}, "walls": walls, "panels": panels}, "")
        studied = self._studied.setdefault(run, {})  # the study does not depend on the record: it is made once
        if self.minibatches not in studied:
            problem = few(run.problem)
            lines = {key: self._line(run.method, key, problem, sizes) for key in METHODS}
            title = f"{self.minibatches} minibatches a panel, {len(problem.train)} rows"
            studied[self.minibatches] = self._titled({**lines, "walls": walls, "panels": panels}, title)
        return studied[self.minibatches]

    def _line(self, method: Any, key: str, problem: Any, sizes: list[int]) -> pd.DataFrame:
        rows = list[tuple[float, float]]()
        for k, size in enumerate(sizes):
            found = course(alike(method, key, size), problem, self.minibatches, POINTS)
            rows += [(k + WIDTH * done / self.minibatches, value) for done, value in found]
            rows.append((np.nan, np.nan))
        return pd.DataFrame(rows, columns=["x", "y"])

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


def _sizes(n: int) -> list[int]:
    """Rows of a minibatch in each panel, at most half of all."""
    return [size for size in SIZES if size <= n // 2] or [max(n // 2, 1)]
