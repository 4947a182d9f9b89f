"""The values of the hyperparameters over the steps of a run."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import CYCLE

MAX_PATHS = 10  # of a longer theta the first nine and the noise are drawn, and the axis label says so


class Hyperparameters(View):
    """exp(theta) over the steps, for inputs and targets scaled to standard deviation 1."""

    key: ClassVar[str] = "hyperparameters"
    title: ClassVar[str] = "Hyperparameters"
    help: ClassVar[str] = (
        "For inputs and target scaled to sd 1. A lengthscale that keeps growing belongs to an input without influence."
    )
    order: ClassVar[int] = 50

    def applies(self, run: Run) -> bool:
        """Return whether the states of the method contain theta."""
        return hasattr(getattr(run.method, "State", None), "theta")

    def data(self, run: Run, at: int) -> Layers:
        """Return one series per hyperparameter, with the names of the kernel."""
        paths = np.array([record.step.state.theta.cpu().double().numpy() for record in run.trace])
        names = run.problem.kernel.names
        shown = [*range(min(len(names), MAX_PATHS) - 1), len(names) - 1]
        step = np.arange(len(paths), dtype=float)
        layers = {names[i]: pd.DataFrame({"x": step, "y": np.exp(paths[:, i])}) for i in shown}
        share = "" if len(shown) == len(names) else f", {len(shown)} of {len(names)} shown"
        layers[names[shown[0]]].attrs |= {
            "xlabel": "step",
            "ylabel": f"scaled value{share}",
        }
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw one line per hyperparameter on a logarithmic axis."""
        lines = [
            layer(hv.Curve(frame, "x", "y", label=name), name, color=CYCLE[i % len(CYCLE)], line_width=2)
            for i, (name, frame) in enumerate(layers.items())
        ]
        first = next(iter(layers.values()))
        return hv.Overlay(lines).opts(
            logy=True, legend_position="top", legend_cols=3, responsive=True, show_grid=True, **labels(first)
        )
