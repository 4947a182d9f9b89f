"""Sparse models compared with dense least squares: weights, gains, the published choice, and the full set of rows."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from gpexplorer.linalg.randomness import generator
from gpexplorer.problem import Outcome
from oracles_gbcd import SHIFTS, ended, gram, noise, penalised_squares, quick, system, wavy

SPARSE = ["subset-of-regressors", "matching-pursuit"]


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("key", SPARSE)
def test_the_objective_equals_dense_least_squares_and_decreases(key: str, shift: float):
    task = wavy(shift)
    steps = list(quick(key, num_regressors=20, growth=4).steps(task))[1:]

    values = [step.info.objective for step in steps]
    assert values == sorted(values, reverse=True)
    assert [len(step.state.inducing) for step in steps] == [4, 8, 12, 16, 20]
    for step in steps:
        assert step.info.objective == pytest.approx(penalised_squares(task, step.state.inducing.tolist()), rel=1e-8)
        assert step.info.active.tolist() == step.state.inducing[-4:].tolist()


@pytest.mark.parametrize("shift", SHIFTS)
def test_matching_pursuit_chooses_the_row_whose_coefficient_alone_decreases_the_objective_most(shift: float):
    task = wavy(shift)
    method = quick("matching-pursuit", num_regressors=7, growth=1, chunk=1, pool=25)
    K, y, s2 = gram(task), task.train.y, noise(task)
    chosen: list[int] = []
    for step in islice(method.steps(task), 1, None):
        order = torch.randperm(80, generator=generator(0, "pool", len(chosen))).tolist()
        pool = [i for i in order if i not in chosen][:25]
        a = torch.linalg.solve(s2 * K[chosen][:, chosen] + K[chosen] @ K[:, chosen], K[chosen] @ y)
        decreases = {}
        for i in pool:
            derivative = K[i] @ (y - K[:, chosen] @ a) - s2 * K[i, chosen] @ a
            best = derivative / (K[i] @ K[i] + s2 * K[i, i])
            decreases[i] = penalised_squares(task, chosen, a) - penalised_squares(
                task, [*chosen, i], torch.cat([a, best[None]])
            )
        chosen.append(max(decreases, key=decreases.__getitem__))
        assert step.state.inducing.tolist() == chosen


def test_rows_chosen_for_the_fit_fit_better_than_random_ones():
    task = wavy(n=200)
    ends = {}
    for key in SPARSE:
        *_, last = quick(key, num_regressors=10, growth=5, chunk=1).steps(task)
        ends[key] = last.info.objective

    assert ends["matching-pursuit"] < 0.8 * ends["subset-of-regressors"]


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("key", SPARSE)
def test_with_all_rows_as_regressors_mean_and_variance_are_those_of_the_full_gp(key: str, shift: float):
    task = wavy(shift)
    method = quick(key, num_regressors=80, growth=20)
    *_, last = method.steps(task)
    X = task.train.X[:9] + 0.05
    k = task.kernel(task.theta, X, task.train.X)

    mean, var = method.posterior(task, last.state)(X)

    torch.testing.assert_close(mean, k @ torch.linalg.solve(system(task), task.train.y), rtol=1e-4, atol=1e-5)
    exact = task.kernel.diag(task.theta, X) - (k * torch.linalg.solve(system(task), k.T).T).sum(1)
    torch.testing.assert_close(var, exact, rtol=1e-3, atol=1e-5)


def test_the_chunk_size_changes_the_time_and_not_the_fit():
    task = wavy()
    ends = []
    for chunk in (1, 4, 30):
        *_, last = quick("subset-of-regressors", num_regressors=30, growth=30, chunk=chunk).steps(task)
        ends.append(last.state.inducing.tolist())
        assert last.info.objective == pytest.approx(penalised_squares(task, ends[0]), rel=1e-7)

    assert ends[0] == ends[1] == ends[2]


@pytest.mark.parametrize("key", SPARSE)
def test_with_duplicate_rows_it_stops_when_no_row_adds_anything(key: str):
    task = wavy(n=12)
    twice = type(task)(task.train.rows(torch.arange(12).repeat(3)), task.kernel, task.theta)
    method = quick(key, num_regressors=36, growth=5, chunk=1)
    *_, last = method.steps(twice)

    assert len(set((last.state.inducing % 12).tolist())) == len(last.state.inducing) == 12
    assert ended(method, twice) == Outcome(
        "converged", "12 regressors explain every other row: no further row adds anything."
    )


@pytest.mark.parametrize("precision", [torch.float64, torch.float32])
@pytest.mark.parametrize("key", SPARSE)
def test_rows_of_one_chunk_that_explain_each_other_are_skipped(key: str, precision: torch.dtype):
    task = wavy(n=60)
    theta = task.theta + torch.tensor([0.0, 1.5, 1.5, 0.0]).double()  # smooth: few rows explain all others
    rows = task.train.rows(torch.arange(60).repeat(2)).to("cpu", precision)
    twice = type(task)(rows, task.kernel, theta.to(precision))
    method = quick(key, num_regressors=120, growth=30, chunk=30)
    *_, last = method.steps(twice)
    chosen = last.state.inducing

    assert ended(method, twice).message.endswith("explain every other row: no further row adds anything.")
    assert len(set((chosen % 60).tolist())) == len(chosen) < 60
    task = type(task)(task.train, task.kernel, theta)
    K, y, s2 = gram(task)[:, chosen % 60], task.train.y, noise(task)
    V = torch.linalg.solve_triangular(torch.linalg.cholesky(K[chosen % 60]), K.T, upper=False).repeat(1, 2)  # [m, 120]
    A = V @ V.T + s2 * torch.eye(len(chosen), dtype=y.dtype)
    c = V @ y.repeat(2)
    assert last.info.objective == pytest.approx(float(y @ y - 0.5 * c @ torch.linalg.solve(A, c)), rel=1e-4)
