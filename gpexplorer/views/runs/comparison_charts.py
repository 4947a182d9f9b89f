"""Pictures of several runs: any channel over any axis, and what no other run beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import holoviews as hv
import numpy as np
import pandas as pd

from ..base import Layers, labels, layer, legend_cols
from ..drawing.palette import CYCLE, ROLES


def curves(layers: Layers, baseline: str = "", log: bool = False) -> hv.Overlay:
    """One curve a run, the baseline dashed in the reference's colour; a logarithmic axis leaves out what is not > 0."""
    drawn, colour_of = [], colours(list(layers), baseline)
    for name, frame in layers.items():
        attrs, frame = frame.attrs, frame[frame["y"] > 0] if log else frame
        frame.attrs |= attrs
        colour, dash = colour_of[name], "dashed" if name == baseline else "solid"
        curve = hv.Curve(frame, "x", "y", label=name)
        drawn.append(layer(curve, name, color=colour, line_dash=dash, line_width=2))
    named = labels(next(iter(layers.values()))) if layers else {}
    return hv.Overlay(drawn or [hv.Curve([], "x", "y")]).opts(
        logy=log, legend_position="top", legend_cols=legend_cols(layers), responsive=True, show_grid=True, **named
    )  # fmt: skip


def colours(names: Sequence[str], baseline: str = "") -> dict[str, str]:
    """One colour a run, the reference's for the baseline."""
    return {n: ROLES["reference"] if n == baseline else CYCLE[k % len(CYCLE)] for k, n in enumerate(names)}


def front(frame: pd.DataFrame, spent: str = "seconds", score: str = "smse") -> hv.Overlay:
    """Every run as a dot, and the front as a staircase: left of and below it nothing has been reached.

    A column "colour" in the frame, where there is one, gives the dots the colours of their curves.
    """
    colour = "colour" if "colour" in frame else ROLES["mean"]
    named = ["run", "method", *(["colour"] if "colour" in frame else [])]
    dots = hv.Points(frame[[spent, score, *named]], [spent, score], named)
    steps = frame.loc[frame["front"], [spent, score]].sort_values(spent)
    stairs = hv.Curve(steps, spent, score).opts(interpolation="steps-post")
    log = bool(len(frame)) and bool((frame[spent] > 0).all())
    span = {"xlim": (float(frame[spent].min()) / 1.3, float(frame[spent].max()) * 1.3)} if log else {}
    return hv.Overlay(
        [
            layer(stairs, "front", color=ROLES["reference"], line_width=1.5),
            layer(dots, "runs", color=colour, size=9, tools=["hover"]),
        ]
    ).opts(
        logx=log, **span, responsive=True, show_grid=True, show_legend=False,
        xlabel=UNITS.get(spent, spent), ylabel=f"{score.upper()} on held-out rows",
    )  # fmt: skip


UNITS = {"seconds": "seconds of its own work", "memory": "bytes of its arrays, by formula", "entries": "kernel entries"}


def multiples(frames: Mapping[str, Layers], log: bool = False) -> dict[str, hv.Overlay]:
    """One small picture a value of what was swept, all with the same range, so that they can be told apart at sight."""
    held = [layer["y"].to_numpy(float) for layers in frames.values() for layer in layers.values()]
    y = np.concatenate(held) if held else np.zeros(0)
    y = y[np.isfinite(y) & ((y > 0) if log else True)]
    span = {"ylim": (float(y.min()), float(y.max()))} if len(y) and y.min() < y.max() else {}
    return {name: curves(layers, log=log).opts(title=name, **span) for name, layers in frames.items()}
