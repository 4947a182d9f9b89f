"""Survival: which rows stay inducing points, from the step in which they are added to that of their removal."""

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
    """One line per life: the steps during which a row was an inducing point."""

    key: ClassVar[str] = "survival"
    title: ClassVar[str] = "Which points stay"
    help: ClassVar[str] = (
        "Each line is the time for which a row was an inducing point. Which rows stay for many epochs?"
    )
    family: ClassVar[str] = "inducing"
    order: ClassVar[int] = 35

    def applies(self, run: Run) -> bool:
        """Return whether the inducing points are rows that are replaced over epochs."""
        return super().applies(run) and {"inducing", "epoch"} <= set(getattr(run.method.State, "_fields", ()))

    def data(self, run: Run, at: int) -> Layers:
        """Lives that have ended and lives that continue, the oldest first, and the steps at which an epoch began."""
        states = [run.trace[i].step.state for i in range(at + 1)]
        begin, end, alive = lives([state.inducing.cpu().numpy() for state in states])
        order = np.lexsort((-end, begin))
        begin, end, alive = begin[order], end[order], alive[order]
        y = np.arange(len(order), dtype=float)
        frame = pd.DataFrame({"x0": begin.astype(float), "y0": y, "x1": end.astype(float), "y1": y})
        epochs = np.array([state.epoch for state in states])
        starts = np.flatnonzero(np.diff(epochs) > 0).astype(float) + 1.0
        top = np.full(len(starts), float(max(len(order), 1)))
        layers = {
            "epochs": pd.DataFrame({"x0": starts, "y0": 0.0 * top, "x1": starts, "y1": top}),
            "gone": frame[~alive].reset_index(drop=True),
            "alive": frame[alive].reset_index(drop=True),
        }
        first = int(((begin == 0) & alive).sum())
        layers["alive"].attrs |= {
            "xlabel": "step",
            "ylabel": "inducing rows, oldest first",
            "title": f"{len(order)} lives so far; {int(alive.sum())} continue, {first} of them since the start",
        }
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw thin lines for lives that have ended, and strong ones for the current inducing points."""
        ends = ["x0", "y0", "x1", "y1"]
        parts = [
            layer(hv.Segments(layers["epochs"], ends), "epochs", color=ROLES["reference"], line_dash="dotted"),
            layer(hv.Segments(layers["gone"], ends, label="removed"), "gone", color=ROLES["data"], line_width=1.5),
            layer(hv.Segments(layers["alive"], ends, label="inducing"), "alive", color=ROLES["inducing"], line_width=2),
        ]
        return hv.Overlay(parts).opts(
            legend_position="top", legend_cols=2, responsive=True, show_grid=True, **labels(layers["alive"])
        )


def lives(sets: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Find the lives in a sequence of inducing sets.

    Parameters
    ----------
    sets : list of int arrays [m]
        Inducing rows after each of T steps, by slot. Later sets may be larger.

    Returns
    -------
    begin, end : int arrays
        First step of each life, and the step in which another row had taken the slot (or the last step).
    alive : bool array
        Whether the life continues after the last step.

    Notes
    -----
    O(T m).
    """
    widest = max((len(rows) for rows in sets), default=0)
    table = np.full((len(sets), widest), -1)
    for step, rows in enumerate(sets):
        table[step, : len(rows)] = rows
    table = table.T  # [slots, steps]
    changed = np.ones_like(table, dtype=bool)
    changed[:, 1:] = table[:, 1:] != table[:, :-1]
    slot, begin = np.nonzero(changed)
    alive = np.append(slot[1:] != slot[:-1], True) if len(slot) else np.empty(0, dtype=bool)
    end = np.where(alive, len(sets) - 1, np.append(begin[1:], 0)) if len(slot) else begin
    occupied = table[slot, begin] >= 0
    return begin[occupied], end[occupied], alive[occupied]
