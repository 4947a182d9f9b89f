"""Measured and predicted cost against size, with reference lines that grow like n, n^2 and n^3."""

from __future__ import annotations

import holoviews as hv
import numpy as np
import pandas as pd

from ...runs.studies.power_law import Slope
from ..base import Layers, band, layer, line, overlay
from ..drawing.palette import ROLES

POWERS = {"n": 1, "n²": 2, "n³": 3}
LABELS = {"seconds": "seconds per step", "memory": "bytes"}
DASHES = {1: "dotted", 2: "dotdash", 3: "dashed"}


def data(table: pd.DataFrame, fitted: Slope, of: str = "seconds") -> Layers:
    """Return the frames of the chart: "measured", "predicted", "fitted" (with its interval) and the reference powers.

    Parameters
    ----------
    table : measurements, one row per size, as `Scaling.table` returns them; may be empty.
    fitted : the power law fitted to the measurements.
    of : the column to show, "seconds" or "memory".
    """
    x = table["value"].to_numpy(float)
    measured, predicted = (_points(x, table[name].to_numpy(float)) for name in (of, f"{of} predicted"))
    layers = {"measured": measured, "predicted": predicted, "fitted": _line(measured["x"].to_numpy(), fitted)}
    for name, power in POWERS.items():
        start = measured.iloc[0] if len(measured) else None
        y = measured["x"].to_numpy() if start is None else start["y"] * (measured["x"] / start["x"]) ** power
        layers[name] = pd.DataFrame({"x": measured["x"], "y": y})
    return layers


def plot(layers: Layers, axis: str = "n", of: str = "seconds") -> hv.Overlay:
    """Draw the chart on two logarithmic axes, where a power law is a straight line with its power as the slope."""
    parts = []
    if len(layers["fitted"]):
        interval = {"color": ROLES["band"], "fill_alpha": 0.25, "line_alpha": 0}
        parts.append(band(layers, "fitted", "95 % interval for a new measurement", **interval))
        parts.append(line(layers, "fitted", "fitted", color=ROLES["fit"], line_width=2))
    parts.append(line(layers, "predicted", "by formula", color=ROLES["complexity"], line_width=2))
    for name, power in POWERS.items():
        style = {"color": ROLES["reference"], "line_dash": DASHES[power], "line_width": 1}
        parts.append(line(layers, name, name.replace("n", axis), **style))
    measured = hv.Points(layers["measured"], ["x", "y"], label="measured")
    parts.append(layer(measured, "measured", color=ROLES["data"], size=8, tools=["hover"]))
    return overlay(parts, layers["measured"], logx=True, logy=True, xlabel=axis, ylabel=LABELS.get(of, of))


def _points(x: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    drawable = np.isfinite(y) & (y > 0)
    return pd.DataFrame({"x": x[drawable], "y": y[drawable]})


def _line(x: np.ndarray, fitted: Slope) -> pd.DataFrame:
    """The fitted power law over the measured sizes; empty if the fit was refused."""
    sizes = np.geomspace(x.min(), x.max(), 40) if len(x) > 1 and not fitted.refused else np.zeros(0)
    rows = [(size, *fitted.at(size)) for size in sizes]
    return pd.DataFrame(rows, columns=["x", "y", "lower", "upper"], dtype=float)
