"""Bias and spread of minibatch gradients at one theta, by method and batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import holoviews as hv
import pandas as pd
import param

from ...methods.base import registry
from ...methods.capabilities import EstimatesLikelihoodGradient
from ...methods.minibatches.loop import Minibatches
from ...methods.minibatches.studies.gradient_spread import gradient_spread
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES

SIZES = (16, 32, 64, 128, 256, 512)
METHODS = {"minimax": ROLES["proposed"], "scgd": ROLES["removed"], "bsgd": ROLES["inducing"]}
DASHES: dict[str, dict[str, Any]] = {
    "minimax": {"line_width": 7, "line_alpha": 0.5},
    "scgd": {"line_width": 2, "line_dash": "dashed"},  # the line of MINIMAX is visible between the dashes
    "bsgd": {"line_width": 2},
}
SHARED_SETTINGS = ("kernel", "layers", "width", "activation", "num_features", "frequencies", "seed", "validation")


class Gradients(View):
    """Bias and spread of gradient estimates, relative to the exact gradient, for minibatches of 16 to 512 rows."""

    key: ClassVar[str] = "stochastic-gradients"
    title: ClassVar[str] = "Minibatch gradients, by batch size"
    help: ClassVar[str] = (
        "Averaging gradients removes their spread, which decreases with the batch size, but not their bias. "
        "The bars are the uncertainty of the bias with this number of minibatches."
    )
    family: ClassVar[str] = "minibatches"
    order: ClassVar[int] = 40

    draws = param.Integer(30, bounds=(3, 500), softbounds=(5, 100), doc="Number of minibatches per point.")
    show = param.Selector(
        default="bias",
        objects=["bias", "spread"],
        doc="bias: distance of their mean from the exact gradient; spread: scatter around the mean.",
    )

    def applies(self, run: Run) -> bool:
        """Return whether the method estimates the gradient of the exact likelihood; SVGP has another objective."""
        return super().applies(run) and isinstance(run.method, EstimatesLikelihoodGradient)

    def data(self, run: Run, at: int) -> Layers:
        """Return one line per method."""
        theta, n = run.trace[at].step.state.theta, len(run.problem.train)
        sizes = [size for size in SIZES if size < n] or [max(n // 2, 1)]
        layers, intervals = {}, {}
        for shift, key in enumerate(METHODS):
            spreads = [
                gradient_spread(same_features(run.method, key, size), run.problem, theta, self.draws) for size in sizes
            ]
            values = [spread.bias if self.show == "bias" else spread.sd for spread in spreads]
            layers[key] = pd.DataFrame({"x": [float(size) for size in sizes], "y": values})
            intervals[key] = [spread.interval for spread in spreads]
            visible = intervals[key] if self.show == "bias" else []
            x = [size * (1.0 + 0.03 * (shift - 1)) for size in sizes][: len(visible)]  # beside each other
            low, high = [ends[0] for ends in visible], [ends[1] for ends in visible]
            layers[f"{key} bars"] = pd.DataFrame({"x0": x, "y0": low, "x1": x, "y1": high}, dtype=float)
        title = f"{self.draws} minibatches per point"
        layers["minimax"].attrs |= {
            "xlabel": "rows per minibatch",
            "ylabel": f"{self.show} / |exact gradient|",
            "title": title + (f"; {overlap_sentence(sizes, intervals)}" if self.show == "bias" else ""),
        }
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw one line per method."""
        lines = [
            layer(hv.Curve(layers[key], "x", "y", label=registry[key].title), key, color=colour, **DASHES[key])
            for key, colour in METHODS.items()
        ]
        lines += [
            layer(hv.Segments(layers[f"{key} bars"], ["x0", "y0", "x1", "y1"]), f"{key} bars", color=colour)
            for key, colour in METHODS.items()
        ]
        return hv.Overlay(lines).opts(
            legend_position="top", legend_cols=3, responsive=True, show_grid=True, **labels(layers["minimax"])
        )


def overlap_sentence(sizes: Sequence[int], intervals: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return a sentence on the numbers of rows at which the intervals of BSGD and SCGD overlap."""
    pairs = zip(sizes, intervals["bsgd"], intervals["scgd"], strict=True)
    overlapping = [
        str(size) for size, (low, high), (other_low, other_high) in pairs if low < other_high and other_low < high
    ]
    if not overlapping:
        return "enough to tell BSGD from SCGD"
    return f"too few to tell BSGD from SCGD at {', '.join(overlapping)} rows"


def same_features(method: Minibatches, key: str, batch_size: int) -> Any:
    """Return the method with this key, with the features of `method` and another batch size."""
    settings = {name: getattr(method, name) for name in SHARED_SETTINGS}
    return method.on_same_features(registry[key], batch_size=batch_size, **settings)
