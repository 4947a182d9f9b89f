"""Do the intervals hold what they promise? Expected against observed coverage on held-out rows."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import torch
from scipy.special import ndtri

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing import run_rows
from ..drawing.palette import ROLES

LEVELS = np.linspace(0.02, 0.98, 25)
MOST = 2000  # held-out rows looked at


class Calibration(View):
    """Observed share of rows within each central interval."""

    key: ClassVar[str] = "calibration"
    title: ClassVar[str] = "Calibration"
    help: ClassVar[str] = "Below the diagonal the bands are too narrow, above it too wide."
    order: ClassVar[int] = 60

    def applies(self, run: Run) -> bool:
        """Runs with held-out rows."""
        return run.split is not None and len(run.split.test) > 0 and run_rows.numeric(run)

    def data(self, run: Run, at: int) -> Layers:
        """Coverage of the central intervals of y."""
        assert run.split is not None
        test = run.split.test
        part = test.rows(run_rows.sampled(len(test), MOST).to(test.y.device))
        found = run.posterior(at, of="y")(torch.from_numpy(run_rows.inputs_of(part)))
        frame = coverage(run_rows.targets_of(part), found.mean.cpu().numpy(), found.var.cpu().numpy())
        frame.attrs |= {"xlabel": "promised share of held-out rows", "ylabel": "observed share"}
        return {"observed": frame, "dots": frame, "ideal": pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]})}

    def plot(self, layers: Layers) -> hv.Overlay:
        """A line beside the diagonal."""
        ideal = hv.Curve(layers["ideal"], "x", "y", label="as promised")
        observed = hv.Curve(layers["observed"], "x", "y", label="observed")
        parts = [
            layer(ideal, "ideal", color=ROLES["reference"], line_dash="dashed"),
            layer(observed, "observed", color=ROLES["mean"], line_width=2.5),
            layer(hv.Scatter(layers["dots"], "x", "y"), "dots", color=ROLES["mean"], size=6),
        ]
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=2, responsive=True, show_grid=True, **labels(layers["observed"])
        )


def coverage(y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> pd.DataFrame:
    """x: the promised share of each central Gaussian interval; y: the share of targets inside it."""
    distance = np.abs(y - mean) / np.sqrt(var)
    return pd.DataFrame({"x": LEVELS, "y": [(distance <= ndtri(0.5 + p / 2)).mean() for p in LEVELS]})
