"""Power laws through measured points: log v = a + s log x + e, fitted by least squares, refused where it says little.

Intervals are Student's t with k - 2 degrees of freedom: of the slope s, and of a new measurement at another x.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

LEVEL = 0.95
FEWEST = 4  # points: two degrees of freedom for the interval
SPAN = 4.0  # largest x over smallest x
LEAST_R2 = 0.9
SCATTER = 0.1  # residual sd of log v below which a flat line, whose R^2 says nothing, is a good fit
WIDEST = 0.75  # half width of the slope's interval: beyond it n and n^2 are hard to tell apart


@dataclass(frozen=True)
class Slope:
    """A fitted power law; `refused` says why it must not be used, and is empty where it may be."""

    power: float
    low: float
    high: float
    r2: float
    count: int
    refused: str = ""
    _line: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)  # mean of log x, of log v, their S_xx, residual sd

    @property
    def sentence(self) -> str:
        """What the fit says, or why it says nothing."""
        if self.refused:
            return self.refused
        fit = f"R² {self.r2:.3f}, {self.count} points"
        return f"grows like x^{self.power:.2f} ({LEVEL:.0%} interval {self.low:.2f} to {self.high:.2f}; {fit})"

    def at(self, x: float) -> tuple[float, float, float]:
        """Value at x with the interval of a new measurement there: (value, low, high). Only where not refused."""
        if self.refused:
            raise ValueError(self.refused)
        x_mean, v_mean, s_xx, sd = self._line
        away = math.log(x) - x_mean
        centre = v_mean + self.power * away
        half = _t(self.count) * sd * math.sqrt(1 + 1 / self.count + away**2 / s_xx)
        return math.exp(centre), _exp(centre - half), _exp(centre + half)


def fit(x: Sequence[float], values: Sequence[float]) -> Slope:
    """The power law through these points; those not positive and finite are left out. Never raises."""
    kept = [(math.log(a), math.log(v)) for a, v in zip(x, values, strict=True) if _usable(a) and _usable(v)]
    count, sizes = len(kept), {round(a, 12) for a, _ in kept}
    if len(sizes) < FEWEST:
        return _nothing(count, f"No slope from {len(sizes)} sizes: measure {FEWEST} different ones at least.")
    if max(sizes) - min(sizes) < math.log(SPAN) - 1e-9:
        return _nothing(count, f"No slope from sizes within a factor of {SPAN:g}: measure over a wider range.")
    u, v = np.array(kept).T
    s_xx = float(((u - u.mean()) ** 2).sum())
    power = float(((u - u.mean()) * (v - v.mean())).sum() / s_xx)
    rest = v - v.mean() - power * (u - u.mean())
    sd, total = math.sqrt(float(rest @ rest) / (count - 2)), float(((v - v.mean()) ** 2).sum())
    r2 = 1.0 - float(rest @ rest) / total if total > 0 else 1.0
    half = _t(count) * sd / math.sqrt(s_xx)
    line = (float(u.mean()), float(v.mean()), s_xx, sd)
    return Slope(power, power - half, power + half, r2, count, _doubt(r2, sd, half), line)


def scaling_factor(n_a: float, n_b: float, seconds_a: float, seconds_b: float) -> float:
    """(CT_A / CT_B) / (n_A / n_B): 1 where time grows with n, 2 where doubling n takes four times as long."""
    return (seconds_a / seconds_b) / (n_a / n_b)


def _doubt(r2: float, sd: float, half: float) -> str:
    if r2 < LEAST_R2 and sd > SCATTER:
        return f"The points do not lie on a power law (R² {r2:.2f}, {LEAST_R2:g} wanted): measure larger sizes."
    if half > WIDEST:
        return f"The slope is known to ±{half:.2f} only (±{WIDEST:g} wanted): measure more or larger sizes."
    return ""


def _nothing(count: int, why: str) -> Slope:
    return Slope(math.nan, math.nan, math.nan, math.nan, count, why)


def _usable(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _t(count: int) -> float:
    return float(stdtrit(count - 2, 0.5 + LEVEL / 2))


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
