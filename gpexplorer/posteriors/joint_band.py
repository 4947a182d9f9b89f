"""Bands that contain a whole function at once, and not only each of its values by itself.

    P(|f(x_i) - mean_i| <= c sd_i for all i) = level            c from samples of the joint distribution

The usual band mean +- 2 sd contains each value with probability 95 %, and a function with many values much less often.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from ..data.standardising import scaled_inputs, targets
from ..errors import SettingError
from .base import Posterior
from .in_units import TransformedInUnits


class JointBand(NamedTuple):
    """A band [t] that contains f at all t rows with the given probability, and its half width in sd.

    If the target is transformed, the half width is that of the band of the scaled function.
    """

    lower: Tensor
    upper: Tensor
    factor: float


def joint_band(posterior: Posterior, X: Any, level: float = 0.95, size: int = 2000, seed: int = 0) -> JointBand:
    """Compute a simultaneous band of f.

    Parameters
    ----------
    X : Tensor [t, d], array, frame or sequence
        Inputs, t <= 5000.
    level : float, default 0.95
        Probability with which the band contains f at all rows.
    size : int, default 2000
        Number of samples from which the width is estimated; the error of the probability is about
        (level (1 - level) / size)^1/2.
    seed : int, default 0
        Of the samples.

    Raises
    ------
    SettingError
        If the level is not between 0 and 1.
    PosteriorError
        If the posterior has no joint samples.

    Notes
    -----
    An eigendecomposition of the covariance, about 9 t^3 flops.
    """
    if not 0.0 < level < 1.0:
        raise SettingError(f"level is {level!r}; give a probability between 0 and 1, such as 0.95.")
    if isinstance(posterior, TransformedInUnits):  # the transform of a band contains the transform of a function
        scaled = joint_band(posterior.inner, scaled_inputs(posterior.rows(X), posterior.columns), level, size, seed)
        lower, upper = (targets(end, posterior.columns) for end in (scaled.lower, scaled.upper))
        return JointBand(lower, upper, scaled.factor)
    mean, sd = posterior.mean(X), posterior.sd(X, noise=False)
    largest = sd.max().clamp_min(1e-300)
    deviations = (posterior.sample(X, size, seed, noise=False) - mean).abs() / sd.clamp_min(1e-9 * largest)  # [size, t]
    factor = float(deviations.amax(1).double().quantile(level))
    return JointBand(mean - factor * sd, mean + factor * sd, factor)
