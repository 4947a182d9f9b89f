"""Whether the 95 % intervals of a model fit the rows that were held out, said in sentences.

One noise variance for all rows cannot fit a target whose errors grow with its size, such as a price: the intervals are
then too wide where predictions are low and too narrow where they are high, although the right share of all rows lies
in them. Such a target is often fitted better as its logarithm.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from ..data.quoting import quote
from .held_out import Array, RowScores

PROMISED = 0.95  # the level of the intervals
LEAST_THIRD = 40  # rows in a third of the predictions, below which the thirds are not compared
UNEQUAL = 1.6  # ratio of the errors in standard deviations of two thirds, from which the widths do not fit
GROWING = 2.0  # ratio of the errors of two thirds, from which they are said to grow
SMALLEST = 1e-12  # probability, so that its normal quantile is finite
TOO_FEW = 3.0  # standard errors by which the share of rows in their interval is too low


def share_inside(scores: RowScores) -> float:
    """The share of held-out rows in their 95 % interval."""
    return scores.inside(PROMISED)


def band_sentences(scores: RowScores, target: str) -> tuple[str, ...]:
    """Say how many held-out rows lie in their 95 % interval, and where the intervals have the wrong width.

    Parameters
    ----------
    scores : RowScores
        Predictions of the held-out rows, in the units of the file.
    target : str
        The name of the target.
    """
    errors = scores.targets - scores.mean  # [t]
    in_sd = ndtri(np.clip(scores.probability, SMALLEST, 1.0 - SMALLEST))  # of a normal distribution
    share = share_inside(scores)
    sentence = f"{100 * share:.0f} % of these rows lie in their 95 % interval"
    if share < PROMISED - TOO_FEW * math.sqrt(PROMISED * (1 - PROMISED) / len(errors)):
        sentence += ", which is too few: the intervals are too narrow"
    third = len(errors) // 3
    if third < LEAST_THIRD:
        return (f"{sentence}.",)
    order = np.argsort(scores.mean, kind="stable")
    low, high = order[:third], order[-third:]
    ratio = _rms(in_sd[high]) / max(_rms(in_sd[low]), np.finfo(float).tiny)
    if 1 / UNEQUAL < ratio < UNEQUAL:
        return (f"{sentence}.",)
    widths = ("too wide", "too narrow") if ratio > 1 else ("too narrow", "too wide")
    first = (
        f"{sentence}, but the intervals have the wrong widths: they are {widths[0]} for the third with the lowest "
        f"predictions, where the error (RMSE) is {_rms(errors[low]):.3g}, and {widths[1]} for the third with the "
        f"highest, where it is {_rms(errors[high]):.3g}."
    )
    if ratio > 1 and scores.targets.min() > 0 and _rms(errors[high]) >= GROWING * _rms(errors[low]):
        return first, (
            f"All values of {quote(target)} are positive and errors grow with them: try target_transform='log', which "
            f"models the logarithm of {quote(target)}."
        )
    return (first,)


def _rms(values: Array) -> float:
    return float(np.sqrt(np.square(values).mean()))
