"""Static pictures for a notebook cell: of a run, of races, comparisons and scaling studies, with their tables.

They have the same bytes each time, and need no network.
"""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import holoviews as hv
import pandas as pd
import param
from holoviews.plotting.bokeh import OverlayPlot
from pandas.api.types import is_float_dtype
from param.parameterized import resolve_ref

from ..display import InPanel
from ..errors import SettingError, closest, has_items, is_one_of, numbers_allowed, quoted
from ..runs import Run
from ..runs.studies import comparison, split_comparison
from ..runs.studies.comparison import Finished
from ..runs.studies.race import METRICS, Race
from ..runs.studies.scaling_study import Scaling
from ..runs.studies.sweep import Swept
from . import for_run
from .base import Layers, View
from .drawing.live import Drawing, Live
from .drawing.static_svg import HEIGHT, WIDTH, figure_svg
from .runs import comparison_charts
from .runs.comparison_charts import Lanes
from .saved_page.page_file import save_page


def image_html(svg: str, title: str) -> str:
    """Return a picture as an image in HTML."""
    content = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{escape(title)}" src="data:image/svg+xml;base64,{content}"/>'


class Curves(hv.Overlay):
    """An overlay of HoloViews that a notebook cell shows as SVG, also where the notebook is only read."""

    def live(self) -> Live:
        """Return the picture as a figure of Bokeh."""
        frames: Layers = {str(number): element.dframe() for number, element in enumerate(self)}
        return Live(Drawing(lambda _: self), frames, name=_title(self))

    def svg(self) -> str:
        """Return the picture as SVG."""
        return figure_svg(self.live().figure)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a cell shows."""
        return {"image/svg+xml": self.svg(), "text/plain": "a picture"}


hv.Store.register({Curves: OverlayPlot}, "bokeh")


class Picture(InPanel, param.Parameterized):
    """A picture of a run at one of its records.

    Each parameter may be a widget, another parameter, an expression of `.rx` or a bound function: the picture follows
    it. `pn.panel(picture)` makes a pane that is drawn again when a parameter changes.

    Parameters
    ----------
    run : Run
        The run.
    key : str, default "fit"
        Which picture: the `key` of a view that applies to the run.
    at : int, default -1
        Index of the record. None, the value of an empty widget, means the newest one.
    **options : object
        Options of the picture, and `width` and `height` in pixels. A pane is as wide as its place, at most `width`.

    Raises
    ------
    SettingError
        If there is no such picture or option for this run, or the run has no record yet.

    Examples
    --------
    >>> import gpexplorer as gpx
    >>> run = gpx.Spec("cholqr", {"num_inducing": 4}, data="snelson-like").open()
    >>> run.finish(steps=1).reason
    'budget'
    >>> gpx.Picture(run, "convergence").svg()[:4]
    '<svg'
    """

    run = param.ClassSelector(class_=Run, allow_refs=True, doc="The run.")
    key = param.Parameter("fit", allow_refs=True, doc="Which picture.")
    at = param.Number(  # the sliders of some libraries count in floats
        -1,
        allow_None=True,
        allow_refs=True,
        doc="Index of the record shown; negative numbers count from the newest one, which None means, too.",
    )
    width = param.Integer(WIDTH, bounds=(160, 4000), allow_refs=True, doc="Pixels.")
    height = param.Integer(HEIGHT, bounds=(120, 4000), allow_refs=True, doc="Pixels.")
    options = param.Dict({}, allow_refs=True, nested_refs=True, doc="Options of the picture by name.")

    def __init__(self, run: Run, key: str = "fit", at: float | None = -1, **options: Any) -> None:
        size: dict[str, Any] = {name: options.pop(name) for name in ("width", "height") if name in options}
        try:
            super().__init__(run=run, key=key, at=at, options=options, **size)
        except (TypeError, ValueError) as error:
            raise SettingError(_refusal({"run": run, "at": at, **size}, str(error))) from None
        self._choose_view()

    @param.depends("run", "key", "options", watch=True)
    def _choose_view(self) -> None:
        """Make the view with this key and these options."""
        if not isinstance(self.run, Run):
            raise SettingError(_refusal({"run": self.run}, "'Picture.run'"))
        views = {view.key: view for view in for_run(self.run)}
        if not is_one_of(self.key, views):
            raise SettingError(f"This run has no picture {quoted(self.key)}{closest(self.key, views)}")
        view = views[self.key]
        for name in self.options:
            if name not in view.param:
                raise SettingError(f"The picture {self.key!r} has no option {name!r}{closest(name, view.param)}")
        view.param.update(**self.options)
        self.view: View = view

    @property
    def layers(self) -> Layers:
        """What is drawn, as one data frame per layer in the units of the file."""
        return self.view.data(*self._shown())

    def _shown(self) -> tuple[Run, int]:
        """The run, and the index of the record that is drawn."""
        run = self.run
        if run is None or not len(run.trace):
            raise SettingError("The run has no record to draw yet. Take a step first: run.advance().")
        at: Any = -1 if self.at is None else self.at
        return run, run.trace.at(int(at) if isinstance(at, float) and at.is_integer() else at).index

    @property
    def element(self) -> hv.Overlay | hv.Element:
        """The picture as an element of HoloViews."""
        return self.view.plot(self.layers)

    @property
    def saved_as(self) -> str:
        """The name of a file with the picture."""
        run, index = self._shown()
        return self.view.saved_as(run.method.key, index)

    def live(self) -> Live:
        """Return the picture as a figure of Bokeh."""
        return Live(self.view, self.layers, name=self.saved_as)

    def svg(self) -> str:
        """Return the picture as SVG."""
        return figure_svg(self.live().figure, self.width, self.height)

    def html(self) -> str:
        """Return the picture as an image in HTML."""
        return image_html(self.svg(), self.view.title)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a cell shows."""
        return {"image/svg+xml": self.svg(), "text/plain": self.view.title}


Part = str | Curves  # HTML, or an element that is drawn
Compared = Run | Finished | Swept


class Compare(InPanel, param.Parameterized):
    """Several runs side by side.

    Runs that differ only in their split or seed, at least three of them, are shown as one family: their test scores as
    faint lines behind their median, with a paired test over the splits (see `over_splits`).

    `runs` is a parameter: it may be a widget, another parameter or a bound function that returns runs, and a pane of
    the comparison is drawn again when it changes.

    Parameters
    ----------
    runs : mapping of str to Run, or iterable of Run
        The runs; without names they are called by their method and a number. What `gpexplorer.sweep` yields is taken
        as well, with the names of the sweep. A name that another spec has gets what distinguishes the two, and one that
        comes again with the same spec gets a number.

    Raises
    ------
    SettingError
        If a run was made without a spec.

    Examples
    --------
    >>> gpx.Compare({"six points": small, "twelve points": large})  # doctest: +SKIP
    >>> gpx.Compare(gpx.sweep(gpx.grid(spec, {"num_inducing": [8, 32]}))).table()  # doctest: +SKIP
    >>> specs = {f"{method} {k}": gpx.Spec(method, split=k, budget={"steps": 20})
    ...          for method in ("cholqr", "ivm") for k in range(10)}
    >>> gpx.Compare(gpx.sweep(specs)).over_splits()  # doctest: +SKIP
    """

    runs = param.Parameter({}, allow_refs=True, doc="The runs by name, or one after another.")

    def __init__(self, runs: Mapping[str, Compared] | Iterable[Compared] = ()) -> None:
        is_reference = bool(resolve_ref(runs))
        is_iterator = has_items(runs) and not isinstance(runs, Mapping)
        super().__init__(runs=list(runs) if is_iterator and not is_reference else runs)
        self._number()

    @param.depends("runs", watch=True)
    def _number(self) -> None:
        """Give each run its name, and keep its numbers as they are now."""
        named = _named(self.runs)
        for name, run in named.items():
            if not isinstance(run, Compared):
                raise SettingError(f"Compare: {name!r} is {quoted(run)}; give a Run, or what gpx.sweep yields.")
        self.failed = {name: run.sentence for name, run in named.items() if isinstance(run, Swept) and not run.finished}
        self.finished = {name: _finished(run) for name, run in named.items() if name not in self.failed}
        self._opened = {name: run for name, run in named.items() if isinstance(run, Run)}

    def table(self, by: str = "smse", top: int | None = None) -> pd.DataFrame:
        """Return one row per run (see `comparison.table`).

        Parameters
        ----------
        by : str
            The column to sort by.
        top : int, optional
            Keep this many rows.
        """
        return comparison.table(self.finished, by, top)

    def over_splits(self, score: str = "smse") -> pd.DataFrame:
        """Return one row per family of runs that differ only in their split or seed (see `split_comparison.table`).

        Parameters
        ----------
        score : str
            The score whose mean and spread over the splits are returned, with a sign test against the best family.
        """
        return split_comparison.table(split_comparison.families(self.finished), score)

    def curves(self, channel: str = "objective", over: str = "step", log: bool = False) -> Curves:
        """Draw one curve per run; of a score, one median per family, with the curves of its splits as faint lines.

        Parameters
        ----------
        channel : str
            The vertical axis: a channel of the methods, or a score.
        over : str
            The horizontal axis: "step", "seconds" or "kernel entries".
        log : bool
            Whether the axis of the channel is logarithmic.

        Returns
        -------
        Curves
            An overlay of HoloViews, which a cell shows as SVG and a saved notebook keeps.

        Raises
        ------
        SettingError
            If no run has the channel, or there is no such horizontal axis.
        """
        if reported := comparison.channels(self.finished):  # none before the first step
            comparison.checked_choice(channel, reported)
        families = split_comparison.families(self.finished)
        layers = split_comparison.layers(self.finished, families, channel, over)
        return comparison_charts.curves(layers, log=log).clone(new_type=Curves)

    def parts(self) -> list[Part]:
        """Return what a cell shows: HTML and elements of HoloViews, from top to bottom."""
        if not self.finished and not self.failed:
            return ["<p>There are no runs to compare. Give some, such as Compare({'small': run, 'large': other}).</p>"]
        parts, compared = list[Part](), self.over_splits()
        if len(compared):  # means over splits, what they can tell, and the curves of SMSE
            parts.append(_table(compared.drop(columns="pairs").dropna(axis=1, how="all")))
            parts += [f"<p>{escape(sentence)}</p>" for sentence in split_comparison.sentences(compared)]
            parts.append(self.curves("smse"))
        parts += [_table(self.table())] if self.finished else []
        parts += [f"<p>{escape(name)}: {escape(sentence)}</p>" for name, sentence in self.failed.items()]
        if not any(len(run.steps) for run in self.finished.values()):
            return [*parts, "<p>None of these runs has taken a step yet: run.finish(steps=10) takes ten.</p>"]
        has_objective = "objective" in comparison.channels(self.finished)
        return [*parts, self.curves()] if has_objective and not len(compared) else parts

    def save_page(self, path: str | os.PathLike[str], *keys: str, by: str = "step", title: str = "") -> Path:
        """Write two runs side by side as one HTML file, which plays both under one bar without a server.

        Parameters
        ----------
        path : str or path
            The file to write, smaller than 5 MB.
        *keys : str
            Which pictures, which both runs must have; without any, the prediction and the convergence.
        by : {"step", "seconds"}
            What both runs have in common under the bar.
        title : str, default ""
            Heading of the page; by default it names both runs and the data.

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
        return save_page(self._opened, path, keys, by=by, title=title)

    def _repr_html_(self) -> str:
        """The table, and the objectives; a sentence where there is nothing to draw yet."""
        return html_of(self.parts())


def _refusal(given: Mapping[str, Any], error: str) -> str:
    """A sentence for a value that a parameter refused: its error names the parameter, in words for programmers."""
    ways_out = {"run": "what Spec.open returns", "at": "the index of a record, such as -1 for the newest one"}
    for name in ("width", "height"):
        low, high = Picture.param[name].bounds
        ways_out[name] = numbers_allowed(whole=True, low=low, high=high)
    for name, way_out in ways_out.items():
        if name in given and f"'Picture.{name}'" in error:
            return f"A picture cannot have {name}={quoted(given[name])}; give {way_out}."
    return f"The picture cannot be drawn: {error}"


def _named(runs: Mapping[str, Compared] | Iterable[Compared]) -> dict[str, Compared]:
    if isinstance(runs, Mapping):
        return dict(runs)
    if not has_items(runs):
        raise SettingError(f'Compare takes runs, or {{"its name": run}}, and not {quoted(runs)}.')
    named: dict[str, Compared] = {}
    for number, run in enumerate(runs, 1):
        method = run.spec.method if isinstance(run, Finished) else run.method.key if isinstance(run, Run) else ""
        name = run.name if isinstance(run, Swept) else f"{number} {method}"
        if isinstance(run, Swept) and run.finished is not None:
            before = {key: each.finished for key, each in named.items() if isinstance(each, Swept) and each.finished}
            name = comparison.name_among(name, run.finished, before)
        named[f"{number} {name}" if name in named else name] = run
    return named


def _finished(run: Compared) -> Finished:
    """The numbers of a run, which may still take steps."""
    given = run.finished if isinstance(run, Swept) else run
    return given if isinstance(given, Finished) else Finished.of(given)


def race_parts(race: Race) -> list[Part]:
    """Return the newest row of each lane, why lanes have ended, who is ahead, and the curves of both scores.

    Parameters
    ----------
    race : Race
        The race, at any turn.
    """
    board = race.board()
    if not len(board):
        waiting = {name: (lane.spec.method, lane.sentence or "has not begun") for name, lane in race.lanes.items()}
        lanes = pd.DataFrame.from_dict(waiting, orient="index", columns=["method", "state"])
        return [_table(lanes), "<p>No lane has a score yet: race.finish(seconds=10) runs them.</p>"]
    newest = board.groupby("lane").tail(1).set_index("lane").sort_values("smse")
    newest["memory"] /= 1e6
    newest = newest.rename(columns={"memory": "MB"})
    begun = set(newest.index)
    newest = newest.astype({name: "Int64" for name, kind in newest.dtypes.items() if kind == "int64"})  # may be missing
    newest = newest.reindex([*newest.index, *(name for name in race.lanes if name not in begun)])
    states = {True: "runs", False: "has no score yet"}
    newest["state"] = [race.lanes[name].sentence or states[name in begun] for name in newest.index]
    scored = [metric for metric in METRICS if board[metric].notna().any()]
    verdict = [f"<p>{escape(said)}</p>" for said in race.verdict()]
    return [_table(newest.rename_axis(None)), *verdict, *(race_curves(race, metric) for metric in scored)]


def race_curves(race: Race, metric: str) -> Curves:
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
    return lanes.plot(lanes.data(race.board())).clone(new_type=Curves)


def scaling_parts(study: Scaling) -> list[Part]:
    """Return the table of a scaling study, its power law, and its chart.

    Parameters
    ----------
    study : Scaling
        The study, after any number of sizes.
    """
    table = study.table()
    if not len(table):
        sizes = ", ".join(f"{value:,}" for value in study.values)
        return [
            f"<p>No size has been measured yet. {study.axis.name} is to be {sizes}: list(study) measures all of them, "
            "study.advance() the next one.</p>"
        ]
    shown = _table(table, index=False)
    if table["seconds"].astype(float).map(math.isfinite).sum() < 2:
        return [shown]
    fitted = study.slope()
    layers = comparison_charts.scaling_layers(table, fitted)
    chart = comparison_charts.plot_scaling(layers, study.axis.name)
    return [shown, f"<p>{escape(fitted.sentence)}</p>", chart.clone(new_type=Curves)]


def html_of(parts: Iterable[Part]) -> str:
    """Return parts as HTML that a notebook keeps.

    Parameters
    ----------
    parts : iterable of str or Curves
        From top to bottom.
    """
    return "".join(part if isinstance(part, str) else image_html(part.svg(), _title(part)) for part in parts)


def _title(element: hv.Overlay) -> str:
    """What a picture shows, for readers of the screen: its axes."""
    options: Mapping[str, Any] = element.opts.get("plot").kwargs
    return f"{options.get('ylabel', 'y')} over {options.get('xlabel', 'x')}"


def _table(frame: pd.DataFrame, index: bool = True) -> str:
    """A table with four digits, and a dash where there is no number and no word."""
    for name in frame.columns[frame.isna().any()]:
        if not is_float_dtype(frame[name]):  # of these columns pandas writes <NA> or None, whatever na_rep is
            frame = frame.assign(**{str(name): frame[name].astype(object).where(frame[name].notna(), "–")})
    return frame.to_html(float_format="{:.4g}".format, na_rep="–", index=index)
