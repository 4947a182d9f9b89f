"""Rows and whom they depend on, and how much their neighbours leave unexplained."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param

from ...methods.capabilities import DependsOnNearRows
from ...runs.run import Run
from ..base import Layers, View, dots, line, overlay, segments
from ..drawing import run_rows
from ..drawing.palette import ROLES

SAMPLE = 400  # rows whose conditionals are computed for a picture
BINS = 12  # of the places in the order, for the curve


class _OfNearRows(View):
    """A picture of a method in which each row depends on near rows."""

    family: ClassVar[str] = "neighbours"
    needs: ClassVar[type] = DependsOnNearRows


class Neighbours(_OfNearRows):
    """One row and its neighbours among the rows before it."""

    key: ClassVar[str] = "near-rows"
    title: ClassVar[str] = "A row and its neighbours"
    help: ClassVar[str] = (
        "Move the place in the order: early rows depend on rows far away, late rows on those beside them. When "
        "lengthscales have changed their proportions, the neighbours are others."
    )
    order: ClassVar[int] = 20
    hero: ClassVar[bool] = True

    place = param.Number(
        0.5, bounds=(0.0, 1.0), label="place in the order", doc="Which row: 0 is among the first, 1 the last."
    )

    def data(self, run: Run, at: int) -> Layers:
        """Rows before and after the chosen one, and segments from it to its neighbours."""
        method, state = run.method, run.trace[at].step.state
        assert isinstance(method, DependsOnNearRows)
        near = method.near_rows(run.problem, state, SAMPLE)
        if run.problem.train.d == 1:
            plane = np.column_stack(
                [run_rows.inputs_of(run.problem.train)[:, 0], run_rows.targets_of(run.problem.train)]
            )
            names = (run_rows.input_name(run, 0), run.problem.train.target)
        else:
            plane, names = run_rows.plane(run)
        sample = run_rows.sampled(len(plane)).numpy()
        if not len(near.rows):  # fewer rows than neighbours: an exact GP
            chosen, neighbours, title = sample[:0], sample[:0], "Each row depends on all before it: an exact GP"
        else:
            index = round(self.place * (len(near.rows) - 1))
            chosen, neighbours = near.rows[index : index + 1].cpu().numpy(), near.neighbours[index].cpu().numpy()
            count = "1 neighbour" if len(neighbours) == 1 else f"{len(neighbours)} neighbours"
            title = f"row {int(near.places[index]) + 1:,} of {len(plane):,}, {count}"
        begin = np.repeat(plane[chosen], len(neighbours), 0)
        layers = {
            "rows": pd.DataFrame(plane[sample], columns=["x", "y"]),
            "lines": pd.DataFrame(np.hstack([begin, plane[neighbours]]), columns=["x0", "y0", "x1", "y1"]),
            "neighbours": pd.DataFrame(plane[neighbours], columns=["x", "y"]),
            "chosen": pd.DataFrame(plane[chosen], columns=["x", "y"]),
        }
        layers["rows"].attrs |= {"map": run.problem.train.d > 1, "xlabel": names[0], "ylabel": names[1], "title": title}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw all rows, the segments, and the row on top."""
        parts = [
            dots(layers, "rows", "training rows", color=ROLES["data"], size=3, alpha=0.45),
            segments(layers, "lines", "depends on", color=ROLES["proposed"], line_width=1.5, alpha=0.8),
            dots(layers, "neighbours", "neighbours", color=ROLES["proposed"], size=7),
            dots(layers, "chosen", "the row", color=ROLES["inducing"], size=11, marker="diamond"),
        ]
        return overlay(parts, layers["rows"], 4)


class Unexplained(_OfNearRows):
    """The standard deviation of each target given its neighbours, over the order."""

    key: ClassVar[str] = "near-rows-sd"
    title: ClassVar[str] = "What neighbours leave unexplained"
    help: ClassVar[str] = (
        "The first rows are far apart and know little of each other. Does the curve reach the noise before the order "
        "ends? If it does, most rows are known from those beside them."
    )
    order: ClassVar[int] = 40

    def data(self, run: Run, at: int) -> Layers:
        """A dot for each row of a sample, their median by place, and the noise."""
        method, state = run.method, run.trace[at].step.state
        assert isinstance(method, DependsOnNearRows)
        near = method.near_rows(run.problem, state, SAMPLE)
        is_known = near.sd.isfinite().cpu().numpy()
        place, sd = (each.cpu().double().numpy()[is_known] for each in (near.places + 1, near.sd))
        log_place, log_sd = np.log10(place), np.log10(sd)
        dots_of = pd.DataFrame({"x": log_place, "y": log_sd})
        groups = np.array_split(np.arange(len(place)), min(BINS, max(len(place), 1)))
        median = [(np.median(log_place[group]), np.median(log_sd[group])) for group in groups if len(group)]
        noise = float(state.theta[-1]) / np.log(10.0)
        ends = [log_place.min(), log_place.max()] if len(place) else []
        dots_of.attrs |= {
            "xlabel": "log10 place in the order",
            "ylabel": "log10 sd given the neighbours, scaled target",
        }
        return {
            "rows": dots_of,
            "median": pd.DataFrame(np.reshape(median, (-1, 2)), columns=["x", "y"]),
            "noise": pd.DataFrame({"x": ends, "y": [noise] * len(ends)}, dtype=float),
        }

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the dots, their median, and the noise."""
        parts = [
            dots(layers, "rows", "rows", color=ROLES["data"], size=3, alpha=0.5),
            line(layers, "median", "median", color=ROLES["mean"], line_width=2),
            line(layers, "noise", "noise", color=ROLES["reference"], line_dash="dashed"),
        ]
        return overlay(parts, layers["rows"], 3)
