"""The spectrum of the grid's kernel matrix: which eigenvalues are kept, and how far below them the rest lie."""

from __future__ import annotations

from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES
from .eigenfunction_curves import chosen_by, grid_of, on_grid

BEYOND = 2  # times as many eigenvalues are drawn as are kept


class Spectrum(View):
    """Eigenvalues by rank, in decades: products over the inputs reach far below what a number can hold."""

    key: ClassVar[str] = "grief-spectrum"
    title: ClassVar[str] = "Spectrum"
    help: ClassVar[str] = "Where do the kept eigenvalues end: below the noise, or while they still matter?"
    family: ClassVar[str] = "eigenfunctions"
    order: ClassVar[int] = 20

    def applies(self, run: Run) -> bool:
        """Methods on a grid."""
        return super().applies(run) and on_grid(run)

    def data(self, run: Run, at: int) -> Layers:
        """log10 of the eigenvalues kept, of as many beyond, and of the noise variance."""
        method: Any = run.method
        state, grid = run.trace[at].step.state, grid_of(run, at)
        found = grid.spectrum(chosen_by(state), BEYOND * method.num_eigenfunctions)
        logs = found.log.cpu().double().numpy() / np.log(10.0)
        frame = pd.DataFrame({"x": np.arange(1.0, len(logs) + 1), "y": logs})
        kept = frame.iloc[: method.num_eigenfunctions].reset_index(drop=True)
        noise = float(2 * state.theta[-1]) / np.log(10.0)
        layers = {
            "kept": kept,
            "dropped": frame.iloc[method.num_eigenfunctions :].reset_index(drop=True),
            "noise": pd.DataFrame({"x": [1.0, float(len(logs))], "y": [noise, noise]}),
        }
        points = method.grid_points ** min(run.problem.train.d, 300)
        size = f"{points:,}" if points < 10**7 else f"10^{run.problem.train.d * np.log10(method.grid_points):.0f}"
        layers["kept"].attrs |= {"xlabel": "rank", "ylabel": "log10 eigenvalue", "title": f"a grid of {size} points"}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Kept and dropped eigenvalues over a line at the noise."""
        noise = hv.Curve(layers["noise"], "x", "y", label="noise variance")
        parts = [
            layer(noise, "noise", color=ROLES["reference"], line_dash="dashed"),
            layer(hv.Scatter(layers["dropped"], "x", "y", label="dropped"), "dropped", color=ROLES["data"], size=4),
            layer(hv.Scatter(layers["kept"], "x", "y", label="kept"), "kept", color=ROLES["mean"], size=5),
        ]
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=3, responsive=True, show_grid=True, **labels(layers["kept"])
        )
