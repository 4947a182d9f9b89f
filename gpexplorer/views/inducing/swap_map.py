"""Where the swaps went: the inducing set over the data, on two inputs or on two principal components."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing import run_rows
from ..drawing.palette import ROLES

LAST = 30  # swaps whose arrows are drawn


class Swaps(View):
    """The last accepted swaps, from the row taken out to the row put in."""

    key: ClassVar[str] = "swaps"
    title: ClassVar[str] = "Where points moved"
    help: ClassVar[str] = "Each segment is one accepted swap, from the row taken out to the row put in."
    family: ClassVar[str] = "inducing"
    order: ClassVar[int] = 30

    def applies(self, run: Run) -> bool:
        """Methods that swap, on two inputs or more."""
        swaps = "removed" in getattr(run.method.Info, "_fields", ())
        return super().applies(run) and swaps and run_rows.numeric(run) and run.problem.train.d > 1

    def data(self, run: Run, at: int) -> Layers:
        """Rows on the plane, the inducing set of this step, and the last accepted swaps before it."""
        plane, names = run_rows.plane(run)
        inducing = run_rows.inducing_rows(run.trace[at].step.state)
        picked = plane[inducing.cpu().numpy()] if inducing is not None else plane[:0]
        infos = [run.trace[i].step.info for i in range(at, -1, -1)]
        moves = [(info.removed, info.proposed) for info in infos if getattr(info, "accepted", False)][:LAST]
        a, b = (plane[np.array([m[k] for m in moves], dtype=int)] for k in (0, 1))
        chosen = run_rows.sampled(len(plane)).numpy()
        layers = {
            "rows": pd.DataFrame({"x": plane[chosen, 0], "y": plane[chosen, 1]}),
            "moves": pd.DataFrame({"x0": a[:, 0], "y0": a[:, 1], "x1": b[:, 0], "y1": b[:, 1]}),
            "inducing": pd.DataFrame({"x": picked[:, 0], "y": picked[:, 1]}),
        }
        layers["rows"].attrs |= {"xlabel": names[0], "ylabel": names[1]}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Faint rows, segments, and the inducing set on top."""
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
