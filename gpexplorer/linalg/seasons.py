"""Seasons in a target over one input: periods with their harmonics, by least squares, from the peaks of a periodogram.

    y_i ~ trend + sum_h a_h cos(2 pi h f x_i) + b_h sin(2 pi h f x_i),   h = 1, ..., H

A periodogram knows a frequency to a fraction of 1 / range. The likelihood of a period has a maximum that is narrower,
and others beside it. So f is found by Gauss-Newton steps of O(n H^2), with the number H of harmonics that has the least
Bayesian information criterion. The strongest wave may be a harmonic: periods 2 and 3 times as long are tried as well,
and taken where the criterion is clearly smaller. Further seasons are looked for in what the first ones leave.

References
----------
Baluev, R. (2009). Detecting non-sinusoidal periodicities in observational data using multiharmonic periodograms. MNRAS
395. Quinn, B. and Thomson, P. (1991). Estimating the frequency of a periodic function. Biometrika 78.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .periodogram import NULL_MARGIN, peaks, without_trend

Array = NDArray[np.float64]

MOST_ROWS, CHOICE_ROWS = 100_000, 10_000  # of a fit, and for the number of harmonics
HARMONICS, USUAL_HARMONICS = 6, 3  # at most, and how many are always tried: a square wave has no second one
MULTIPLES = (2, 3)  # of the period of the strongest wave that may be the season's
CLEARLY = 10.0  # by which the criterion of a longer period is smaller
STEPS = 8  # of Gauss-Newton
FARTHEST, LONGEST = 0.75, 0.25  # periods over the range of x by which a frequency may move, in all and in one step
PRECISION = 1e-9  # of a frequency
RANK = 1e-12  # singular values of the normal equations, below which waves and trend are not told apart
SHORTEST_SEASON = 2.5  # periods over the range of x
MOST_WAVES = 8  # that are taken away, those of seasons found before included
FAR_HARMONICS = 24  # among which those are looked for that are too strong for the shape of a season
LEAST_ROWS = 2.5  # per period of such a harmonic
EXCESS = 2.0  # their share of the variance of all, times h^2: it is at most 1 for a square wave, 0.6 for a sawtooth
CURVED = 12.0  # F statistic of a quadratic term from which a trend is not a line
PASSES = 2  # over several seasons, each of which is fitted to what the others leave


class Season(NamedTuple):
    """A periodic part of a target."""

    period: float
    harmonics: int
    criterion: float  # n log(residual variance) + (2 H + 1) log n, of the rows with which H was chosen
    fit: Array  # [n]


class _Fit(NamedTuple):
    f: float  # periods over the range
    fit: Array  # [n] of the waves alone
    rss: float  # the sum of squares of what waves and trend leave
    step: float  # of Gauss-Newton in f


def seasons(x: Array, y: Array, count: int = 3) -> list[Season]:
    """The seasons whose waves stand out in a periodogram, the strongest first.

    Parameters
    ----------
    x, y : array [n]
        Input and target, of which at most MOST_ROWS rows are used.
    count : int, default 3
        The most that are returned.
    """
    x, y = _some_rows(x, y, MOST_ROWS)
    residual, found, span = without_trend(x, y), list[Season](), float(np.ptp(x))
    for _ in range(MOST_WAVES):
        if len(found) == count or not (waves := peaks(x, residual, count=1)):
            break
        frequency = waves[0].frequency
        if any(_is_harmonic(frequency, own, span) for own in found):
            own = _with_harmonics(x, residual, frequency, 1)
        else:
            own = season(x, residual, frequency)
            found.append(own)
        residual = residual - own.fit
    for _ in range(PASSES if len(found) > 1 else 0):
        for i, own in enumerate(found):
            found[i] = _with_harmonics(x, residual + own.fit, 1.0 / own.period, own.harmonics)
            residual = residual + own.fit - found[i].fit
    return sorted(found, key=lambda own: -float(own.fit @ own.fit))


def periods(x: Array, y: Array, count: int) -> list[float]:
    """Periods for as many periodic parts of a kernel, different ones where the target has them.

    Parameters
    ----------
    x, y : array [n]
        Input and target.
    count : int
        How many are returned, unless no wave stands out and the list is empty.

    Notes
    -----
    A period that divides another one is no season of its own, such as a day beside a week. So a harmonic that is too
    strong for the shape of its season is a candidate as well: among the seasons by its variance if the fit of its
    season lacks it, and after them otherwise. Too few periods are repeated.
    """
    found = seasons(x, y, count)
    candidates = [(True, float(own.fit.var()), own.period) for own in found[1:]]
    if count > 1:
        x, y = _some_rows(x, y, CHOICE_ROWS)
        candidates += [harmonic for own in found for harmonic in _strong_harmonic(x, y, own, found)]
    several = [*(own.period for own in found[:1]), *(period for *_, period in sorted(candidates, reverse=True))]
    return [several[i % len(several)] for i in range(count if several else 0)]


def is_curved(x: Array, y: Array) -> bool:
    """Whether the trend of a target beside its seasons is clearly no straight line.

    Notes
    -----
    The F statistic of the quadratic term, for as many rows as the dependent ones are worth: n (1 - rho) / (1 + rho) of
    them, with rho the correlation of what the quadratic leaves from one row to the next. A random walk is worth a few
    rows only, however long it is.
    """
    x, y = _some_rows(x, y, MOST_ROWS)
    order = np.argsort(x, kind="stable")
    x, y = x[order], (y - sum(own.fit for own in seasons(x, y)))[order]
    left, of_line = without_trend(x, y), without_trend(x, y, degree=1)
    total = float(left @ left)
    if total <= np.finfo(float).eps * float(of_line @ of_line):
        return total < float(of_line @ of_line)
    rho = min(max(float(left[1:] @ left[:-1]) / total, 0.0), 1.0)
    independent = len(x) * (1.0 - rho) / (1.0 + rho)
    return (float(of_line @ of_line) / total - 1.0) * (independent - 3.0) > CURVED


def _strong_harmonic(x: Array, y: Array, own: Season, found: list[Season]) -> Iterator[tuple[bool, float, float]]:
    """The harmonic that is, with its own harmonics, farthest above a fall with 1 / h^2, as edges have it; or none.

    It comes as whether the fit of the season lacks one of these waves, their variance, and the period.
    """
    n, span = len(x), float(np.ptp(x))
    H = max(1, int(min(FAR_HARMONICS, n / 8, own.period * n / span / LEAST_ROWS)))
    basis = _waves((x - x.mean()) / span, span / own.period, H)
    weights = np.linalg.lstsq(basis.T @ basis, basis.T @ y, rcond=RANK)[0]
    noise = float(np.square(y - basis @ weights).mean())
    h, variances = np.arange(1, H + 1), 0.5 * (np.square(weights[:H]) + np.square(weights[H : 2 * H]))  # [H]
    excess = h * h * variances / max(float(variances.sum()), np.finfo(float).tiny)
    is_strong = (h > 1) & (excess > EXCESS) & (n * variances > 2.0 * NULL_MARGIN * noise)
    for other in (other for other in found if other is not own):
        times = h * other.period / own.period
        is_strong &= (times < 0.5) | (np.abs(times - np.round(times)) * span / other.period > 0.5)
    multiples = [is_strong & (h % first == 0) for first in h]
    scores = [float(excess[m].sum()) * m.sum() / (H // first) for m, first in zip(multiples, h, strict=True)]
    if is_strong.any():
        first = int(np.argmax(np.where(is_strong, scores, 0.0)))
        waves = multiples[first]
        yield bool(h[waves][-1] > own.harmonics), float(variances[waves].sum()), own.period / float(h[first])


def _waves(u: Array, f: float, H: int) -> NDArray[Any]:
    """Cosines and sines of H harmonics of f periods over the range of u, and a quadratic trend [n, 2 H + 3]."""
    powers = np.cumprod(np.broadcast_to(np.exp(2.0j * np.pi * f * u)[:, None], (len(u), H)), 1)
    return np.concatenate([powers.real, powers.imag, u[:, None] ** np.arange(3)], 1)


def season(x: Array, y: Array, frequency: float) -> Season:
    """The season of a target, one of whose waves has about this frequency.

    Parameters
    ----------
    x, y : array [n]
        Input and target. The number of harmonics is chosen with at most CHOICE_ROWS of the rows.
    frequency : float
        Periods per unit of x, known to a fraction of 1 / range.
    """
    some = _some_rows(x, y, CHOICE_ROWS)
    best = _best_harmonics(*some, frequency)
    for multiple in MULTIPLES:
        if frequency * float(np.ptp(x)) / multiple >= SHORTEST_SEASON:
            longer = _best_harmonics(*some, 1.0 / (best.period * multiple))
            if longer.criterion < best.criterion - CLEARLY:
                best = longer
                break
    return best if len(some[0]) == len(x) else _with_harmonics(x, y, 1.0 / best.period, best.harmonics)


def _some_rows(x: Array, y: Array, most: int) -> tuple[Array, Array]:
    """A random sample of the rows if there are more."""
    if len(x) <= most:
        return x, y
    chosen = np.sort(np.random.default_rng(0).permutation(len(x))[:most])
    return x[chosen], y[chosen]


def _is_harmonic(frequency: float, own: Season, span: float) -> bool:
    """Whether a frequency is a multiple of that of a season, as well as these rows can say."""
    times = frequency * own.period
    return times > 1.5 and abs(times - round(times)) * span / own.period < 0.5


def _best_harmonics(x: Array, y: Array, frequency: float) -> Season:
    """The least-squares season near a frequency, with one harmonic first and then as many as the criterion wants."""
    best = Season(1.0 / frequency, 1, np.inf, np.zeros(len(x)))
    for H in range(1, min(HARMONICS, len(x) // 4 - 2) + 1):
        own = _with_harmonics(x, y, 1.0 / best.period, H, frequency)
        if own.criterion < best.criterion:
            best = own
        elif H > USUAL_HARMONICS:
            break
    return best


def _with_harmonics(x: Array, y: Array, frequency: float, H: int, start: float = 0.0) -> Season:
    """The least-squares season with H harmonics, from a frequency; one that stays near `start`, if given."""
    n, span = len(x), float(np.ptp(x))
    residual = without_trend(x, y)
    least = np.finfo(float).tiny + np.finfo(float).eps * float(residual @ residual)
    own = _descended((x - x.mean()) / span, residual, frequency * span, H, (start or frequency) * span)
    criterion = n * float(np.log(max(own.rss, least) / n)) + (2 * H + 1) * float(np.log(n))
    return Season(span / own.f, H, criterion, own.fit)


def _descended(u: Array, residual: Array, f: float, H: int, start: float) -> _Fit:
    """The fit of H harmonics after Gauss-Newton steps in f, which stays near `start`."""
    best = _fitted(u, residual, f, H)
    for _ in range(STEPS):
        step = best.step
        while abs(step) > PRECISION * best.f:
            own = _fitted(u, residual, best.f + step, H) if abs(best.f + step - start) <= FARTHEST else best
            if own.rss < best.rss:
                best = own
                break
            step *= 0.5
        else:
            break
    return best


def _fitted(u: Array, residual: Array, f: float, H: int) -> _Fit:
    """Least squares with H harmonics of f periods over the range of u, and a quadratic trend."""
    h = np.arange(1, H + 1)
    basis = _waves(u, f, H)
    cosines, sines = basis[:, :H], basis[:, H : 2 * H]
    gram = basis.T @ basis

    def explained(values: Array) -> Array:
        return np.linalg.lstsq(gram, basis.T @ values, rcond=RANK)[0]

    weights = explained(residual)
    error = residual - basis @ weights
    a, b = weights[:H], weights[H : 2 * H]
    derivative = 2.0 * np.pi * u * (cosines @ (h * b) - sines @ (h * a))
    derivative -= basis @ explained(derivative)  # with the best weights at each f
    curvature = float(derivative @ derivative)
    step = float(np.clip(derivative @ error / curvature, -LONGEST, LONGEST)) if curvature > 0.0 else 0.0
    return _Fit(f, cosines @ a + sines @ b, float(error @ error), step)
