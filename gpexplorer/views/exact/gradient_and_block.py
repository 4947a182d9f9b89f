"""The gradient over the training rows, and the rows that the last iteration changed."""

from __future__ import annotations

import math
from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import torch

from ...methods.capabilities import HasGradient
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing import run_rows
from ..drawing.palette import ROLES, SEQUENTIAL

SMALLEST = 1e-12  # smaller gradient entries are drawn as this value


class Gradient(View):
    """Size of the gradient entries: over the input if there is one, as a colour over two inputs, else by rank."""

    key: ClassVar[str] = "gbcd-gradient"
    title: ClassVar[str] = "Gradient over the data"
    help: ClassVar[str] = (
        "The rings are the rows that the last iteration changed. Does the gradient fall there, and rise beside them?"
    )
    family: ClassVar[str] = "exact"
    order: ClassVar[int] = 20
    hero: ClassVar[bool] = True

    def applies(self, run: Run) -> bool:
        """Whether the method has a gradient over the training rows; sparse models do not."""
        return super().applies(run) and isinstance(run.method, HasGradient)

    def data(self, run: Run, at: int) -> Layers:
        """|g| at a sample of rows, n kernel entries each, and the changed rows among them."""
        method, step = run.method, run.trace[at].step
        assert isinstance(method, HasGradient)
        sample = run_rows.sampled(len(run.problem.train)).to(run.problem.train.y.device)
        g = method.gradient_entries(run.problem, step.state, sample)
        size = g.abs().clamp_min(SMALLEST).log10().cpu().double().numpy()
        active = torch.isin(sample, step.info.active.to(sample.device)).cpu().numpy()
        frame = self._placed(run, sample, size)
        layers = {"rows": frame, "active": frame[active]}
        largest = step.info.largest  # nan before the first iteration on alpha
        title = f"largest of all rows: {largest:.2g}" if math.isfinite(largest) else "no block solved yet"
        layers["rows"].attrs["title"] = title
        return layers

    def _placed(self, run: Run, sample: torch.Tensor, size: np.ndarray) -> pd.DataFrame:
        """The sampled rows with their position in the picture."""
        X = run_rows.inputs_of(run.problem.train)[sample.cpu().numpy()] if run_rows.numeric(run) else None
        if X is not None and X.shape[1] == 2:
            frame = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "value": size})
            frame.attrs |= {"map": True, "xlabel": run_rows.input_name(run, 0), "ylabel": run_rows.input_name(run, 1)}
            return frame
        if X is not None and X.shape[1] == 1:
            x, xlabel = X[:, 0], run_rows.input_name(run, 0)
        else:
            x, xlabel = np.argsort(np.argsort(-size)).astype(float), "rows, the largest gradient first"
        frame = pd.DataFrame({"x": x, "y": size, "value": size})
        frame.attrs |= {"xlabel": xlabel, "ylabel": "log10 |gradient|"}
        return frame

    def plot(self, layers: Layers) -> hv.Overlay:
        """Dots coloured by size; rings around the rows that changed."""
        dots = hv.Points(layers["rows"], ["x", "y"], "value", label="rows")
        active = hv.Scatter(layers["active"], "x", "y", label="changed by this iteration")
        parts = [
            layer(dots, "rows", color="value", cmap=SEQUENTIAL, size=5, colorbar=True, clabel="log10 |gradient|"),
            layer(active, "active", fill_alpha=0.0, line_color=ROLES["inducing"], line_width=1.5, size=10),
        ]
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=2, responsive=True, show_grid=True, **labels(layers["rows"])
        )
