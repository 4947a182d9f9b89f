"""Measured and predicted cost against size, with lines that grow like n, n^2 and n^3."""

from __future__ import annotations

import holoviews as hv
import numpy as np
import pandas as pd

from ...runs.studies.power_law import Slope
from ..base import Layers, layer
from ..drawing.palette import ROLES

POWERS = {"n": 1, "n²": 2, "n³": 3}
LABELS = {"seconds": "seconds a step", "memory": "bytes"}
DASHES = {1: "dotted", 2: "dotdash", 3: "dashed"}


def data(table: pd.DataFrame, fitted: Slope, of: str = "seconds") -> Layers:
    """Frames "measured", "predicted", "fitted" (with lower and upper) and one a reference power; empty at first."""
    x = table["value"].to_numpy(float)
    measured, predicted = (_points(x, table[name].to_numpy(float)) for name in (of, f"{of} predicted"))
    layers = {"measured": measured, "predicted": predicted, "fitted": _line(measured["x"].to_numpy(), fitted)}
    for name, power in POWERS.items():
        start = measured.iloc[0] if len(measured) else None
        y = measured["x"].to_numpy() if start is None else start["y"] * (measured["x"] / start["x"]) ** power
        layers[name] = pd.DataFrame({"x": measured["x"], "y": y})
    return layers


def plot(layers: Layers, axis: str = "n", of: str = "seconds") -> hv.Overlay:
    """Both axes logarithmic, so that a power law is a straight line and its power the slope."""
    fitted, drawn = layers["fitted"], []
    if len(fitted):
        drawn += [
            layer(hv.Area(fitted, "x", ["lower", "upper"], label="95 % of new measurements"), "fitted",
                  color=ROLES["band"], fill_alpha=0.25, line_alpha=0),
            layer(hv.Curve(fitted, "x", "y", label="fitted"), "fitted", color=ROLES["fit"], line_width=2),
        ]  # fmt: skip
    predicted = hv.Curve(layers["predicted"], "x", "y", label="by formula")
    drawn.append(layer(predicted, "predicted", color=ROLES["complexity"], line_width=2))
    for name, power in POWERS.items():
        line = hv.Curve(layers[name], "x", "y", label=name.replace("n", axis))
        drawn.append(layer(line, name, color=ROLES["reference"], line_dash=DASHES[power], line_width=1))
    dots = hv.Points(layers["measured"], ["x", "y"], label="measured")
    drawn.append(layer(dots, "measured", color=ROLES["data"], size=8, tools=["hover"]))
    return hv.Overlay(drawn).opts(
        logx=True, logy=True, responsive=True, show_grid=True, legend_position="top", legend_cols=2,
        xlabel=axis, ylabel=LABELS.get(of, of),
    )  # fmt: skip


def _points(x: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    kept = np.isfinite(y) & (y > 0)
    return pd.DataFrame({"x": x[kept], "y": y[kept]})


def _line(x: np.ndarray, fitted: Slope) -> pd.DataFrame:
    """The fitted law over the sizes measured; no rows where the fit is refused."""
    at = np.geomspace(x.min(), x.max(), 40) if len(x) > 1 and not fitted.refused else np.zeros(0)
    rows = [(value, *fitted.at(value)) for value in at]
    return pd.DataFrame(rows, columns=["x", "y", "lower", "upper"], dtype=float)
