"""Pictures of several runs: curves of any channel, and the Pareto front of cost and error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import holoviews as hv
import numpy as np
import pandas as pd

from ..base import Layers, labels, layer, legend_cols
from ..drawing.palette import CYCLE, ROLES


def curves(layers: Layers, baseline: str = "", log: bool = False) -> hv.Overlay:
    """Draw one curve per run, the baseline dashed; a logarithmic axis omits values that are not positive."""
    elements, colour_of = [], colours(list(layers), baseline)
    for name, frame in layers.items():
        attrs, frame = frame.attrs, frame[frame["y"] > 0] if log else frame
        frame.attrs |= attrs
        colour, dash = colour_of[name], "dashed" if name == baseline else "solid"
        curve = hv.Curve(frame, "x", "y", label=name)
        elements.append(layer(curve, name, color=colour, line_dash=dash, line_width=2))
    axis_labels = labels(next(iter(layers.values()))) if layers else {}
    return hv.Overlay(elements or [hv.Curve([], "x", "y")]).opts(
        logy=log, legend_position="top", legend_cols=legend_cols(layers), responsive=True, show_grid=True, **axis_labels
    )  # fmt: skip


def colours(names: Sequence[str], baseline: str = "") -> dict[str, str]:
    """Return one colour per run; the baseline has the reference colour."""
    return {n: ROLES["reference"] if n == baseline else CYCLE[k % len(CYCLE)] for k, n in enumerate(names)}


def front(frame: pd.DataFrame, cost: str = "seconds", score: str = "smse") -> hv.Overlay:
    """Draw every run as a dot and the Pareto front as a staircase; no run lies to the left of and below it.

    Parameters
    ----------
    frame : one row per run with the columns `cost`, `score`, "run", "method" and "front" (whether the run is on the
        front). An optional column "colour" gives the dots the colours of their curves.
    cost, score : the columns on the two axes.
    """
    colour = "colour" if "colour" in frame else ROLES["mean"]
    hover = ["run", "method", *(["colour"] if "colour" in frame else [])]
    dots = hv.Points(frame[[cost, score, *hover]], [cost, score], hover)
    steps = frame.loc[frame["front"], [cost, score]].sort_values(cost)
    stairs = hv.Curve(steps, cost, score).opts(interpolation="steps-post")
    log = bool(len(frame)) and bool((frame[cost] > 0).all())
    span = {"xlim": (float(frame[cost].min()) / 1.3, float(frame[cost].max()) * 1.3)} if log else {}
    return hv.Overlay(
        [
            layer(stairs, "front", color=ROLES["reference"], line_width=1.5),
            layer(dots, "runs", color=colour, size=9, tools=["hover"]),
        ]
    ).opts(
        logx=log, **span, responsive=True, show_grid=True, show_legend=False,
        xlabel=UNITS.get(cost, cost), ylabel=f"{score.upper()} on test rows",
    )  # fmt: skip


UNITS = {"seconds": "seconds of computation", "memory": "bytes of its arrays, by formula", "entries": "kernel entries"}


def multiples(frames: Mapping[str, Layers], log: bool = False) -> dict[str, hv.Overlay]:
    """Draw one small picture per value of the swept setting, all with the same range so that they can be compared."""
    values = [layer["y"].to_numpy(float) for layers in frames.values() for layer in layers.values()]
    y = np.concatenate(values) if values else np.zeros(0)
    y = y[np.isfinite(y) & ((y > 0) if log else True)]
    span = {"ylim": (float(y.min()), float(y.max()))} if len(y) and y.min() < y.max() else {}
    return {name: curves(layers, log=log).opts(title=name, **span) for name, layers in frames.items()}
