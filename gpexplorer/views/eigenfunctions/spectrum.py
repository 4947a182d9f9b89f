"""The spectrum of the kernel matrix on the grid: the eigenvalues that are kept, and the next ones."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ...methods.capabilities import HasGridEigenfunctions
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES
from .eigenfunction_curves import grid_method

FACTOR = 2  # at least this many times as many eigenvalues are drawn as are kept
DROPPED = 1000  # of the dropped eigenvalues, at most this many are drawn


class Spectrum(View):
    """log10 of the eigenvalues by rank; a product over many inputs may be smaller than any floating-point number."""

    key: ClassVar[str] = "grief-spectrum"
    title: ClassVar[str] = "Spectrum"
    help: ClassVar[str] = (
        "Is the last kept eigenvalue far below the noise variance? If not, more eigenfunctions help. Where the "
        "evidence chooses the functions, which ranks does it need?"
    )
    family: ClassVar[str] = "eigenfunctions"
    order: ClassVar[int] = 20

    def applies(self, run: Run) -> bool:
        """Applies to methods on a grid."""
        return super().applies(run) and isinstance(run.method, HasGridEigenfunctions)

    def data(self, run: Run, at: int) -> Layers:
        """Return log10 of the kept eigenvalues, of as many dropped ones, and of the noise variance."""
        method, state = grid_method(run), run.trace[at].step.state
        theta_chosen, _ = method.origin(state)
        choice = method.eigenfunctions(run.problem, state)
        count = FACTOR * method.num_eigenfunctions
        if state.functions is not None:
            count = max(count, method.candidates)
        spectrum = choice.grid.spectrum(theta_chosen, count)
        logs = spectrum.log_values.cpu().double().numpy() / np.log(10.0)
        frame = pd.DataFrame({"x": np.arange(1.0, len(logs) + 1), "y": logs})
        is_kept = rows_among(spectrum.axis_indices, choice.index).cpu().numpy()
        dropped = np.flatnonzero(~is_kept)
        noise = float(2 * state.theta[-1]) / np.log(10.0)
        layers = {
            "kept": frame[is_kept].reset_index(drop=True),
            "dropped": frame.iloc[dropped[:: -(-len(dropped) // DROPPED) or 1]].reset_index(drop=True),
            "noise": pd.DataFrame({"x": [1.0, float(len(logs))], "y": [noise, noise]}),
        }
        decades = sum(np.log10(len(U)) for U in choice.grid.axes)
        size = f"{10**decades:,.0f}" if decades < 7 else f"10^{decades:.0f}"
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


def rows_among(rows: Tensor, others: Tensor) -> Tensor:
    """Return a mask [n] of the rows [n, d] that are also among the others [m, d]. O((n + m) log (n + m))."""
    _, place = torch.unique(torch.cat([others.to(rows), rows]), dim=0, return_inverse=True)
    return torch.isin(place[len(others) :], place[: len(others)])
