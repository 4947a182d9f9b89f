"""How good a prediction is: pure functions of held-out targets and of the predicted distributions of y.

Symbols (t test rows; y is observed, mu and v are the predicted mean and variance of y, which include the noise):

    rmse = sqrt(mean (y - mu)^2)
    smse = mean (y - mu)^2 / var(y)                                     Rasmussen & Williams 2006, section 2.5
    nlpd = mean [ log(2 pi v)/2 + (y - mu)^2 / (2 v) ]
    snlp = nlpd - nlpd of a Gaussian with the mean and variance of the TRAINING targets   (their MSLL; negative is good)
    coverage68, coverage95 = share of rows with |y - mu| <= z sqrt(v), for the z of a 68 % and a 95 % band

Where a distribution is not normal, nlpd is the mean of -log p(y), and a central band lies between two quantiles.
smse, snlp and the coverages do not change when the targets are shifted or scaled.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..data.standardising import targets
from ..errors import DataError
from ..posteriors import Marginals, NormalMarginals
from ..problem import Dataset

OF_VARIANCE = ("snlp", "nlpd", "coverage68", "coverage95")  # scores that depend on the predictive variance


def rmse(y: Tensor, mean: Tensor) -> float:
    """Root mean squared error, in the units of y."""
    return float((y - mean).square().mean().sqrt())


def smse(y: Tensor, mean: Tensor) -> float:
    """Mean squared error over the variance of the test targets: 1 is a constant at their mean, 0 is perfect.

    It is nan where the targets do not vary, as where there is one test row.
    """
    if not bool((y != y[:1]).any()):
        return math.nan
    return float((y - mean).square().mean() / y.var(correction=0))


def nlpd(y: Tensor, mean: Tensor, var: Tensor) -> float:
    """Mean negative log predictive density in nats. It changes by log c when y is multiplied by c."""
    return float(-NormalMarginals(mean, var).log_density(y).mean())


def coverage(y: Tensor, mean: Tensor, var: Tensor, level: float) -> float:
    """The share of rows inside the central band that should contain the share `level` of them."""
    z = math.sqrt(2) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))  # P(|N(0, 1)| <= z) = level
    return float(((y - mean).abs() <= z * var.sqrt()).double().mean())


def scores(y: Tensor, mean: Tensor, var: Tensor, train_y: Tensor) -> dict[str, float]:
    """All scores of this module.

    Parameters
    ----------
    y : Tensor
        Test targets [t].
    mean, var : Tensor
        Mean and variance of y [t] as predicted, with the noise included.
    train_y : Tensor
        Training targets [n], for the trivial model of snlp.

    Raises
    ------
    DataError
        If the shapes differ.
    """
    if not y.shape == mean.shape == var.shape:
        raise DataError(
            f"Scores need one mean and one variance per row; got {len(y):,} rows, {len(mean):,} means "
            f"and {len(var)} variances."
        )
    return scores_of(y, NormalMarginals(mean, var), train_y)


def errors_and_scores(
    marginals: Marginals, test: Dataset, train: Dataset
) -> tuple[tuple[Tensor, Tensor], dict[str, float]]:
    """Of scaled test rows, the squared errors and the negative log densities [t], and their scores.

    The distributions are in the units of the file.
    """
    y = targets(test.y, train)
    errors = ((marginals.moments[0] - y).square(), -marginals.log_density(y))
    return errors, scores_of(y, marginals, targets(train.y, train))


def scores_of(y: Tensor, marginals: Marginals, train_y: Tensor) -> dict[str, float]:
    """The same for distributions of any kind; the arguments are those of `scores`."""
    mean, probability = marginals.moments[0], marginals.cdf(y)  # [t] each
    density = float(-marginals.log_density(y).mean())
    trivial = torch.full_like(y, float(train_y.mean())), torch.full_like(y, float(train_y.var(correction=0)))
    central = 2.0 * (probability - 0.5).abs()  # [t] level of the central band that ends at the value
    return {
        "smse": smse(y, mean),
        "snlp": density - nlpd(y, *trivial),
        "rmse": rmse(y, mean),
        "nlpd": density,
        **{f"coverage{100 * level:.0f}": float((central <= level).double().mean()) for level in (0.68, 0.95)},
    }
