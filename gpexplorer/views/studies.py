"""Studies of several runs in a notebook cell: tables and static pictures of races, comparisons, scaling studies."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import holoviews as hv
import pandas as pd

from ..errors import SettingError
from ..runs import Run
from ..runs.studies import comparison
from ..runs.studies.comparison import Finished
from ..runs.studies.race import Race
from ..runs.studies.scaling_study import Scaling
from .base import Layers
from .drawing.live import Live
from .drawing.static_svg import figure_svg
from .picture import Svg
from .runs import comparison_charts, scaling_chart
from .runs.race_curves import Lanes
from .saved_page.page_file import save_page


class Drawing(NamedTuple):
    """A function in the form in which `Live` takes it."""

    plot: Callable[[Layers], hv.Overlay | hv.Element]


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
        named = (
            dict(runs)
            if isinstance(runs, Mapping)
            else {f"{k + 1} {run.method.key}": run for k, run in enumerate(runs)}
        )
        self.runs = {name: Finished.of(run) for name, run in named.items()}
        self._opened = named

    def table(self, by: str = "smse", top: int | None = None) -> pd.DataFrame:
        """Return one row per run (see `comparison.table`).

        Parameters
        ----------
        by : str
            The column to sort by.
        top : int, optional
            Keep so many rows.
        """
        return comparison.table(self.runs, by, top)

    def curves(self, channel: str = "objective", over: str = "step", log: bool = False) -> Svg:
        """Return one curve per run as SVG, which a cell shows.

        Parameters
        ----------
        channel : str
            What goes up: a channel of the methods, or a score.
        over : str
            What goes right: "step", "seconds" or "kernel entries".
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
        """The table, and the objectives."""
        html = self.table().to_html(float_format="{:.4g}".format)
        return html + _image(self.curves()) if "objective" in comparison.channels(self.runs) else html


def race_html(race: Race) -> str:
    """Return the newest row of each lane, why lanes have ended, and the curves of both scores.

    Parameters
    ----------
    race
        The race, at any turn.
    """
    board = race.board()
    newest = board.groupby("lane").tail(1).set_index("lane").sort_values("smse")
    newest["memory"] /= 1e6
    newest = newest.rename(columns={"memory": "MB"})
    newest["state"] = [race.lanes[name].sentence or "runs" for name in newest.index]
    html = newest.to_html(float_format="{:.4g}".format)
    for metric in ("smse", "snlp"):
        lanes = Lanes(list(race.lanes), metric)
        if board[metric].notna().any():
            html += _image(_svg(lanes.plot, lanes.data(board)))
    return html


def scaling_html(study: Scaling) -> str:
    """Return the table of a scaling study, its power law, and its chart.

    Parameters
    ----------
    study
        The study, after any number of sizes.
    """
    table = study.table()
    html = table.to_html(float_format="{:.4g}".format, index=False)
    measured = table["seconds"].astype(float).map(math.isfinite) if len(table) else pd.Series(dtype=bool)
    if measured.sum() < 2:
        return html
    fitted = study.slope()
    layers = scaling_chart.data(table, fitted)
    return f"{html}<p>{fitted.sentence}</p>" + _image(_svg(lambda f: scaling_chart.plot(f, study.axis.name), layers))


def _svg(plot: Callable[[Any], hv.Overlay | hv.Element], layers: Layers) -> str:
    return figure_svg(Live(Drawing(plot), layers).figure)


def _image(svg: str) -> str:
    return f'<img alt="" src="data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"/>'
