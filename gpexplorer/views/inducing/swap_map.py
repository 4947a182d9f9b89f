"""The swaps on a map: inducing points and accepted swaps over two inputs or two principal components."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing import run_rows
from ..drawing.palette import ROLES

LAST = 30  # accepted swaps that are drawn


class Swaps(View):
    """The last accepted swaps, each as a segment from the removed row to the added row."""

    key: ClassVar[str] = "swaps"
    title: ClassVar[str] = "Where points moved"
    help: ClassVar[str] = "Each segment is one accepted swap, from the row that was removed to the row that was added."
    family: ClassVar[str] = "inducing"
    order: ClassVar[int] = 30

    def applies(self, run: Run) -> bool:
        """Return whether the method swaps rows and there are two inputs or more."""
        reports_swaps = "removed" in getattr(run.method.Info, "_fields", ())
        return super().applies(run) and reports_swaps and run_rows.numeric(run) and run.problem.train.d > 1

    def data(self, run: Run, at: int) -> Layers:
        """Compute positions of rows and inducing points on the plane, and of the last accepted swaps."""
        plane, names = run_rows.plane(run)
        inducing = run_rows.inducing_rows(run.trace[at].step.state)
        points = plane[inducing.cpu().numpy()] if inducing is not None else plane[:0]
        infos = [run.trace[i].step.info for i in range(at, -1, -1)]
        swaps = [(info.removed, info.proposed) for info in infos if getattr(info, "accepted", False)][:LAST]
        removed, added = (plane[np.array([swap[k] for swap in swaps], dtype=int)] for k in (0, 1))
        sample = run_rows.sampled(len(plane)).numpy()
        layers = {
            "rows": pd.DataFrame({"x": plane[sample, 0], "y": plane[sample, 1]}),
            "moves": pd.DataFrame({"x0": removed[:, 0], "y0": removed[:, 1], "x1": added[:, 0], "y1": added[:, 1]}),
            "inducing": pd.DataFrame({"x": points[:, 0], "y": points[:, 1]}),
        }
        layers["rows"].attrs |= {"map": True, "xlabel": names[0], "ylabel": names[1]}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the rows, the segments, and the inducing points on top."""
        dots = hv.Scatter(layers["rows"], "x", "y", label="training rows")
        inducing = hv.Scatter(layers["inducing"], "x", "y", label="inducing points")
        moves = hv.Segments(layers["moves"], ["x0", "y0", "x1", "y1"], label="accepted swaps")
        parts = [
            layer(dots, "rows", color=ROLES["data"], size=3, alpha=0.45),
            layer(moves, "moves", color=ROLES["proposed"], line_width=1.5, alpha=0.7),
            layer(inducing, "inducing", color=ROLES["inducing"], size=9, marker="diamond"),
        ]
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=3, responsive=True, show_grid=True, **labels(layers["rows"])
        )
