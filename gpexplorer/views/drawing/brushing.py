"""A row under the pointer says who it is, and is marked in every other picture that shows it.

The browser does it alone: a layer whose frame has a column "row" names the training rows it draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import CustomJS, GlyphRenderer, HoverTool

from .palette import ROLES

TOLD = {
    "row": ("training row", "@row"),
    "observed": ("value", "@observed{0.0000}"),
    "predicted": ("prediction", "@predicted{0.0000}"),
    "residual": ("residual", "@residual{0.0000}"),
    "nearest": ("nearest inducing point", "@nearest"),
    "away": ("and how far", "@away{0.0000}"),
}
MARK = """
const at = cb_data.index.indices[0]
const row = at == null ? null : source.get_column("row")[at]
for (const other of source.document.all_models) {
  if (other.type !== "ColumnDataSource" || other === source) continue
  const held = other.get_column("row")
  if (held == null) continue
  const found = row == null ? -1 : held.indexOf(row)
  const marked = found < 0 ? [] : [found]
  if (String(other.inspected.indices) === String(marked)) continue
  other.inspected.indices = marked
  other.inspect.emit([null, { geometry: { type: "none" } }])  // drawn anew; no second tooltip
}
"""


def brush(figure: Any, layers: dict[str, pd.DataFrame]) -> None:
    """Give each layer of training rows its words under the pointer, and its mark."""
    for renderer in figure.renderers:
        frame = layers.get(getattr(renderer, "data_source", None) and renderer.data_source.name)
        if not isinstance(renderer, GlyphRenderer) or frame is None or "row" not in frame:
            continue
        if "size" not in renderer.glyph.properties():
            continue  # an area or a line has no mark a row
        told = [name for name in TOLD if name in frame]
        renderer.data_source.data.update({name: frame[name].to_numpy() for name in told})
        renderer.hover_glyph = renderer.glyph.clone(
            fill_color=ROLES["proposed"], line_color=ROLES["proposed"], fill_alpha=1.0, line_width=2, size=11
        )
        link = CustomJS(args={"source": renderer.data_source}, code=MARK)
        figure.add_tools(
            HoverTool(renderers=[renderer], tooltips=[TOLD[name] for name in told], callback=link, visible=False)
        )


def beside(X: np.ndarray, points: np.ndarray, names: np.ndarray) -> dict[str, np.ndarray]:
    """The nearest of these points [m, d] to each row of X [n, d], by its name, and how far it is."""
    if not len(points):
        return {}
    span = np.ptp(X, axis=0)
    span[span == 0] = 1.0
    far = np.square((X[:, None] - points[None]) / span).sum(-1)  # [n, m]
    near = far.argmin(1)
    return {"nearest": names[near], "away": np.sqrt(np.square(X - points[near]).sum(1))}
