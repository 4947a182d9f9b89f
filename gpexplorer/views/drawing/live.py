"""Figures that update in place: HoloViews draws a picture once; from then on only the numbers in its sources change.

Drawing an overlay of six layers again takes 50 to 90 ms; replacing its six sources takes less than 1 ms. The axes
change only when the data leave them or fill a small part of them, so that nothing jumps while a run plays.

Bokeh 3.9 keeps a stack of current documents for callbacks. `bokeh.io.doc.patch_curdoc` does not remove its entry when
the callback raises, so one exception in one session makes that session's document the current one of the whole
process. HoloViews attaches each new plot to the current document; once the session is over, every drawing in every
other session raises "Patched curdoc has been previously destroyed", until the server is restarted. So the current
document is repaired here, and each drawing has a document of its own.
"""

from __future__ import annotations

import math
import sys
import textwrap
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import holoviews as hv
import numpy as np
import pandas as pd
from bokeh.document import Document
from bokeh.io import doc as bokeh_doc
from bokeh.models import (
    BasicTicker,
    ColorBar,
    ColumnDataSource,
    CustomAction,
    CustomJS,
    LinearColorMapper,
    LogScale,
    Range1d,
    WheelZoomTool,
)

from ..base import Layers
from .brushing import brush
from .legend import Entry, entries, toggle
from .palette import paint

IMPORTERS = ("panel.io.handlers", "bokeh.application.handlers.code")  # modules with a name of their own for it


@contextmanager
def current_document(document: Any) -> Iterator[None]:
    """Make a document the current one inside the block, also if the block raises."""
    stack = bokeh_doc._PATCHED_CURDOCS
    entry = weakref.ref(document)
    stack.append(entry)
    try:
        yield
    finally:
        for index in reversed(range(len(stack))):
            if stack[index] is entry:
                del stack[index]
                break


def repair_current_document() -> None:
    """Use `current_document` in place of `patch_curdoc`, everywhere in this process."""
    bokeh_doc.patch_curdoc = current_document
    for name in IMPORTERS:
        if name in sys.modules:
            sys.modules[name].patch_curdoc = current_document  # type: ignore[attr-defined]


LEFT, RIGHT_OF_BAR = 90, 84  # pixels beside a frame: y-axes of neighbours align, and labels of a colour bar are not cut
BAR_HEIGHT, BAR_PADDING = 10, 4  # pixels of a colour bar below a map
MARGIN = 0.06  # part of the data's range that stays free on each side
NEAR = 0.02  # part of an axis beside each end in which data rescale it: the radius of a dot in a narrow picture
SMALL = 0.35  # data that fill a smaller part of their axis than this rescale it
LONG = 64  # numbers in a column from which it is rounded to what can be seen
INVISIBLE = 2.0**-14  # part of a column's range: a quarter of a pixel in a figure of 4000 pixels
READ = 2.0**-16  # the same for columns that are read in a tooltip
X_TICKS, FEWEST_X_TICKS = 4, 2  # about so many labels below a picture, which do not touch where it is narrow
LETTERS_BELOW = 20  # of all labels together, below a narrow picture
LETTERS_BESIDE = 36  # of a line of an axis label: what a picture on a phone has room for
COUNTED = ("step", "rank")  # axes whose ticks are whole numbers
TOOLBAR = {"min-width": "220px", "justify-self": "end"}  # Bokeh hides the last button of a toolbar that just fits
# Bokeh 3.9 fills a canvas from half a pixel on, so that a light line stays at two edges once the theme is dark.
EDGE = ".bk-Canvas { clip-path: inset(2px 0 0 2px); }"
HINT = ".bk-Panel { color: #1c2229; }"  # "use ctrl + scroll to zoom" is on white, and would be white on a dark page
X_COLUMNS = ("x", "x0", "x1")
Y_COLUMNS = ("y", "lower", "upper", "y0", "y1")

ICON_COLOUR = "rgb(127,140,153)"  # not "#...": a hash ends the address, and Bokeh quotes what is quoted already
ICON_TEXT = (
    f"<text x='12' y='16' font-family='sans-serif' font-size='10' text-anchor='middle' fill='{ICON_COLOUR}'>SVG</text>"
)
ICON = f"data:image/svg+xml;utf8,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'>{ICON_TEXT}</svg>"
SAVE_SVG = Path(__file__).with_name("save_svg.js").read_text("utf-8")


EQUAL_AXES = Path(__file__).with_name("equal_axes.js").read_text("utf-8")
MOST_UNEQUAL = 4.0  # a map whose sides differ by a larger factor fills its frame, as its axes have different units
Box = tuple[float, float, float, float]


class Plotted(Protocol):
    """What can be drawn: a view, or any other object that turns layers into a picture."""

    def plot(self, layers: Layers) -> hv.Overlay | hv.Element:
        """Draw these frames."""


class Drawing(NamedTuple):
    """A function in the form in which `Live` takes it."""

    plot: Callable[[Layers], hv.Overlay | hv.Element]


class Live:
    """A Bokeh figure of a view that is drawn once and then updated in place.

    Parameters
    ----------
    view : Plotted
        What to draw.
    layers : Layers
        The frames to begin with. Their names and columns decide what `update` can replace.
    theme : str, default "light"
        "light" or "dark".
    name : str, default ""
        Of the file in which a person saves the picture.

    Attributes
    ----------
    figure : figure
        The Bokeh figure, with this name.
    number : str
        The beginning of the caption where that is what the picture is about; else empty.
    """

    def __init__(self, view: Plotted, layers: Layers, theme: str = "light", name: str = "") -> None:
        with current_document(Document()):  # so that what is drawn belongs to no session
            self.figure = hv.renderer("bokeh").get_plot(view.plot(layers)).state
        self._meaning, self.number = meaning(layers), _number(layers)
        self.figure.update(name=name, sizing_mode="stretch_both", width=None, height=None, toolbar_location="above")
        if any(axis.visible for axis in self.figure.yaxis):
            self.figure.min_border_left = LEFT
        parts = self.figure.references()  # a search for each kind would walk through all of them again
        is_map = any(frame.attrs.get("map") for frame in layers.values())
        self._bars = [part for part in parts if isinstance(part, ColorBar)]
        if self._bars and is_map:
            self._put_below()
        elif self._bars:
            self.figure.min_border_right = RIGHT_OF_BAR
        self.figure.stylesheets = [EDGE, HINT]
        self.figure.toolbar.update(logo=None, autohide=True)  # it shares a line with the title, and covers no data
        # A wheel or a finger over the figure scrolls the page. Panning is in the toolbar; Ctrl with the wheel zooms.
        self.figure.toolbar.active_drag = None
        for tool in (part for part in parts if isinstance(part, WheelZoomTool)):
            tool.modifiers = "ctrl"
        # As the browser that shows the figure draws it, with title and legend
        save = CustomJS(args={"figure": self.figure, "legends": list(self.figure.legend)}, code=SAVE_SVG)
        self.figure.add_tools(CustomAction(description="Save as SVG", icon=ICON, callback=save))
        # On a logarithmic axis the least numbers are seen as well as the greatest ones, so that none is rounded.
        self._log = any(isinstance(scale, LogScale) for scale in (self.figure.x_scale, self.figure.y_scale))
        brush(self.figure, layers)
        self._sources = [part for part in parts if isinstance(part, ColumnDataSource) and part.name in layers]
        for source in self._sources:
            source.data = _never_empty(source.data)
        for axis in self.figure.xaxis:
            if isinstance(axis.ticker, BasicTicker):
                axis.ticker.desired_num_ticks = _labels_below(self.figure.x_range.start, self.figure.x_range.end)
        for axis in self.figure.axis:
            if axis.axis_label in COUNTED and isinstance(axis.ticker, BasicTicker):
                axis.ticker.min_interval = 1
            axis.axis_label = axis.axis_label and in_lines(axis.axis_label)
        self._box: Box | None = None  # the data's range on both axes, where both are inputs
        if is_map:
            self._keep_proportions()
        self._fitted: dict[str, tuple[float, float]] = {}  # the ends that an axis was given last, for the data
        self._mappers = [part for part in parts if isinstance(part, LinearColorMapper)]
        is_empty = not any(len(frame) for frame in layers.values())
        for name in ("x_range", "y_range"):
            log = isinstance(getattr(self.figure, name.replace("range", "scale")), LogScale)
            setattr(self.figure, name, Range1d(*_ends(getattr(self.figure, name), log, is_empty)))
        self._fit(layers, force=True)
        self.set_theme(theme)

    def can_show(self, layers: Layers) -> bool:
        """Whether these frames mean what the figure was drawn for, so that `update` can show them."""
        return meaning(layers) == self._meaning

    def update(self, layers: Layers) -> None:
        """Show other numbers; a layer that is missing keeps the numbers it has."""
        for source in self._sources:  # a layer that is drawn as a line and as dots has two
            frame = layers.get(source.name)
            if frame is not None:
                columns = _never_empty(_READERS.get(source.tags[0], _columns)(frame, source.data))
                if not self._log:
                    columns = {name: _short(values, name) for name, values in columns.items()}
                _replace_columns(source, columns)
        title = next((f.attrs["title"] for f in layers.values() if "title" in f.attrs), None)
        if title is not None:
            self.figure.title.text = title
        self.number = _number(layers)
        self._fit(layers)

    def set_theme(self, theme: str) -> None:
        """Use the colours of "light" or "dark"."""
        paint(self.figure, theme, self._mappers)
        self.figure.toolbar.styles = {**TOOLBAR, "background-color": self.figure.background_fill_color}
        text_colour = self.figure.title.text_color
        for bar in self._bars:
            bar.update(background_fill_alpha=0.0, major_label_text_color=text_colour, title_text_color=text_colour)

    def leave_words_to_page(self) -> None:
        """Remove legend and title from the figure: the page shows `legend` and `caption` above it."""
        self.figure.title.visible = False
        for legend in self.figure.legend:
            legend.visible = False

    @property
    def caption(self) -> str:
        """The title of the figure."""
        return str(self.figure.title.text or "")

    @property
    def legend(self) -> list[Entry]:
        """The entries of the legend, in the colours of the theme."""
        return entries(self.figure)

    def toggle(self, entry: int) -> None:
        """Hide the layers of an entry of the legend, or show them again."""
        toggle(self.figure, entry)

    def share_axes(self, other: Live) -> None:
        """Give both figures the same ends of each axis that shows the same quantity, unless somebody has zoomed."""
        lives = (self, other)
        for axis in ("x", "y"):
            sides = [getattr(live.figure, f"{axis}axis")[0] for live in lives]
            ranges = [getattr(live.figure, f"{axis}_range") for live in lives]
            is_same = sides[0].axis_label == sides[1].axis_label and self._log == other._log
            if is_same and all(
                (r.start, r.end) == live._fitted.get(axis) for r, live in zip(ranges, lives, strict=True)
            ):
                for live in lives:
                    live._set_ends(axis, min(r.start for r in ranges), max(r.end for r in ranges))

    def _set_ends(self, axis: str, start: float, end: float) -> None:
        self._fitted[axis] = (start, end)
        axis_range = getattr(self.figure, f"{axis}_range")
        axis_range.update(start=start, end=end, reset_start=start, reset_end=end)

    def _put_below(self) -> None:
        """Put colour bars under a map, which is as wide as it is high and would be small beside them."""
        for bar in self._bars:
            self.figure.right = [model for model in self.figure.right if model is not bar]
            bar.update(orientation="horizontal", width="auto", height=BAR_HEIGHT, padding=BAR_PADDING, margin=0)
            self.figure.add_layout(bar, "below")

    def _keep_proportions(self) -> None:
        """Let the browser widen one axis of a map until a unit is as long on both axes.

        Only the browser knows the size of the figure. It fits the box in `figure.tags`.
        """
        fit = CustomJS(args={"figure": self.figure}, code=EQUAL_AXES)
        for change in ("inner_width", "inner_height", "tags"):
            self.figure.js_on_change(change, fit)
        self._box = (0.0, 1.0, 0.0, 1.0)

    def _fit_map(self, layers: Layers, force: bool) -> None:
        """Set the box of a map to the data where they no longer fit."""
        assert self._box is not None
        x, y = _extent(layers, X_COLUMNS, False), _extent(layers, Y_COLUMNS, False)
        if x is None or y is None:
            return
        if force or _misfits(x, self._box[:2], False) or _misfits(y, self._box[2:], False):
            self._box = (*_with_margin(x, False), *_with_margin(y, False))
            self.figure.x_range.update(start=self._box[0], end=self._box[1])
            self.figure.y_range.update(start=self._box[2], end=self._box[3])
            ratio = (self._box[1] - self._box[0]) / (self._box[3] - self._box[2])
            if 1 / MOST_UNEQUAL <= ratio <= MOST_UNEQUAL:
                self.figure.tags = list(self._box)

    def _fit(self, layers: Layers, force: bool = False) -> None:
        """Set axes and colour scales to the data where they no longer fit."""
        if self._box is not None:
            self._fit_map(layers, force)
        else:
            for axis, columns in (("x", X_COLUMNS), ("y", Y_COLUMNS)):
                log = isinstance(getattr(self.figure, f"{axis}_scale"), LogScale)
                extent, axis_range = _extent(layers, columns, log), getattr(self.figure, f"{axis}_range")
                ends = (axis_range.start, axis_range.end)
                if not force and ends != self._fitted.get(axis, ends):
                    continue  # somebody has zoomed; the reset button of the figure lets the axis follow the data again
                if extent is not None and (force or _misfits(extent, ends, log)):
                    counted = any(side.axis_label in COUNTED for side in getattr(self.figure, f"{axis}axis"))
                    self._set_ends(axis, *_with_margin(extent, log, counted))
        limits = _colour_limits(layers)
        for mapper in self._mappers:
            if limits is not None:
                mapper.update(low=limits[0], high=limits[1])


def meaning(layers: Layers) -> tuple[Any, ...]:
    """What layers are called and measured in; a figure of others has to be drawn again."""
    labels = ((name, *map(frame.attrs.get, ("xlabel", "ylabel", "label"))) for name, frame in layers.items())
    return (*labels, any(len(frame) for frame in layers.values()))


def _number(layers: Layers) -> str:
    return next((frame.attrs["number"] for frame in layers.values() if "number" in frame.attrs), "")


def in_lines(label: str) -> str:
    """Return an axis label in lines that a narrow picture does not cut."""
    return textwrap.fill(label, LETTERS_BESIDE)


def _replace_columns(source: ColumnDataSource, columns: dict[str, Any]) -> None:
    """Put new columns into a source; only those that differ are sent to the browser."""
    current = source.data
    if set(columns) != set(current):
        source.data = columns
        return
    changed = {name: values for name, values in columns.items() if not _same(values, current[name])}
    if changed:
        source.data.update(changed)


def _same(values: Any, others: Any) -> bool:
    """Whether two columns have the same entries; nan is the same as nan."""
    if values is others:
        return True
    if isinstance(values, list) and isinstance(others, list):
        return len(values) == len(others) and all(map(_same, values, others))
    if not isinstance(values, np.ndarray) or not isinstance(others, np.ndarray):
        return isinstance(values, int | float | str) and values == others
    return values.dtype == others.dtype and np.array_equal(values, others, equal_nan=values.dtype.kind == "f")


def _short(values: Any, name: str) -> Any:
    """A column as it is sent; a long one in float32 takes a third of the bytes for each frame, once compressed."""
    if not isinstance(values, np.ndarray) or values.dtype != np.float64:
        return values
    return without_unseen_digits(values, INVISIBLE if name in (*X_COLUMNS, *Y_COLUMNS) else READ)


def without_unseen_digits(values: np.ndarray, part: float) -> np.ndarray:
    """Return a long column in float32, rounded to a part of its range; unchanged where float32 is too coarse.

    Parameters
    ----------
    values : numpy.ndarray
        A column in float64.
    part : float
        Part of the range that nobody sees.

    Returns
    -------
    numpy.ndarray
        The rounded column.
    """
    finite = np.isfinite(values)
    extent = float(np.ptp(values[finite])) if finite.any() else 0.0
    if values.size < LONG or not 1e-30 < extent < 1e30:
        return values
    unit = 2.0 ** np.floor(np.log2(extent * part))
    rounded = (np.round(values / unit) * unit).astype(np.float32)
    errors = np.abs(rounded[finite] - values[finite])
    return rounded if errors.max() <= unit else values  # far from the origin


def _never_empty(columns: Any) -> dict[str, Any]:
    """These columns, with one row of nan where there is none: an empty layer would lose its mark in the legend."""
    return {
        name: values if len(values) else np.array([""] if np.asarray(values).dtype == object else [np.nan])
        for name, values in columns.items()
    }


def _columns(frame: pd.DataFrame, current: dict[str, Any]) -> dict[str, Any]:
    """The columns of the frame that the source has already; a colour follows the column "value"."""
    column_of = {name: "value" if name in ("color", "fill_color") and "value" in frame else name for name in current}
    return {name: frame[column].to_numpy() for name, column in column_of.items() if column in frame}


def _band(frame: pd.DataFrame, current: dict[str, Any]) -> dict[str, Any]:
    """A band is one polygon: along its lower edge (zero if the frame has none), and back along its upper edge."""
    x = frame["x"].to_numpy()
    lower, upper = (frame["lower"], frame["upper"]) if "lower" in frame else (0.0 * frame["y"], frame["y"])
    return {"x": np.concatenate([x, x[::-1]]), "y": np.concatenate([lower, upper[::-1]])}


def _image(frame: pd.DataFrame, current: dict[str, Any]) -> dict[str, Any]:
    """A grid of values, row by row from the lowest y."""
    x, y = np.unique(frame["x"]), np.unique(frame["y"])
    grid = frame.sort_values(["y", "x"])["value"].to_numpy().reshape(len(y), len(x))
    step_x, step_y = x[1] - x[0], y[1] - y[0]
    corner = {"x": [x[0] - step_x / 2], "y": [y[0] - step_y / 2]}
    return {**current, **corner, "dw": [step_x * len(x)], "dh": [step_y * len(y)], "image": [grid]}


_READERS: dict[str, Callable[[pd.DataFrame, dict[str, Any]], dict[str, Any]]] = {"Area": _band, "Image": _image}


def _ends(axis: Any, log: bool, is_empty: bool) -> tuple[float, float]:
    """The ends of an axis; those of an empty one where there is nothing on it."""
    ends = (axis.start, axis.end)
    if is_empty or not all(isinstance(end, int | float) and np.isfinite(end) for end in ends):
        return (1.0, 10.0) if log else (0.0, 1.0)
    return ends


def _colour_limits(layers: Layers) -> tuple[float, float] | None:
    """The ends of the colour scale: those that a picture declares, else of its values; None without values."""
    declared = [frame.attrs["colours"] for frame in layers.values() if "colours" in frame.attrs]
    if declared:
        return float(declared[0][0]), float(declared[0][1])
    values = [frame["value"].to_numpy(float) for frame in layers.values() if "value" in frame and len(frame)]
    finite = np.concatenate(values) if values else np.empty(0)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return None
    low, high = float(np.quantile(finite, 0.02)), float(finite.max())
    return low, high if high > low else low + 1.0


def _extent(layers: Layers, columns: tuple[str, ...], log: bool) -> tuple[float, float] | None:
    """Least and greatest finite number in these columns; None where there is none.

    A picture may declare the ends of an axis, as "extent" or "along" of one of its frames, or what the vertical axis
    holds "at_least".
    """
    name = "extent" if columns is Y_COLUMNS else "along"
    declared = [frame.attrs[name] for frame in layers.values() if name in frame.attrs]
    if declared and all(end > 0 or not log for end in declared[0]):
        return float(declared[0][0]), float(declared[0][1])
    parts = [
        frame[column].to_numpy(float)
        for frame in layers.values()
        if not frame.attrs.get("loose")
        for column in columns
        if column in frame
    ]
    least = [frame.attrs["at_least"] for frame in layers.values() if "at_least" in frame.attrs]
    values = np.concatenate([*parts, *(least if columns is Y_COLUMNS else [])]) if parts else np.empty(0)
    values = values[np.isfinite(values) & ((values > 0) | (not log))]
    return (float(values.min()), float(values.max())) if len(values) else None


def _misfits(extent: tuple[float, float], axis: tuple[float, float], log: bool) -> bool:
    """Whether the data come as `NEAR` as a dot to an end of the axis, or fill less than `SMALL` of it."""
    (low, high), (start, end) = (
        tuple(np.log10(np.maximum(value, 1e-300)) if log else value for value in pair) for pair in (extent, axis)
    )
    near = NEAR * (end - start)
    return low <= start + near or high >= end - near or (high - low) < SMALL * (end - start)


def _with_margin(extent: tuple[float, float], log: bool, counted: bool = False) -> tuple[float, float]:
    if counted and extent[0] == extent[1]:  # one step: there is none before the first
        return extent[0] - MARGIN, extent[0] + 1.0
    low, high = (float(np.log10(value)) if log else value for value in extent)
    margin = MARGIN * (high - low) or 0.5 * abs(high) or 1.0
    return (10 ** (low - margin), 10 ** (high + margin)) if log else (low - margin, high + margin)


def _labels_below(start: Any, end: Any) -> int:
    """About how many labels the axis between these numbers has: fewer if they are as long as 350000 or 0.0012."""
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in (start, end)) or start >= end:
        return X_TICKS
    decimals = max(math.ceil(-math.log10((end - start) / X_TICKS)), 0)
    longest = max(len(f"{number:.{decimals}f}") for number in (start, end))
    return max(min(LETTERS_BELOW // longest - 1, X_TICKS), FEWEST_X_TICKS)
