"""Colours by role, for the light and the dark theme, after Okabe and Ito (2008).

People who are colour-blind can tell these colours apart.
"""

from __future__ import annotations

from typing import Any

from bokeh.models import BasicTickFormatter, LogTickFormatter, PrintfTickFormatter

ROLES = {
    "data": "#7f8c99",
    "test": "#e69f00",
    "truth": "#8a6bbf",
    "mean": "#0072b2",
    "band": "#56b4e9",
    "inducing": "#d55e00",
    "removed": "#cc79a7",
    "proposed": "#009e73",
    "reference": "#98a2ad",
    "fit": "#0072b2",
    "complexity": "#e69f00",
    "trace": "#009e73",
}
CYCLE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6bbf", "#98a2ad", "#5d6b00", "#a02c5d")
SEQUENTIAL = "Viridis"

_COLOURS = {
    "light": {"text": "#22303c", "line": "#c4ccd4", "grid": "#e8ecf0", "background": "#ffffff"},
    "dark": {"text": "#dfe6ec", "line": "#4a5560", "grid": "#2c353e", "background": "#1c2229"},
}


def paint(figure: Any, theme: str) -> None:
    """Set the colours of a Bokeh figure: background, axes, grid, title and legend.

    Parameters
    ----------
    figure
        The figure.
    theme
        "dark"; anything else means the light theme.
    """
    colours = _COLOURS["dark" if theme == "dark" else "light"]
    figure.update(
        background_fill_color=colours["background"], border_fill_color=colours["background"], outline_line_color=None
    )
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
            axis.formatter.use_scientific = False
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
