"""What is asked about the rows before an answer: thresholds of leaks and outliers, in any unit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import ndtri

from gpexplorer.data import load
from gpexplorer.data.given_folds import Pair
from gpexplorer.problem import Dataset
from gpexplorer.recommendation.row_questions import (
    far_rows,
    findings,
    gross_errors,
    outliers,
    pairs_without_gross_errors,
)


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


TARGETS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "lognormal": lambda rng, n: np.exp(2.0 * rng.standard_normal(n)),
    "of both signs": lambda rng, n: np.exp(2.0 * rng.standard_normal(n)) * rng.choice([-1.0, 1.0], n),
    "t": lambda rng, n: rng.standard_t(2.0, n),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.8, 0.0, np.exp(rng.standard_normal(n))),
    "counts": lambda rng, n: rng.poisson(0.3, n).astype(float),
}


@pytest.mark.parametrize("kind", list(TARGETS))
@pytest.mark.parametrize("n", [300, 6000])
def test_gross_errors_are_behind_a_gap_that_is_too_large_for_the_tail(kind: str, n: int):
    rng = np.random.default_rng(5)
    X, y = rng.uniform(-2.0, 2.0, (n, 3)), TARGETS[kind](rng, n)

    def apart(targets: np.ndarray) -> list[int]:
        return gross_errors(Dataset(torch.tensor(X), torch.tensor(targets), ("a", "b", "c"), "t")).tolist()

    assert apart(y) == []  # a heavy tail belongs to its target
    wrong, rows = y.copy(), [7, 40, 41, 200, 299]
    wrong[rows] = y.std() * (10.0 ** np.array([6, 7, 8, 6, 7]))
    assert apart(wrong) == rows
    assert apart(-1e-9 * wrong) == rows
    one = y.copy()
    one[9] = -1e6 * y.std()
    assert apart(one) == [9]
    if kind == "normal":
        wrong[rows] = [1e3, 1e4, 40.0, 1e8, -1e3]
        assert apart(wrong) == rows


def test_a_high_narrow_peak_of_near_rows_and_a_pole_are_no_errors():
    rng = np.random.default_rng(6)
    x = np.sort(rng.uniform(-1.0, 1.0, 400))[:, None]
    for y in (1e6 * np.exp(-((x[:, 0] / 0.03) ** 2)) + rng.standard_normal(400), x[:, 0] ** -3):
        assert gross_errors(Dataset(torch.tensor(x), torch.tensor(y), ("a",), "t")).tolist() == []


def test_given_folds_lose_their_gross_errors_and_findings_keep_the_numbers_of_the_file():
    rng = np.random.default_rng(7)
    X, y = np.column_stack([np.arange(100.0), rng.random(100)]), rng.standard_normal(100)
    y[[3, 50]] = 1e6, 25.0
    rows = Dataset(torch.tensor(X), torch.tensor(y), ("a", "b"), "t")
    pairs = [Pair(np.array([0, 3, 5]), np.array([2, 4, 99])), Pair(np.array([1]), np.array([3]))]
    (pair,) = pairs_without_gross_errors(pairs, rows)
    assert (pair.train.tolist(), pair.test.tolist()) == ([0, 4], [2, 3, 98])
    words = found(X, y)
    assert "1 row (4) lies 1e+06 or more" in words
    assert "No model has learned from it, and no expected error counts it." in words
    assert "1 row (51) lies 2" in words
    assert '"a" counts the rows from 0 to 99' in words


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
