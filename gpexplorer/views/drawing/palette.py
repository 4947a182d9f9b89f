"""Colours by role, for the light and the dark theme, after Okabe and Ito (2008).

People who are colour-blind can tell these colours apart. Yellow, sky blue and grey are darker than in the paper: every
line and mark has a contrast of at least 3 to its background, as WCAG 2.2 asks of graphics (level AA, 1.4.11), and every
text one of at least 4.5. The dark theme has a lighter twin of each colour. Dots that are coloured by a number use the
part of the scale that has this contrast; images, whose colours lie beside one another, use all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bokeh.models import (
    BasicTickFormatter,
    CustomJSTicker,
    LinearColorMapper,
    LogTicker,
    LogTickFormatter,
    PrintfTickFormatter,
    Scatter,
)
from bokeh.palettes import Viridis256

ROLES = {
    "data": "#7f8c99",
    "test": "#b97f00",
    "truth": "#8a6bbf",
    "mean": "#0072b2",
    "band": "#56b4e9",
    "inducing": "#d55e00",
    "removed": "#c46fa0",
    "proposed": "#009e73",
    "reference": "#7d8894",
    "words": "#5a6672",
    "fit": "#0072b2",
    "complexity": "#b97f00",
    "trace": "#009e73",
}
CYCLE = ("#0072b2", "#d55e00", "#009e73", "#c46fa0", "#b97f00", "#2f93cf", "#8a6bbf", "#7d8894", "#5d6b00", "#a02c5d")
# Two blues look alike, and people who are colour-blind would take more of these colours for one another: such lines
# differ in their dashes.
_DASHES = ("solid", "solid", "dashed", "solid", "dashed", "dotdash", "dashed", "dotted", "dotdash", "dotted")
ON_DARK = {  # colour in the light theme -> its twin in the dark one
    "#0072b2": "#4db3f0",
    "#d55e00": "#ff8a3d",
    "#009e73": "#2fc79a",
    "#c46fa0": "#e39cc4",
    "#b97f00": "#f0b429",
    "#2f93cf": "#8fd0f5",
    "#8a6bbf": "#b49be0",
    "#7d8894": "#a9b4bf",
    "#5a6672": "#b4bec8",
    "#7f8c99": "#9aa7b4",
    "#5d6b00": "#b7c93a",
    "#a02c5d": "#e0709f",
}
SEQUENTIAL = "Viridis"
DOTS = {"light": Viridis256[:154], "dark": Viridis256[97:]}  # without what is too light for white, or too dark

DIVERGING_ENDS = {  # of values around zero, which has the colour of the paper: the least one, zero, the largest one
    "light": ("#462078", "#ffffff", "#0a5c48"),
    "dark": ("#b28cf0", "#1c2229", "#48d6a5"),
}
BEND = 0.8  # exponent of the way from zero to an end, so that small values differ from the paper

AROUND = {  # colours of what lies around lines and marks
    "light": {"text": "#22303c", "line": "#c4ccd4", "grid": "#e8ecf0", "background": "#ffffff"},
    "dark": {"text": "#dfe6ec", "line": "#4a5560", "grid": "#2c353e", "background": "#1c2229"},
}

# Bokeh's own ticks of less than two decades are those of a linear axis, whose labels touch at one end.
LOG_TICKS = Path(__file__).with_name("log_ticks.js").read_text("utf-8")


def _diverging(low: str, zero: str, high: str, count: int = 128) -> list[str]:
    """Colours from one end over zero to the other."""
    colours = [np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)], float) for colour in (low, zero, high)]
    places = np.linspace(-1.0, 1.0, count)
    mixed = [colours[1] + (colours[0 if u < 0 else 2] - colours[1]) * abs(u) ** BEND for u in places]
    return ["#" + "".join(f"{round(part):02x}" for part in colour) for colour in mixed]


DIVERGING = {theme: _diverging(*ends) for theme, ends in DIVERGING_ENDS.items()}
_ON_LIGHT = {dark: light for light, dark in ON_DARK.items()}
_GLYPHS = ("glyph", "nonselection_glyph", "selection_glyph", "muted_glyph", "hover_glyph")
_INKS = ("line_color", "fill_color", "text_color", "hatch_color")


def cycled(k: int) -> dict[str, str]:
    """Return colour and dashes of line k of a picture with several lines, as options of HoloViews."""
    return {"color": CYCLE[k % len(CYCLE)], "line_dash": _DASHES[k % len(CYCLE)]}


def paint(figure: Any, theme: str, mappers: Sequence[LinearColorMapper] = ()) -> None:
    """Set the colours of a Bokeh figure: background, axes, grid, title, legend, and the lines and marks of its layers.

    Parameters
    ----------
    figure : object
        The figure.
    theme : str
        "dark"; anything else means the light theme.
    mappers : sequence of LinearColorMapper, optional
        Its colour scales, of which the diverging ones get that of the theme.
    """
    colours = AROUND["dark" if theme == "dark" else "light"]
    figure.update(
        background_fill_color=colours["background"], border_fill_color=colours["background"], outline_line_color=None
    )
    _paint_layers(figure, ON_DARK if theme == "dark" else _ON_LIGHT)
    _paint_dots(figure, DOTS["dark" if theme == "dark" else "light"])
    for mapper in mappers:
        if list(mapper.palette) in DIVERGING.values():
            mapper.palette = DIVERGING["dark" if theme == "dark" else "light"]
    for axis in figure.axis:
        axis.update(
            axis_label_text_color=colours["text"],
            major_label_text_color=colours["text"],
            axis_line_color=colours["line"],
            major_tick_line_color=colours["line"],
            minor_tick_line_color=None,
            axis_label_text_font_style="normal",
            axis_label_text_font_size="13px",
            major_label_text_font_size="12px",
        )
        if isinstance(axis.formatter, BasicTickFormatter):
            axis.formatter.update(power_limit_low=-5, power_limit_high=7)  # 100000 and 0.00005, but 2.5e-9
        if isinstance(axis.ticker, LogTicker):
            axis.ticker = CustomJSTicker(major_code=LOG_TICKS)
        if isinstance(axis.formatter, LogTickFormatter):  # 0.005, not 5.000e-3
            axis.formatter = PrintfTickFormatter(format="%.3g")
    for grid in figure.grid:
        grid.grid_line_color = colours["grid"]
    figure.title.update(text_color=colours["text"], text_font_size="12.5px", text_font_style="normal")
    for legend in figure.legend:
        legend.update(
            background_fill_color=colours["background"],
            background_fill_alpha=0.85,
            border_line_color=None,
            label_text_color=colours["text"],
            label_text_font_size="12px",
            stylesheets=[".bk-label { font-size: 12px !important; }"],  # Bokeh 3.9 resets the size when it redraws
            glyph_height=16,
            label_height=16,
            spacing=2,
            margin=4,
        )


def _paint_layers(figure: Any, twins: dict[str, str]) -> None:
    """Replace each colour of the layers by its twin; other colours, and colours from a column, stay."""
    parts = [getattr(renderer, name, None) for renderer in figure.renderers for name in _GLYPHS]
    for part in [*parts, *figure.center]:
        # Bokeh answers a question for what a model lacks with a search for similar names, in a third of a millisecond.
        inks = {name: getattr(part, name) for name in _INKS if part is not None and name in part.properties()}
        changed = {name: twins[ink] for name, ink in inks.items() if isinstance(ink, str) and ink in twins}
        if changed:
            part.update(**changed)


def _paint_dots(figure: Any, scale: tuple[str, ...]) -> None:
    """Use this scale for dots whose colour is a number."""
    for renderer in figure.renderers:
        glyph = getattr(renderer, "glyph", None)
        mapper = getattr(glyph.fill_color, "transform", None) if isinstance(glyph, Scatter) else None
        if isinstance(mapper, LinearColorMapper):
            mapper.palette = list(scale)
