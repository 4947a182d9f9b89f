"""Minibatch gradients under the microscope: bias and spread of each method, at this theta, by batch size."""

from __future__ import annotations

from typing import Any, ClassVar

import holoviews as hv
import pandas as pd
import param

from ...methods.base import registry
from ...methods.minibatches.studies.gradient_spread import look
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES

SIZES = (16, 32, 64, 128, 256, 512)
METHODS = {"minimax": ROLES["proposed"], "scgd": ROLES["removed"], "bsgd": ROLES["inducing"]}
DASHES: dict[str, dict[str, Any]] = {
    "minimax": {"line_width": 7, "line_alpha": 0.5},
    "scgd": {"line_width": 2, "line_dash": "dashed"},  # it often lies on MINIMAX, which shows between the dashes
    "bsgd": {"line_width": 2},
}
SHARED = ("kernel", "layers", "width", "activation", "num_features", "frequencies", "seed", "validation")


class Gradients(View):
    """Bias and spread of gradient estimates, relative to the exact gradient, for batches of 16 to 512 rows."""

    key: ClassVar[str] = "stochastic-gradients"
    title: ClassVar[str] = "Minibatch gradients, by batch size"
    help: ClassVar[str] = "Spread falls with the batch for all methods; only bias stays when gradients are averaged."
    family: ClassVar[str] = "minibatches"
    order: ClassVar[int] = 40

    draws = param.Integer(12, bounds=(2, 500), softbounds=(5, 50), doc="Minibatches drawn for each point.")
    show = param.Selector(
        default="bias", objects=["bias", "spread"], doc="Distance of the mean from the exact gradient, or the scatter."
    )

    def applies(self, run: Run) -> bool:
        """Methods of the family, SVGP apart: its gradient is of another objective."""
        return super().applies(run) and run.method.key in (*METHODS, "full-batch")

    def data(self, run: Run, at: int) -> Layers:
        """A line a method."""
        theta, n = run.trace[at].step.state.theta, len(run.problem.train)
        sizes = [size for size in SIZES if size < n] or [max(n // 2, 1)]
        layers = {}
        for key in METHODS:
            seen = [look(alike(run.method, key, size), run.problem, theta, self.draws) for size in sizes]
            values = [one.bias if self.show == "bias" else one.sd for one in seen]
            layers[key] = pd.DataFrame({"x": [float(size) for size in sizes], "y": values})
        layers["minimax"].attrs |= {
            "xlabel": "rows of a minibatch",
            "ylabel": f"{self.show} / |exact gradient|",
            "title": f"{self.draws} minibatches a point",
        }
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Three lines."""
        lines = [
            layer(hv.Curve(layers[key], "x", "y", label=registry[key].title), key, color=colour, **DASHES[key])
            for key, colour in METHODS.items()
        ]
        return hv.Overlay(lines).opts(
            legend_position="top", legend_cols=3, responsive=True, show_grid=True, **labels(layers["minimax"])
        )


def alike(method: Any, key: str, batch_size: int) -> Any:
    """The method of this key on the same features."""
    made: Any = registry[key](batch_size=batch_size, **{name: getattr(method, name) for name in SHARED})
    made.features = method.features
    return made
