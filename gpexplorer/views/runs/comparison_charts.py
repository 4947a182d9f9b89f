"""Pictures of several runs: curves of any channel, the Pareto front, races, growing sizes, and recommendations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import shorten

import holoviews as hv
import numpy as np
import pandas as pd

from ...runs.studies.power_law import Slope
from ...runs.studies.race import METRICS
from ..base import Layers, band, dots, layer, legend_cols, line, named, overlay, points, segments
from ..drawing.palette import CYCLE, ROLES, cycled

UNITS = {"seconds": "seconds of computation", "memory": "bytes of its arrays, by formula", "entries": "kernel entries"}
OTHERS, SIMPLE, EARLY = "other methods", "simple models", "given up early, on fewer rows"
SIZE, LARGE = 9, 13  # of a dot in pixels, and of that of the answer
INTERVAL = "95 % interval"
MOST = 12  # models in the picture
LONGEST = 34  # letters of a name beside the axis
FAINT = {"line_width": 1, "line_alpha": 0.35}  # curves behind their median
WORSE = 6.0  # a model that is farther from the best than this many times the spread of the better half is left out
POWERS = {"n": 1, "n²": 2, "n³": 3}
GROWTH_POWERS = ("n²", "n³")  # those of the chart of several methods
DASHES = {1: "dotted", 2: "dotdash", 3: "dashed"}


def curves(layers: Layers, baseline: str = "", log: bool = False) -> hv.Overlay:
    """Draw one curve per run, the baseline dashed; a logarithmic axis omits values that are not positive.

    The curves of a family of runs, whose frame names their median in `attrs`, are faint and have its colour.
    """
    names = [name for name, frame in layers.items() if "median" not in frame.attrs]
    colour_of, parts = colours(names, baseline), []
    dash_of = {name: cycled(k)["line_dash"] for k, name in enumerate(names)}
    for name, frame in layers.items():
        attrs, frame = frame.attrs, frame[~(frame["y"] <= 0)] if log else frame  # a gap stays
        frame.attrs |= attrs
        if name not in colour_of:
            parts.append(line({name: frame}, name, color=colour_of[attrs["median"]], **FAINT))
            continue
        style = {"color": colour_of[name], "line_dash": "dashed" if name == baseline else dash_of[name]}
        parts.append(line({name: frame}, name, name, line_width=2, **style))
    first = next(iter(layers.values())) if layers else pd.DataFrame()
    return overlay(parts or [hv.Curve([], "x", "y")], first, legend_cols(names), logy=log)


def colours(names: Sequence[str], baseline: str = "") -> dict[str, str]:
    """Return one colour per curve; the baseline has the reference colour."""
    return {n: ROLES["reference"] if n == baseline else CYCLE[k % len(CYCLE)] for k, n in enumerate(names)}


def front(frame: pd.DataFrame, cost: str = "seconds", score: str = "smse") -> hv.Overlay:
    """Draw every run as a dot and the Pareto front as a staircase; no run lies to the left of and below it.

    Parameters
    ----------
    frame : one row per run with the columns `cost`, `score`, "run", "method" and "front" (whether the run is on the
        front). An optional column "colour" gives the dots the colours of their curves.
    cost, score : str, default "seconds", str, default "smse"
        The columns on the two axes.
    """
    colours_of = frame.get("colour", pd.Series(ROLES["mean"], frame.index))
    steps = frame.loc[frame["front"], [cost, score]].sort_values(cost)
    stairs = hv.Curve(steps, cost, score).opts(interpolation="steps-post")
    log = bool(len(frame)) and bool((frame[cost] > 0).all())
    span = {"xlim": (float(frame[cost].min()) / 1.3, float(frame[cost].max()) * 1.3)} if log else {}
    parts = [layer(stairs, "front", color=ROLES["reference"], line_width=1.5)]
    for colour in colours_of.unique():  # one layer per colour, so that the dark theme can replace it
        rows = frame.loc[colours_of == colour, [cost, score, "run", "method"]]
        runs = hv.Points(rows, [cost, score], ["run", "method"])
        parts.append(layer(runs, f"runs {colour}", color=colour, size=9, tools=["hover"]))
    axes = {"xlabel": UNITS.get(cost, cost), "ylabel": f"{score.upper()} on test rows"}
    return overlay(parts, pd.DataFrame(), 0, logx=log, **span, **axes)


def multiples(frames: Mapping[str, Layers], log: bool = False) -> dict[str, hv.Overlay]:
    """Draw one small picture per value of the swept setting, all with the same range so that they can be compared."""
    values = [layer["y"].to_numpy(float) for layers in frames.values() for layer in layers.values()]
    y = np.concatenate(values) if values else np.zeros(0)
    y = y[np.isfinite(y) & ((y > 0) if log else True)]
    span = {"ylim": (float(y.min()), float(y.max()))} if len(y) and y.min() < y.max() else {}
    return {name: curves(layers, log=log).opts(title=name, **span) for name, layers in frames.items()}


class Lanes:
    """The picture of one metric of a race.

    Parameters
    ----------
    names : list of str
        Names of the lanes; their curves are empty until the first turn.
    metric : str
        A key of `METRICS`, such as "smse".
    """

    def __init__(self, names: list[str], metric: str) -> None:
        self.names, self.metric = names, metric

    def data(self, board: pd.DataFrame) -> Layers:
        """Return one frame per lane from the board of a race."""
        layers = {}
        for name in self.names:
            lane_rows = board[board["lane"] == name]
            frame = points(lane_rows["seconds"], lane_rows[self.metric], positive=self.metric == "smse")
            layers[name] = named(frame, "seconds of computation", f"{METRICS[self.metric]} on test rows")
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw one curve per lane with a dot at each score, SMSE on a logarithmic axis."""
        parts = []
        for draw, style in ((line, {"line_width": 2}), (dots, {"size": 5})):
            for k, name in enumerate(self.names):
                look = cycled(k) if draw is line else {"color": cycled(k)["color"]}
                parts.append(draw(layers, name, name if draw is line else "", **look, **style))
        return overlay(parts, layers[self.names[0]], legend_cols(self.names), logy=self.metric == "smse")


class CandidateScores:
    """The picture of a table of `recommend`.

    Parameters
    ----------
    table : DataFrame
        As `Recommendation.table`, the best model first.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        # here, because it imports scikit-learn, which pages without a recommendation do not need
        from ...recommendation.result import ANSWER, SIMPLE_MODEL, STANDINGS

        self._begins = {ANSWER.lower(): ANSWER, **{name: f"The {name}" for name in STANDINGS}, SIMPLE: SIMPLE_MODEL}
        self._colours = {ANSWER.lower(): CYCLE[1], **dict.fromkeys(STANDINGS, CYCLE[4])}
        self._colours |= {OTHERS: CYCLE[0], SIMPLE: CYCLE[2], EARLY: CYCLE[3]}
        self._answer, self._standings = ANSWER.lower(), STANDINGS
        scored = table[np.isfinite(table["nlpd"].to_numpy(float))]
        is_answer = scored["sentence"].str.startswith(ANSWER).to_numpy(bool)
        is_shown = np.arange(len(scored)) < MOST
        if is_shown.sum() > 3:
            values = scored["nlpd"].to_numpy(float)
            spread = max(float(np.median(values[is_shown]) - values[0]), 0.05)
            is_shown &= values <= values[0] + WORSE * spread
        self.table = scored[is_shown | is_answer].reset_index(drop=True)

    def data(self) -> Layers:
        """Return one frame per kind of model, and one of intervals: x is the NLPD, y the place from the bottom.

        What predicts, such as an average of several models, is "the answer". The chosen Gaussian process alone has a
        frame of its own beside it, named for its standing: the best one, or preferred within a standard error of it.
        """
        table = self.table.assign(y=np.arange(len(self.table), 0, -1.0), x=self.table["nlpd"])
        is_early = table["held_out"] < table["held_out"].max()  # scores on fewer rows cannot be compared
        kinds = {name: table["sentence"].str.startswith(begin) for name, begin in self._begins.items()}
        kinds[EARLY] = is_early
        kind = np.select(list(kinds.values()), list(kinds), OTHERS)
        shown = [name for name in self._colours if name not in self._standings or kinds[name].any()]
        layers = {name: table.loc[kind == name, ["x", "y", "model"]].reset_index(drop=True) for name in shown}
        ends = table[["nlpd_low", "y", "nlpd_high", "y"]].to_numpy(float)
        layers[INTERVAL] = pd.DataFrame(ends, columns=["x0", "y0", "x1", "y1"])
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw a point per model, and its interval as a line."""
        count = len(self.table)
        ticks = [
            (float(count - k), shorten(str(name), LONGEST, placeholder=" …"))
            for k, name in enumerate(self.table["model"])
        ]
        parts = [segments(layers, INTERVAL, INTERVAL, color="#8a949e", line_width=2)]
        for name, colour in self._colours.items():
            if name in layers:
                model = hv.Points(layers[name], ["x", "y"], "model", label=name)
                parts.append(layer(model, name, color=colour, size=LARGE if name == self._answer else SIZE))
        axes = {"xlabel": "NLPD (lower is better)", "ylabel": "", "ylim": (0.3, count + 0.7), "yticks": ticks}
        return overlay(parts, layers[INTERVAL], **axes)


def scaling_layers(table: pd.DataFrame, fitted: Slope) -> Layers:
    """Return the frames of the chart: "measured", "predicted", "fitted" (with its interval) and the reference powers.

    Parameters
    ----------
    table : DataFrame
        Measurements, one row per size, as `Scaling.table` returns them; may be empty.
    fitted : Slope
        The power law fitted to the measurements.
    """
    measured, predicted = (
        points(table["value"], table[name], positive=True) for name in ("seconds", "seconds predicted")
    )
    x = measured["x"].to_numpy()
    layers = {"measured": measured, "predicted": predicted, "fitted": _line(x, fitted)}
    return layers | _powers(x, measured, tuple(POWERS))


def plot_scaling(layers: Layers, axis: str = "n") -> hv.Overlay:
    """Draw the chart on two logarithmic axes, where a power law is a straight line with its power as the slope."""
    parts = []
    if len(layers["fitted"]):
        interval = {"color": ROLES["band"], "fill_alpha": 0.25, "line_alpha": 0}
        parts.append(band(layers, "fitted", "95 % interval for a new measurement", **interval))
        parts.append(line(layers, "fitted", "fitted", color=ROLES["fit"], line_width=2))
    parts.append(line(layers, "predicted", "by formula", color=ROLES["complexity"], line_width=2))
    parts += [_power_line(layers, name, name.replace("n", axis)) for name in POWERS]
    measured = hv.Points(layers["measured"], ["x", "y"], label="measured")
    parts.append(layer(measured, "measured", color=ROLES["data"], size=8, tools=["hover"]))
    return overlay(parts, layers["measured"], logx=True, logy=True, xlabel=axis, ylabel="seconds per step")


def growth_layers(times: Mapping[str, pd.DataFrame]) -> Layers:
    """Return the frames of the chart of several methods: one per method, and the reference powers from the first point.

    Parameters
    ----------
    times : mapping of str to DataFrame
        Title of each method -> its measurements, as `Scaling.table` returns them; may be empty.
    """
    layers = {name: points(table["value"], table["seconds"], positive=True) for name, table in times.items()}
    every = pd.concat(layers.values())
    return layers | _powers(np.unique(every["x"].to_numpy(float)), every, GROWTH_POWERS)


def plot_growth(layers: Layers) -> hv.Overlay:
    """Draw seconds per step against rows on two logarithmic axes, a line per method, and the powers as dashed lines.

    The axis of rows is labelled at every second size that was measured.
    """
    parts, sizes = [], [int(size) for size in layers[GROWTH_POWERS[0]]["x"]]
    parts += [_power_line(layers, name, name) for name in GROWTH_POWERS]
    for k, name in enumerate(name for name in layers if name not in POWERS):
        parts.append(line(layers, name, name, line_width=2, **cycled(k)))
        parts.append(dots(layers, name, color=cycled(k)["color"], size=8, tools=["hover"]))
    axes = {"xlabel": "training rows n", "ylabel": "processor seconds per step", "xticks": sizes[::2] or None}
    return overlay(parts, pd.DataFrame(), legend_cols(layers), logx=True, logy=True, **axes)


def _powers(x: np.ndarray, measured: pd.DataFrame, names: Sequence[str]) -> Layers:
    """The reference powers over the sizes x, through the first measurement."""
    begin = measured.iloc[0] if len(x) else None
    values = {name: x if begin is None else begin["y"] * (x / begin["x"]) ** POWERS[name] for name in names}
    return {name: pd.DataFrame({"x": x, "y": y}) for name, y in values.items()}


def _power_line(layers: Layers, name: str, label: str) -> hv.Element:
    return line(layers, name, label, color=ROLES["reference"], line_dash=DASHES[POWERS[name]], line_width=1)


def _line(x: np.ndarray, fitted: Slope) -> pd.DataFrame:
    """The fitted power law over the measured sizes; empty if the fit was refused."""
    sizes = np.geomspace(x.min(), x.max(), 40) if len(x) > 1 and not fitted.refused else np.zeros(0)
    rows = [(size, *fitted.at(size)) for size in sizes]
    return pd.DataFrame(rows, columns=["x", "y", "lower", "upper"], dtype=float)
