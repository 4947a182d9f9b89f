"""The entries of a figure's legend, for a page that writes them beside the plot and not over it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

MARKS = {  # marker of Bokeh -> the sign that stands for it in a line of text
    "circle": "●",
    "x": "×",
    "triangle": "▲",
    "inverted_triangle": "▼",
    "star": "★",
    "diamond": "◆",
    "square": "■",
    "cross": "+",
}
HOLLOW = {"●": "○", "◆": "◇", "■": "□", "▲": "△", "▼": "▽", "★": "☆"}
AREA, LINE, DASHED, DOTTED, DASH_AND_DOT = "■", "━", "╍", "⋯", "━·"


SHORT = 2  # pixels of a stroke of Bokeh's dotted line


class Entry(NamedTuple):
    """One entry of a legend.

    Attributes
    ----------
    label : str
        What is drawn.
    sign : str
        Characters that look like the mark: a marker, a line, a dashed line or an area.
    colour : str
        Of the mark, as CSS.
    alpha : float
        Opacity of the mark, 0 to 1.
    visible : bool
        Whether the layer is shown now.
    """

    label: str
    sign: str
    colour: str
    alpha: float
    visible: bool


def entries(figure: Any, with_empty: bool = False) -> list[Entry]:
    """Return the entries of the legends of a Bokeh figure that have something to show now, in their order.

    Parameters
    ----------
    figure : object
        The figure.
    with_empty : bool
        Whether layers without rows have entries too, for a recording in which they may get some.
    """
    return [_entry(item) for item in _items(figure, with_empty)]


def toggle(figure: Any, index: int) -> None:
    """Hide the layers of entry `index`, or show them again.

    Parameters
    ----------
    figure : object
        The figure.
    index : int
        Position in `entries`; positions that do not exist are ignored.
    """
    items = _items(figure)
    if 0 <= index < len(items):
        for renderer in items[index].renderers:
            renderer.visible = not renderer.visible


def _items(figure: Any, with_empty: bool = False) -> list[Any]:
    items = [item for legend in figure.legend for item in legend.items if item.renderers]
    return [item for item in items if with_empty or any(_has_rows(each.data_source.data) for each in item.renderers)]


def _has_rows(columns: Any) -> bool:
    """Whether a source has a row; an empty layer has one, of nan."""
    return any(
        len(values) > 1 or (len(values) == 1 and not (isinstance(values[0], float) and math.isnan(values[0])))
        for values in columns.values()
    )


def _entry(item: Any) -> Entry:
    renderer = item.renderers[0]
    glyph = renderer.glyph
    label = item.label.get("value", "") if isinstance(item.label, dict) else str(item.label.value)
    sign, part = _sign(glyph)
    alpha, colour = getattr(glyph, f"{part}_alpha"), getattr(glyph, f"{part}_color")
    alpha = max(alpha, 0.35) if isinstance(alpha, int | float) else 1.0
    colour = colour if isinstance(colour, str) else "currentColor"  # a column of colours has no colour of its own
    return Entry(label, sign, colour, alpha, bool(renderer.visible))


def _sign(glyph: Any) -> tuple[str, str]:
    """The sign of a glyph, and the part of it, line or fill, that has its colour."""
    marker = getattr(glyph, "marker", None)
    if marker is not None:
        sign = MARKS.get(marker if isinstance(marker, str) else str(getattr(marker, "value", "circle")), "●")
        is_hollow = glyph.fill_alpha == 0.0 or glyph.fill_color is None
        return (HOLLOW.get(sign, sign), "line") if is_hollow or sign in "×+" else (sign, "fill")
    if "fill_color" in glyph.properties():
        return AREA, "fill"
    return _line_sign(glyph.line_dash), "line"


def _line_sign(pattern: Sequence[int]) -> str:
    """The sign of a line with this pattern of pixels, drawn and left free in turn."""
    strokes = set(pattern[::2])
    if len(strokes) > 1:
        return DASH_AND_DOT
    return LINE if not strokes else DOTTED if strokes <= {SHORT} else DASHED
