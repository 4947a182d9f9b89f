"""Studies of several runs in a notebook cell: tables and static pictures of races, comparisons, scaling studies."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import holoviews as hv
import pandas as pd

from ..errors import SettingError, closest
from ..runs import Run
from ..runs.studies import comparison
from ..runs.studies.comparison import Finished
from ..runs.studies.race import METRICS, Race
from ..runs.studies.scaling_study import Scaling
from .base import Layers
from .drawing.live import Drawing, Live
from .drawing.static_svg import figure_svg
from .picture import Svg
from .runs import comparison_charts
from .runs.comparison_charts import Lanes
from .saved_page.page_file import save_page


class Compare:
    """Several runs side by side.

    Parameters
    ----------
    runs : mapping of str to Run, or iterable of Run
        The runs; without names they are called by their method and a number.

    Raises
    ------
    SettingError
        If a run was made without a spec.

    Examples
    --------
    >>> gpx.Compare({"six points": small, "twelve points": large})  # doctest: +SKIP
    """

    def __init__(self, runs: Mapping[str, Run] | Iterable[Run]) -> None:
        runs_by_name = (
            dict(runs)
            if isinstance(runs, Mapping)
            else {f"{k + 1} {run.method.key}": run for k, run in enumerate(runs)}
        )
        self.runs = {name: Finished.of(run) for name, run in runs_by_name.items()}
        self._opened = runs_by_name

    def table(self, by: str = "smse", top: int | None = None) -> pd.DataFrame:
        """Return one row per run (see `comparison.table`).

        Parameters
        ----------
        by : str
            The column to sort by.
        top : int, optional
            Keep this many rows.
        """
        return comparison.table(self.runs, by, top)

    def curves(self, channel: str = "objective", over: str = "step", log: bool = False) -> Svg:
        """Return one curve per run as SVG, which a cell shows.

        Parameters
        ----------
        channel : str
            The vertical axis: a channel of the methods, or a score.
        over : str
            The horizontal axis: "step", "seconds" or "kernel entries".
        log : bool
            Whether the axis of the channel is logarithmic.
        """
        layers = comparison.overlay(self.runs, channel, over)
        return Svg(_svg(lambda frames: comparison_charts.curves(frames, log=log), layers))

    def save_page(self, path: str | os.PathLike[str], *keys: str, by: str = "step") -> Path:
        """Write two runs side by side as one HTML file, which plays both under one bar without a server.

        Parameters
        ----------
        path : str or path
            The file to write, smaller than 5 MB.
        *keys : str
            Which pictures, which both runs must have; without any, the prediction and the convergence.
        by : {"step", "seconds"}
            What both runs have in common under the bar.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        SettingError
            If there are not two runs, or the file cannot be written.
        """
        if len(self._opened) != 2:
            raise SettingError(f"A page plays two runs in step, and there are {len(self._opened)}: compare two runs.")
        return save_page(self._opened, path, keys, by=by)

    def _repr_html_(self) -> str:
        """The table, and the objectives; a sentence where there is nothing to draw yet."""
        if not self.runs:
            return "<p>There are no runs to compare. Give some, such as Compare({'small': run, 'large': other}).</p>"
        html = _table(self.table())
        if not any(len(run.steps) for run in self.runs.values()):
            return f"{html}<p>None of these runs has taken a step yet: run.finish(steps=10) takes ten.</p>"
        has_objective = "objective" in comparison.channels(self.runs)
        return html + _image(self.curves(), "Objective of each run") if has_objective else html


def race_html(race: Race) -> str:
    """Return the newest row of each lane, why lanes have ended, and the curves of both scores.

    Parameters
    ----------
    race : Race
        The race, at any turn.
    """
    board = race.board()
    if not len(board):
        lanes_table = {"method": {name: lane.spec.method for name, lane in race.lanes.items()}}
        lanes_table["state"] = {name: lane.sentence or "has not begun" for name, lane in race.lanes.items()}
        return f"{_table(pd.DataFrame(lanes_table))}<p>No lane has a score yet: race.finish(seconds=10) runs them.</p>"
    newest = board.groupby("lane").tail(1).set_index("lane").sort_values("smse")
    newest["memory"] /= 1e6
    newest = newest.rename(columns={"memory": "MB"})
    newest["state"] = [race.lanes[name].sentence or "runs" for name in newest.index]
    html = _table(newest.rename_axis(None))
    for metric in ("smse", "snlp"):
        if board[metric].notna().any():
            html += _image(race_svg(race, metric), f"{metric.upper()} of each lane over seconds")
    return html


def race_svg(race: Race, metric: str) -> Svg:
    """Return the curve of one score of each lane over its seconds of work.

    Parameters
    ----------
    race : Race
        The race, after any number of turns.
    metric : str
        "smse" or "snlp".

    Raises
    ------
    SettingError
        If there is no such score.
    """
    if metric not in METRICS:
        raise SettingError(f"A race has no score {metric!r}{closest(metric, list(METRICS))}")
    lanes = Lanes(list(race.lanes), metric)
    return Svg(_svg(lanes.plot, lanes.data(race.board())))


def scaling_html(study: Scaling) -> str:
    """Return the table of a scaling study, its power law, and its chart.

    Parameters
    ----------
    study : Scaling
        The study, after any number of sizes.
    """
    table = study.table()
    if not len(table):
        sizes = ", ".join(f"{value:,}" for value in study.values)
        return (
            f"<p>No size has been measured yet. {study.axis.name} is to be {sizes}: list(study) measures all of them, "
            "study.advance() the next one.</p>"
        )
    html = _table(table, index=False)
    measured = table["seconds"].astype(float).map(math.isfinite) if len(table) else pd.Series(dtype=bool)
    if measured.sum() < 2:
        return html
    fitted = study.slope()
    layers = comparison_charts.scaling_layers(table, fitted)
    chart = _svg(lambda frames: comparison_charts.plot_scaling(frames, study.axis.name), layers)
    return f"{html}<p>{fitted.sentence}</p>" + _image(chart, f"Seconds over {study.axis.name}")


def _svg(plot: Callable[[Any], hv.Overlay | hv.Element], layers: Layers) -> str:
    return figure_svg(Live(Drawing(plot), layers).figure)


def _table(frame: pd.DataFrame, index: bool = True) -> str:
    """A table with four digits, and a dash where there is no number."""
    return frame.to_html(float_format="{:.4g}".format, na_rep="–", index=index)


def _image(svg: str, title: str) -> str:
    return f'<img alt="{title}" src="data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"/>'
