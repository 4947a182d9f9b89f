"""The swaps so far: from where to where points moved, and which rows stay inducing points."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...runs.run import Run
from ..base import Layers, View, dots, named, on_plane, overlay, segments
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
        infos = [record.step.info for record in run.trace[at::-1]]
        swaps = [(info.removed, info.proposed) for info in infos if getattr(info, "accepted", False)][:LAST]
        ends = plane[np.array(swaps, dtype=int).reshape(-1, 2)].reshape(-1, 4)
        return {
            "rows": named(on_plane(plane[run_rows.sampled(len(plane)).numpy()]), *names, map=True),
            "moves": pd.DataFrame(ends, columns=["x0", "y0", "x1", "y1"]),
            "inducing": on_plane(plane[inducing.cpu().numpy()] if inducing is not None else []),
        }

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the rows, the segments, and the inducing points on top."""
        parts = [
            dots(layers, "rows", "training rows", color=ROLES["data"], size=3, alpha=0.45),
            segments(layers, "moves", "accepted swaps", color=ROLES["proposed"], line_width=1.5, alpha=0.7),
            dots(layers, "inducing", "inducing points", color=ROLES["inducing"], size=9, marker="diamond"),
        ]
        return overlay(parts, layers["rows"], 3)


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
        states = [record.step.state for record in run.trace[: at + 1]]
        begin, end, alive = lives([state.inducing.cpu().numpy() for state in states])
        order = np.lexsort((-end, begin))
        begin, end, alive = begin[order], end[order], alive[order]
        y = np.arange(len(order), dtype=float)
        frame = pd.DataFrame({"x0": begin.astype(float), "y0": y, "x1": end.astype(float), "y1": y})
        epochs = np.array([state.epoch for state in states])
        starts = np.flatnonzero(np.diff(epochs) > 0).astype(float) + 1.0
        top = np.full(len(starts), float(max(len(order), 1)))
        gone, living = (frame[which].reset_index(drop=True) for which in (~alive, alive))
        first = int(((begin == 0) & alive).sum())
        title = f"{len(order):,} lines so far; {len(living)} continue, {first} of them since the start"
        if (asked := len(states[0].inducing)) > (left := len(states[-1].inducing)):
            title += f". {left} of {asked:,} points are used: they explain all other rows to rounding"
        return {
            "epochs": pd.DataFrame({"x0": starts, "y0": 0.0 * top, "x1": starts, "y1": top}),
            "gone": gone,
            "alive": named(living, "step", "inducing rows, oldest first", title),
            "now": on_plane(living[["x1", "y1"]]),  # seen at step 0 as well
        }

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw thin lines for lives that have ended, and strong ones with a dot for the current inducing points."""
        parts = [
            segments(layers, "epochs", color=ROLES["reference"], line_dash="dotted"),
            segments(layers, "gone", "removed", color=ROLES["data"], line_width=1.5),
            segments(layers, "alive", "inducing", color=ROLES["inducing"], line_width=2),
            dots(layers, "now", color=ROLES["inducing"], size=5),
        ]
        return overlay(parts, layers["alive"])


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
    table = np.full((widest, len(sets)), -1)  # [slots, steps]
    for step, rows in enumerate(sets):
        table[: len(rows), step] = rows
    changed = np.ones_like(table, dtype=bool)
    changed[:, 1:] = table[:, 1:] != table[:, :-1]
    slot, begin = np.nonzero(changed)
    alive = np.append(slot[1:] != slot[:-1], True) if len(slot) else np.empty(0, dtype=bool)
    end = np.where(alive, len(sets) - 1, np.append(begin[1:], 0)) if len(slot) else begin
    occupied = table[slot, begin] >= 0
    return begin[occupied], end[occupied], alive[occupied]
