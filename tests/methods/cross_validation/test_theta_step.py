"""The algebra of a theta step: consensus penalty, BFGS Hessian, rho, and the scale at the end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
import torch
from torch import Tensor

from gpexplorer.linalg.scipy_descent import Evaluated
from gpexplorer.methods.base import registry
from gpexplorer.methods.cross_validation import consensus, fold_steps
from gpexplorer.methods.cross_validation.folds import split
from gpexplorer.methods.cross_validation.lagrangian import Limits
from gpexplorer.methods.cross_validation.learning import gradient_descent
from gpexplorer.methods.cross_validation.theta_step import (
    FIRST,
    LONGEST,
    ConsensusPenalty,
    ThetaProblem,
    ZRule,
    bfgs,
    fixed_z,
    newton_direction,
    z_follows,
)
from gpexplorer.problem import Problem
from oracles_admm import central_differences, covariance, held_out, problem

SHIFTS = [0.0, 1000.0]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Matrices this small are slower on two threads, and far slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def curved(p: int = 5) -> tuple[Tensor, Tensor]:
    """A positive definite matrix and a step."""
    rng = torch.Generator().manual_seed(2)
    R, s = torch.randn(p, p, generator=rng, dtype=torch.float64), torch.randn(p, generator=rng, dtype=torch.float64)
    return R @ R.T + torch.eye(p, dtype=torch.float64), s


@pytest.mark.parametrize("z_rule", [fixed_z, z_follows])
@pytest.mark.parametrize("shift", SHIFTS)
def test_gradient_with_consensus_penalty_matches_central_differences(z_rule: ZRule, shift: float):
    task = problem(shift)
    [fold] = split(task, [slice(0, 20)], 3, 1e9)
    rng, theta = torch.Generator().manual_seed(1), task.theta
    z, dual = torch.randn(2, fold.trained, 1, generator=rng, dtype=torch.float64)
    nu, off = torch.randn(2, len(theta), generator=rng, dtype=torch.float64)
    penalty = ConsensusPenalty(theta + 0.3 * off, 4.0, torch.zeros_like(theta), theta, 8.0)
    subproblem = ThetaProblem(fold, z, dual, nu, 0.7, 25, Limits(500, 1e-12), penalty)

    trial = subproblem.trial(theta, z_rule)
    assert trial is not None
    result = subproblem.total_gradient(theta, subproblem.lagrangian_gradient(trial))

    wanted = central_differences(lambda theta: subproblem.trial(theta, z_rule).value, theta)  # type: ignore[union-attr]
    torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shift", SHIFTS)
def test_with_z_eliminated_the_gradient_of_an_iteration_is_that_of_the_cross_validated_loss(shift: float):
    """All folds share theta, and the multipliers are the adjoints: dL/dtheta is the derivative of eq 15."""
    task = problem(shift)
    method = registry["gpcv-admm"](folds=3, cg_tolerance=1e-10)
    state = next(islice(method.steps(task), 3, None)).state

    def loss(theta: Tensor) -> float:
        total = 0.0
        for fold in split(task, method.validation(len(task.train)), method.seed, 1.0):
            T, V = torch.arange(fold.trained), torch.arange(fold.trained, len(fold.y))
            same = Problem(type(task.train)(fold.X, fold.y), task.kernel, theta)
            total += float(held_out(same, theta, T, V)[0].square().sum())
        return total

    torch.testing.assert_close(state.folds[0].g, central_differences(loss, state.mean), rtol=1e-5, atol=1e-4)
    assert sum(local.loss for local in state.folds) == pytest.approx(loss(state.mean), rel=1e-7)


def test_gradient_has_no_part_along_the_scale_and_the_penalty_is_infinite_beyond_the_span():
    _, g = curved()
    u = torch.ones(5, dtype=torch.float64) / 5**0.5
    penalty = ConsensusPenalty(g, 1.0, u, torch.zeros_like(g), 8.0)

    assert float(penalty.without_scale(g) @ u) == pytest.approx(0.0, abs=1e-14)
    assert penalty.value(9.0 * torch.eye(5, dtype=torch.float64)[0], g) == float("inf")


def test_bfgs_hessian_maps_the_step_to_the_change_of_gradient():
    B, s = curved()
    y = 0.5 * B @ s + 0.1 * s

    result = bfgs(B, s, y)

    torch.testing.assert_close(result @ s, y)
    torch.testing.assert_close(result, result.T)


def test_negative_curvature_along_the_step_leaves_the_hessian_positive_definite():
    """Powell's damping keeps a fifth of the previous curvature."""
    B, s = curved()

    result = bfgs(B, s, -2.0 * s)

    assert float(torch.linalg.eigvalsh(result)[0]) > 0.0
    assert float(s @ result @ s) == pytest.approx(0.2 * float(s @ B @ s))


def test_step_is_the_newton_step_with_the_consensus_penalty_and_has_a_largest_length():
    B, s = curved()
    kappa, g = 0.7, 1e-2 * s

    torch.testing.assert_close(B @ newton_direction(g, B, kappa) + kappa * newton_direction(g, B, kappa), -g)
    assert float(newton_direction(1e6 * g, B, kappa).abs().max()) == pytest.approx(LONGEST)
    torch.testing.assert_close(newton_direction(g, torch.zeros_like(B), kappa), -FIRST * g / g.norm())


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_multipliers_sum_to_zero_after_the_consensus(alpha: float):
    method, task = registry["gpcv-admm"](folds=3, rank=10, relaxation=alpha, copies=True), problem()
    state = next(islice(method.steps(task), 2, None)).state
    setup = consensus.make_setup(method, task)
    kappa = setup.kappa(state.best)
    folds = [one._replace(nu=(k + 1.0) * kappa * torch.ones_like(one.nu)) for k, one in enumerate(state.folds)]

    mean, after = consensus.form_consensus(setup, state, folds)

    relaxed = [alpha * one.theta + (1.0 - alpha) * state.mean for one in folds]
    torch.testing.assert_close(mean, sum(relaxed) / 3 + 2.0)  # the mean of nu / kappa
    for one, begin, at in zip(after, folds, relaxed, strict=True):
        torch.testing.assert_close(one.nu, begin.nu + kappa * (at - mean))
    assert float(sum(one.nu for one in after).abs().max()) < 1e-9 * kappa  # type: ignore[union-attr]


def test_rho_balances_the_residuals_and_stays_within_its_span():
    settings = registry["gpcv-admm"](balance=3.0, rho=2.0, rho_span=4.0).fold_settings()

    assert fold_steps.balanced_rho(2.0, 0.2, 0.1, settings) == 4.0
    assert fold_steps.balanced_rho(2.0, 0.1, 0.2, settings) == 2.0
    assert fold_steps.balanced_rho(2.0, 0.1, 0.4, settings) == 1.0
    assert fold_steps.balanced_rho(8.0, 0.2, 0.1, settings) == 8.0
    assert fold_steps.balanced_rho(0.5, 0.1, 0.4, settings) == 0.5
    assert fold_steps.balanced_rho(2.0, 0.2, 0.1, settings._replace(balance=0.0)) == 2.0


@pytest.mark.parametrize("shift", SHIFTS)
def test_calibrated_scale_has_the_highest_evidence(shift: float):
    """There y'C^-1 y = n, summed over the folds, so that multiplying every sd again raises no evidence."""
    method, task = registry["gpcv-admm"](folds=3, rank=10, cg_tolerance=1e-10), problem(shift)
    state = next(islice(method.steps(task), 1, None)).state

    energy, rows = 0.0, 0
    for fold in split(task, method.validation(len(task.train)), method.seed, 1.0):
        T = type(task.train)(fold.X[: fold.trained], fold.y[: fold.trained])
        energy += float(T.y @ torch.linalg.solve(covariance(task, state.theta, T), T.y))
        rows += len(T)

    assert energy == pytest.approx(rows, rel=1e-6)


def test_iteration_without_a_lower_error_keeps_the_best_theta():
    method, task = registry["gpcv-admm-holdout"](rank=10), problem()
    state = next(islice(method.steps(task), 1, None)).state
    setup = consensus.make_setup(method, task)

    after, _ = consensus.iterate_folds(setup, state._replace(best=1e-9))
    better, info = consensus.iterate_folds(setup, state._replace(best=1e9))

    assert after.best == 1e-9
    torch.testing.assert_close(after.theta, state.theta, rtol=0, atol=0)
    assert better.best == info.objective
    torch.testing.assert_close(better.mean, after.mean, rtol=0, atol=0)
    assert not torch.equal(better.theta, state.theta)


def test_converged_needs_a_theta_at_rest_a_small_gradient_and_a_small_constraint_residual():
    method, task = registry["gpcv-admm-holdout"](rank=10), problem()
    state = next(islice(method.steps(task), 1, None)).state._replace(
        still=method.patience, gap=0.5 * method.tolerance, gradient=0.5 * method.tolerance
    )

    assert consensus.outcome_of(method, state).reason == "converged"  # type: ignore[union-attr]
    steep = state._replace(gradient=2.0 * method.tolerance)
    assert consensus.outcome_of(method, steep) is None
    assert consensus.outcome_of(method, steep._replace(resets=3)).reason == "stopped"  # type: ignore[union-attr]
    assert consensus.outcome_of(method, state._replace(gap=2.0 * method.tolerance)) is None
    assert consensus.outcome_of(method, state._replace(still=method.patience - 1)) is None


def test_gradient_descent_refuses_steps_with_too_small_a_decrease():
    """Eq 3 on a narrow valley, where the first step increases the objective."""
    scale, seen = np.array([1.0, 400.0]), list[np.ndarray]()

    def valley(x: np.ndarray) -> Evaluated:
        seen.append(x)
        return Evaluated(float(0.5 * scale @ x**2), scale * x, None)

    result = list(gradient_descent(valley, np.array([1.0, 0.1]), "", 60))

    values = [best.value for best in result]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.2 * values[0]
    assert any(valley(x).value > values[0] for x in seen[:60])  # tried, and refused
    assert all(best.value == pytest.approx(0.5 * scale @ best.point**2) for best in result)
