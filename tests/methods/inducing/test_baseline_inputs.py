"""k-means, initial sets and the subset of data, against sums over rows and dense algebra."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from baseline_problems import SHIFTS, problem, trajectory
from gpexplorer import kernels, methods
from gpexplorer.errors import SettingError
from gpexplorer.methods.inducing.initial_sets import STARTS, lloyd, spread_rows, start_inputs, start_rows
from gpexplorer.methods.own_points import nearest
from gpexplorer.problem import Dataset, Problem
from oracles import dense_objective, exact_nlml, exact_prediction


@pytest.mark.parametrize("shift", SHIFTS)
def test_an_iteration_moves_each_centre_to_the_mean_of_its_rows(shift: float) -> None:
    X = problem(shift, n=80).train.X
    Z, spreads = X[spread_rows(X, 7, seed=0)], []
    for _ in range(12):
        labels = (X[:, None] - Z[None]).square().sum(2).argmin(1)
        assert torch.equal(nearest(X, Z).indices, labels)
        expected = torch.stack([X[labels == j].mean(0) for j in range(7)])
        spread = float((X - Z[labels]).square().sum(1).mean())
        Z, reported = lloyd(X, Z)
        assert torch.allclose(Z, expected, rtol=1e-12)
        assert reported == pytest.approx(spread, rel=1e-9)
        spreads.append(reported)
    assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(spreads))
    assert spreads[-1] < 0.8 * spreads[0]


def test_centres_start_on_distinct_rows_and_a_centre_without_rows_stays() -> None:
    X = torch.tensor([[0.0], [0.0], [1.0], [1.0], [5.0]], dtype=torch.float64)
    assert sorted(X[spread_rows(X, 5, seed=1)][:, 0].tolist()) == [0.0, 1.0, 5.0]
    Z, _ = lloyd(X, torch.tensor([[0.4], [5.0], [99.0]], dtype=torch.float64))
    assert Z[:, 0].tolist() == [0.5, 5.0, 99.0]


@pytest.mark.parametrize("shift", SHIFTS)
def test_kmeans_ends_at_a_fixed_point_and_reports_the_dense_objective(shift: float) -> None:
    task = problem(shift)
    *_, last = trajectory("kmeans", task, num_inducing=6, learn=False, iterations=200)
    repeated, _ = lloyd(task.train.X, last.state.Z)
    assert torch.equal(repeated, last.state.Z)
    dense = dense_objective(task.kernel, task.theta, task.train.X, task.train.y, last.state.Z, "vfe")
    assert last.info.objective == pytest.approx(float(dense), rel=1e-9)


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_subset_of_data_is_the_exact_gp_of_its_rows(shift: float) -> None:
    task = problem(shift)
    method = methods["subset-of-data"](num_rows=25, max_epochs=2, evaluations=6)
    for step in list(method.steps(task))[1:]:
        rows, theta = step.state.inducing, step.state.theta
        X, y = task.train.X[rows], task.train.y[rows]
        assert len(rows) == 25
        assert step.info.objective == pytest.approx(float(exact_nlml(task.kernel, theta, X, y)), rel=1e-8)
    mean, var = method.posterior(task, step.state)(task.train.X + 0.1)
    expected = exact_prediction(task.kernel, theta, X, y, task.train.X + 0.1)
    assert torch.allclose(mean, expected[0], atol=1e-6)
    assert torch.allclose(var, expected[1], atol=1e-6)


@pytest.mark.parametrize("name", sorted(STARTS))
@pytest.mark.parametrize("shift", SHIFTS)
def test_every_initial_set_has_distinct_rows_and_does_not_depend_on_the_origin(name: str, shift: float) -> None:
    task = problem(shift, repeats=20)
    rows = start_rows(name, task, 15, seed=2)
    assert len(torch.unique(task.train.X[rows], dim=0)) == 15
    twin = start_rows(name, problem(0.0, repeats=20), 15, seed=2)
    assert name == "kmeans" or rows.tolist() == twin.tolist()  # two rows of one cluster are equally near its centre
    Z = start_inputs(name, task, 15, seed=2)
    assert Z.shape == (15, 2)
    assert torch.equal(Z, task.train.X[rows]) == (name != "kmeans")


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_start_left_is_spread_evenly_over_the_leftmost_rows_of_the_first_input(shift: float) -> None:
    task = problem(shift, n=90)
    order = np.argsort(task.train.X[:, 0].numpy(), kind="stable")
    expected = order[np.linspace(0, int(0.14 * 90) - 1, 5).round().astype(int)]
    assert start_rows("left", task, 5, seed=3).tolist() == expected.tolist()
    assert sorted(start_rows("left", task, 20, seed=3).tolist()) == sorted(order[:20].tolist())  # more than the share
    assert sorted(start_rows("left", task, 200, seed=3).tolist()) == list(range(90))


def test_the_start_left_of_equal_first_inputs_takes_other_rows_instead_of_duplicates() -> None:
    X = torch.tensor([0.0] * 40 + [1.0, 2.0, 3.0], dtype=torch.float64)[:, None]
    task = Problem(Dataset(X, X[:, 0].clone()), kernels.make("se", 1), torch.tensor([0.0, 0.0, -1.0]).double())
    assert start_rows("left", task, 4, seed=0).tolist() == [0, 40, 41, 42]


def test_kmeans_of_objects_is_refused_with_a_sentence() -> None:
    kernel = kernels.make("spectrum", 1)
    train = Dataset(["abcd", "bcda", "aabb"], torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64))
    task = Problem(train, kernel, kernel.start(train))
    with pytest.raises(SettingError, match=r"columns of numbers.*str objects; .*titsias"):
        next(methods["kmeans"]().steps(task))
    with pytest.raises(SettingError, match=r'str objects; start from "random"'):
        start_rows("kmeans", task, 2, seed=0)
    with pytest.raises(SettingError, match=r'start "left" needs columns.*str objects; start from "random"'):
        start_rows("left", task, 2, seed=0)
    assert len(start_rows("titsias", task, 2, seed=0)) == 2
