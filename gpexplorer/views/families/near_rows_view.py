"""Rows and whom they depend on, and how much their neighbours leave unexplained."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param

from ...methods.capabilities import DependsOnNearRows, NearRows
from ...runs.run import Run
from ..base import Layers, View, dots, line, named, on_plane, overlay, segments
from ..drawing import run_rows
from ..drawing.palette import ROLES

SAMPLE = 400  # rows whose conditionals are computed for a picture
FACTOR_ROWS, HEAD_ROWS = 120, 20  # of the factor that are drawn, so that one sees the gaps; of those that have none
CORNER = 0.56, 0.03, 0.44  # of the map in the empty half: shares of the rows at its left, its lower and its upper end
TINY = np.finfo(float).tiny
BINS = 12  # of the places in the order, for the curve


class _OfOneRow(View):
    """A picture of one row, at a place in the order that a person moves."""

    needs: ClassVar[type] = DependsOnNearRows
    place = param.Number(
        0.5, bounds=(0.0, 1.0), label="place in the order", doc="Which row: 0 is among the first, 1 the last."
    )

    def data(self, run: Run, at: int) -> Layers:
        """All rows on a plane, the chosen one, and segments from it to its neighbours."""
        method, state, train = run.method, run.trace[at].step.state, run.problem.train
        assert isinstance(method, DependsOnNearRows)
        near = method.near_rows(run.problem, state, SAMPLE)
        names: tuple[str, str] = (run_rows.input_name(run, 0), train.target)
        if train.d == 1:
            plane = np.column_stack([run_rows.inputs_of(train)[:, 0], run_rows.targets_of(train)])
        else:
            plane, names = run_rows.plane(run)
        sample, order, place = run_rows.sampled(len(plane)).numpy(), near.order.cpu().numpy(), self._place_in(near)
        if place is None:
            chosen, neighbours, title = sample[:0], sample[:0], "Each row depends on all before it: an exact GP"
        else:
            chosen, neighbours = (order[each[place].cpu().numpy()] for each in (near.places[:, None], near.neighbours))
            count = "1 neighbour" if len(neighbours) == 1 else f"{len(neighbours)} neighbours"
            title = f"row {int(near.places[place]) + 1:,} of {len(plane):,}, {count}"
        begin = np.repeat(plane[chosen], len(neighbours), 0)
        layers = {
            "rows": named(on_plane(plane[sample]), *names, title, map=train.d > 1),
            "lines": pd.DataFrame(np.hstack([begin, plane[neighbours]]), columns=["x0", "y0", "x1", "y1"]),
            "neighbours": on_plane(plane[neighbours]),
            "chosen": on_plane(plane[chosen]),
        }
        return self._of_near_rows(layers, near)

    def _of_near_rows(self, layers: Layers, near: NearRows) -> Layers:
        return layers

    def _row_and_neighbours(self, layers: Layers, name: str, size: int) -> list[hv.Element]:
        """The row, under this name and in this size, on top of its neighbours and the segments to them."""
        return [
            segments(layers, "lines", "depends on", color=ROLES["proposed"], line_width=1.5, alpha=0.8),
            dots(layers, "neighbours", "neighbours", color=ROLES["proposed"], size=size - 4),
            dots(layers, "chosen", name, color=ROLES["inducing"], size=size, marker="diamond"),
        ]

    def _place_in(self, near: NearRows) -> int | None:
        """Which of the sampled rows is chosen; None with fewer rows than neighbours, which is an exact GP."""
        return round(self.place * (len(near.places) - 1)) if len(near.places) else None


class Neighbours(_OfOneRow):
    """One row and its neighbours among the rows before it."""

    key: ClassVar[str] = "near-rows"
    title: ClassVar[str] = "A row and its neighbours"
    help: ClassVar[str] = (
        "Move the place in the order: early rows depend on rows far away, late rows on those beside them. When "
        "lengthscales have changed their proportions, the neighbours are others."
    )
    order: ClassVar[int] = 20
    hero: ClassVar[bool] = True
    over_input: ClassVar[bool] = True

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw all rows, the segments, and the row on top."""
        parts = [
            dots(layers, "rows", "training rows", color=ROLES["data"], size=3, alpha=0.45),
            *self._row_and_neighbours(layers, "the row", 11),
        ]
        return overlay(parts, layers["rows"], 4)


class Factor(_OfOneRow):
    """Which entries of the factor are filled, row by row, and the newest row on a map in the empty half."""

    key: ClassVar[str] = "near-rows-factor"
    title: ClassVar[str] = "The factor fills in order"
    help: ClassVar[str] = (
        "Each row of the factor has an entry for each earlier row that it depends on, and is empty elsewhere. Move "
        "the place to fill it from below. The map in the empty corner shows the newest row and its neighbours."
    )
    order: ClassVar[int] = 30

    def _of_near_rows(self, layers: Layers, near: NearRows) -> Layers:
        """The map moves into the corner; its newest row and that of the factor share their layers."""
        n, labels, place = len(near.order), dict(layers["rows"].attrs), self._place_in(near)
        low, high = layers["rows"].min().to_numpy(), layers["rows"].max().to_numpy()
        for frame in layers.values():
            shares = (frame.to_numpy() - np.resize(low, frame.shape[1])) / np.resize(high - low + TINY, frame.shape[1])
            begin = np.resize([CORNER[0], CORNER[1]], frame.shape[1])
            frame[:] = n * (begin + (CORNER[2] - CORNER[1]) * shares)
        head = n if place is None else int(near.places[0])  # of rows that depend on all before them
        first = np.unique(np.linspace(1, head, min(head, HEAD_ROWS)).round())
        entries = [np.column_stack([first[each] for each in np.tril_indices(len(first))[::-1]])]
        if place is not None:
            shown = np.unique([*range(0, place, -(-len(near.places) // FACTOR_ROWS)), place])
            i, k = near.places.cpu().numpy()[shown] + 1, near.neighbours.shape[1]
            columns = near.neighbours.cpu().numpy()[shown] + 1
            entries += [np.column_stack([columns.ravel(), np.repeat(i, k)]), np.column_stack([i, i])]
            newest = pd.DataFrame({"x": columns[-1], "y": np.full(k, i[-1])}, dtype=float)
            layers["neighbours"] = pd.concat([layers["neighbours"], newest])
            layers["chosen"] = pd.concat([layers["chosen"], pd.DataFrame({"x": i[-1:], "y": i[-1:]}, dtype=float)])
            filled, possible = int(np.minimum(np.arange(i[-1]), k).sum()), int(i[-1]) * (int(i[-1]) - 1) // 2
            labels["title"] = f"{labels['title']}; {filled:,} of {possible:,} entries so far, {filled / possible:.1%}"
        layers["entries"] = pd.DataFrame(np.concatenate(entries), columns=["x", "y"], dtype=float)
        layers["diagonal"] = pd.DataFrame({"x": [1.0, n], "y": [1.0, n]})
        labels |= {"map": False, "xlabel": "place of the row it depends on", "ylabel": "place of the row in the order"}
        layers["rows"].attrs = labels
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the entries and the map, and the newest row on top of both."""
        parts = [
            line(layers, "diagonal", color=ROLES["reference"], line_dash="dashed"),
            dots(layers, "entries", "filled entries", color=ROLES["mean"], size=2, alpha=0.6),
            dots(layers, "rows", "rows on the map", color=ROLES["data"], size=2, alpha=0.45),
            *self._row_and_neighbours(layers, "newest row", 10),
        ]
        return overlay(parts, layers["rows"], 3)


class Unexplained(View):
    """The standard deviation of each target given its neighbours, over the order."""

    key: ClassVar[str] = "near-rows-sd"
    title: ClassVar[str] = "What neighbours leave unexplained"
    needs: ClassVar[type] = DependsOnNearRows
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
        rows = pd.DataFrame({"x": log_place, "y": log_sd})
        groups = np.array_split(np.arange(len(place)), min(BINS, max(len(place), 1)))
        median = [(np.median(log_place[group]), np.median(log_sd[group])) for group in groups if len(group)]
        noise = float(state.theta[-1]) / np.log(10.0)
        ends = [log_place.min(), log_place.max()] if len(place) else []
        return {
            "rows": named(rows, "log10 place in the order", "log10 sd given the neighbours, scaled target"),
            "median": on_plane(median),
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
