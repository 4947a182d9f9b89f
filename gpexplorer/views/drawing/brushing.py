"""Linked rows: the row under the pointer shows its numbers, and is highlighted in every other picture that shows it.

The browser does this alone, without the server. A layer takes part if its frame has a column "row" with the numbers
of the training rows that it draws.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import CustomJS, GlyphRenderer, HoverTool

from .palette import ROLES

TOOLTIPS = {  # column of the frame -> its label in the tooltip
    "row": "training row",
    "observed": "value",  # or the name of the target, where the frame has it
    "predicted": "prediction",
    "residual": "residual",
    "nearest": "nearest inducing point",
    "away": "distance to it",
    "apart": "distance to it, in ranges of the inputs",
    "exact": "exact decrease [nat]",
    "approx": "predicted decrease [nat]",
}
NUMBERS = {"observed", "predicted", "residual", "away", "apart", "exact", "approx"}
FIVE_DIGITS = "%.5g"  # of numbers of any size: a fixed number of decimals shows 0 for all small ones
HIGHLIGHT = Path(__file__).with_name("highlight_row.js").read_text("utf-8")


def brush(figure: Any, layers: dict[str, pd.DataFrame]) -> None:
    """Add tooltips and linked highlighting to every layer of training rows in a figure.

    Parameters
    ----------
    figure : object
        A Bokeh figure whose sources carry the names of their layers.
    layers : dict of str to DataFrame
        The frames that the figure shows; those with a column "row" take part.
    """
    for renderer in figure.renderers:
        frame = layers.get(getattr(renderer, "data_source", None) and renderer.data_source.name)
        if not isinstance(renderer, GlyphRenderer) or frame is None or "row" not in frame:
            continue
        if "size" not in renderer.glyph.properties():
            continue  # an area or a line has no mark per row
        columns = [name for name in TOOLTIPS if name in frame]
        renderer.data_source.data.update({name: frame[name].to_numpy() for name in columns})
        renderer.hover_glyph = renderer.glyph.clone(
            fill_color=ROLES["proposed"], line_color=ROLES["proposed"], fill_alpha=1.0, line_width=2, size=11
        )
        highlight = CustomJS(args={"source": renderer.data_source}, code=HIGHLIGHT)
        labels = TOOLTIPS | {"observed": frame.attrs.get("target", TOOLTIPS["observed"])}
        add_tooltips(figure, [renderer], [(labels[name], name) for name in columns], NUMBERS, callback=highlight)


def add_tooltips(
    figure: Any, renderers: list[Any], columns: list[tuple[str, str]], numbers: set[str], **options: Any
) -> None:
    """Show columns of the mark under the pointer.

    Parameters
    ----------
    figure : object
        A Bokeh figure.
    renderers : list
        Those of its renderers that have the columns.
    columns : list of pairs of str
        Label in the tooltip, and name of the column.
    numbers : set of str
        Names of columns that are shown with five digits; others as they are.
    **options : object
        Further properties of the tool.
    """
    shown = [(label, f"@{name}{{{FIVE_DIGITS}}}" if name in numbers else f"@{name}") for label, name in columns]
    formatters = {f"@{name}": "printf" for name in numbers}
    figure.add_tools(HoverTool(renderers=renderers, tooltips=shown, formatters=formatters, visible=False, **options))


def nearest_points(X: np.ndarray, points: np.ndarray, names: np.ndarray) -> dict[str, np.ndarray]:
    """Find the nearest of some points to each row, with every axis scaled to the range of the rows.

    Parameters
    ----------
    X : ndarray
        Rows, [n, d].
    points : ndarray
        Points, [m, d].
    names : ndarray
        Name of each point, [m].

    Returns
    -------
    dict
        "nearest": name of the nearest point, [n]; its distance, [n]: "away" in the unit of the only input, or "apart"
        where several inputs are scaled, since their units may differ. Empty without points.
    """
    if not len(points):
        return {}
    span = np.ptp(X, axis=0)
    span[span == 0] = 1.0
    squared = np.square((X[:, None] - points[None]) / span).sum(-1)  # [n, m]
    nearest = squared.argmin(1)
    distance = np.sqrt(squared.min(1))
    return {"nearest": names[nearest]} | ({"away": distance * span} if X.shape[1] == 1 else {"apart": distance})
