"""FITC and SGPR: closed-form gradients against autograd through n x n algebra, GPyTorch, and whole runs."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from baseline_problems import SHIFTS, problem, trajectory
from gpexplorer import kernels, methods, objectives
from gpexplorer.errors import SettingError
from gpexplorer.methods.inducing.moving.loop import sparse_gradient
from gpexplorer.methods.inducing.moving.sgpr import gpytorch_gradient
from gpexplorer.objectives import nystrom
from gpexplorer.posteriors import nystrom_posterior
from gpexplorer.problem import Dataset, Problem
from oracles import exact_nlml
from oracles_baselines import fitc_prediction, moving_objective
from work_counter import Work

LIKELIHOODS = ["fitc", "vfe", "tight-vfe", "pp"]


def free_points(task: Problem, m: int = 6) -> torch.Tensor:
    X = task.train.X
    return X[:m] + 0.2 * torch.randn(m, X.shape[1], generator=torch.Generator().manual_seed(1), dtype=X.dtype)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("key", ["se-ard", "se", "matern32-ard", "rq", "periodic", "se*linear+matern52"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_value_and_gradient_match_the_dense_formula(likelihood: str, key: str, shift: float) -> None:
    task = problem(shift if key in ("se-ard", "se", "matern32-ard", "rq") else shift / 1e3)
    kernel = kernels.make(key, 2)
    theta = kernel.start(task.train) - 0.3
    task, Z = Problem(task.train, kernel, theta), free_points(task)

    value, gradient = sparse_gradient(kernel, theta, task.train, Z, likelihood)

    leaf, points = theta.clone().requires_grad_(True), Z.clone().requires_grad_(True)
    dense = moving_objective(task, leaf, points, likelihood)
    dense.backward()
    assert value.terms.total(likelihood) == pytest.approx(dense.item(), rel=1e-9)
    assert torch.allclose(gradient.theta, leaf.grad, rtol=1e-5, atol=1e-6)
    assert torch.allclose(gradient.Z, points.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("shift", SHIFTS)
def test_columns_that_are_computed_twice_give_the_dense_value_gradient_and_predictions(
    likelihood: str, shift: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = problem(shift)
    Z = free_points(task)
    kept, kept_gradient = sparse_gradient(task.kernel, task.theta, task.train, Z, likelihood)
    monkeypatch.setattr(objectives, "KEPT_BYTES", 0)
    monkeypatch.setattr(objectives, "BLOCK", 7 * 8 * len(Z))  # a few rows per block, the last one shorter

    streamed, gradient = sparse_gradient(task.kernel, task.theta, task.train, Z, likelihood)

    assert streamed.terms.total(likelihood) == pytest.approx(
        float(moving_objective(task, task.theta, Z, likelihood)), rel=1e-9
    )
    for streamed_part, kept_part in zip(gradient, kept_gradient, strict=True):
        assert torch.allclose(streamed_part, kept_part, rtol=1e-9, atol=1e-9)
    for a, b in zip(
        *(nystrom_posterior(task.kernel, task.theta, Z, model, likelihood == "fitc")(Z) for model in (streamed, kept)),
        strict=True,
    ):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def test_columns_are_kept_up_to_a_size_in_bytes() -> None:
    rows, limit = 2**20, objectives.KEPT_BYTES
    fits = limit // (8 * rows)

    assert objectives.is_kept(rows, fits, 8)
    assert not objectives.is_kept(rows, fits + 1, 8)
    assert objectives.is_kept(rows, 2 * fits, 4)
    assert not objectives.is_kept(2 * rows, fits, 8)


@pytest.mark.parametrize("likelihood", ["fitc", "vfe", "tight-vfe"])
def test_memory_does_not_grow_with_the_number_of_points(likelihood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X = torch.rand(100_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    train, kernel = Dataset(X, torch.sin(6.0 * X[:, 0])), kernels.make("se-ard", 2)
    theta, Z = kernel.start(train), X[:40].clone()
    monkeypatch.setattr(objectives, "KEPT_BYTES", 2**20)

    with Work() as work:
        sparse_gradient(kernel, theta, train, Z, likelihood)

    assert work.memory < 25e6  # it takes 17 MB for vectors and blocks; L' and K_mn would take 64 MB


@pytest.mark.parametrize("shift", SHIFTS)
def test_what_the_points_leave_unexplained_is_the_dense_trace_for_every_objective(shift: float) -> None:
    task = problem(shift)
    Z, X = free_points(task), task.train.X
    K_mn, K_mm = task.kernel(task.theta, Z, X), task.kernel(task.theta, Z, Z)
    dense = float(task.kernel.diag(task.theta, X).sum() - (K_mn * torch.linalg.solve(K_mm, K_mn)).sum())
    for likelihood in LIKELIHOODS:
        ours = nystrom(task.kernel, task.theta, task.train, Z, likelihood)
        assert ours.unexplained == pytest.approx(dense, rel=1e-8)


@pytest.mark.parametrize("shift", SHIFTS)
def test_fitc_predicts_as_the_dense_formula(shift: float) -> None:
    task = problem(shift)
    Z, Xs = free_points(task), task.train.X[:9] + 0.05
    result = nystrom_posterior(task.kernel, task.theta, Z, nystrom(task.kernel, task.theta, task.train, Z, "fitc"))(Xs)
    mean, var = fitc_prediction(task, Z, Xs)
    assert torch.allclose(result.mean, mean, atol=1e-8)
    assert torch.allclose(result.var, var, atol=1e-8)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_with_points_on_every_row_all_objectives_are_the_exact_one(likelihood: str) -> None:
    task = problem(n=25)
    exact = float(exact_nlml(task.kernel, task.theta, task.train.X, task.train.y))
    result = nystrom(task.kernel, task.theta, task.train, task.train.X, likelihood)
    assert result.terms.total(likelihood) == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize("key", ["se-ard", "se", "matern32-ard"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_gpytorch_computes_the_same_bound_and_gradient(key: str, shift: float) -> None:
    task = problem(shift)
    kernel = kernels.make(key, 2)
    theta, Z = kernel.start(task.train) - 0.2, free_points(task)
    ours, our_gradient = sparse_gradient(kernel, theta, task.train, Z, "vfe")
    theirs, their_gradient = gpytorch_gradient(kernel, theta, task.train, Z)
    assert theirs.terms == pytest.approx(ours.terms, rel=1e-4)
    assert torch.allclose(our_gradient.theta, their_gradient.theta, rtol=1e-3, atol=1e-3)
    assert torch.allclose(our_gradient.Z, their_gradient.Z, rtol=1e-3, atol=1e-3)


def test_gpytorch_reports_its_jitter() -> None:
    task = problem()
    kernel, Z = kernels.make("se", 2), free_points(task).repeat(2, 1)  # every point twice: K_mm is singular
    theta = kernel.start(task.train)

    theirs, gradient = gpytorch_gradient(kernel, theta, task.train, Z)

    assert 0.0 < theirs.jitter < 1e-6
    assert theirs.terms == pytest.approx(nystrom(kernel, theta, task.train, Z, "vfe").terms, rel=1e-3)
    assert torch.isfinite(gradient.Z).all()


def test_both_engines_reach_the_same_objective() -> None:
    settings = {"num_inducing": 6, "max_epochs": 1, "evaluations": 8}
    ours = trajectory("sgpr", problem(), **settings)[-1]
    theirs = trajectory("sgpr", problem(), engine="gpytorch", **settings)[-1]
    assert theirs.info.objective == pytest.approx(ours.info.objective, rel=1e-3)
    assert theirs.info.objective == pytest.approx(sum(theirs.info[2:5]), rel=1e-9)


def test_gpytorch_is_refused_where_it_has_no_such_kernel() -> None:
    task = problem()
    with pytest.raises(SettingError, match=r"se and matern, not for linear; choose engine"):
        next(methods["sgpr"](engine="gpytorch").steps(Problem(task.train, kernels.make("linear", 2), task.theta)))


@pytest.mark.parametrize(
    ("key", "settings"),
    [("sgpr", {}), ("sgpr", {"objective": "tight-vfe"}), ("fitc", {}), ("fitc", {"likelihood": "pp"})],
)
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_run_decreases_the_objective_and_can_be_resumed_at_any_step(
    key: str, settings: dict[str, str], shift: float
) -> None:
    task = problem(shift)
    method = methods[key](num_inducing=5, evaluations=7, max_epochs=3, **settings)
    steps = list(method.steps(task))
    values = [step.info.objective for step in steps[1:]]
    assert all(b <= a + 1e-9 * abs(a) for a, b in itertools.pairwise(values))
    assert values[-1] < values[0] - 1.0
    (likelihood,) = settings.values() or ("vfe" if key == "sgpr" else "fitc",)
    last = steps[-1].state
    assert values[-1] == pytest.approx(float(moving_objective(task, last.theta, last.Z, likelihood)), rel=1e-7)
    for at in (0, 1, 4, 7, 9):
        for resumed, expected in zip(method.steps(task, resume=steps[at].state), steps[at + 1 :], strict=False):
            assert torch.allclose(resumed.state.Z, expected.state.Z, atol=1e-8)
            assert torch.allclose(resumed.state.theta, expected.state.theta, atol=1e-8)


@pytest.mark.parametrize("shift", SHIFTS)
def test_moving_points_reach_a_lower_objective_than_fixed_centres(shift: float) -> None:
    task = problem(shift, n=150)
    fixed = trajectory("kmeans", task, num_inducing=5, learn=False)[-1].info.objective
    moved = trajectory("sgpr", task, num_inducing=5, learn=False, max_epochs=2)[-1]
    assert moved.info.objective < fixed - 1.0
    assert torch.equal(moved.state.theta, task.theta)


def test_moving_points_need_columns_of_numbers() -> None:
    kernel = kernels.make("spectrum", 1)
    train = Dataset(["abcd", "bcda", "aabb"], torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64))
    for key in ("sgpr", "fitc"):
        with pytest.raises(SettingError, match="columns of numbers"):
            next(methods[key]().steps(Problem(train, kernel, kernel.start(train))))


def test_the_first_prediction_is_the_prior() -> None:
    task = problem()
    method = methods["fitc"]()
    mean, var = method.posterior(task, next(method.steps(task)).state)(task.train.X[:4])
    assert mean.tolist() == [0.0] * 4
    assert var.tolist() == pytest.approx([math.exp(0.2)] * 4)
