"""Survival: which rows stay inducing, from the step they came in to the step they went out."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES


class Survival(View):
    """A line a life: every row that ever was an inducing point, step by step."""

    key: ClassVar[str] = "survival"
    title: ClassVar[str] = "Which points stay"
    help: ClassVar[str] = "A line is a row while it is inducing: points that matter outlive the epochs."
    family: ClassVar[str] = "inducing"
    order: ClassVar[int] = 35

    def applies(self, run: Run) -> bool:
        """Methods whose points are rows that come and go over epochs."""
        return super().applies(run) and {"inducing", "epoch"} <= set(getattr(run.method.State, "_fields", ()))

    def data(self, run: Run, at: int) -> Layers:
        """Lives that have ended and lives that go on, oldest first; steps at which an epoch began."""
        states = [run.trace[i].step.state for i in range(at + 1)]
        begin, end, alive = lives([state.inducing.cpu().numpy() for state in states])
        order = np.lexsort((-end, begin))
        begin, end, alive = begin[order], end[order], alive[order]
        y = np.arange(len(order), dtype=float)
        held = pd.DataFrame({"x0": begin.astype(float), "y0": y, "x1": end.astype(float), "y1": y})
        epochs = np.array([state.epoch for state in states])
        starts = np.flatnonzero(np.diff(epochs) > 0).astype(float) + 1.0
        top = np.full(len(starts), float(max(len(order), 1)))
        layers = {
            "epochs": pd.DataFrame({"x0": starts, "y0": 0.0 * top, "x1": starts, "y1": top}),
            "gone": held[~alive].reset_index(drop=True),
            "alive": held[alive].reset_index(drop=True),
        }
        first = int(((begin == 0) & alive).sum())
        layers["alive"].attrs |= {
            "xlabel": "step",
            "ylabel": "inducing rows, oldest first",
            "title": f"{len(order)} lives so far; {int(alive.sum())} go on, {first} of them from the start",
        }
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Faint lines for those that went, strong ones for those that are."""
        ends = ["x0", "y0", "x1", "y1"]
        parts = [
            layer(hv.Segments(layers["epochs"], ends), "epochs", color=ROLES["reference"], line_dash="dotted"),
            layer(hv.Segments(layers["gone"], ends, label="went out"), "gone", color=ROLES["data"], line_width=1.5),
            layer(hv.Segments(layers["alive"], ends, label="inducing"), "alive", color=ROLES["inducing"], line_width=2),
        ]
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=2, responsive=True, show_grid=True, **labels(layers["alive"])
        )


def lives(sets: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """First step, end (the step it was out, or the last) and whether it goes on, of each life in a slot. O(T m)."""
    widest = max((len(held) for held in sets), default=0)
    table = np.full((len(sets), widest), -1)
    for step, held in enumerate(sets):
        table[step, : len(held)] = held
    table = table.T  # [slots, steps]
    fresh = np.ones_like(table, dtype=bool)
    fresh[:, 1:] = table[:, 1:] != table[:, :-1]
    slot, begin = np.nonzero(fresh)
    last = np.append(slot[1:] != slot[:-1], True) if len(slot) else np.empty(0, dtype=bool)
    end = np.where(last, len(sets) - 1, np.append(begin[1:], 0)) if len(slot) else begin
    real = table[slot, begin] >= 0
    return begin[real], end[real], last[real]
