"""The gradient over the data, and the rows that the last iteration moved."""

from __future__ import annotations

import math
from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import torch

from ...methods.exact.system import System
from ...problem import take
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing import run_rows
from ..drawing.palette import ROLES, SEQUENTIAL

LEAST = 1e-12  # |g| below it is drawn as it


class Gradient(View):
    """Where A alpha - y is still large: over the input in one dimension, as a colour over two, else by rank."""

    key: ClassVar[str] = "gbcd-gradient"
    title: ClassVar[str] = "Gradient over the data"
    help: ClassVar[str] = (
        "The rows that were moved are lit: does the gradient fall there, and does it rise beside them?"
    )
    family: ClassVar[str] = "exact"
    order: ClassVar[int] = 20

    def applies(self, run: Run) -> bool:
        """Solvers of the whole system: sparse rivals have no gradient over the rows."""
        return super().applies(run) and "alpha" in run.method.State._fields  # type: ignore[attr-defined]

    def data(self, run: Run, at: int) -> Layers:
        """|g| at a sample of rows, n kernel entries each; the active rows among them."""
        train, step = run.problem.train, run.trace[at].step
        shown = run_rows.sampled(len(train)).to(train.y.device)
        system = System(run.problem, step.state.theta, 0.0)
        K = run.problem.kernel(step.state.theta, take(train.X, shown), train.X)
        g = K @ step.state.alpha + system.s2 * step.state.alpha[shown] - train.y[shown]
        size = g.abs().clamp_min(LEAST).log10().cpu().double().numpy()
        lit = torch.isin(shown, step.info.active.to(shown.device)).cpu().numpy()
        frame = self._placed(run, shown, size)
        layers = {"rows": frame, "active": frame[lit]}
        largest = step.info.largest  # nan before the weights are solved for: at the start, and while theta is learned
        known = f"largest of all rows: {largest:.2g}" if math.isfinite(largest) else "nothing solved yet"
        layers["rows"].attrs["title"] = known
        return layers

    def _placed(self, run: Run, shown: torch.Tensor, size: np.ndarray) -> pd.DataFrame:
        """The sampled rows with their place on the picture."""
        wide = run_rows.numeric(run) and run.problem.train.d == 2
        X = run_rows.inputs_of(run.problem.train)[shown.cpu().numpy()] if run_rows.numeric(run) else None
        if wide and X is not None:
            frame = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "value": size})
            frame.attrs |= {"xlabel": run_rows.input_name(run, 0), "ylabel": run_rows.input_name(run, 1)}
            return frame
        one = X is not None and X.shape[1] == 1
        x = X[:, 0] if X is not None and one else np.argsort(np.argsort(-size)).astype(float)
        frame = pd.DataFrame({"x": x, "y": size, "value": size})
        name = run_rows.input_name(run, 0) if one else "rows, the largest gradient first"
        frame.attrs |= {"xlabel": name, "ylabel": "log10 |gradient|"}
        return frame

    def plot(self, layers: Layers) -> hv.Overlay:
        """Dots coloured by size, the active rows ringed."""
        dots = hv.Points(layers["rows"], ["x", "y"], "value", label="rows")
        active = hv.Scatter(layers["active"], "x", "y", label="moved by this iteration")
        parts = [
            layer(dots, "rows", color="value", cmap=SEQUENTIAL, size=5, colorbar=True, clabel="log10 |gradient|"),
            layer(active, "active", fill_alpha=0.0, line_color=ROLES["inducing"], line_width=1.5, size=10),
        ]
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=2, responsive=True, show_grid=True, **labels(layers["rows"])
        )
