"""Convergence: any channel or score against steps, seconds, kernel entries or epochs."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param

from ...kernels.theta.restrictions import has_priors
from ...methods.base import registry
from ...objectives import evidence_terms
from ...problem import Channel
from ...runs import Spec
from ...runs.run import Run
from ...runs.studies.comparison import Finished, what_differs
from ..base import Layers, View, band, dots, layer, line, overlay
from ..drawing.palette import ROLES
from .steps_table import objective_of_start

AXES = {
    "step": ("index", "step"),
    "seconds": ("seconds", "seconds of computation"),
    "entries": ("entries", "kernel entries"),
}
EXACT_LEAST = "exact_least"  # a channel of the methods with inducing points
COVERAGE = "coverage95"  # the only score that is not better the lower it is
EPOCH = "epoch"  # a channel of the minibatch methods
SCORES = (
    Channel("smse", "SMSE on test rows"),
    Channel("snlp", "SNLP on test rows", "nat"),
    Channel("rmse", "RMSE on test rows", "units of the target"),
    Channel("nlpd", "NLPD on test rows", "nat"),
    Channel(COVERAGE, "fraction of test rows in the 95 % interval"),
)
WITH_PRIORS = (  # of `Run.table` where hyperparameters have priors
    Channel("map_objective", "objective minus log prior density (MAP)", "nat"),
    Channel("log_prior", "log prior density", "nat"),
)
DATA_ALONE = "of the data alone: with the priors, map_objective is minimised"
MOST_FIRST = 0.5  # share of the values, at the beginning, that the axis may leave out
FEWEST = 4  # values from which on it may
FLAT = 0.2  # of the range with a first value that the range without it must be below
LEAST_NATS = 1.0  # of an objective on the axis: smaller differences decide nothing
LEAST_NUMBER = 0.05  # nat: a smaller distance is no number that a picture is about
LEAST_SHARE = 1e-3  # of the values that the axis spans, at least
MAX_POINTS = 4000  # of a longer run every k-th point is drawn
EXACT_ROWS = 1000  # at most, for which the exact model is computed: n^3 flops, some 20 ms
WORDS = 0.08  # share of the vertical axis that the words below the level of the exact model need
NEAR_EXACT = 0.25  # share of the vertical axis that the run's values have at least beside the exact model


class Convergence(View):
    """One number of a run over its steps."""

    key: ClassVar[str] = "convergence"
    title: ClassVar[str] = "Convergence"
    help: ClassVar[str] = "Does the objective still decrease?"
    choice: ClassVar[str] = "The test error can be shown in its place."
    order: ClassVar[int] = 10

    channel = param.Selector(default="objective", objects=["objective"], label="Show", doc="The number that is drawn.")
    against = param.Selector(default="step", objects=list(AXES), label="Against", doc="The horizontal axis.")
    limits = param.Boolean(
        False,
        label="Exact model",
        doc="Draw the range in which the objective of the exact model lies, where a method reports it.",
    )
    log = param.Boolean(False, label="Log scale", doc="Draw the vertical axis on a logarithmic scale.")

    earlier: tuple[Finished, ...] = ()  # runs on the same rows, of which the best one is drawn behind this run
    _exact: tuple[Any, list[float], float] = (None, [], math.nan)  # problem, theta, objective of the exact model

    def applies(self, run: Run) -> bool:
        """Return True for every run, after offering the channels of its method and the scores as options."""
        channels = [channel.name for channel in _offered(run)]
        self.param.channel.objects = channels
        if self.channel not in channels:
            self.channel = channels[0]
        self.param.against.objects = [*AXES, *({EPOCH} & set(channels))]
        if self.against not in self.param.against.objects:
            self.against = next(iter(AXES))
        return True

    def data(self, run: Run, at: int) -> Layers:
        """Return the series of the whole run and its value at record `at`.

        Values after a rise of a channel that is declared monotone are a layer of their own: they are not trustworthy.
        """
        table = run.table()
        channel = next(c for c in _offered(run) if c.name == self.channel)
        column, label = AXES.get(self.against, (EPOCH, "epochs"))
        is_reported = channel.name in table
        values = table[channel.name].to_numpy(float) if is_reported else np.full(len(table), np.nan)
        if channel.name == "objective" and len(values) and math.isnan(values[0]):
            values = np.append(objective_of_start(run), values[1:])
        series = pd.DataFrame({"x": table[column].to_numpy(float), "y": values})
        current = series.iloc[[at]] if len(series) else series
        rose_at = next((rise.index for rise in run.rises if rise.channel.name == channel.name), len(series))
        trusted, untrusted = self._drawn(series[:rose_at]), self._drawn(series[rose_at:])
        rose = f"{channel.label}: not trustworthy from step {rose_at} on (dashed)" if len(untrusted) else ""
        least = LEAST_NATS if channel.unit == "nat" and channel not in SCORES else 0.0
        focus = {} if self.log else focused(values, at, least)
        trusted.attrs |= {"xlabel": label, "ylabel": channel.axis, **focus}
        current = current[_finite(current)].reset_index(drop=True)
        layers = {"series": trusted, "dots": trusted, "untrusted": untrusted, "now": current}
        is_mixed = channel.name == run.method.learned_channel and has_priors(run.problem.kernel)
        exact, distance = math.nan, ""
        if channel.name == "objective" and EXACT_LEAST in table:
            ranges = pd.DataFrame({"x": series["x"], "lower": table[EXACT_LEAST].to_numpy(float), "upper": series["y"]})
            exact = self._exact_objective(run, at) if ranges["lower"].notna().any() else math.nan
            gap = values[at] - exact
            distance = _sentence(ranges[: at + 1]) if math.isnan(exact) else _distance(gap)
            trusted.attrs["number"] = _in_nat(gap) if gap >= LEAST_NUMBER else ""
            if self.limits:
                layers["range"] = self._drawn(ranges.rename(columns={"lower": "y"})).rename(columns={"y": "lower"})
        # These layers are there from the start: a layer that appears later would have the whole figure drawn again.
        layers["level"] = self._drawn(series.iloc[[0, -1]].assign(y=exact))
        layers["level"].attrs["loose"] = not (has_room := _has_room(trusted, exact))
        words = layers["level"].iloc[:1].assign(text="exact model")
        layers["words"] = words if has_room else words.assign(y=np.nan)
        ghost = self._best_before(run, channel, column)
        layers["ghost"] = self._drawn(series[:0] if ghost is None else ghost)
        sentences = [
            "" if len(untrusted) else distance,
            DATA_ALONE if is_mixed else "",
            rose,
            focus.get("title", ""),
            "" if ghost is None else ghost.attrs["title"],
        ]
        trusted.attrs["title"] = "; ".join(filter(None, sentences))
        return layers

    def _exact_objective(self, run: Run, at: int) -> float:
        """The objective of the exact model with the hyperparameters of this record; nan where it has too many rows."""
        problem = run.problem
        if len(problem.train) > EXACT_ROWS:
            return math.nan
        theta = run.trace[at].step.state.theta
        if problem is not self._exact[0] or theta.tolist() != self._exact[1]:
            exact = evidence_terms(problem.kernel, theta, problem.train)[0].total("vfe")
            self._exact = problem, theta.tolist(), exact
        return self._exact[2]

    def _best_before(self, run: Run, channel: Channel, column: str) -> pd.DataFrame | None:
        """The series of the earlier run that ended lowest in this channel; None where no earlier run reports it."""
        spec = run.spec
        if not isinstance(spec, Spec) or channel.name == COVERAGE:
            return None
        reported = [run for run in self.earlier if {channel.name, column} <= set(run.steps)]
        reported = [run for run in reported if run.steps[channel.name].notna().any()]
        comparable = [run for run in reported if _is_comparable(run.spec, spec, channel)]
        if not comparable:
            return None
        best = min(comparable, key=lambda finished: _last(finished, channel))
        series = pd.DataFrame({"x": best.steps[column].to_numpy(float), "y": best.steps[channel.name].to_numpy(float)})
        differs = what_differs({"open": spec, "earlier": best.spec}, ["method"], labels=True)["earlier"]
        words = registry[best.spec.method].title + (f" with {differs}" if differs else "")
        series.attrs["title"] = f"grey: {words}, which ended at {_number(_last(best, channel))}"
        return series

    def _drawn(self, series: pd.DataFrame) -> pd.DataFrame:
        """The points of a series that can be drawn, at most MAX_POINTS of them or so."""
        series = series[_finite(series) & ((series["y"] > 0) | (not self.log))]
        return series.iloc[:: max(1, len(series) // MAX_POINTS)].reset_index(drop=True)

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw a line, dashed where its values are not trustworthy, a dot at the current record, and a named level."""
        words = {"text_color": ROLES["words"], "text_align": "left", "text_baseline": "top", "text_font_size": "12px"}
        parts = [
            line(layers, "ghost", color=ROLES["reference"], line_width=1.5, alpha=0.8),
            line(layers, "level", color=ROLES["reference"], line_dash="dotted", line_width=2),
            line(layers, "series", color=ROLES["mean"], line_width=2),
            layer(hv.Scatter(layers["series"], "x", "y"), "dots", color=ROLES["mean"], size=4),
            line(layers, "untrusted", color=ROLES["removed"], line_dash="dashed"),
            dots(layers, "now", color=ROLES["inducing"], size=9),
            layer(hv.Labels(layers["words"], ["x", "y"], "text"), "words", **words),
        ]
        if "range" in layers:
            parts.insert(0, band(layers, "range", color=ROLES["band"], fill_alpha=0.3, line_alpha=0))
        return overlay(parts, layers["series"], 0, logy=self.log)


def _offered(run: Run) -> tuple[Channel, ...]:
    """What can be drawn of a run: the channels of its method, the scores, and what priors add."""
    priors = WITH_PRIORS if has_priors(run.problem.kernel) and run.method.learned_channel else ()
    return (*run.method.channels, *SCORES, *priors)


def focused(values: np.ndarray, at: int, least: float = 0.0) -> dict[str, Any]:
    """Return the ends of the vertical axis without first values that would flatten all that follow.

    An axis never magnifies what does not matter: values that hardly change lie on a level line.

    Parameters
    ----------
    values : ndarray
        One per record [t]; nan where nothing was reported.
    at : int
        The record that is shown; its value stays on the axis.
    least : float, optional
        A difference that matters. The axis spans at least this, and at least a thousandth of the values.

    Returns
    -------
    dict
        "extent", the ends, and "title", a sentence on the values that are left out; empty where all fit.
    """
    finite = np.flatnonzero(np.isfinite(values))
    most = int(MOST_FIRST * len(finite)) if len(finite) >= FEWEST else 0
    spread = [float(np.ptp(values[finite[k:]])) for k in range(1 + most)] if len(finite) else []
    least = max(least, LEAST_SHARE * float(np.median(np.abs(values[finite])))) if len(finite) else least
    if spread and 0.0 < spread[0] < least:
        middle = float(values[finite].max() + values[finite].min()) / 2
        return {"extent": (middle - least / 2, middle + least / 2), "title": ""}
    drops = [k for k in range(1, len(spread)) if least <= spread[k] < FLAT * spread[k - 1]]
    left_out = max(drops, default=0)
    if not left_out or at < finite[left_out]:
        return {}
    rest, last = values[finite[left_out:]], finite[left_out - 1]
    number = (
        f"step {last} is beyond the axis" if left_out == 1 else f"steps up to {last} are beyond the axis, step {last}"
    )
    sentence = f"{number} at {_number(values[last])}"
    return {"extent": (float(rest.min()), float(rest.max())), "title": sentence}


def _number(value: float) -> str:
    return f"{value:.4g}".replace("-", "−")


def _is_comparable(earlier: Spec, spec: Spec, channel: Channel) -> bool:
    """Whether a channel of an earlier run means the same: a score on the same rows, or the same objective."""
    if (repr(earlier.data), repr(earlier.split)) != (repr(spec.data), repr(spec.split)):
        return False
    is_score = channel.name in {score.name for score in SCORES}
    same_objective = earlier.settings.get("objective") == spec.settings.get("objective")
    return is_score or (channel in registry[earlier.method].channels and same_objective)


def _last(run: Finished, channel: Channel) -> float:
    return float(run.steps[channel.name].dropna().iloc[-1])


def _sentence(ranges: pd.DataFrame) -> str:
    """Say how far from the exact model the newest record is at most that has a limit; empty if none has.

    The step is named, because hyperparameters that were learned since have another exact model.
    """
    complete = ranges[np.isfinite(ranges["lower"]) & np.isfinite(ranges["upper"])]
    if not len(complete):
        return ""
    gap = max(float(complete["upper"].iloc[-1] - complete["lower"].iloc[-1]), 0.0)
    return f"at step {complete.index[-1]}: at most {gap:.3g} nat from the exact model with the same hyperparameters"


def _distance(gap: float) -> str:
    """Say how far a record is from the exact model; empty where one of them is not known."""
    number = _in_nat(gap) if gap >= LEAST_NUMBER else f"less than {LEAST_NUMBER}"
    return "" if math.isnan(gap) else f"{number} nat from the exact model with the same hyperparameters"


def _in_nat(gap: float) -> str:
    return f"{gap:,.{int(gap < 9.95)}f}"


def _has_room(series: pd.DataFrame, exact: float) -> bool:
    """Whether the axis contains the exact model, too, without the run's own values looking like a level line.

    Where it does, the axis has room for the words below it.
    """
    if not len(series) or math.isnan(exact):
        return False
    low, high = series.attrs.get("extent", (series["y"].min(), series["y"].max()))
    has_room = bool(NEAR_EXACT * (high - exact) <= high - low)
    if has_room:
        low, high = min(low, exact - WORDS * (high - exact)), max(high, exact)
        series.attrs["extent" if "extent" in series.attrs else "at_least"] = (low, high)
    return has_room


def _finite(frame: pd.DataFrame) -> Any:
    """Rows whose values are finite on both axes."""
    return np.isfinite(frame["x"]) & np.isfinite(frame["y"])
