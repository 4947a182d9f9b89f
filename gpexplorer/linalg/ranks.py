"""Ranks and Spearman's correlation, in NumPy alone.

`scipy.stats` has both as well, but importing it takes half a second.
"""

from __future__ import annotations

import numpy as np


def ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 1, in the shape of the values. Equal values share the mean of their ranks. O(n log n)."""
    _, value_index, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - 0.5 * (counts - 1))[value_index].reshape(values.shape)


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's correlation coefficient of a [n] and b [n].

    It is the correlation coefficient of their ranks, and nan if a or b is constant.
    """
    a, b = (ranks(values) - 0.5 * (len(values) + 1) for values in (a, b))  # ranks minus their mean
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm > 0 else float("nan")
