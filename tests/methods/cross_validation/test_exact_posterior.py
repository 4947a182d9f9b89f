"""Maximum likelihood and leave-one-out against dense algebra, and what they share: scale, restarts, predictions."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch

from gpexplorer.errors import NotPositiveDefinite, PosteriorError, SettingError
from gpexplorer.methods.base import registry
from gpexplorer.methods.cross_validation.exact_posterior import exact_posterior
from gpexplorer.methods.cross_validation.learning import (
    GRADIENT_DESCENT,
    PROBABILITY,
    SQUARED,
    gpytorch_evidence,
    leave_one_out,
)
from gpexplorer.methods.cross_validation.scale_direction import scale_direction
from gpexplorer.objectives import evidence
from gpexplorer.posteriors import exact
from gpexplorer.problem import Problem
from gpexplorer.runs.counting import Counted, Counter
from oracles_admm import central_differences, covariance, one_at_a_time, problem

SHIFTS = [0.0, 1000.0]
KERNELS = ["se-ard", "rq", "se * periodic", "se + lp", "se + matern32-ard", "linear"]


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("criterion", [SQUARED, PROBABILITY])
def test_closed_form_equals_leaving_out_one_row_at_a_time(criterion: str, shift: float):
    task = problem(shift, n=30)
    residual, var = one_at_a_time(task, task.theta)

    value, scale, gradient = leave_one_out(task.kernel, task.theta, task.train, criterion)

    log_density = 0.5 * (residual.square() / var + var.log())
    assert value == pytest.approx(float((residual.square() if criterion == SQUARED else log_density).sum()), rel=1e-9)
    assert scale == pytest.approx(0.5 * math.log(float((residual.square() / var).mean())), abs=1e-9)
    expected = central_differences(
        lambda theta: leave_one_out(task.kernel, theta, task.train, criterion)[0], task.theta
    )
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_scale_direction_multiplies_the_whole_covariance(kernel: str, shift: float):
    task = problem(shift, kernel=kernel)
    u = scale_direction(task)

    assert u is not None
    moved = covariance(task, task.theta + math.log(3.0) * u, task.train)
    torch.testing.assert_close(moved, 9.0 * covariance(task, task.theta, task.train), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("shift", SHIFTS)
def test_scale_is_determined_from_the_residuals_after_learning(shift: float):
    task = problem(shift)
    *_, last = registry["loo"]().steps(task)
    *_, loose = registry["loo"](calibrate=False).steps(task)

    residual, var = one_at_a_time(task, last.state.theta)
    assert float((residual.square() / var).mean()) == pytest.approx(1.0, rel=1e-8)
    assert last.state.objective == pytest.approx(loose.state.objective, rel=1e-12)
    assert float((last.state.theta - loose.state.theta)[-1]) == pytest.approx(last.info.scale)


@pytest.mark.parametrize("key", ["ml", "loo"])
@pytest.mark.parametrize("optimiser", ["L-BFGS-B", "CG", GRADIENT_DESCENT])
def test_every_optimiser_decreases_the_objective_and_reports_its_value(key: str, optimiser: str):
    task = problem(1000.0, n=40)
    free = {"calibrate": False} if key == "loo" else {}
    steps = list(registry[key](optimiser=optimiser, evaluations=200, **free).steps(task))
    theta, values = steps[-1].state.theta, [step.state.objective for step in steps[1:]]

    exact = evidence(task.kernel, theta, task.train)
    value, gradient = exact if key == "ml" else leave_one_out(task.kernel, theta, task.train, SQUARED)[::2]
    assert value == pytest.approx(values[-1], rel=1e-12)
    assert values == sorted(values, reverse=True)
    if optimiser == "L-BFGS-B":
        assert float(gradient.abs().max()) <= 1e-3 * max(1.0, abs(value))


@pytest.mark.parametrize("shift", SHIFTS)
def test_conjugate_gradients_predict_the_same_as_the_cholesky_factor(shift: float):
    task = problem(shift)
    X = task.train.X[:9] + 0.03

    dense, products = (exact_posterior(task, task.theta, how, 1e-6)(X) for how in ("cholesky", "cg"))

    torch.testing.assert_close(products.mean, dense.mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(products.var, dense.var, rtol=1e-4, atol=1e-6)


def test_resumed_run_repeats_no_evaluation():
    task = problem()
    method = registry["ml"](evaluations=8)
    steps = list(method.steps(task))
    counter = Counter()
    counted = Problem(task.train, Counted(task.kernel, counter), task.theta)

    resumed = list(method.steps(counted, resume=steps[5].state))

    assert len(resumed) == len(steps) - 6
    assert counter.entries == 2 * 60 * 60 * (len(steps[-1].state.answers) - len(steps[5].state.answers))


def test_restarts_keep_the_lowest_objective_and_skip_a_start_without_a_factor():
    task = problem()
    lost = torch.tensor([400.0, 0.0, 0.0, -1.0], dtype=torch.float64)  # a variance that no float64 holds
    bad = Problem(task.train, task.kernel, lost)
    with pytest.raises(NotPositiveDefinite):
        evidence(task.kernel, lost, task.train)
    *_, alone = registry["ml"](evaluations=10, tolerance=0.0).steps(task)
    *_, several = registry["ml"](evaluations=10, tolerance=0.0, restarts=3).steps(task)

    assert several.state.objective <= alone.state.objective
    run = registry["ml"](evaluations=3).steps(bad)
    next(run)
    with pytest.raises(StopIteration) as end:
        next(run)
    assert end.value.value.reason == "failed"
    assert "initial values" in end.value.value.message


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kernel", ["se", "se-ard", "matern32-ard"])
def test_gpytorch_has_the_same_likelihood_and_gradient(kernel: str, shift: float):
    task = problem(shift, n=30, kernel=kernel)

    value, gradient = evidence(task.kernel, task.theta, task.train)
    theirs, their_gradient = gpytorch_evidence(task.kernel, task.theta, task.train)

    assert theirs == pytest.approx(value, rel=1e-9)
    torch.testing.assert_close(their_gradient, gradient, rtol=1e-7, atol=1e-8)


def test_gpytorch_reaches_the_same_theta_and_refuses_unknown_kernels():
    task = problem(n=40, kernel="se-ard")
    ends = [
        list(registry["ml"](engine=engine, evaluations=12).steps(task))[-1] for engine in ("closed form", "gpytorch")
    ]
    assert ends[1].info.objective == pytest.approx(ends[0].info.objective, rel=1e-6)

    with pytest.raises(SettingError, match='not for rq; choose engine "closed form"'):
        list(registry["ml"](engine="gpytorch").steps(problem(n=20, kernel="rq")))


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("tests", [1, 59])
def test_the_cheaper_posterior_is_the_exact_one_and_factors_only_for_many_rows(
    tests: int, shift: float, monkeypatch: pytest.MonkeyPatch
):
    from gpexplorer.methods.cross_validation import exact_posterior as module

    task, factored = problem(shift), list[int]()
    dense, cholesky = module.by_cholesky(task, task.theta), exact.cholesky
    monkeypatch.setattr(exact, "cholesky", lambda *arguments: factored.append(1) or cholesky(*arguments))

    predict = exact_posterior(task, task.theta, "auto", 1.0, rank=40)
    for _ in range(2):
        got, right = (each(task.train.X[:tests] + 0.03) for each in (predict, dense))
        torch.testing.assert_close(got.mean, right.mean, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(got.var, right.var, rtol=1e-6, atol=1e-8)

    assert len(factored) == (tests == 59)  # 60^3 / 3 flops for a factor, 2 60^2 per iteration and test row


def test_without_room_for_a_factor_many_rows_are_predicted_by_products(monkeypatch: pytest.MonkeyPatch):
    from gpexplorer.methods.cross_validation import exact_posterior as module

    task = problem()
    right = module.by_cholesky(task, task.theta)(task.train.X + 0.03)
    monkeypatch.delattr(exact, "cholesky")

    got = exact_posterior(task, task.theta, "auto", 1e-6, rank=10)(task.train.X + 0.03)

    torch.testing.assert_close(got.var, right.var, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("refit", ["auto", "cholesky"])
@pytest.mark.parametrize("copy", [lambda posterior: posterior, lambda posterior: pickle.loads(pickle.dumps(posterior))])
def test_rows_can_be_added_where_a_factor_has_room(copy: Any, refit: str, shift: float):
    task = problem(shift)
    kernel, theta, (X, y) = task.kernel, task.theta, (task.train.X, task.train.y)
    first = replace(task, train=task.train.rows(torch.arange(50)))
    V, Z = torch.linspace(0.02, 3.0, 10).double(), X[45:55] + 0.03

    grown = copy(exact_posterior(first, theta, refit, 1.0, rank=40)).with_rows(X[50:], y[50:], V)

    noise = torch.cat([torch.full((50,), float((2 * theta[-1]).exp())).double(), V])
    gain = torch.linalg.solve(kernel(theta, X, X) + noise.diag(), kernel(theta, X, Z)).T
    torch.testing.assert_close(grown.mean(Z), gain @ y, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(grown.cov(Z), kernel(theta, Z, Z) - gain @ kernel(theta, X, Z), rtol=1e-6, atol=1e-8)


def test_no_rows_are_added_where_no_factor_is_wanted():
    task = problem(0.0)
    posterior = exact_posterior(task, task.theta, "cg", 1.0, rank=40)
    with pytest.raises(PosteriorError, match="fit the method again"):
        posterior.with_rows(task.train.X[:2] + 0.1, task.train.y[:2])


@pytest.mark.parametrize("refit", ["auto", "cg"])
@pytest.mark.parametrize(("n", "signal", "longer"), [(120, 2.0, 1.5), (60, 2.5, 0.5)])
def test_in_float32_a_factor_is_taken_where_conjugate_gradients_miss_the_solution(
    n: int, signal: float, longer: float, refit: str
):
    task = problem(n=n)
    theta = task.theta.clone()
    theta[0], theta[1:-1], theta[-1] = signal, theta[1:-1] + longer, -3.5
    single = Problem(replace(task.train, X=task.train.X.float(), y=task.train.y.float()), task.kernel, theta.float())

    mean = exact_posterior(single, single.theta, refit, 2.0)(single.train.X).mean

    dense = exact_posterior(task, theta, "cholesky", 2.0)(task.train.X).mean
    assert float((mean.double() - dense).norm()) < 0.05 * float(dense.norm())
