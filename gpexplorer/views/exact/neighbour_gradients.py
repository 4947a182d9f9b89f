"""Correlation over iterations between the gradients of neighbouring rows, and of rows drawn at random."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param

from ...methods.capabilities import HasGradient
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES

BINS = np.linspace(-1.0, 1.0, 41)
CENTRES = 20  # random rows: a fifth of the paper's number, so that the picture is quick


class Correlation(View):
    """Figure 1 of Bo and Sminchisescu (2008), at any record of a run."""

    key: ClassVar[str] = "gbcd-correlation"
    title: ClassVar[str] = "Gradients of neighbours"
    help: ClassVar[str] = (
        "If most pairs of neighbours lie on the right, their gradients rise and fall together, and a block of "
        "neighbours holds the same information several times."
    )
    family: ClassVar[str] = "exact"
    order: ClassVar[int] = 60

    window = param.Integer(50, bounds=(2, 500), softbounds=(5, 100), doc="Number of iterations to look back.")
    neighbours = param.Integer(50, bounds=(1, 500), softbounds=(5, 100), doc="Number of nearest rows per row.")

    def applies(self, run: Run) -> bool:
        """Whether the method has a gradient that changes over many iterations."""
        return super().applies(run) and isinstance(run.method, HasGradient)

    def data(self, run: Run, at: int) -> Layers:
        """Share of the coefficients in each of forty intervals."""
        method = run.method
        assert isinstance(method, HasGradient)
        states = [record.step.state for record in run.trace[max(0, at - self.window + 1) : at + 1]]
        result = method.gradient_correlations(run.problem, states, CENTRES, self.neighbours)
        layers = {"far": _shares(result.far.cpu().numpy()), "near": _shares(result.near.cpu().numpy())}
        title = "no iterations to compare yet"
        if len(result.near):
            title = f"median of neighbours {float(result.near.median()):.2f}, over {result.iterations} iterations"
        layers["near"].attrs |= {"xlabel": "correlation of gradients", "ylabel": "share of pairs", "title": title}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Two histograms as steps; that of the neighbours is filled."""
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
    """The outline of a histogram whose heights add up to one, two corners per interval."""
    counts = np.histogram(values, BINS)[0]
    return pd.DataFrame({"x": np.repeat(BINS, 2)[1:-1], "y": np.repeat(counts / max(len(values), 1), 2)})
