"""Scores against plain numpy formulas, and what shifting or scaling the targets does to each."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gpexplorer.errors import DataError
from gpexplorer.runs import scores


def predicted(shift: float = 0.0, scale: float = 1.0) -> tuple[torch.Tensor, ...]:
    """y, mean, var, train_y of 200 rows; the twin is the same in other units."""
    rng = torch.Generator().manual_seed(3)
    y, train = (torch.randn(200, generator=rng, dtype=torch.float64) for _ in range(2))
    mean = y + 0.4 * torch.randn(200, generator=rng, dtype=torch.float64)
    var = 0.1 + 0.2 * torch.rand(200, generator=rng, dtype=torch.float64)
    return scale * y + shift, scale * mean + shift, scale**2 * var, scale * train + shift


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (1e4, 250.0)])
def test_scores_are_the_textbook_formulas(shift: float, scale: float):
    y, mean, var, train = (values.numpy() for values in predicted(shift, scale))

    result = scores.scores(*predicted(shift, scale))

    def nll(mu: np.ndarray, v: np.ndarray) -> float:
        return float(np.mean(0.5 * np.log(2 * np.pi * v) + (y - mu) ** 2 / (2 * v)))

    assert result["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)), rel=1e-12)
    assert result["smse"] == pytest.approx(np.mean((y - mean) ** 2) / np.var(y), rel=1e-9)
    assert result["nlpd"] == pytest.approx(nll(mean, var), rel=1e-12)
    trivial = nll(np.full_like(y, train.mean()), np.full_like(y, train.var()))
    assert result["snlp"] == pytest.approx(nll(mean, var) - trivial, rel=1e-9)
    assert result["coverage68"] == np.mean(np.abs(y - mean) <= 0.994457883 * np.sqrt(var))
    assert result["coverage95"] == np.mean(np.abs(y - mean) <= 1.959963985 * np.sqrt(var))


@pytest.mark.parametrize("count", [1, 3])
def test_equal_test_targets_have_no_standardised_error(count: int):
    y = torch.full((count,), 0.1, dtype=torch.float64)
    values = scores.scores(y, y + 0.5, torch.ones_like(y), torch.tensor([0.0, 1.0], dtype=torch.float64))

    assert math.isnan(values["smse"])
    assert values["rmse"] == pytest.approx(0.5)


def test_units_change_rmse_and_nlpd_as_they_must_and_nothing_else():
    plain, in_other_units = scores.scores(*predicted()), scores.scores(*predicted(-700.0, 8.0))

    for name in ("smse", "snlp", "coverage68", "coverage95"):
        assert in_other_units[name] == pytest.approx(plain[name], rel=1e-9)
    assert in_other_units["rmse"] == pytest.approx(8 * plain["rmse"], rel=1e-9)
    assert in_other_units["nlpd"] == pytest.approx(plain["nlpd"] + math.log(8), rel=1e-9)


def test_a_prediction_no_better_than_none_scores_one_and_zero():
    y, _, _, _ = predicted(5.0, 3.0)
    mean, var = torch.full_like(y, float(y.mean())), torch.full_like(y, float(y.var(correction=0)))

    result = scores.scores(y, mean, var, y)

    assert result["smse"] == pytest.approx(1.0, rel=1e-12)
    assert result["snlp"] == pytest.approx(0.0, abs=1e-12)


def test_coverage_of_the_true_distribution_is_the_level():
    rng = torch.Generator().manual_seed(0)
    mean = 50 + torch.randn(20_000, generator=rng, dtype=torch.float64)
    y = mean + 2 * torch.randn(20_000, generator=rng, dtype=torch.float64)

    for level in (0.05, 0.5, 0.95):
        right, timid = (scores.coverage(y, mean, torch.full_like(y, v), level) for v in (4.0, 16.0))
        assert right == pytest.approx(level, abs=0.015)
        assert timid > level + 0.02


def test_scores_of_other_rows_are_refused():
    y, mean, var, train = predicted()

    with pytest.raises(DataError, match="got 199 rows, 200 means and 200 variances"):
        scores.scores(y[:-1], mean, var, train)
