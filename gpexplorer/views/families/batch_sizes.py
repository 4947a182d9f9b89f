"""What smaller minibatches do, by method: bias and spread of their gradients, and the likelihood that they reach."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param

from ...methods.base import registry
from ...methods.capabilities import EstimatesLikelihoodGradient
from ...methods.minibatches.gradient_spread import gradient_spread, likelihood_course, study_problem
from ...methods.minibatches.loop import Minibatches
from ...problem import Problem
from ...runs.run import Run
from ..base import Layers, View, layer, line, named, overlay, points, segments
from ..drawing.palette import ROLES

BIAS_SIZES = (16, 32, 64, 128, 256, 512)  # rows per minibatch
METHODS = {"minimax": ROLES["proposed"], "scgd": ROLES["removed"], "bsgd": ROLES["inducing"]}
DASHES: dict[str, dict[str, Any]] = {
    "minimax": {"line_width": 7, "line_alpha": 0.5},
    "scgd": {"line_width": 2, "line_dash": "dashed"},  # the line of MINIMAX is visible between the dashes
    "bsgd": {"line_width": 2},
}
SHARED_SETTINGS = ("kernel", "layers", "width", "activation", "num_features", "frequencies", "seed", "validation")
SIZES = (8, 32, 128)  # rows per minibatch in each panel
POINTS, WIDTH = 6, 0.86  # evaluations per line; fraction of a panel that its lines take
STUDY_AXES = ("minibatches, from left to right in each panel", "NLML per row [nat]")
MAX_FEATURES = 256  # with more features the study would take too long: a minibatch costs their cube


class Gradients(View):
    """Bias and spread of gradient estimates, relative to the exact gradient, for minibatches of 16 to 512 rows."""

    key: ClassVar[str] = "stochastic-gradients"
    title: ClassVar[str] = "Minibatch gradients, by batch size"
    help: ClassVar[str] = (
        "Averaging gradients removes their spread, which decreases with the batch size, but not their bias. "
        "The bars are the uncertainty of the bias with this number of minibatches."
    )
    order: ClassVar[int] = 40
    needs: ClassVar[type] = EstimatesLikelihoodGradient  # SVGP has another objective

    draws = param.Integer(30, bounds=(3, 500), softbounds=(5, 100), doc="Number of minibatches per point.")
    show = param.Selector(
        default="bias",
        objects=["bias", "spread"],
        doc="bias: distance of their mean from the exact gradient; spread: scatter around the mean.",
    )

    def data(self, run: Run, at: int) -> Layers:
        """Return one line per method."""
        theta, n = run.trace[at].step.state.theta, len(run.problem.train)
        sizes = [size for size in BIAS_SIZES if size < n] or [max(n // 2, 1)]
        layers, intervals = {}, {}
        for shift, key in enumerate(METHODS):
            methods = [same_features(run.method, key, size) for size in sizes]
            spreads = [gradient_spread(method, run.problem, theta, self.draws) for method in methods]
            values = [spread.bias if self.show == "bias" else spread.sd for spread in spreads]
            layers[key] = pd.DataFrame({"x": [float(size) for size in sizes], "y": values})
            intervals[key] = [spread.interval for spread in spreads]
            x = [size * (1.0 + 0.03 * (shift - 1)) for size in sizes if self.show == "bias"]  # beside each other
            bars = [(a, low, a, high) for a, (low, high) in zip(x, intervals[key], strict=False)]
            layers[f"{key} bars"] = pd.DataFrame(bars, columns=["x0", "y0", "x1", "y1"], dtype=float)
        title = f"{self.draws:,} minibatches per point"
        title += f"; {overlap_sentence(sizes, intervals)}" if self.show == "bias" else ""
        named(layers["minimax"], "rows per minibatch", f"{self.show} / |exact gradient|", title)
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw one line per method."""
        bars = [segments(layers, f"{key} bars", color=colour) for key, colour in METHODS.items()]
        return overlay([*_method_lines(layers), *bars], layers["minimax"], 3)


def overlap_sentence(sizes: Sequence[int], intervals: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return a sentence on the numbers of rows at which the intervals of BSGD and SCGD overlap."""
    pairs = zip(sizes, intervals["bsgd"], intervals["scgd"], strict=True)
    overlapping = [
        str(size) for size, (low, high), (other_low, other_high) in pairs if low < other_high and other_low < high
    ]
    few = f"too few to tell BSGD from SCGD at {', '.join(overlapping)} rows"
    return few if overlapping else "enough to tell BSGD from SCGD"


def same_features(method: Minibatches, key: str, batch_size: int) -> Any:
    """Return the method with this key, with the features of `method` and another batch size."""
    settings = {name: getattr(method, name) for name in SHARED_SETTINGS}
    return method.on_same_features(registry[key], batch_size=batch_size, **settings)


def _method_lines(layers: Layers) -> list[hv.Element]:
    """One line per method, in its colour."""
    return [line(layers, key, registry[key].title, color=colour, **DASHES[key]) for key, colour in METHODS.items()]


class Batches(View):
    """The exact likelihood against minibatches, by batch size and method, from the initial values of the run."""

    key: ClassVar[str] = "stochastic-batches"
    title: ClassVar[str] = "Smaller and smaller minibatches"
    help: ClassVar[str] = "Minibatches become smaller from right to left. Which methods still decrease the objective?"
    order: ClassVar[int] = 45
    needs: ClassVar[type] = EstimatesLikelihoodGradient

    minibatches = param.Integer(
        100, bounds=(POINTS, 5000), softbounds=(30, 500), doc="Minibatches per method and panel."
    )

    def applies(self, run: Run) -> bool:
        """Return whether the exact likelihood takes little time, because there are few enough features."""
        method: Any = run.method
        if not super().applies(run):
            return False
        return (method.num_features if method.kernel == "gaussian" else method.width) <= MAX_FEATURES

    def data(self, run: Run, at: int) -> Layers:
        """Return one line per method, with gaps between panels; empty at the start, so that opening a page is fast.

        The study does not depend on the record. It is computed once, in parts if `patience` is short.
        """
        n = len(run.problem.train)
        sizes = [size for size in SIZES if size <= n // 2] or [max(n // 2, 1)]  # rows per minibatch in each panel
        borders = pd.DataFrame({"x": [float(k) for k in range(1, len(sizes))]})
        panels = pd.DataFrame({"x": [k + 0.5 * WIDTH for k in range(len(sizes))], "size": sizes})
        layers = {**{key: points([], []) for key in METHODS}, "borders": borders, "panels": panels}
        named(layers["minimax"], *STUDY_AXES, "nothing to compare yet: press Play")
        if not at:
            return layers
        studies: dict[int, Study] = self.computed.setdefault(run, {})
        if self.minibatches not in studies:
            studies[self.minibatches] = Study(run.method, study_problem(run.problem), sizes, self.minibatches)
        study = studies[self.minibatches]
        if study.remaining:
            study.advance(self.patience)
            study.layers = layers | study.frames()
            named(study.layers["minimax"], *STUDY_AXES, study.title)
        return study.layers

    def unfinished(self, run: Run, at: int) -> bool:
        """Return whether minibatches of the study remain."""
        study: Study | None = self.computed.get(run, {}).get(self.minibatches)
        return at > 0 and study is not None and study.remaining > 0

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw one line per method in every panel, with borders between the panels."""
        panels = layers["panels"]
        ticks = [(x, f"{size:,} rows") for x, size in zip(panels["x"], panels["size"], strict=True)]
        borders = hv.VLines(layers["borders"], "x")
        borders = layer(borders, "borders", color=ROLES["reference"], line_width=1, line_dash="dotted")
        return overlay([borders, *_method_lines(layers)], layers["minimax"], 3, xticks=ticks)


class Study:
    """The computation for all methods and panels; it can pause after any minibatch.

    Parameters
    ----------
    method : Minibatches
        The method of the run, whose features all methods use.
    sizes : list of int
        Rows per minibatch in each panel.
    """

    def __init__(self, method: Minibatches, problem: Problem, sizes: list[int], minibatches: int) -> None:
        self.layers: Layers = {}
        self._lines: dict[str, list[tuple[float, float]]] = {key: [] for key in METHODS}
        self._rows, self._minibatches, self._seconds = len(problem.train), minibatches, 0.0
        self.total = self.remaining = len(METHODS) * len(sizes) * minibatches
        self._work = self._steps(method, problem, sizes)

    def advance(self, seconds: float) -> None:
        """Take minibatches for this many seconds, at least one."""
        begin = time.perf_counter()
        for remaining in self._work:
            self.remaining = remaining
            if time.perf_counter() - begin >= seconds:
                break
        self._seconds += time.perf_counter() - begin

    def frames(self) -> Layers:
        """Return the lines computed so far."""
        return {key: pd.DataFrame(rows, columns=["x", "y"], dtype=float) for key, rows in self._lines.items()}

    @property
    def title(self) -> str:
        """The size of the study, or its progress with the remaining time."""
        if not self.remaining:
            return f"{self._minibatches:,} minibatches per panel, {self._rows:,} rows"
        done = self.total - self.remaining
        eta = self._seconds * self.remaining / max(done, 1)
        return f"{done / self.total:.0%} of the minibatches done, about {eta:.0f} s remaining"

    def _steps(self, method: Minibatches, problem: Problem, sizes: list[int]) -> Iterator[int]:
        """Yield the number of remaining minibatches after each one."""
        remaining = self.total
        for k, size in enumerate(sizes):
            for key, values in self._lines.items():
                course = likelihood_course(same_features(method, key, size), problem, self._minibatches, POINTS)
                for done, value in course:
                    values += [] if value is None else [(k + WIDTH * done / self._minibatches, value)]
                    yield max(remaining - done, 1)
                remaining -= self._minibatches
                values.append((np.nan, np.nan))
        yield 0
