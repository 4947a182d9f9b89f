"""The spectrum of the kernel matrix on the grid: the eigenvalues that are kept, and the next ones."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...methods.capabilities import HasGridEigenfunctions
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES
from .eigenfunction_curves import grid_method

FACTOR = 2  # this many times as many eigenvalues are drawn as are kept


class Spectrum(View):
    """log10 of the eigenvalues by rank; a product over many inputs may be smaller than any floating-point number."""

    key: ClassVar[str] = "grief-spectrum"
    title: ClassVar[str] = "Spectrum"
    help: ClassVar[str] = "Is the last kept eigenvalue far below the noise variance? If not, more eigenfunctions help."
    family: ClassVar[str] = "eigenfunctions"
    order: ClassVar[int] = 20

    def applies(self, run: Run) -> bool:
        """Applies to methods on a grid."""
        return super().applies(run) and isinstance(run.method, HasGridEigenfunctions)

    def data(self, run: Run, at: int) -> Layers:
        """Return log10 of the kept eigenvalues, of as many dropped ones, and of the noise variance."""
        method, state = grid_method(run), run.trace[at].step.state
        theta_chosen, _ = method.origin(state)
        grid = method.eigenfunctions(run.problem, state).grid
        spectrum = grid.spectrum(theta_chosen, FACTOR * method.num_eigenfunctions)
        logs = spectrum.log_values.cpu().double().numpy() / np.log(10.0)
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
        """Draw the eigenvalues, and a line at the noise variance."""
        noise = hv.Curve(layers["noise"], "x", "y", label="noise variance")
        parts = [
            layer(noise, "noise", color=ROLES["reference"], line_dash="dashed"),
            layer(hv.Scatter(layers["dropped"], "x", "y", label="dropped"), "dropped", color=ROLES["data"], size=4),
            layer(hv.Scatter(layers["kept"], "x", "y", label="kept"), "kept", color=ROLES["mean"], size=5),
        ]
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=3, responsive=True, show_grid=True, **labels(layers["kept"])
        )
