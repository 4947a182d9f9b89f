"""The path of every hyperparameter."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import CYCLE

MOST = 10  # paths drawn of a longer theta: the first ones and the noise


class Hyperparameters(View):
    """exp(theta) over the steps, in the scaled space."""

    key: ClassVar[str] = "hyperparameters"
    title: ClassVar[str] = "Hyperparameters"
    help: ClassVar[str] = "A lengthscale that runs away marks an input that does not matter."
    order: ClassVar[int] = 50

    def applies(self, run: Run) -> bool:
        """Methods whose state holds theta."""
        return hasattr(getattr(run.method, "State", None), "theta")

    def data(self, run: Run, at: int) -> Layers:
        """One series a hyperparameter, named as the kernel names it."""
        paths = np.array([record.step.state.theta.cpu().double().numpy() for record in run.trace])
        names = run.problem.kernel.names
        shown = [*range(min(len(names), MOST) - 1), len(names) - 1]
        step = np.arange(len(paths), dtype=float)
        layers = {names[i]: pd.DataFrame({"x": step, "y": np.exp(paths[:, i])}) for i in shown}
        layers[names[shown[0]]].attrs |= {"xlabel": "step", "ylabel": "value (inputs and target scaled to sd 1)"}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Lines on a logarithmic axis."""
        lines = [
            layer(hv.Curve(frame, "x", "y", label=name), name, color=CYCLE[i % len(CYCLE)], line_width=2)
            for i, (name, frame) in enumerate(layers.items())
        ]
        first = next(iter(layers.values()))
        return hv.Overlay(lines).opts(
            logy=True, legend_position="top", legend_cols=3, responsive=True, show_grid=True, **labels(first)
        )
