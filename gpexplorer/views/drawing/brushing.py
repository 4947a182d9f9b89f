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

TOOLTIPS = {  # column of the frame -> label and format in the tooltip
    "row": ("training row", "@row"),
    "observed": ("value", "@observed{0.0000}"),
    "predicted": ("prediction", "@predicted{0.0000}"),
    "residual": ("residual", "@residual{0.0000}"),
    "nearest": ("nearest inducing point", "@nearest"),
    "away": ("distance to it", "@away{0.0000}"),
    "exact": ("exact decrease [nat]", "@exact{0.0000}"),
    "approx": ("predicted decrease [nat]", "@approx{0.0000}"),
}
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
        tooltips = [TOOLTIPS[name] for name in columns]
        figure.add_tools(HoverTool(renderers=[renderer], tooltips=tooltips, callback=highlight, visible=False))


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
        "nearest": name of the nearest point, [n]; "away": its distance in the units of X, [n]. Empty without points.
    """
    if not len(points):
        return {}
    span = np.ptp(X, axis=0)
    span[span == 0] = 1.0
    squared = np.square((X[:, None] - points[None]) / span).sum(-1)  # [n, m]
    nearest = squared.argmin(1)
    return {"nearest": names[nearest], "away": np.sqrt(np.square(X - points[nearest]).sum(1))}
