"""Rows that are held out of the training rows, and what they say about a model.

A data set with many rows has one part held out. A small one is divided into three parts, and each is held out once, so
that every row is predicted by a model that has not seen it. The test rows of a data set are never used.

Symbols: y [t] the held-out targets; mu, v [t] the predicted mean and variance of y; p the predicted density of y, which
is normal unless the target was transformed or models are averaged; s2 the variance of the held-out targets.

    smse = mean (y - mu)^2 / s2
    nlpd = mean [ -log p(y) ]

`held_out_score` is one number for a Spec with some settings: what Optuna, Ray Tune and other searches minimise. A
search that looks at the score of test rows reports a score that is too good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import t as student_t
from torch import Tensor

from ..data import Split
from ..data.given_folds import Pair, drawn_folds, drawn_share, fold_pairs
from ..data.splits import Mask, mask_of, shuffled
from ..errors import SettingError, quoted
from ..kernels.composites import compared_columns
from ..posteriors import Marginals, NormalMarginals
from ..problem import Dataset, RowGroups
from ..runs.budget import scheduled
from ..runs.opening import opened_rows
from ..runs.run import Run
from ..runs.setting_checks import of_kind
from ..runs.spec import A_SPEC, Spec
from ..runs.studies.sweep import with_values

Array = NDArray[np.float64]

FOLDS, FOLDS_BELOW = 3, 1000  # the number of parts of a data set with fewer than FOLDS_BELOW rows
SHARE, MOST, LEAST = 0.1, 2000, 200  # the share of the rows in a single held-out part, and its limits in rows
SHARE_OF_GROUPS, MOST_OF_GROUPS = 0.3, 4000  # the same where whole groups are held out, since these have to be many
SCORES = ("rmse", "smse", "nlpd")
RESAMPLES, LEVEL = 1000, 0.95  # bootstrap samples, and the level of the interval
NEW_SHARE = 1 / 3  # of the held-out rows, groups or blocks of time: as many new ones the interval of a score is for
MOST_SPREAD = 5.0  # logarithm of the ends of an interval over its middle
METRICS = ("nlpd", "smse")  # what a search may minimise


class Interval(NamedTuple):
    """A score on held-out rows, with a 95 % interval for new rows from 1000 bootstrap samples of them."""

    value: float
    low: float
    high: float


class RowScores(NamedTuple):
    """The squared error and the negative log predictive density of every held-out row.

    Attributes
    ----------
    squared, density : array [t]
        (y - mu)^2, and the terms of nlpd.
    targets, mean, var : array [t]
        y, mu and v.
    probability : array [t]
        The predicted probability of a value of at most y.
    cluster : array [t]
        The group or the block of time of each row, whose errors are alike; NaN where rows are drawn one by one.
    """

    squared: Array
    density: Array
    targets: Array
    mean: Array
    var: Array
    probability: Array
    cluster: Array

    @classmethod
    def of(cls, y: Array, mean: Array, var: Array, groups: RowGroups | None = None) -> RowScores:
        """Score normal predictions."""
        return cls.of_marginals(y, NormalMarginals(torch.from_numpy(mean), torch.from_numpy(var)), groups)

    @classmethod
    def of_marginals(cls, y: Array, marginals: Marginals, groups: RowGroups | None = None) -> RowScores:
        """Score predictions of any kind."""
        moments = marginals.moments
        targets = torch.from_numpy(y).to(moments[0])
        values = (*moments, -marginals.log_density(targets), marginals.cdf(targets))
        mean, var, density, probability = (part.double().cpu().numpy() for part in values)
        cluster = np.full(len(y), np.nan) if groups is None else groups.number.double().cpu().numpy()
        return cls(np.square(y - mean), density, y, mean, var, probability, cluster)

    def inside(self, level: float) -> float:
        """The share of rows in their central interval of this level."""
        return float((np.abs(self.probability - 0.5) <= 0.5 * level).mean())

    def falls_short(self, level: float, errors: float) -> bool:
        """Whether fewer rows than a share of `level` lie in their interval, by so many standard errors.

        Rows of one group or block of time are alike: the share of each is then one observation, of which there may be
        few. So the standard error is that of these shares, and the number of errors that of the t distribution.
        """
        is_inside = np.abs(self.probability - 0.5) <= 0.5 * level
        error = np.sqrt(level * (1.0 - level) / len(is_inside))
        if np.isfinite(self.cluster).all():
            _, number = np.unique(self.cluster, return_inverse=True)
            clusters = int(number.max()) + 1
            if clusters < 2:
                return False
            sums = np.bincount(number, is_inside - is_inside.mean())
            error = max(error, np.sqrt(np.square(sums).sum() * clusters / (clusters - 1)) / len(is_inside))
            errors = float(student_t.ppf(ndtr(errors), clusters - 1))
        return bool(is_inside.mean() < level - errors * error)

    def joined(self, other: RowScores) -> RowScores:
        """These rows followed by the rows of another part."""
        return RowScores(*map(np.concatenate, zip(self, other, strict=True)))

    @property
    def smse(self) -> float:
        """The mean squared error over the variance of the targets."""
        return float(self.squared.mean() / max(float(self.targets.var()), np.finfo(float).tiny))

    @property
    def rmse(self) -> float:
        """The root of the mean squared error, in the units of the file."""
        return float(np.sqrt(self.squared.mean()))

    @property
    def nlpd(self) -> float:
        """The mean negative log predictive density, in nats."""
        return float(self.density.mean())

    @property
    def usable(self) -> bool:
        """Whether every number is finite."""
        return bool(np.isfinite(self.squared).all() and np.isfinite(self.density).all())

    def interval(self, metric: str) -> Interval:
        """The score "rmse", "smse" or "nlpd" with its interval.

        Notes
        -----
        It is for the score of new rows, a third as many as there are here: both samples vary, so that the variance is
        that of a mean of a quarter of the rows, which are resampled. Rows of one group, or of one block of time, have
        errors that are alike. Their interval is for new groups: for smse, by the logarithm of the mean square of each,

            log smse +- t_{G-1} s / mean * sqrt(1 / G + 3 / G),   s the sd of the mean squares of G clusters.

        It does not include that the best of several candidates was chosen by the same rows, which makes its centre
        slightly too good.
        """
        value = getattr(self, metric)
        if self.is_clustered:
            # The interval of the score of new clusters
            _, number = np.unique(self.cluster, return_inverse=True)
            values = self.density if metric == "nlpd" else self.squared
            means = np.bincount(number, values) / np.bincount(number)
            clusters = len(means)
            spread = float(means.std(ddof=1)) * np.sqrt((1.0 + 1.0 / NEW_SHARE) / clusters)
            spread *= float(student_t.ppf(0.5 + LEVEL / 2.0, clusters - 1))
            if metric == "nlpd":
                return Interval(value, value - spread, value + spread)
            factor = float(np.exp(min(spread / max(float(means.mean()), np.finfo(float).tiny), MOST_SPREAD)))
            factor = np.sqrt(factor) if metric == "rmse" else factor
            return Interval(value, float(value / factor), float(value * factor))
        t = len(self.targets)
        size = max(round(t / (1.0 + 1.0 / NEW_SHARE)), 2)
        rows = np.random.default_rng(0).integers(0, t, (RESAMPLES, size))
        if metric == "nlpd":
            values = self.density[rows].mean(1)
        elif metric == "rmse":
            values = np.sqrt(self.squared[rows].mean(1))
        else:
            variances, values = self.targets[rows].var(1), np.full(len(rows), np.inf)
            varied = variances > 0.0  # not where a few equal targets were drawn
            values[varied] = self.squared[rows][varied].mean(1) / variances[varied]
        low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="nearest")
        return Interval(value, float(min(low, value)), float(max(high, value)))  # one row far away raises every smse

    @property
    def intervals(self) -> dict[str, Interval]:
        """All scores by name, each with its interval."""
        return {metric: self.interval(metric) for metric in SCORES}

    def described(self, metric: str) -> str:
        """A score with its interval, such as "0.011 (95 % interval 0.0098 to 0.012)"; of few rows without an end."""
        value, low, high = self.interval(metric)
        ends = f"{low:.3g} to {high:.3g}" if np.isfinite(high) else f"from {low:.3g} on"
        return f"{value:.3g} (95 % interval {ends})"

    @property
    def is_clustered(self) -> bool:
        """Whether errors within groups or blocks of time are alike, and there are enough of these to compare."""
        return bool(np.isfinite(self.cluster).all()) and len(np.unique(self.cluster)) > 2

    def better_by(self, other: RowScores, terms: str = "density") -> tuple[float, float]:
        """How much lower the nlpd of these rows is than that of another model, and the standard error of that.

        With the terms "squared" it is the mean squared error instead.
        """
        difference = getattr(other, terms) - getattr(self, terms)  # the same rows in the same order
        if self.is_clustered:
            _, number = np.unique(self.cluster, return_inverse=True)
            sums = np.bincount(number, difference - difference.mean())
            return float(difference.mean()), float(np.sqrt(np.square(sums).sum()) / len(difference))
        return float(difference.mean()), float(difference.std() / np.sqrt(max(len(difference), 1)))


def parts(split: Split, seed: int, given: Sequence[Pair] = ()) -> list[Split]:
    """Divide the training rows into rows to fit and rows to hold out.

    Parameters
    ----------
    split : Split
        Its training rows are divided; its test rows do not occur in the result. Where they have groups, whole groups
        are held out.
    seed : int
        Seed of the random order.
    given : sequence of Pair
        Training rows and held-out rows of each part, in place of a random draw.

    Returns
    -------
    list of Split
        The given parts. Otherwise one part, or three parts if there are fewer than 1000 rows. The rows to fit are in a
        random order, so that the first k of them are a random subset.
    """
    n = len(split.train)
    order = shuffled(n, seed)  # [n]
    pairs = [(mask_of(n, train), mask_of(n, test)) for train, test in given]
    pairs = pairs or [(~mask, mask) for mask in _drawn_masks(split.train, order, seed)]
    result = []
    for k, masks in enumerate(pairs):
        key = f"{split.key}/held-out-{seed}-{k}" + (f"-{_content(*masks)}" if given else "")
        fit_rows, held_out_rows = (order[torch.from_numpy(mask)[order]] for mask in masks)
        result.append(Split(split.train.rows(fit_rows), split.train.rows(held_out_rows), split.name, key=key))
    return result


def _drawn_masks(train: Dataset, order: Tensor, seed: int) -> list[Mask]:
    """The rows [n] that each part holds out."""
    n, is_small = len(train), len(train) < FOLDS_BELOW
    size = min(max(SHARE * n, LEAST), MOST)
    if train.groups is None:
        held_out = [order[k::FOLDS] for k in range(FOLDS)] if is_small else [order[: int(size)]]
        return [mask_of(n, rows.numpy()) for rows in held_out]
    number = train.groups.number
    size = min(max(SHARE_OF_GROUPS * n, LEAST), MOST_OF_GROUPS)
    if not train.groups.are_folds:
        count = min(FOLDS, train.groups.distinct)
        number = drawn_folds(number, count, seed) if is_small else drawn_share(number, size / n, seed).long() - 1
    return [(number == k).numpy() for k in range(int(number.max()) + 1)]


def _content(*masks: Mask) -> str:
    """A hash of these masks, for the key of a split."""
    return hashlib.sha256(b"".join(np.packbits(mask).tobytes() for mask in masks)).hexdigest()[:16]


def held_out_marginals(run: Run, part: Split) -> Marginals:
    """The distributions of the targets that a part holds out; where the kernel compares words, read as in new rows."""
    rows = part.test.read_as_new(compared_columns(run.problem.kernel))
    return run.posterior(of="y").marginals(rows.X)


def first_rows(split: Split, count: int) -> Split:
    """The same held-out rows with only the first rows to fit."""
    if count >= len(split.train):
        return split
    source = split.train
    groups = source.groups and source.groups._replace(number=source.groups.number[:count])
    as_new = None if source.as_new is None else source.as_new[:count]
    train = Dataset(source.X[:count], source.y[:count], source.names, source.target, groups=groups, as_new=as_new)
    return Split(train, split.test, split.name, key=f"{split.key}/first-{count}")


def held_out_score(
    spec: Spec,
    values: Mapping[str, Any] | None = None,
    *,
    metric: str = "nlpd",
    data: Any = None,
    folds: Any = None,
    report: Callable[[float, int], object] | None = None,
) -> float:
    """Run a spec with some values changed on part of its training rows, and score it on the rest.

    Parameters
    ----------
    spec : Spec
        Gives everything that the search does not vary. It needs a budget.
    values : mapping, optional
        Settings of the method and fields of the spec by name, as a search proposes them.
    metric : {"nlpd", "smse"}
        The score to return; lower is better.
    data : Split, arrays or frame, optional
        Rows in memory, as for `Spec.open`. Only the training rows are used.
    folds : splitter or iterable, optional
        A splitter of scikit-learn or pairs (training rows, held-out rows). By default one random part is held out, or
        three parts in turn if there are fewer than 1000 rows; rows with groups are held out by whole groups.
    report : callable, optional
        Called as report(score, step) for records 0, 1, 2, 5, 10, 20, ... of the first part, in the order of Optuna's
        `Trial.report`. If it raises an error, such as `optuna.TrialPruned`, the run ends and the error is passed on.

    Returns
    -------
    float
        The score of all held-out rows together.

    Raises
    ------
    SettingError
        If a value cannot be used, if the spec has no budget, or if the run failed.

    Notes
    -----
    One run for each part. The same spec, values and rows give the same score, unless the budget is in seconds.

    Examples
    --------
    >>> spec = Spec("cholqr", data="kin40k", budget={"seconds": 10})
    >>> study.optimize(lambda trial: held_out_score(spec, {"num_inducing": trial.suggest_int("m", 16, 512)}))
    """
    chosen = of_kind("values", {} if values is None else values, Mapping, "names with their values")
    spec = with_values(of_kind("The spec of a search", spec, Spec, A_SPEC), chosen)
    if metric not in METRICS:
        raise SettingError(f"metric is {quoted(metric)}; give one of {', '.join(METRICS)}.")
    if not spec.budget:
        raise SettingError("The spec has no budget: give steps or seconds, so that each run of the search ends.")
    split = opened_rows(spec, data)[1]
    if split.train.scale is not None:
        raise SettingError("The rows are scaled or mapped from a file; a search takes rows that are read whole.")
    train = split.train
    pairs = () if folds is None else fold_pairs(folds, train.X, train.y.numpy())
    scores: RowScores | None = None
    spec = replace(spec, data="held-out rows")  # the rows are given to each run
    for part in parts(split, spec.seed, pairs):
        run = spec.open(data=part)
        try:
            latest = _finished(run, part, metric, report)
        finally:
            run.close()
        report, scores = None, latest if scores is None else scores.joined(latest)
    assert scores is not None
    return float(getattr(scores, metric))


def _finished(run: Run, part: Split, metric: str, report: Callable[[float, int], object] | None) -> RowScores:
    """Take the steps of the budget, report the scores of some records, and return those of the last one."""
    while run.advance() is not None:
        if report is not None and scheduled(run.done):
            report(float(getattr(_scores(run, part), metric)), run.done)
        if run.progress().fraction >= 1.0:
            break
    if run.error is not None:
        raise SettingError(f"The run failed, so there is no score: {run.error}") from run.error
    return _scores(run, part)


def _scores(run: Run, part: Split) -> RowScores:
    """The scores of the latest answer of a run on the rows that its part holds out."""
    return RowScores.of_marginals(part.test.y.numpy(), held_out_marginals(run, part), part.test.groups)
