"""The fast path: HoloViews draws a picture once; from then on only the numbers in its Bokeh sources change.

A redraw of a six-layer overlay takes 50 to 90 ms, six replaced sources under one. Axes move only when the data leave
them or shrink to a small part of them, so that nothing jumps while a run plays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import holoviews as hv
import numpy as np
import pandas as pd
from bokeh.models import BasicTicker, ColorBar, ColumnDataSource, LinearColorMapper, LogScale, Range1d

from ..base import Layers
from .brushing import brush
from .palette import paint
from .saving import svg_tool

ROOM = 0.06  # of the data's extent, left free on each side
WIDE = {
    "min-width": "220px",
    "justify-self": "end",
}  # of the toolbar: Bokeh hides the last button of one that just fits
SMALL = 0.35  # of an axis: data that use less of it rescale it
COUNTED = ("step", "rank")  # axes without halves


class Plotted(Protocol):
    """What can be drawn: a view, or anything else that turns layers into a picture."""

    def plot(self, layers: Layers) -> hv.Overlay | hv.Element:
        """The picture of these frames."""


class Live:
    """A view's figure, drawn from its first layers; `update` replaces the numbers."""

    def __init__(self, view: Plotted, layers: Layers, theme: str = "light") -> None:
        plot = hv.renderer("bokeh").get_plot(view.plot(layers))
        self.figure = plot.state
        self.figure.update(sizing_mode="stretch_both", width=None, height=None, toolbar_location="above")
        self.figure.toolbar_inner = True  # over the picture, where a pointer is: no empty line above the legend
        self.figure.toolbar.update(logo=None, autohide=True)
        self.figure.add_tools(svg_tool(self.figure))
        brush(self.figure, layers)
        self._sources = {s.name: s for s in self.figure.select({"type": ColumnDataSource}) if s.name in layers}
        for source in self._sources.values():
            source.data = _kept(source.data)
        for axis in self.figure.axis:
            if axis.axis_label in COUNTED and isinstance(axis.ticker, BasicTicker):
                axis.ticker.min_interval = 1
        self._mappers = list(self.figure.select({"type": LinearColorMapper}))
        for word in ("x_range", "y_range"):
            setattr(self.figure, word, Range1d(*self._ends(getattr(self.figure, word))))
        self._fit(layers, force=True)
        self.set_theme(theme)

    def update(self, layers: Layers) -> None:
        """Show other numbers: layers that are missing become empty."""
        for name, source in self._sources.items():
            frame = layers.get(name)
            if frame is not None:
                source.data = _kept(_SHAPES.get(source.tags[0], _columns)(frame, source.data))
        title = next((f.attrs["title"] for f in layers.values() if "title" in f.attrs), None)
        if title is not None:
            self.figure.title.text = title
        self._fit(layers)

    def set_theme(self, theme: str) -> None:
        """Colours of "light" or "dark"."""
        paint(self.figure, theme)
        self.figure.toolbar.styles = {**WIDE, "background-color": self.figure.background_fill_color}
        ink = self.figure.title.text_color
        for bar in self.figure.select({"type": ColorBar}):
            bar.update(background_fill_alpha=0.0, major_label_text_color=ink, title_text_color=ink)

    def _fit(self, layers: Layers, force: bool = False) -> None:
        for axis, words in (("x", ("x", "x0", "x1")), ("y", ("y", "lower", "upper", "y0", "y1"))):
            log = isinstance(getattr(self.figure, f"{axis}_scale"), LogScale)
            found = _extent(layers, words, log)
            held = getattr(self.figure, f"{axis}_range")
            if found is not None and (force or _leaves(found, (held.start, held.end), log)):
                held.start, held.end = _with_room(found, log)
        for mapper in self._mappers:
            values = [f["value"].to_numpy(float) for f in layers.values() if "value" in f and len(f)]
            finite = np.concatenate(values) if values else np.empty(0)
            finite = finite[np.isfinite(finite)]
            if len(finite):
                low, high = float(np.quantile(finite, 0.02)), float(finite.max())
                mapper.update(low=low, high=high if high > low else low + 1.0)

    @staticmethod
    def _ends(held: Any) -> tuple[Any, Any]:
        ends = (held.start, held.end)
        return ends if all(isinstance(e, int | float) and np.isfinite(e) for e in ends) else (0.0, 1.0)


def _kept(columns: Any) -> dict[str, Any]:
    """These columns; one row that is nowhere where there is none, or the layer would lose its mark in the legend."""
    return {key: held if len(held) else np.array([np.nan]) for key, held in columns.items()}


def _columns(frame: pd.DataFrame, held: dict[str, Any]) -> dict[str, Any]:
    """The frame's columns under the names the source already has; a colour follows the frame's value."""
    named = {key: "value" if key in ("color", "fill_color") and "value" in frame else key for key in held}
    return {key: frame[column].to_numpy() for key, column in named.items() if column in frame}


def _band(frame: pd.DataFrame, held: dict[str, Any]) -> dict[str, Any]:
    """A band is one polygon: there along its lower edge (zero where it has none), back along its upper."""
    x = frame["x"].to_numpy()
    lower, upper = (frame["lower"], frame["upper"]) if "lower" in frame else (0.0 * frame["y"], frame["y"])
    return {"x": np.concatenate([x, x[::-1]]), "y": np.concatenate([lower, upper[::-1]])}


def _image(frame: pd.DataFrame, held: dict[str, Any]) -> dict[str, Any]:
    """A grid of values, row by row from the lowest y."""
    x, y = np.unique(frame["x"]), np.unique(frame["y"])
    grid = frame.sort_values(["y", "x"])["value"].to_numpy().reshape(len(y), len(x))
    step_x, step_y = x[1] - x[0], y[1] - y[0]
    sides = {"x": [x[0] - step_x / 2], "y": [y[0] - step_y / 2]}
    return {**held, **sides, "dw": [step_x * len(x)], "dh": [step_y * len(y)], "image": [grid]}


_SHAPES: dict[str, Callable[[pd.DataFrame, dict[str, Any]], dict[str, Any]]] = {"Area": _band, "Image": _image}


def _extent(layers: Layers, words: tuple[str, ...], log: bool) -> tuple[float, float] | None:
    columns = [f[w].to_numpy(float) for f in layers.values() if not f.attrs.get("loose") for w in words if w in f]
    values = np.concatenate(columns) if columns else np.empty(0)
    values = values[np.isfinite(values) & ((values > 0) | (not log))]
    return (float(values.min()), float(values.max())) if len(values) else None


def _leaves(found: tuple[float, float], held: tuple[float, float], log: bool) -> bool:
    (low, high), (start, end) = (tuple(np.log10(np.maximum(e, 1e-300)) if log else e for e in p) for p in (found, held))
    return low < start or high > end or (high - low) < SMALL * (end - start)


def _with_room(found: tuple[float, float], log: bool) -> tuple[float, float]:
    low, high = (float(np.log10(e)) if log else e for e in found)
    room = ROOM * (high - low) or 0.5 * abs(high) or 1.0
    return (10 ** (low - room), 10 ** (high + room)) if log else (low - room, high + room)
