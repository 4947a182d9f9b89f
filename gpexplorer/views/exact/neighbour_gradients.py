"""How alike the gradients of neighbours move over the iterations, beside those of rows that are not neighbours."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param
import torch

from ...methods.exact.gradient_correlation import correlations
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES

BINS = np.linspace(-1.0, 1.0, 41)
CENTRES = 20  # a fifth of the paper's, so that the picture is quick


class Correlation(View):
    """Figure 1 of Bo and Sminchisescu (2008), at any moment of a run."""

    key: ClassVar[str] = "gbcd-correlation"
    title: ClassVar[str] = "Gradients of neighbours"
    help: ClassVar[str] = (
        "Neighbours whose gradients rise and fall together say the same thing twice: is the mass on the right?"
    )
    family: ClassVar[str] = "exact"
    order: ClassVar[int] = 60

    window = param.Integer(50, bounds=(2, 500), softbounds=(5, 100), doc="Iterations looked back upon.")
    neighbours = param.Integer(50, bounds=(1, 500), softbounds=(5, 100), doc="Nearest rows of each row.")

    def applies(self, run: Run) -> bool:
        """Solvers that take several iterations over alpha."""
        state = run.method.State._fields  # type: ignore[attr-defined]
        return super().applies(run) and "alpha" in state and any(channel.log for channel in run.method.channels)

    def data(self, run: Run, at: int) -> Layers:
        """Shares of the coefficients in each of forty intervals."""
        seen = [record.step.state for record in run.trace[max(0, at - self.window + 1) : at + 1]]
        solved = [state for state in seen if state.phase == "solve"]
        layers = {"far": _shares(np.zeros(0)), "near": _shares(np.zeros(0))}
        title = "no iterations to compare yet"
        if len(solved) > 1:
            alphas = torch.stack([state.alpha for state in solved])
            found = correlations(run.problem, solved[-1].theta, alphas, CENTRES, self.neighbours)
            layers = {"far": _shares(found.far.cpu().numpy()), "near": _shares(found.near.cpu().numpy())}
            if len(found.near):
                title = f"median of neighbours {float(found.near.median()):.2f}, over {len(solved)} iterations"
        layers["near"].attrs |= {"xlabel": "correlation of gradients", "ylabel": "share of pairs", "title": title}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Two histograms as steps, the neighbours filled."""
        near = hv.Area(layers["near"], "x", "y", label="neighbours")
        far = hv.Curve(layers["far"], "x", "y", label="any two rows")
        parts = [
            layer(near, "near", color=ROLES["mean"], fill_alpha=0.45, line_color=ROLES["mean"]),
            layer(far, "far", color=ROLES["reference"], line_width=2),
        ]
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=2, responsive=True, show_grid=True, **labels(layers["near"])
        )


def _shares(values: np.ndarray) -> pd.DataFrame:
    """The outline of a histogram whose heights add up to one, two corners an interval."""
    counts = np.histogram(values, BINS)[0]
    return pd.DataFrame({"x": np.repeat(BINS, 2)[1:-1], "y": np.repeat(counts / max(len(values), 1), 2)})
