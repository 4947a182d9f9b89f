"""A screen as one HTML file that plays without a server and without a network, and the first screen as such a file.

The first screen has four Bokeh figures: data and prediction, points, landscape, and distance to the exact model. They
are drawn empty: `lesson_player.js` fills their sources frame by frame and gives every glyph the colour of its role in
the light or the dark theme. The role is the first tag of a glyph, and the name of a source says what it holds.

It shows a lesson, swap by swap, as plain numbers that a browser can draw and interpolate.

A lesson is a run of a method that swaps inducing points at fixed hyperparameters, with one input. A frame belongs to a
record of the run: its prediction, its points, its distance to the exact model, and the landscape that the *next* swap
meets: what every row would bring in the place of the point that is taken out, exactly and as the pivots predict it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from bokeh.document import Document
from bokeh.events import Pan, PanEnd, PanStart, Tap
from bokeh.models import ColumnDataSource, CustomJS, CustomJSTickFormatter, FixedTicker, HoverTool, PanTool, Range1d
from bokeh.plotting import figure

from ...errors import SettingError
from ...methods.capabilities import HasSwapLandscape, Landscape
from ...objectives import evidence_terms
from ...posteriors import exact_gp_posterior, in_units
from ...runs import Spec
from ...runs.run import Run
from ..drawing import run_rows
from ..saved_page.page_file import UNPACK, content_policy, packed_bokeh, written

LEFT = 66  # pixels beside the frames of the left figures, so that their x-axes are one
MINUS = "return String(+tick.toFixed(6)).replace('-', '\\u2212')"
TELL = """
document.dispatchEvent(new CustomEvent("gpexplorer-lesson", {
    detail: {figure: cb_obj.origin.id, kind: cb_obj.event_name, x: cb_obj.x, y: cb_obj.y},
}))"""


class LessonFigures(NamedTuple):
    """The figures of a lesson; those of the left column share their x-range."""

    data: figure
    points: figure
    landscape: figure
    curve: figure


def document_json(lesson: Lesson) -> dict[str, Any]:
    """Return the Bokeh document of the figures, in the order of `LessonFigures`, for `lesson_player.js`."""
    document = Document()
    for plot in lesson_figures(lesson):
        document.add_root(plot)
    content = dict(document.to_json(deferred=False))
    content.pop("defs", None)  # classes of other libraries, which these figures do not use
    return content


def lesson_figures(lesson: Lesson) -> LessonFigures:
    """Build the empty figures of a lesson, with the axes of its data."""
    x_range = Range1d(lesson["x"][0], lesson["x"][-1])
    data = _plain(x_range, _y_range(lesson), y_axis_label=lesson["ylabel"])
    data.xaxis.visible = False
    data.varea("x", "lower", "upper", source=_source("band", "x", "lower", "upper"), fill_alpha=0.26, tags=["band"])
    for name, ink, dash in [("exact", "exact", "dashed"), ("before", "mean", "dotted"), ("mean", "mean", "solid")]:
        look: dict[str, Any] = {"line_width": 3.2 if name == "mean" else 1.7, "line_dash": dash, "tags": [ink]}
        data.line("x", "y", source=_source(name, "x", "y"), **look)
    rows = data.scatter("x", "y", source=_source("rows", "x", "y", "row", "exact", "approx"), size=6.5, tags=["rows"])
    tooltips = [("row", "@row"), ("exact", "@exact"), ("predicted", "@approx")]
    data.add_tools(HoverTool(renderers=[rows], tooltips=tooltips))
    _labels(data)

    points = _plain(x_range, Range1d(-1.6, 1.0))
    points.axis.visible = False
    points.grid.visible = False
    points.line("x", "y", source=_source("floor", "x", "y"), line_width=1.2, tags=["line"])
    points.line("x", "y", source=_source("bracket", "x", "y"), line_width=1.8, tags=["removed"])
    points.scatter("x", "y", source=_source("inducing", "x", "y"), size=13, marker="triangle", tags=["inducing"])
    points.scatter("x", "y", source=_source("star", "x", "y"), size=15, marker="star", tags=["tested"])
    removed: dict[str, Any] = {"size": 15, "marker": "triangle", "line_width": 2.2, "tags": ["removed", "hollow"]}
    points.scatter("x", "y", source=_source("removed", "x", "y"), **removed)
    points.add_tools(PanTool(dimensions="width"))

    # The short label of a phone: `lesson_player.js` has the long ones, of which a narrow figure would keep a part.
    landscape = _plain(x_range, Range1d(0, 1), x_axis_label=lesson["xlabel"], y_axis_label="decrease [nat]")
    landscape.yaxis.ticker.desired_num_ticks = 4
    lines = _source("landscape", "x", "exact", "approx")
    landscape.varea("x", "zero", "y", source=_source("area", "x", "y", "zero"), fill_alpha=0.1, tags=["mean"])
    landscape.line("x", "y", source=_source("zero", "x", "y"), line_width=1.2, tags=["line"])
    landscape.line("x", "exact", source=lines, line_width=2.4, tags=["mean"])
    landscape.line("x", "approx", source=lines, line_width=2.4, line_dash=[3, 3], tags=["predicted"])
    landscape.line("x", "y", source=_source("drop", "x", "y"), line_width=1.6, line_dash=[2, 4], tags=["tested"])
    pivots: dict[str, Any] = {"size": 12, "marker": "diamond", "line_width": 1.7, "tags": ["predicted", "hollow"]}
    landscape.scatter("x", "y", source=_source("pivots", "x", "y"), **pivots)
    landscape.scatter("x", "y", source=_source("tested", "x", "y"), size=16, marker="star", tags=["tested"])
    _labels(landscape)

    curve = _plain(Range1d(-0.3, SWAPS + 0.1), Range1d(0, 1), x_axis_label="swap", y_axis_label="nat")
    curve.xaxis.ticker = FixedTicker(ticks=list(range(0, SWAPS + 1, 3)))
    curve.yaxis.ticker.desired_num_ticks = 4
    steps = _source("steps", "x", "y", "zero")
    whole: dict[str, Any] = {"level": "annotation"}  # also where its place lies on the edge of the frame
    curve.varea("x", "zero", "y", source=steps, fill_alpha=0.09, tags=["inducing"])
    curve.line("x", "y", source=_source("floor", "x", "y"), line_width=2.0, line_dash="dashed", tags=["exact"])
    curve.line("x", "y", source=steps, line_width=2.8, tags=["inducing"])
    curve.scatter("x", "y", source=steps, size=8, tags=["inducing", "ringed"], **whole)
    curve.scatter("x", "y", source=_source("now", "x", "y"), size=14, tags=["inducing"], **whole)
    _labels(curve)
    return LessonFigures(data, points, landscape, curve)


def _plain(x_range: Range1d, y_range: Range1d, **axes: str) -> Any:
    """A figure without title, toolbar and outline. Bokeh's types do not know all arguments of its glyph methods."""
    look: dict[str, Any] = {"sizing_mode": "stretch_both", "toolbar_location": None, "tools": ""}
    look |= {"min_border_left": LEFT, "min_border_right": 6, "min_border_top": 8, "min_border_bottom": 2}
    # The page is the ground: white would show at the edges.
    look |= {"outline_line_color": None, "background_fill_color": None, "border_fill_color": None}
    plot = figure(x_range=x_range, y_range=y_range, **look, **axes)
    for axis in plot.axis:
        axis.update(minor_tick_line_color=None, axis_line_color=None, major_tick_line_color=None)
        axis.update(major_label_text_font_size="12px", axis_label_text_font_size="13px")
        axis.update(axis_label_text_font_style="normal", formatter=CustomJSTickFormatter(code=MINUS))
    plot.toolbar.autohide = True
    for event in (Tap, PanStart, Pan, PanEnd):
        plot.js_on_event(event, CustomJS(code=TELL))
    return plot


def _source(name: str, *columns: str) -> ColumnDataSource:
    return ColumnDataSource({column: [] for column in columns}, name=name)


def _labels(plot: Any) -> None:
    """Words beside the lines, in the colour of what they name, on a ground that keeps them readable."""
    source = _source("labels", "x", "y", "text", "ink", "align", "dx", "dy", "ground")
    look = {"text_align": "align", "text_baseline": "middle", "x_offset": "dx", "y_offset": "dy", "text_color": "ink"}
    ground = {"background_fill_color": "ground", "background_fill_alpha": 0.8, "padding": 2, "border_radius": 3}
    plot.text("x", "y", "text", text_font_size="13.5px", source=source, tags=["labels"], **look, **ground)


def _y_range(lesson: Lesson) -> Range1d:
    """The range of the targets and of the band of the first frame."""
    first = lesson["frames"][0]
    lower = min(lesson["rows"]["y"] + [m - 2 * s for m, s in zip(first["mean"], first["sd"], strict=True)])
    upper = max(lesson["rows"]["y"] + [m + 2 * s for m, s in zip(first["mean"], first["sd"], strict=True)])
    margin = 0.12 * (upper - lower)
    return Range1d(lower - margin, upper + margin)


HERE = Path(__file__).parent
SHELL = (HERE / "page_shell.js").read_text("utf-8")
PLAYER = SHELL + (HERE / "lesson_player.js").read_text("utf-8")
STYLE = (HERE / "lesson_style.css").read_text("utf-8")
CONTENT = 'const content = JSON.parse(document.getElementById("content").textContent)\n'
BEGIN = """gpexplorerBokeh().then(() => {
  Bokeh.set_log_level("error")
  gpexplorerLesson(document.getElementById("screen"), content)
})"""


def save_lesson(run: Run, path: str | os.PathLike[str]) -> Path:
    """Write a run that swaps points over one input as an HTML file of about 0.6 MB; `lesson_of` has the conditions.

    Raises
    ------
    SettingError
        If the file cannot be written, or the run has no lesson.
    """
    return written(path, lambda: lesson_page(lesson_of(run)))


def lesson_page(lesson: Lesson) -> str:
    """Return the text of the file."""
    content = {"lesson": lesson, "document": document_json(lesson)}
    return screen_page(content, [UNPACK, PLAYER], BEGIN, bokeh=packed_bokeh())


def screen_page(
    content: Mapping[str, Any], scripts: Sequence[str], begin: str, style: str = STYLE, bokeh: str = ""
) -> str:
    """Return an HTML file in which a script draws `content` into the element "screen".

    Parameters
    ----------
    content : mapping
        What is shown; strict JSON.
    scripts : sequence of str
        What has to be defined first.
    begin : str
        Draws the constant `content`.
    style : str, optional
        By default that of all screens.
    bokeh : str, optional
        The packed program of Bokeh, for scripts that run it.
    """
    text = json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    scripts = [*scripts, CONTENT + begin]
    lines = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(content_policy(scripts))}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>gpexplorer</title><style>body {{ margin: 0 }}\n{style}</style></head><body>",
        '<div id="screen" class="lesson"></div>',
        f'<script type="application/json" id="content">{text}</script>',
        f'<script type="text/plain" id="bokeh">{bokeh}</script>',
        *(f"<script>{script}</script>" for script in scripts),
        "</body></html>",
    ]
    return "".join(lines)


GRID = 321  # points of the curves
MARGIN = 0.025  # of the range of x, beside the rows
GAP = 0.03  # of the range of x: wider intervals without candidates interrupt the lines of a landscape
SWAPS = 12  # tried at most
SETTINGS = {"num_inducing": 10, "start": "left", "num_proposals": 1, "compete": False, "learn": False}
SETTINGS |= {"num_pivots": 5, "pivot_policy": "random", "pivot_refresh": 1, "swaps_per_epoch": 60}
START: dict[str, Any] = {
    "method": "cholqr",
    "data": "snelson-like",
    "split": 0,
    "seed": 38,
    # Fixed by hand between the maximum likelihood of the exact model and what ten points learn: good, not optimal.
    "kernel": {"name": "se", "theta": [0.1, -1.4, -1.0]},
    "settings": SETTINGS,
    "budget": {"steps": SWAPS},
}


class Lesson(TypedDict):
    """A lesson for the browser: curves have `GRID` numbers, rows are in the order of x."""

    xlabel: str
    ylabel: str
    points: int  # m
    x: list[float]
    exact: dict[str, list[float]]  # mean and sd of the exact model
    rows: dict[str, list[Any]]  # x, y and the number of every training row
    frames: list[dict[str, Any]]
    gap: float  # wider intervals without candidates interrupt the lines of a landscape
    swaps: int  # the end of the axis of swaps
    first: int  # the frame to begin with


def lesson_spec(points: int) -> Spec:
    """Return the spec of the lesson with this many inducing points."""
    return Spec(**{**START, "settings": {**START["settings"], "num_inducing": points}})


def lesson_of(run: Run, first: int = 0) -> Lesson:
    """Compute all frames of a run that has ended.

    Parameters
    ----------
    run : Run
        A run with one numeric input, of a method that swaps inducing points.
    first : int, default 0
        The frame to begin with.

    Returns
    -------
    Lesson
        Numbers in the units of the file, distances and decreases in nat, rounded for the browser.

    Raises
    ------
    SettingError
        If the method swaps no points, or the data do not have one numeric input.

    Notes
    -----
    One exact GP of n rows, n^3 flops, and one landscape per record, about n^2 m flops each.
    """
    train = run.problem.train
    if not isinstance(run.method, HasSwapLandscape) or not run_rows.numeric(run) or train.d != 1:
        raise SettingError(f"A lesson swaps inducing points over one numeric input; this is {run.method.title}.")
    x, y = run_rows.inputs_of(train)[:, 0], run_rows.targets_of(train)
    order, span = np.argsort(x, kind="stable"), float(np.ptp(x)) or 1.0
    grid = np.linspace(x.min() - MARGIN * span, x.max() + MARGIN * span, GRID)
    states = swap_states(run)
    exact = in_units(exact_gp_posterior(run.problem.kernel, run.problem.theta, train), run.problem)
    floor = evidence_terms(run.problem.kernel, run.problem.theta, train)[0].total("vfe")
    frames: list[dict[str, Any]] = []
    for at, state in enumerate(states):
        landscape = run.method.swap_landscape(run.problem, run.trace[at].step.state)
        following = run.trace[at + 1].step.info if at + 1 < len(run.trace) else None
        frame = {
            **_curve(in_units(run.method.posterior(run.problem, state), run.problem), grid),
            "distance": rounded(float(run.method.bound_terms(run.problem, state).total("vfe")) - floor),
            "points": [int(row) for row in state.inducing],
            "next": _next_swap(landscape, following, order),
        }
        frames.append(frame)
    return {
        "xlabel": run_rows.input_name(run, 0),
        "ylabel": train.target,
        "points": len(states[0].inducing),
        "x": rounded(grid),
        "exact": _curve(exact, grid),
        "rows": {"x": rounded(x[order]), "y": rounded(y[order]), "row": order.tolist()},
        "frames": frames,
        "gap": rounded(GAP * span),
        "swaps": SWAPS,
        "first": first,
    }


def swap_states(run: Run) -> list[Any]:
    """Return the state of every record.

    The first record precedes all work, so that its points are not chosen yet: those with which the first swap began are
    those after it, with the removed row in its place again.
    """
    states = [record.step.state for record in run.trace]
    if len(states) > 1 and states[0].step == 0:
        info, rows = run.trace[1].step.info, states[1].inducing.clone()
        if info.accepted:
            rows[rows == info.proposed] = info.removed
        states[0] = states[0]._replace(inducing=rows)
    return states


def _curve(posterior: Any, grid: np.ndarray) -> dict[str, list[float]]:
    """Mean and standard deviation of f on the grid."""
    mean, variance = posterior(torch.from_numpy(grid)[:, None])
    return {"mean": rounded(mean.cpu().numpy()), "sd": rounded(np.sqrt(variance.cpu().numpy()))}


def _next_swap(landscape: Landscape | None, following: Any, order: np.ndarray) -> dict[str, Any] | None:
    """The landscape in front of the next swap, and what that swap tries; None where nothing follows."""
    if landscape is None or following is None or following.proposed < 0:
        return None
    exact, approx = (values.cpu().double().numpy()[order] for values in (landscape.exact, landscape.approx))
    shown = np.isfinite(exact) & np.isfinite(approx)
    best = int(order[shown][np.argmax(exact[shown])])
    of_row = {int(row): (exact[k], approx[k]) for k, row in enumerate(order)}
    values = {"best": of_row[best][0], "predicted_best": of_row[best][1]}
    values |= {"tested": float(following.exact), "predicted": float(following.approx)}
    return {
        "exact": rounded(np.where(shown, exact, np.nan)),
        "approx": rounded(np.where(shown, approx, np.nan)),
        "pivots": [int(row) for row in landscape.pivots if np.isfinite(of_row[int(row)][0])],
        "removed": int(following.removed),
        "tested": int(following.proposed),
        "accepted": bool(following.accepted),
        "best": best,
        "values": {name: rounded(value) for name, value in values.items()},
    }


def rounded(values: Any) -> Any:
    """Return numbers with four decimal places, with None for what is not finite: JSON has no NaN."""
    if np.ndim(values):
        return [rounded(float(value)) for value in values]
    return round(float(values), 4) if np.isfinite(values) else None
