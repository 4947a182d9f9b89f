"""Ranks against SciPy's, ties included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from gpexplorer.linalg.ranks import rank_correlation, ranks


@pytest.mark.parametrize("shift", [0.0, -1e6])
@pytest.mark.parametrize("kinds", [3, 1000])
def test_ranks_and_their_correlation_are_scipys(kinds: int, shift: float) -> None:
    a, b = np.random.default_rng(kinds).integers(kinds, size=(2, 60)) + shift
    assert np.array_equal(ranks(a), stats.rankdata(a))
    assert np.array_equal(ranks(a.reshape(4, 15)), stats.rankdata(a).reshape(4, 15))
    assert rank_correlation(a, b) == pytest.approx(float(stats.spearmanr(a, b).statistic), abs=1e-14)
    assert rank_correlation(a, a**3 if shift == 0 else a) == pytest.approx(1.0)


def test_a_constant_correlates_with_nothing() -> None:
    assert math.isnan(rank_correlation(np.ones(5), np.arange(5.0)))


def test_two_rows_correlate_fully() -> None:
    assert rank_correlation(np.array([1.0, 2.0]), np.array([7.0, 3.0])) == pytest.approx(-1.0)
