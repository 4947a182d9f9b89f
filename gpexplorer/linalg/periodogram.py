"""Waves in a target over one input: the peaks of the periodogram of rows that need not be evenly spaced.

    P(f) = 2 |sum_i r_i exp(-2 pi i f x_i)|^2 / (n sum_i r_i^2)

r is what a quadratic trend leaves of y. P(f) is about the share of its variance that a wave with f periods per unit of
x explains. For white noise n P / 2 has the exponential distribution with mean 1. Rows are spread over the two nearest
cells of a fine grid, so that one FFT gives all frequencies in O(n + N log N) for N cells.

References
----------
Press, W. and Rybicki, G. (1989). Fast algorithm for spectral analysis of unevenly sampled data. ApJ 338.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FEWEST_VALUES = 16  # different values of the input
LEAST_WAVES, MOST_WAVES = 2.5, 16_384  # periods over the range of the input
CELLS = 8  # cells of the grid per period of the shortest wave
PADDING = 4  # the grid is continued with zeros to this multiple, for frequencies between whole numbers of periods
NULL_MARGIN = 9.0  # n P / 2 of a peak above log of the number of frequencies; noise reaches it once in 8000
BACKGROUND = 12.0  # a peak is this multiple of the median power of the frequencies below it, and of those above it
NEIGHBOURHOOD = 3.0  # of a peak: frequencies up to this factor below and above
WIDTH = 1.0  # waves: frequencies closer to a peak than this belong to it


class Peak(NamedTuple):
    """A wave.

    Attributes
    ----------
    frequency : float
        Periods per unit of the input.
    share : float
        The share of the variance around a trend that the wave explains, 0 to 1.
    """

    frequency: float
    share: float


def without_trend(x: Array, y: Array, degree: int = 2) -> Array:
    """What a polynomial of x leaves of y."""
    u = (x - x.mean()) / max(float(x.std()), np.finfo(float).tiny)
    basis = u[:, None] ** np.arange(degree + 1)
    return y - basis @ np.linalg.lstsq(basis, y, rcond=None)[0]


def peaks(x: Array, y: Array, count: int = 3) -> list[Peak]:
    """The waves that stand out of the noise and of the frequencies around them, the strongest first.

    Parameters
    ----------
    x, y : array [n]
        Input and target.
    count : int, default 3
        The most that are returned.

    Notes
    -----
    A random walk has much power at low frequencies, but no frequency stands out of its neighbourhood. Waves with fewer
    than 2.5 periods in the range of x, or shorter than two mean distances between values, are not looked for.
    """
    values = len(np.unique(x))
    span = float(np.ptp(x))
    if values < FEWEST_VALUES or not np.isfinite(span) or span <= 0.0:
        return []
    residual = without_trend(x, y)
    total = float(residual @ residual)
    if total <= np.finfo(float).eps * max(float(y @ y), np.finfo(float).tiny):
        return []
    waves, power = _spectrum((x - x.min()) / span, residual, min((values - 1) // 2, MOST_WAVES))
    power *= 2.0 / (len(x) * total)
    is_peak = np.r_[False, (power[1:-1] > power[:-2]) & (power[1:-1] >= power[2:]), False] & (waves >= LEAST_WAVES)
    least = 2.0 * (np.log(len(waves)) + NULL_MARGIN) / len(x)
    result = list[Peak]()
    for place in sorted(np.flatnonzero(is_peak & (power > least)), key=lambda place: -power[place]):
        if len(result) == count:
            break
        is_apart = all(abs(waves[place] / span - peak.frequency) * span > 1.5 * WIDTH for peak in result)
        if is_apart and power[place] > BACKGROUND * _background(waves, power, waves[place]):
            result.append(Peak(float(waves[place] / span), float(min(power[place], 1.0))))
    return result


def _background(waves: Array, power: Array, wave: float) -> float:
    """The larger of the median powers below and above a peak: a falling spectrum is not a peak."""
    sides = [(wave / NEIGHBOURHOOD, wave - WIDTH), (wave + WIDTH, wave * NEIGHBOURHOOD)]
    near = [power[np.searchsorted(waves, low, "right") : np.searchsorted(waves, high)] for low, high in sides]
    return max((float(np.median(side)) for side in near if len(side)), default=0.0)


def _spectrum(u: Array, residual: Array, most: int) -> tuple[Array, Array]:
    """The numbers of periods [w] and |sum_i r_i exp(-2 pi i f u_i)|^2 [w] for u in [0, 1]."""
    cells = 1 << int(np.ceil(np.log2(CELLS * most)))
    place = u * (cells - 1)
    left = np.minimum(place.astype(np.int64), cells - 2)
    right_share = place - left
    grid = np.bincount(left, residual * (1.0 - right_share), cells)
    grid += np.bincount(left + 1, residual * right_share, cells)
    count = int(most * PADDING * cells / (cells - 1)) + 1
    power = np.square(np.abs(np.fft.rfft(grid, PADDING * cells)[:count]))
    return np.arange(count) * (cells - 1) / (PADDING * cells), power
