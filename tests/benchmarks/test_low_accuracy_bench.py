"""Falkon against dense least squares, averages over the last iterates, and the table of errors against seconds."""

from __future__ import annotations

from itertools import count, islice

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.low_accuracy import SOLVERS, at_marks, tail_averages
from benchmarks.low_accuracy.falkon import Falkon
from oracles_gbcd import SHIFTS, gram, noise, wavy


@pytest.mark.parametrize("budget", [0.0, 1e9])
@pytest.mark.parametrize("shift", SHIFTS)
def test_falkon_converges_to_the_subset_of_regressors_of_dense_algebra(shift: float, budget: float):
    task = wavy(shift)
    K, s2, y = gram(task), noise(task), task.train.y
    model = Falkon(task, 20, budget=budget, dtype=torch.float64)
    K_nm, K_mm = K[:, model.rows], K[model.rows][:, model.rows]
    expected = K_nm @ torch.linalg.solve(s2 * K_mm + K_nm.T @ K_nm, K_nm.T @ y)

    errors = [float((K_nm @ w - expected).norm() / expected.norm()) for w in islice(model.weights(), 25)]

    assert errors[-1] < 1e-6
    assert errors[0] > 1e-2


def test_falkon_with_all_rows_as_centres_is_the_full_gp():
    task = wavy(n=40)
    K, y = gram(task), task.train.y
    model = Falkon(task, 40, dtype=torch.float64)
    *_, w = islice(model.weights(), 60)

    expected = K @ torch.linalg.solve(K + noise(task) * torch.eye(40, dtype=K.dtype), y)
    torch.testing.assert_close(K[:, model.rows] @ w, expected, rtol=1e-4, atol=1e-4)


def test_falkon_in_float32_has_the_same_mean_to_rounding():
    task = wavy()
    means = []
    for dtype in (torch.float64, torch.float32):
        model = Falkon(task, 20, dtype=dtype)
        *_, w = islice(model.weights(), 25)
        means.append(gram(task)[:, model.rows] @ w)

    torch.testing.assert_close(means[1], means[0], rtol=0, atol=1e-3)


def test_averages_are_over_the_second_half_at_least_and_never_over_all():
    vectors = [torch.tensor([float(k * k)]) for k in range(1, 33)]

    for number, average in enumerate(tail_averages(vectors), 1):
        begin = max(2 ** (number.bit_length() - 2), 1)  # the first of the iterates that are averaged
        assert float(average) == pytest.approx(sum(k * k for k in range(int(begin), number + 1)) / (number - begin + 1))
        assert number < 3 or begin <= number / 2 + 1


def test_a_mark_scores_the_last_iterate_that_was_there():
    clock = count()  # each iterate takes one second
    scores, taken = at_marks(iter("abcdef"), [0.5, 2.0, 3.5, 4.0], lambda weights: weights, lambda: float(next(clock)))

    assert scores == [None, "b", "c", "d"]
    assert taken == 4
    ended, taken = at_marks(iter("ab"), [1.0, 9.0], lambda weights: weights, lambda: float(next(clock)))
    assert (ended, taken) == (["a", "b"], 2)


def test_the_command_prints_an_error_for_every_solver_and_mark():
    result = CliRunner().invoke(app, ["low-accuracy", "--data", "friedman1", "--n", "120", "--marks", "0.05,0.1"])

    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines()[2:] if line.strip()]
    assert len(lines) == len(SOLVERS)
    errors = [float(line[24:].split()[1]) for line in lines]
    assert min(errors) < 0.5  # 1 is the error of the mean of the targets
    assert [line[:24].strip() for line in lines] == [name.strip() for name in SOLVERS]
