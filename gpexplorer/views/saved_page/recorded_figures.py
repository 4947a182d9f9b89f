"""Pictures of a run, recorded frame by frame: what changes in each figure while the run plays, in few bytes.

A column of a source takes the same value in many frames, or values close to those before. An entry of numbers is
combined with the entry before it bit by bit (exclusive or), and its bytes are sorted by their place in the number, so
that equal leading bytes become runs of zeros, which deflate stores in almost no space. A grid is seen as colours: it is
rounded to levels, and a level is stored as its difference from the one before and from the row above. The player undoes
this line by line.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import ColumnDataSource, HoverTool, LinearColorMapper, LogScale

from ...errors import GPExplorerError
from ...runs.run import Run
from ..base import Layers, View
from ..drawing.brushing import add_tooltips
from ..drawing.legend import entries
from ..drawing.live import LONG, Live, in_lines, without_unseen_digits
from ..runs.steps_table import steps_table

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
                figures.append(_recorded(view, frames, view.saved_as(run.method.key)))
        except Exception as error:
            reason = str(error) if isinstance(error, GPExplorerError) else type(error).__name__
            failures.append(f"The picture “{view.title}” could not be drawn: {reason}")
    return figures, failures


def _recorded(view: View, frames: Sequence[Layers], name: str) -> RecordedFigure:
    fullest = max(frames, key=lambda layers: (len(layers), sum(map(len, layers.values()))))
    empty = {name: frame.iloc[:0] for name, frame in fullest.items()}
    live = Live(view, fullest, name=name)
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
        # The properties of a figure that follow its data
        ranges = {r.id: {"start": float(r.start), "end": float(r.end)} for r in (figure.x_range, figure.y_range)}
        axes = {axis.id: {"axis_label": str(axis.axis_label or "")} for axis in (figure.xaxis[0], figure.yaxis[0])}
        mappers = figure.select({"type": LinearColorMapper})
        scales = {m.id: {"low": float(m.low), "high": float(m.high)} for m in mappers if m.low is not None}
        tags = {figure.id: {"tags": [float(tag) for tag in figure.tags]}} if len(figure.tags) == 4 else {}
        recorded.properties.append({**ranges, **axes, **scales, **tags})
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


def _add_tooltips(figure: Any, layers: Layers) -> None:
    """Add a tooltip with both numbers to the points of a figure that has no tooltips yet."""
    if figure.select({"type": HoverTool}):
        return
    labels = _axis_labels(layers)
    points = [r for r in figure.renderers if "marker" in getattr(getattr(r, "glyph", None), "properties", set)()]
    if points:
        add_tooltips(figure, points, [(labels.get("xlabel", "x"), "x"), (labels.get("ylabel", "y"), "y")], {"x", "y"})


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
    table = steps_table(run)
    names = {"index": "step", "seconds": "seconds of work"}
    if run.method.channels:
        first = run.method.channels[0]
        names[first.name] = first.axis
    table["seconds"] = table["seconds"].round(3)
    texts = {label: [_number(value) for value in table[name]] for name, label in names.items() if name in table}
    texts |= {name.upper(): _newest(table[name]) for name in ("smse", "snlp") if name in table}
    return [{label: each[at] for label, each in texts.items()} for at in records]


def _newest(scores: pd.Series) -> list[str]:
    """The newest score up to each record, with the step that it belongs to if that is an earlier one."""
    place = np.arange(len(scores))
    scored = pd.Series(place, dtype=float).where(scores.notna().to_numpy()).ffill()  # nan before the first score
    values = map(_number, scores.ffill())
    return list(map(with_its_step, values, scored, place))


def with_its_step(score: str, step: float, shown: int) -> str:
    """Return a score as text, with the step that it belongs to if that is an earlier one than the step shown.

    Parameters
    ----------
    score : str
        The newest score up to the step shown.
    step : float
        The step it belongs to; nan where there is none.
    shown : int
        The step shown.
    """
    return f"{score} at step {step:.0f}" if step < shown else score


def _number(value: Any) -> str:
    if isinstance(value, int | np.integer):
        return str(value)
    return "—" if pd.isna(value) else f"{float(value):.4g}".replace("-", "−")


INVISIBLE = 2.0**-16  # part of the entry's range; a picture has less than 4000 pixels
LARGEST_INTEGER = 2**31 - 1
GRID_LEVELS = 2**12  # in the frame of a grid with the smallest range; a scale has 256 colours
FEWEST_LEVELS = 2**10  # where the ranges of the frames differ much; otherwise grids stay numbers


class PackedColumns:
    """Entries of columns, packed one after another.

    Attributes
    ----------
    blob : bytearray
        The bytes of all entries so far.
    """

    def __init__(self) -> None:
        self.blob = bytearray()

    def add(self, history: Sequence[Any], exact: bool = False) -> dict[str, Any]:
        """Pack the contents of one column, one per frame.

        Parameters
        ----------
        history : sequence
            Arrays, or lists of arrays or plain values; None in frames without this column.
        exact : bool, default False
            Keep long columns to the last bit of float32 or better, as a logarithmic axis needs it.

        Returns
        -------
        dict
            "at": for each frame, the number of its entry; "entries": for each entry its kind, and its length or shape.
            An entry of kind "json" has its content in place of the length.
        """
        numbers: dict[bytes, int] = {}
        places: list[int] = []
        entries: list[list[Any]] = []
        previous: tuple[str, bytes] = ("", b"")
        levels = None if exact else _levels(history)
        for content in history:
            entry: tuple[str, Any, bytes] = ("json", None, b"")
            kind, extent, raw = entry if content is None else _plain(content, exact, levels)
            key = kind.encode() + repr(extent).encode() + raw
            if key not in numbers:
                numbers[key] = len(entries)
                entries.append([kind, extent])
                if kind != "json":
                    before = previous[1] if previous[0] == kind else b""
                    self.blob += (
                        _level_change(raw, before, extent[1]) if kind == "q2" else _difference(raw, before, kind)
                    )
                    previous = (kind, raw)
            places.append(numbers[key])
        return {"at": places, "entries": entries}

    def compressed(self) -> bytes:
        """Return all entries, compressed with gzip; the same bytes each time."""
        return gzip.compress(bytes(self.blob), 9, mtime=0)


def _is_grid(content: Any) -> bool:
    return isinstance(content, list) and len(content) == 1 and np.ndim(content[0]) == 2


def _levels(history: Sequence[Any]) -> tuple[float, float] | None:
    """The lowest value and the distance of two levels for all grids of a column; None where they stay numbers."""
    grids = [np.asarray(content[0], float) for content in history if content is not None and _is_grid(content)]
    ranges = [extent for grid in grids if grid.size and (extent := float(np.ptp(grid))) != 0]
    if not ranges or not np.isfinite(ranges).all():
        return None
    low, high = min(float(grid.min()) for grid in grids), max(float(grid.max()) for grid in grids)
    unit = max(min(ranges) / GRID_LEVELS, (high - low) / 65_000)
    return (low, unit) if 1e-30 < unit <= min(ranges) / FEWEST_LEVELS else None


def _plain(content: Any, exact: bool, levels: tuple[float, float] | None) -> tuple[str, Any, bytes]:
    """Kind, length or shape, and bytes of an entry: f4, f8, i4 are numbers, g4 is a grid of float32, q2 of levels."""
    if _is_grid(content) and levels is not None:
        low, unit = levels
        codes = np.round((np.asarray(content[0], float) - low) / unit).astype("<u2")
        return "q2", [*codes.shape, low, unit], codes.tobytes()
    if _is_grid(content):
        grid = np.asarray(content[0], np.float32)
        return "g4", list(grid.shape), np.ascontiguousarray(grid).tobytes()
    values = np.asarray(content)
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        return "json", [value if isinstance(value, int | str | None) else str(value) for value in content], b""
    if values.dtype.kind in "iub" and (not len(values) or np.abs(values.astype(float)).max() < LARGEST_INTEGER):
        return "i4", len(values), values.astype("<i4").tobytes()
    numbers = values.astype(float)
    rounded = _exact(numbers) if exact else without_unseen_digits(numbers, INVISIBLE)
    return f"f{rounded.itemsize}", len(rounded), rounded.astype(rounded.dtype.newbyteorder("<")).tobytes()


def _exact(values: np.ndarray) -> np.ndarray:
    """A long entry to the last bit of float32, or in float64 where float32 has no number so small or so large."""
    finite = values[np.isfinite(values)]
    extent = float(np.ptp(finite)) if len(finite) else 0.0
    narrow = len(values) >= LONG and 1e-30 < extent < 1e30 and 1e-30 < np.abs(finite[finite != 0]).min()
    return values.astype(np.float32) if narrow else values


def _difference(raw: bytes, before: bytes, kind: str) -> bytes:
    """What differs from the entry before, with the bytes of all numbers that stand at the same place together."""
    bits = np.frombuffer(raw, np.uint8)
    if len(before) == len(raw):
        bits = bits ^ np.frombuffer(before, np.uint8)
    return bits.reshape(-1, int(kind[1])).T.tobytes()


def _level_change(raw: bytes, before: bytes, width: int) -> bytes:
    """The same for levels: how much each has changed since the entry before, minus the change of the row above it."""
    codes = np.frombuffer(raw, "<u2").reshape(-1, width)
    if len(before) == len(raw):
        codes = codes - np.frombuffer(before, "<u2").reshape(-1, width)  # modulo 2^16
    change = np.concatenate([codes[:1], codes[1:] - codes[:-1]]).astype("<u2")
    return change.view(np.uint8).reshape(-1, 2).T.tobytes()
