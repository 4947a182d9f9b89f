"""Several initial values of theta from the data, and a race between them by the exact likelihood of some rows.

A likelihood has several valleys where the data oscillate: from a long lengthscale, every wave is noise, and the descent
ends there. Beside the initial theta of the kernel, these are tried:

    waves       lengthscale 1 / (2 pi f) of each input with a wave of frequency f in its periodogram
    seasons     periods of the periodic parts, by least squares, from the peaks of the periodogram; also with the
                lengthscale and noise of the variogram of what the seasons and a quadratic trend leave
    variogram   lengthscale and noise from the mean half squared difference of y between near rows
    short       all lengthscales a quarter of what the kernel proposes

They are compared on a few hundred rows, half of them in clusters of neighbours, because rows far apart know nothing of
short lengthscales. The best start from waves descends, and the best of all if it is better than the kernel's own before
any descent; a period keeps its value there if these are not all rows. Then the kernel's own descends until it has come
near the best of them or has converged. It is kept unless the other one is better by several nats, so that data with one
valley are learned from where they always were. If the best is a wave's, it is taken unless the kernel's own is better
by several nats: that it found the valley on these rows does not say that it finds it on all rows. The variational bound
of a method with m inducing points must not be clearly higher there, as m points may be too few for short lengthscales.
"""

from __future__ import annotations

import hashlib
import io
import math
import pickle
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .errors import GPExplorerError, NotPositiveDefinite
from .kernels.row_scaled import input_count, unscaled_kernel, unscaled_rows
from .kernels.theta.descent_units import descent_units, period_entries
from .kernels.theta.restrictions import is_free, log_prior, projected
from .linalg.gaussian import linear_gaussian
from .linalg.nearest import Nearest
from .linalg.periodogram import Peak, peaks, without_trend
from .linalg.preconditioners import pivoted_root
from .linalg.randomness import generator
from .linalg.replayed_descent import Evaluated, replayed_descent
from .linalg.seasons import Season, seasons
from .noise_floor import descent_limits, noise_floor
from .objectives import evidence
from .problem import MixedRows, Problem, take

RACE_ROWS = 200  # of the exact likelihoods that are compared
CLUSTERS = 4  # of neighbours, which are half of these rows
FEWEST_ROWS = 20  # with fewer rows the kernel's own start is taken
EVALUATIONS, OWN_EVALUATIONS = 12, 40  # of the likelihood, from another start and from the kernel's own
CLEAR_MARGIN = 5.0  # nats by which another start has to be better than the kernel's own
MARGIN_PER_ROW = 0.01  # and nats per row
PERIODOGRAM_INPUTS, PERIODOGRAM_ROWS = 20, 100_000  # the first inputs whose periodograms are computed, of these rows
VARIOGRAM_ROWS, TREE_ROWS, NEIGHBOURS = 500, 20_000, 4  # rows whose nearest neighbours among so many rows are found
SHORTER = 4.0
BOUND_ROWS = 1000  # on which the bound of a method with inducing points is computed
SLACK_PER_ROW = 0.1  # nats per row by which that bound may be higher before its descent
NOISE_STEPS = (0.0, 0.35, 0.7, 1.05, 1.4)  # added to the log noise, for what inducing points leave unexplained
UNDEFINED = (GPExplorerError, ValueError, RuntimeError)  # where a likelihood has no value
KERNEL_START = "the kernel's own"
KEPT_RACES, KEPT_ENTRIES = 32, 200_000  # results that are kept, of tables with at most so many numbers
_kept: dict[bytes, Race] = {}


@dataclass(frozen=True)
class Start:
    """One initial theta, and the NLML of the rows of the race that it begins with and that its descent reached.

    `reached` is None if the start was not followed.
    """

    name: str
    theta: Tensor
    begin: float = math.inf
    reached: float | None = None
    is_wave: bool = False


@dataclass(frozen=True)
class Race:
    """The starts that were tried, the chosen one first.

    Attributes
    ----------
    starts : tuple of Start
        The theta of the first one is where the method begins. If it is not the kernel's own, it has descended.
    rows : int
        The number of rows of the likelihoods.
    learned : Tensor or None
        Theta [p] where the chosen start, the kernel's own too, arrived on these rows; None if it was not followed.
    """

    starts: tuple[Start, ...]
    rows: int
    learned: Tensor | None = None

    def __str__(self) -> str:
        """What each start reached; empty if there was only one, or no other was followed."""
        followed = [start for start in self.starts if start.reached is not None]
        if len(followed) < 2:
            return ""
        best, *others = followed
        reached = ", ".join(f"{start.reached:.4g} from {start.name}" for start in others)
        taken = f"Of {len(self.starts):,} starts, {best.name} was taken: on {self.rows:,} rows it "
        if any(_reached(start) < _reached(best) for start in others):
            numbers = f"{best.reached:.4g} against {reached}"
            return f"{taken}came near the lowest NLML, {numbers}, and was followed no further."
        return f"{taken}reaches an NLML of {best.reached:.4g}, against {reached}."


def race(problem: Problem, points: int = 0, follow: bool = False) -> Race:
    """Find where to begin, by the exact likelihood of some rows.

    Parameters
    ----------
    problem : Problem
        Its theta is the kernel's own start.
    points : int, default 0
        The number of inducing points of the method; 0 for a method that has no such limit.
    follow : bool, default False
        Whether the kernel's own start is followed even if no other looks better.

    Returns
    -------
    Race
        Its first start is the chosen one.

    Notes
    -----
    The starts take O(n log n). With r rows, at most 200: one Cholesky factor per start, and the descents, if there are
    any. Nothing is drawn from a global generator, so the same rows give the same start: the last few races are kept,
    since a page, a sweep or a comparison opens many runs on the same rows.
    """
    content = _content(problem, points, follow)
    if content is None:
        return _raced(problem, points, follow)
    result = _kept.pop(content, None) or _raced(problem, points, follow)
    _kept[content] = result
    while len(_kept) > KEPT_RACES:
        _kept.pop(next(iter(_kept)), None)
    return result


class _ByContent(pickle.Pickler):
    """Writes tensors as their numbers; a pickle of torch has also where they are in memory."""

    def persistent_id(self, part: Any) -> Any:
        return (part.dtype, *part.shape, part.numpy().tobytes()) if isinstance(part, Tensor) else None


def _content(*parts: Any) -> bytes | None:
    """A hash of all that a race depends on; None where that takes long, lies on a GPU, or cannot be pickled."""
    theta, train = parts[0].theta, parts[0].train
    if theta.device.type != "cpu" or len(train) * max(train.d, 1) > KEPT_ENTRIES:
        return None
    written = io.BytesIO()
    try:
        _ByContent(written).dump(parts)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError):
        return None
    return hashlib.sha256(written.getbuffer()).digest()


def _raced(problem: Problem, points: int, follow: bool) -> Race:
    """The race itself."""
    own = Start(KERNEL_START, problem.theta)
    others = proposals(problem) if len(problem.train) >= FEWEST_ROWS else []
    others = [replace(start, theta=projected(problem.kernel, start.theta)) for start in others]
    if not others:
        return Race((own,), 0)
    part = replace(problem, train=problem.train.rows(_race_rows(problem)))
    own, *others = (replace(start, begin=_value(part, start.theta)) for start in (own, *others))
    rows = len(part.train)
    wave = min((start for start in others if start.is_wave), key=lambda start: start.begin, default=None)
    near = min((start for start in others if start.begin < own.begin), key=lambda start: start.begin, default=None)
    followed = [start is wave or start is near for start in others]
    is_part = rows < len(problem.train)
    others = [
        _descended(part, start, EVALUATIONS, -math.inf, keeps_periods=is_part) if is_followed else start
        for start, is_followed in zip(others, followed, strict=True)
    ]
    others.sort(key=lambda start: _reached(start) - CLEAR_MARGIN * start.is_wave)
    margin = 0.0
    if any(followed):
        margin = -CLEAR_MARGIN if others[0].is_wave else CLEAR_MARGIN + MARGIN_PER_ROW * rows
    if any(followed) or follow:
        enough = _reached(others[0]) + margin if any(followed) else -math.inf
        own = _descended(part, own, OWN_EVALUATIONS, enough, keeps_periods=is_part and follow)
    is_better = _reached(others[0]) < _reached(own) - margin
    if is_better and 0 < points < len(problem.train):
        others[0], bound = _for_points(problem, others[0], points)
        slack = SLACK_PER_ROW * min(len(problem.train), BOUND_ROWS)  # which a descent of the bound gains
        is_better = bound < _for_points(problem, own, points)[1] + slack
    best = others[0] if is_better else own
    learned = None if best.reached is None else best.theta
    chosen = (others[0], own, *others[1:]) if is_better else (replace(own, theta=problem.theta), *others)
    return Race(chosen, rows, learned)


def proposals(problem: Problem) -> list[Start]:
    """The starts beside the kernel's own; none for a kernel without lengthscales or periods of numbers."""
    kernel, lengthscales, periods = unscaled_kernel(problem.kernel), *_entries(problem.kernel)
    rows = problem.train if kernel is problem.kernel else unscaled_rows(problem.train)
    X = rows.X.numbers if isinstance(rows.X, MixedRows) else rows.X
    if not isinstance(X, Tensor) or not (lengthscales or periods) or not X.shape[1]:
        return []
    X, y = X.cpu().numpy(), rows.y.double().cpu().numpy()
    # One column at a time, here and below: X may be a file that is larger than the memory.
    if not all(np.isfinite(column).all() for column in X.T) or not np.isfinite(y).all() or y.std() == 0.0:
        return []
    sds = np.maximum([column.astype(float).std() for column in X.T], np.finfo(float).tiny)
    by_input = isinstance(rows.X, Tensor) and getattr(kernel, "columns", None) is None
    some: Any = slice(None)
    if len(y) > PERIODOGRAM_ROWS:
        some = np.sort(np.random.default_rng(0).permutation(len(y))[:PERIODOGRAM_ROWS])
    waves, found, rest = list[list[Peak]](), list[Season](), y[some]
    for column in X.T[:PERIODOGRAM_INPUTS]:
        x = column[some].astype(float)
        waves.append(peaks(x, y[some]))
        own = seasons(x, y[some]) if periods and waves[-1] else []
        left = without_trend(x, y[some] - sum(season.fit for season in own)) if own else rest
        found, rest = [*found, *own], left if left.var() < rest.var() else rest
    result = [*_from_seasons(problem.theta, found, periods)]

    def with_variogram(theta: Tensor, values: NDArray[np.float64]) -> Iterator[Tensor]:
        """Theta with lengthscales and noise from the variogram of these values of the rows."""
        if lengthscales and (estimate := variogram(X[some], values, sds)) is not None:
            theta = theta.clone()
            for entry, column in lengthscales.items():
                theta[entry] = math.log(estimate[0] * (sds[column] if by_input and column is not None else sds.mean()))
            theta[-1] = 0.5 * math.log(estimate[1])
            yield theta

    result += [
        replace(start, name=f"{start.name} and the variogram", theta=theta)
        for start in result
        for theta in with_variogram(start.theta, rest)
    ]
    result += _from_waves(problem.theta, waves, lengthscales, by_input)
    result += [Start("the variogram", theta) for theta in with_variogram(problem.theta, y[some])]
    if lengthscales:
        theta = problem.theta.clone()
        theta[list(lengthscales)] -= math.log(SHORTER)
        result.append(Start("short lengthscales", theta))
    if _noise_is_free(problem):
        return result
    return [replace(start, theta=torch.cat([start.theta[:-1], problem.theta[-1:]])) for start in result]


def variogram(
    X: NDArray[Any], y: NDArray[np.float64], sds: NDArray[np.float64] | float = 1.0
) -> tuple[float, float] | None:
    """The lengthscale of an SE kernel and the noise variance that explain differences between near rows.

    Parameters
    ----------
    X : array [n, d]
        Inputs, of which at most 20,000 rows are read.
    y : array [n]
        Targets.
    sds : array [d] or float, default 1
        Standard deviations, by which the inputs are divided.

    Returns
    -------
    tuple of float or None
        The lengthscale is that of the divided inputs. None if near rows differ as much as any two rows.

    Notes
    -----
    g_k is the mean half squared difference of y between a row and its k-th nearest neighbour at the mean squared
    distance h_k^2. The noise is g extrapolated to h = 0, and 1 - exp(-h^2 / (2 l^2)) = (g - noise) / (var - noise).
    """
    random = np.random.default_rng(0)
    kept = random.permutation(len(X))[:TREE_ROWS]
    asked = kept[:VARIOGRAM_ROWS]
    Z = X[kept].astype(float) / sds
    count = min(NEIGHBOURS, len(kept) - 1)
    distance, neighbour = Nearest(Z).query(Z[: len(asked)], count + 1)
    g = 0.5 * np.square(y[asked][:, None] - y[kept][neighbour[:, 1:]]).mean(0)  # [k]
    h2 = np.square(distance[:, 1:]).mean(0)  # [k]
    variance = float(y.var())
    slope = (g[-1] - g[0]) / max(h2[-1] - h2[0], np.finfo(float).tiny)
    noise = float(np.clip(g[0] - max(slope, 0.0) * h2[0], 1e-4 * variance, 0.9 * variance))
    correlated = 1.0 - (g - noise) / (variance - noise)  # [k]
    usable = (correlated > 0.2) & (h2 > 0.0)
    if not usable.any():
        return None
    scales = np.sqrt(h2[usable] / (-2.0 * np.log(np.minimum(correlated[usable], 0.98))))
    return float(np.median(scales)), noise


def _entries(kernel: Any) -> tuple[dict[int, int | None], list[int]]:
    """Entries of theta that are lengthscales of inputs, with the input if there is one per input; and periods.

    The lengthscale of a periodic kernel is that of a sine and has no unit.
    """
    names = unscaled_kernel(kernel).names
    lengthscales = dict[int, int | None]()
    for entry, name in enumerate(names):
        part, _, own = name.rpartition(": ")
        prefix = f"{part}: " if part else ""
        match = re.fullmatch(r"lengthscale(?: (\d+))?", own)
        if match and f"{prefix}period" not in names:
            lengthscales[entry] = int(match[1]) - 1 if match[1] else None
    return lengthscales, period_entries(kernel)


def _from_seasons(theta: Tensor, found: list[Season], entries: list[int]) -> Iterator[Start]:
    """Starts with the periods of the strongest seasons, each of them as the first one."""
    found = sorted(found, key=lambda season: -float(season.fit @ season.fit))[:3]
    for first in range(len(found)):
        start = theta.clone()
        for position, entry in enumerate(entries):
            start[entry] = math.log(found[(first + position) % len(found)].period)
        yield Start(f"the period {found[first].period:.3g}", start, is_wave=True)


def _from_waves(
    theta: Tensor, waves: list[list[Peak]], lengthscales: dict[int, int | None], by_input: bool
) -> Iterator[Start]:
    """A start with lengthscales that are short enough for the strongest waves."""
    every = sorted((peak for own in waves for peak in own), key=lambda peak: -peak.share)
    if not every:
        return
    noise = math.log(math.sqrt(max(1.0 - sum(max((p.share for p in own), default=0.0) for own in waves), 0.01)))
    if lengthscales:
        start = theta.clone()
        shortest = -math.log(2.0 * math.pi * max(peak.frequency for peak in every))
        for entry, column in lengthscales.items():
            own = waves[column] if by_input and column is not None and column < len(waves) else []
            if column is None or not by_input:
                start[entry] = shortest
            elif own:
                start[entry] = -math.log(2.0 * math.pi * max(peak.frequency for peak in own))
        start[-1] = min(float(theta[-1]), noise + float(theta[-1]) - math.log(0.3))
        yield Start("the waves of the periodogram", start, is_wave=True)


def _noise_is_free(problem: Problem) -> bool:
    is_noise = torch.arange(len(problem.theta)) == len(problem.theta) - 1
    return not getattr(problem.kernel, "noise_is_known", False) and is_free(problem.kernel, is_noise)


def _race_rows(problem: Problem) -> Tensor:
    """At most RACE_ROWS rows: half of them at random, half of them the nearest neighbours of a few."""
    n = len(problem.train)
    if n <= RACE_ROWS:
        return torch.arange(n)
    order = torch.randperm(n, generator=generator(0, "race"))
    X = problem.train.X.numbers if isinstance(problem.train.X, MixedRows) else problem.train.X
    inputs = range(min(input_count(problem), X.shape[1]))  # of mixed rows, the columns of numbers
    sds = [X[:, j].double().std().clamp_min(1e-300) for j in inputs]
    rows = set[int]()
    for centre in order[:CLUSTERS].tolist():
        distance = torch.zeros(n, dtype=torch.float64, device=X.device)
        for j, sd in zip(inputs, sds, strict=True):
            column = X[:, j].double()
            distance += column.sub(column[centre]).div_(sd).square_()
        rows |= set(distance.topk(RACE_ROWS // (2 * CLUSTERS), largest=False).indices.tolist())
    others = [row for row in order[:RACE_ROWS].tolist() if row not in rows]
    return torch.tensor(sorted([*rows, *others[: RACE_ROWS - len(rows)]]))


def _evaluated(problem: Problem, theta: Tensor) -> Evaluated:
    """Value and gradient; an error where they do not exist, and where the noise is one that no method may learn."""
    if not noise_floor(problem).admits(theta):
        raise NotPositiveDefinite("K + s2 I", len(problem.train), 0.0)
    value, gradient = evidence(problem.kernel, theta, problem.train)
    return Evaluated(value, gradient.double())


def _value(problem: Problem, theta: Tensor) -> float:
    """The NLML at theta without its constant; infinite where it does not exist."""
    try:
        value, gradient, _ = _evaluated(problem, theta)
    except UNDEFINED:
        return math.inf
    is_usable = math.isfinite(value) and bool(gradient.isfinite().all())
    return value - log_prior(problem.kernel, theta) if is_usable else math.inf


def _descended(part: Problem, start: Start, limit: int, enough: float, keeps_periods: bool = False) -> Start:
    """The start after a descent in the numbers that may move; its values contain the penalty of the priors."""
    units = descent_units(part.kernel, start.theta, part.train)
    function, limits = partial(_evaluated, part), descent_limits(part)
    descent = replayed_descent(function, start.theta, "L-BFGS-B", limit, undefined=UNDEFINED, units=units, **limits)
    begin = start.theta
    with closing(descent):
        for best in descent:
            start = replace(start, theta=best.theta, reached=best.value)
            if best.value <= enough:
                break
    if keeps_periods:
        theta, entries = start.theta.clone(), period_entries(part.kernel)
        theta[entries] = begin[entries]
        start = replace(start, theta=theta)
    return start if start.reached is not None else replace(start, reached=start.begin)


def _reached(start: Start) -> float:
    return math.inf if start.reached is None else start.reached


def _for_points(problem: Problem, start: Start, points: int) -> tuple[Start, float]:
    """The start with the noise at which the variational bound of this many pivots is best, and that bound.

    What the points do not explain is noise to a sparse method. With the pivoted root K ~ L L' and A = L'L + s2 I,

        2 VFE = (y'y - y'L A^-1 L'y) / s2 + (n - m) log s2 + log det A + tr(K - L L') / s2
    """
    n = min(len(problem.train), BOUND_ROWS)
    rows = problem.train.rows(torch.randperm(len(problem.train), generator=generator(0, "bound"))[:n])
    kernel, theta, y = problem.kernel, start.theta, rows.y
    prior = kernel.diag(theta, rows.X)
    try:
        L = pivoted_root(lambda index: kernel(theta, rows.X, take(rows.X, index)), prior, points)  # [n, m]
        best, least = start, math.inf
        for step in NOISE_STEPS if _noise_is_free(problem) else NOISE_STEPS[:1]:
            s2 = math.exp(2.0 * (float(theta[-1]) + step))
            model = linear_gaussian(L.T @ L, L.T @ y, n, y @ y, s2, "L'L + s2 I", prior=prior.sum())
            value = model.value + 0.5 * model.unexplained / s2
            if value < least:
                best, least = replace(start, theta=torch.cat([theta[:-1], theta[-1:] + step])), value
    except GPExplorerError:
        return start, math.inf
    return best, least
