"""Power laws through measured points: log v = a + s log x + e, fitted by least squares.

A fit that says little is refused with the reason. Intervals are Student's t with k - 2 degrees of freedom, for k
points: one for the slope s of the line in logarithmic axes, and one for a new measurement at another x.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
FEWEST = 4  # points: two degrees of freedom for the interval
SPAN = 4.0  # the largest x must be at least this multiple of the smallest
LEAST_R2 = 0.9
SCATTER = 0.1  # a residual sd of log v below this one is a good fit, even of a constant, for which R^2 says nothing
WIDEST = 0.75  # half width of the slope's interval: with a wider one, n and n^2 are hard to tell apart


@dataclass(frozen=True)
class Slope:
    """A fitted power law.

    Attributes
    ----------
    power : float
        The slope s: v grows like x^s.
    low, high : float
        Its 95 % interval.
    r2 : float
        The share of the variance of log v that the law explains.
    count : int
        The number of points.
    refused : str
        Why the fit must not be used; empty if it may be used.
    """

    power: float
    low: float
    high: float
    r2: float
    count: int
    refused: str = ""
    _line: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)  # mean of log x, of log v, their S_xx, residual sd

    @property
    def sentence(self) -> str:
        """What the fit says, or why it is refused."""
        if self.refused:
            return self.refused
        fit = f"R² {self.r2:.3f}, {self.count:,} points"
        return f"grows like x^{self.power:.2f} ({LEVEL:.0%} interval {self.low:.2f} to {self.high:.2f}; {fit})"

    def at(self, x: float) -> tuple[float, float, float]:
        """The value at x with the 95 % interval of a new measurement there: (value, low, high).

        Raises
        ------
        ValueError
            If the fit is refused.
        """
        if self.refused:
            raise ValueError(self.refused)
        x_mean, v_mean, s_xx, sd = self._line
        distance = math.log(x) - x_mean
        centre = v_mean + self.power * distance
        half_width = _t(self.count) * sd * math.sqrt(1 + 1 / self.count + distance**2 / s_xx)
        return math.exp(centre), _exp(centre - half_width), _exp(centre + half_width)


def fit(x: Sequence[float], values: Sequence[float]) -> Slope:
    """Fit a power law through points. Points that are not positive and finite are left out. It never raises.

    Parameters
    ----------
    x, values : sequence of float
        The points.

    Returns
    -------
    Slope
        Its `refused` is not empty if there are too few sizes, they span too little, or the points scatter too much.
    """
    points = [(math.log(a), math.log(v)) for a, v in zip(x, values, strict=True) if _usable(a) and _usable(v)]
    count, sizes = len(points), {round(log_x, 12) for log_x, _ in points}
    if len(sizes) < FEWEST:
        return _refused(count, f"No slope from {len(sizes)} sizes: measure {FEWEST} different ones at least.")
    if max(sizes) - min(sizes) < math.log(SPAN) - 1e-9:
        return _refused(count, f"No slope from sizes within a factor of {SPAN:g}: measure over a wider range.")
    u, v = np.array(points).T
    s_xx = float(((u - u.mean()) ** 2).sum())
    power = float(((u - u.mean()) * (v - v.mean())).sum() / s_xx)
    residual = v - v.mean() - power * (u - u.mean())
    sd, total = math.sqrt(float(residual @ residual) / (count - 2)), float(((v - v.mean()) ** 2).sum())
    r2 = 1.0 - float(residual @ residual) / total if total > 0 else 1.0
    half_width = _t(count) * sd / math.sqrt(s_xx)
    line = (float(u.mean()), float(v.mean()), s_xx, sd)
    return Slope(
        power=power, low=power - half_width, high=power + half_width, r2=r2, count=count,
        refused=_reason_to_refuse(r2, sd, half_width), _line=line,
    )  # fmt: skip


def compared(fits: Mapping[str, Slope]) -> str:
    """Say which of several quantities grows fastest, as far as the intervals of their powers tell.

    Parameters
    ----------
    fits : mapping of str to Slope
        Name of each quantity -> its power law; at least two.

    Returns
    -------
    str
        A sentence. It names one only if its interval lies above those of all others.
    """
    if any(fitted.refused for fitted in fits.values()):
        return "Without all slopes it cannot be told which grows faster."
    fastest = max(fits, key=lambda name: fits[name].power)
    if all(fits[fastest].low > fitted.high for name, fitted in fits.items() if name != fastest):
        return f"{fastest} grows faster: the intervals do not overlap."
    return "The intervals overlap, so these sizes do not tell which grows faster."


def scaling_factor(n_a: float, n_b: float, seconds_a: float, seconds_b: float) -> float:
    """(CT_A / CT_B) / (n_A / n_B): 1 if time grows with n, 2 if doubling n takes four times as long."""
    return (seconds_a / seconds_b) / (n_a / n_b)


def _reason_to_refuse(r2: float, sd: float, half_width: float) -> str:
    if r2 < LEAST_R2 and sd > SCATTER:
        return f"The points do not lie on a power law (R² {r2:.2f}, {LEAST_R2:g} wanted): measure larger sizes."
    if half_width > WIDEST:
        return f"The slope is known to ±{half_width:.2f} only (±{WIDEST:g} wanted): measure more or larger sizes."
    return ""


def _refused(count: int, reason: str) -> Slope:
    return Slope(power=math.nan, low=math.nan, high=math.nan, r2=math.nan, count=count, refused=reason)


def _usable(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _t(count: int) -> float:
    """Student's t for a two-sided interval of the level, with count - 2 degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(count - 2, 0.5 + LEVEL / 2))


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
