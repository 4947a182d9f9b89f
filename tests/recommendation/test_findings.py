"""What is asked about the rows before an answer: thresholds of leaks and outliers, in any unit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import ndtri

from gpexplorer.data import load
from gpexplorer.problem import Dataset
from gpexplorer.recommendation.row_questions import far_rows, findings, outliers


def found(X: np.ndarray, y: np.ndarray) -> str:
    """All sentences on these rows."""
    names = tuple("abcdef"[: X.shape[1]])
    return " ".join(
        findings(Dataset(torch.tensor(X, dtype=torch.float64), torch.tensor(y, dtype=torch.float64), names, "t"))
    )


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_a_row_far_from_its_neighbours_is_found_in_any_unit_even_amid_all_targets(unit: float, shift: float):
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 1.0, 400)
    y = 100.0 * x + 0.2 * rng.standard_normal(400)
    y[200] += 30.0
    assert far_rows(x[:, None], unit * (y + shift)).tolist() == [200]
    level = np.zeros(400)
    level[[3, 9]] = 1.0, 500.0
    assert 9 in far_rows(x[:, None], unit * level)


def test_a_skewed_positive_target_has_no_outliers_and_its_mirror_image_has():
    X, y = np.random.default_rng(1).random((100, 2)), np.exp(ndtri(np.arange(1, 101) / 102))
    y[99] = 20.0
    assert outliers(X, y).tolist() == []
    assert outliers(X, -y).tolist() == [99]


@pytest.mark.parametrize(("levels", "is_leak"), [(9, False), (10, True)])
def test_a_copy_of_the_target_is_a_leak_from_ten_values_on(levels: int, is_leak: bool):
    rng = np.random.default_rng(2)
    y = np.repeat(np.arange(float(levels)), 100)
    words = found(np.column_stack([3.0 * y + 7.0, rng.random(len(y))]), y)
    assert ('"a" alone explains' in words) == is_leak
    assert "alone explains" not in found(3.0 * y[:, None], y)  # the only input may explain all


def test_a_smooth_curve_that_falls_and_rises_is_no_leak():
    x = np.linspace(-1.0, 2.0, 400)
    assert "alone explains" not in found(np.column_stack([x, np.random.default_rng(3).random(400)]), x**2)
    rising = found(np.column_stack([x, np.random.default_rng(3).random(400)]), np.exp(x))
    assert '"a" alone explains 100.00 % of the variance of "t"' in rising


def drawn(kind: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    y = {"normal": rng.standard_normal, "skewed": lambda n: np.exp(1.5 * rng.standard_normal(n)) + 2.0}[kind](n)
    return y, rng.random(n)


@pytest.mark.parametrize("n", [40, 100, 1500])
@pytest.mark.parametrize("kind", ["normal", "skewed"])
@pytest.mark.parametrize(
    "copy", [lambda y: 7.3 * y, lambda y: 500.0 - y, lambda y: np.round(40.0 * y), lambda y: np.exp(-0.1 * y)]
)
def test_a_copy_in_other_units_is_a_leak_at_every_size_and_skew(copy, kind: str, n: int):
    y, other = drawn(kind, n)
    words = found(np.column_stack([other, copy(y)]), y)
    assert '"b" ' in words
    assert 'if it is not known before "t" is, leave it out.\ndrop=["b"] leaves it out.' in words
    noisy = copy(y) + 0.2 * copy(y).std() * np.random.default_rng(4).standard_normal(n)
    assert "known before" not in found(np.column_stack([other, noisy]), y)


def test_logarithms_are_leaks_and_a_curve_that_is_no_line_names_its_order():
    y, other = drawn("skewed", 300)
    assert '"b" alone explains 100.00 %' in found(np.column_stack([other, np.log(y)]), y)
    assert '"b" alone explains 100.00 %' in found(np.column_stack([other, 3.0 * y**2]), y)
    assert '"b" puts all rows in the order of "t"' in found(np.column_stack([other, np.arctan(y - 20.0)]), y)


def test_a_copy_with_gaps_is_compared_where_it_has_values():
    y, other = drawn("skewed", 200)
    copy = np.where(np.arange(200) % 6 == 1, np.nan, 0.9 * y)
    frame = pd.DataFrame({"other": other, "paid": copy, "t": y})
    assert '"paid" alone explains 100.00 %' in " ".join(findings(load(frame, split="all").train))


def test_a_target_that_is_a_sum_of_inputs_is_asked_about_and_a_simulator_is_not():
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.poisson(40, 200), rng.random(200), rng.poisson(900, 200), rng.poisson(9, 200)])
    words = found(X, X[:, 0] + X[:, 2])
    assert '"t" is "a" + "c" in every row: if these are not known before "t" is, leave them out.' in words
    assert 'drop=["a", "c"] leaves them out.' in words
    assert '"t" is "c" - "a" in every row' in found(X, X[:, 2] - X[:, 0])
    assert "in every row" not in found(X, X[:, 0] + 0.7 * X[:, 2])
    assert "in every row" not in found(X, X[:, 0] + X[:, 2] + 0.01 * rng.standard_normal(200))
    assert "in every row" not in found(X, X[:, 0] + X[:, 2] + 5.0)


def test_copies_and_counters_are_named():
    rng = np.random.default_rng(6)
    a, b = rng.random(30), rng.random(30)
    words = found(np.column_stack([a, 5.0 - 2.0 * a, b, np.arange(30.0) + 4]), rng.random(30))
    assert '"b" is a copy of "a", up to a factor and a shift' in words
    assert '"d" counts the rows from 4 to 33' in words
