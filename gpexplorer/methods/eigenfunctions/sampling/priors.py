"""Log-normal priors told by their mode and variance, as Evans and Nair (2018) print them.

x ~ LN(mu, tau^2):  mode = exp(mu - tau^2),  var = (g - 1) g exp(2 mu),  g = exp(tau^2)
var / mode^2 = g^3 (g - 1),  mu = log mode + tau^2;  log x ~ N(mu, tau^2) is what a chain on log x sees
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.optimize import brentq


class LogNormal(NamedTuple):
    """Mean and standard deviation of log x."""

    mu: float
    tau: float


def log_normal(mode: float, variance: float) -> LogNormal:
    """The prior with this mode and variance, both positive."""
    ratio = variance / mode**2
    tau2 = brentq(lambda t: 3.0 * t + math.log(math.expm1(t)) - math.log(ratio), 1e-300, 1.0 + math.log1p(ratio))
    return LogNormal(math.log(mode) + tau2, math.sqrt(tau2))
