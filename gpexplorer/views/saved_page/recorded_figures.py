"""Pictures of a run, recorded frame by frame: what changes in each figure while the run plays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import ColumnDataSource, HoverTool, LinearColorMapper, LogScale

from ...errors import GPExplorerError
from ...runs.run import Run
from ..base import Layers, View
from ..drawing.legend import entries
from ..drawing.live import Live, in_lines

HEIGHT = 320  # pixels of a figure
Properties = dict[str, dict[str, Any]]  # id of a model -> property -> value


@dataclass(frozen=True, eq=False)
class RecordedFigure:
    """One picture of a run over the frames of a recording.

    Attributes
    ----------
    view : View
        What is drawn.
    figure : object
        The Bokeh figure, in the light theme.
    columns : dict of str to dict of str to list
        Id of a source -> name of a column -> its content in each frame.
    properties : list of Properties
        For each frame, the ranges, colour scales and axis labels of the figure.
    captions : list of str
        For each frame, the sentence above the picture.
    log : bool
        Whether one of the axes is logarithmic.
    dark : Properties
        The properties that differ in the dark theme, with their values there.
    legend : list of dict
        Sign, label, colour in both themes, opacity, and the ids of the layers of each entry of the legend.
    """

    view: View
    figure: Any
    columns: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    properties: list[Properties] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    log: bool = False
    dark: Properties = field(default_factory=dict)
    legend: list[dict[str, Any]] = field(default_factory=list)


def record(
    run: Run, views: Sequence[View], records: Sequence[int], report: Callable[[float], object]
) -> tuple[list[RecordedFigure], list[str]]:
    """Draw these pictures at these records of a run.

    Parameters
    ----------
    run : Run
        The run.
    views : sequence of View
        The pictures.
    records : sequence of int
        Indices of records, one per frame.
    report : callable
        Called with the fraction of the work that is done.

    Returns
    -------
    figures
        The recorded pictures, without those that have nothing to show.
    failures
        One sentence for each picture that raised an error.
    """
    figures, failures = [], list[str]()
    for number, view in enumerate(views):
        try:
            frames = []
            for place, at in enumerate(records):
                frames.append(view.data(run, at))
                report((number + (place + 1) / len(records)) / len(views))
            if any(len(frame) for layers in frames for frame in layers.values()):
                figures.append(_recorded(view, frames))
        except Exception as error:
            reason = str(error) if isinstance(error, GPExplorerError) else type(error).__name__
            failures.append(f"The picture “{view.title}” could not be drawn: {reason}")
    return figures, failures


def _recorded(view: View, frames: Sequence[Layers]) -> RecordedFigure:
    fullest = max(frames, key=lambda layers: (len(layers), sum(map(len, layers.values()))))
    empty = {name: frame.iloc[:0] for name, frame in fullest.items()}
    live = Live(view, fullest)
    live.leave_words_to_page()
    figure = live.figure
    figure.update(sizing_mode="stretch_width", height=HEIGHT, output_backend="canvas")
    _add_tooltips(figure, fullest)
    log = any(isinstance(scale, LogScale) for scale in (figure.x_scale, figure.y_scale))
    recorded = RecordedFigure(view, figure, log=log)
    sources = [source for source in figure.select({"type": ColumnDataSource}) if source.name in fullest]
    recorded.columns.update({source.id: {} for source in sources})
    for number, layers in enumerate(frames):
        live.figure.title.text = ""
        live.update({**empty, **layers})
        labels = _axis_labels(layers)
        for axis, name in ((figure.xaxis[0], "xlabel"), (figure.yaxis[0], "ylabel")):
            axis.axis_label = in_lines(labels[name]) if name in labels else axis.axis_label
        recorded.captions.append(live.caption)
        recorded.properties.append(_moving_properties(figure))
        for source in sources:
            for name, values in source.data.items():
                history = recorded.columns[source.id].setdefault(str(name), [])
                history += [None] * (number - len(history)) + [values]  # None where the source had no such column
    for of_source in recorded.columns.values():
        for history in of_source.values():
            history += [None] * (len(frames) - len(history))
    _add_dark_theme(recorded, live)
    return recorded


def _axis_labels(layers: Layers) -> dict[str, str]:
    labels: dict[str, str] = {}
    for frame in layers.values():
        labels |= {name: frame.attrs[name] for name in ("xlabel", "ylabel") if name in frame.attrs}
    return labels


def _moving_properties(figure: Any) -> Properties:
    """The properties of a figure that follow its data."""
    ranges = {r.id: {"start": float(r.start), "end": float(r.end)} for r in (figure.x_range, figure.y_range)}
    axes = {axis.id: {"axis_label": str(axis.axis_label or "")} for axis in (figure.xaxis[0], figure.yaxis[0])}
    mappers = figure.select({"type": LinearColorMapper})
    scales = {m.id: {"low": float(m.low), "high": float(m.high)} for m in mappers if m.low is not None}
    tags = {figure.id: {"tags": [float(tag) for tag in figure.tags]}} if len(figure.tags) == 4 else {}
    return {**ranges, **axes, **scales, **tags}


def _add_tooltips(figure: Any, layers: Layers) -> None:
    """Add a tooltip with both numbers to the points of a figure that has no tooltips yet."""
    if figure.select({"type": HoverTool}):
        return
    labels = _axis_labels(layers)
    points = [r for r in figure.renderers if "marker" in getattr(getattr(r, "glyph", None), "properties", set)()]
    tooltips = [(labels.get("xlabel", "x"), "@x{0.[0000]}"), (labels.get("ylabel", "y"), "@y{0.[0000]}")]
    if points:
        figure.add_tools(HoverTool(renderers=points, tooltips=tooltips, visible=False))


def _add_dark_theme(recorded: RecordedFigure, live: Live) -> None:
    """Record the properties that differ in the dark theme, and leave the figure in the light one."""
    light, legend = _colours(recorded.figure), entries(recorded.figure, with_empty=True)
    live.set_theme("dark")
    dark, dark_legend = _colours(recorded.figure), entries(recorded.figure, with_empty=True)
    live.set_theme("light")
    for model, values in dark.items():
        changed = {name: value for name, value in values.items() if value != light.get(model, {}).get(name)}
        if changed:
            recorded.dark[model] = changed
    recorded.dark[recorded.figure.id].pop("border_fill_color")
    recorded.figure.border_fill_color = None  # that of the page
    layers = [[r.id for r in item.renderers] for group in recorded.figure.legend for item in group.items]
    layers = [ids for ids in layers if ids]
    for light_entry, dark_entry, ids in zip(legend, dark_legend, layers, strict=True):
        colours = {"light": light_entry.colour, "dark": dark_entry.colour, "alpha": light_entry.alpha}
        recorded.legend.append({"label": light_entry.label, "sign": light_entry.sign, **colours, "layers": ids})


def _colours(figure: Any) -> Properties:
    """Colours and opacities that are one for all marks, the colour scales, and the styles of the toolbar."""
    values: Properties = {}
    for model in figure.references():
        names = [name for name in model.properties() if name.endswith(("_color", "_alpha"))]
        plain = {name: value for name in names if isinstance(value := getattr(model, name), str | float | int)}
        if plain:
            values[model.id] = plain
    for mapper in figure.select({"type": LinearColorMapper}):
        values.setdefault(mapper.id, {})["palette"] = list(mapper.palette)
    values[figure.toolbar.id] = {"styles": dict(figure.toolbar.styles)}
    return values


def thinned(recorded: RecordedFigure, indices: Sequence[int]) -> RecordedFigure:
    """Return the same picture with these frames only.

    Parameters
    ----------
    recorded : RecordedFigure
        The picture.
    indices : sequence of int
        Numbers of the frames, in order.
    """
    columns = {
        source: {name: [history[k] for k in indices] for name, history in of_source.items()}
        for source, of_source in recorded.columns.items()
    }
    properties, captions = ([values[k] for k in indices] for values in (recorded.properties, recorded.captions))
    return replace(recorded, columns=columns, properties=properties, captions=captions)


def evenly_spaced(count: int, most: int) -> list[int]:
    """Return at most `most` of the numbers 0 to count - 1, evenly spaced, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(float(place)) for place in np.linspace(0, count - 1, most)})


def facts(run: Run, records: Sequence[int]) -> list[dict[str, str]]:
    """Return the numbers that stand above the pictures in each frame, as text.

    Parameters
    ----------
    run : Run
        The run.
    records : sequence of int
        Indices of records, one per frame.
    """
    table = run.table()
    names = {"index": "step", "seconds": "seconds of work"}
    if run.method.channels:
        first = run.method.channels[0]
        names[first.name] = f"{first.label} [{first.unit}]" if first.unit else first.label
    names |= {name: name.upper() for name in ("smse", "snlp") if name in table}
    scores = [name for name in ("smse", "snlp") if name in table]
    table[scores] = table[scores].ffill()  # the newest scores up to each record
    return [{label: _number(table[name].iloc[at]) for name, label in names.items() if name in table} for at in records]


def _number(value: Any) -> str:
    if isinstance(value, int | np.integer):
        return str(value)
    return "—" if pd.isna(value) else f"{float(value):.4g}".replace("-", "−")
