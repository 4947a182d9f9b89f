"""How good a prediction is, as pure functions of held-out targets and the predicted Gaussians of y.

Legend (t test rows; y observed, mu and v predicted mean and variance of y, noise included):

    rmse = sqrt(mean (y - mu)^2)
    smse = mean (y - mu)^2 / var(y)                                     Rasmussen & Williams 2006, section 2.5
    nlpd = mean [ log(2 pi v)/2 + (y - mu)^2 / (2 v) ]
    snlp = nlpd - nlpd of a Gaussian with the mean and variance of the TRAINING targets  (their MSLL; negative is good)
    coverage68, coverage95 = share of rows with |y - mu| <= z sqrt(v), for the z that should hold 68 % and 95 %
    crps = mean sqrt(v) [ u (2 Phi(u) - 1) + 2 phi(u) - 1/sqrt(pi) ], u = (y - mu)/sqrt(v)   Gneiting & Raftery 2007

smse, snlp and the coverages do not change when the targets are shifted or scaled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import DataError

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Calibration(NamedTuple):
    """Share of rows [k] observed inside the central band expected to hold `expected` [k] of them."""

    expected: Tensor
    observed: Tensor


def rmse(y: Tensor, mean: Tensor) -> float:
    """Root mean squared error, in the units of y."""
    return float((y - mean).square().mean().sqrt())


def smse(y: Tensor, mean: Tensor) -> float:
    """Mean squared error over the variance of the test targets: 1 is a constant at their mean, 0 is perfect."""
    return float((y - mean).square().mean() / y.var(correction=0))


def nlpd(y: Tensor, mean: Tensor, var: Tensor) -> float:
    """Mean negative log predictive density, in nats; it moves by log c when y is scaled by c."""
    return float((HALF_LOG_2PI + 0.5 * var.log() + 0.5 * (y - mean).square() / var).mean())


def snlp(y: Tensor, mean: Tensor, var: Tensor, train_mean: float, train_var: float) -> float:
    """nlpd less that of the trivial model N(train_mean, train_var): below 0 is better than no model at all."""
    trivial = nlpd(y, torch.full_like(y, train_mean), torch.full_like(y, train_var))
    return nlpd(y, mean, var) - trivial


def coverage(y: Tensor, mean: Tensor, var: Tensor, level: float) -> float:
    """Share of rows inside the central band that should hold `level` of them."""
    return float(((y - mean).abs() <= _half_width(level) * var.sqrt()).double().mean())


def crps(y: Tensor, mean: Tensor, var: Tensor) -> float:
    """Continuous ranked probability score, in the units of y: the mean absolute error of a whole distribution."""
    sd = var.sqrt()
    u = (y - mean) / sd
    density = (-0.5 * u.square() - HALF_LOG_2PI).exp()
    return float((sd * (u * torch.erf(u / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))).mean())


def calibration(y: Tensor, mean: Tensor, var: Tensor, levels: Sequence[float] | None = None) -> Calibration:
    """Expected and observed shares at `levels` (0.05 ... 0.95); the diagonal is right, below it is overconfident."""
    expected = [round(0.05 * k, 2) for k in range(1, 20)] if levels is None else list(levels)
    observed = [coverage(y, mean, var, level) for level in expected]
    return Calibration(torch.tensor(expected, dtype=torch.float64), torch.tensor(observed, dtype=torch.float64))


def scores(y: Tensor, mean: Tensor, var: Tensor, train_y: Tensor) -> dict[str, float]:
    """Scores of the legend but crps, for test targets y [t] and predictions of y. DataError where shapes differ."""
    if not y.shape == mean.shape == var.shape:
        raise DataError(f"Scores need a mean and a variance a row; got {len(y)} rows, {len(mean)} and {len(var)}.")
    return {
        "smse": smse(y, mean),
        "snlp": snlp(y, mean, var, float(train_y.mean()), float(train_y.var(correction=0))),
        "rmse": rmse(y, mean),
        "nlpd": nlpd(y, mean, var),
        "coverage68": coverage(y, mean, var, 0.68),
        "coverage95": coverage(y, mean, var, 0.95),
    }


def _half_width(level: float) -> float:
    """z with P(|N(0, 1)| <= z) = level."""
    return math.sqrt(2) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))
