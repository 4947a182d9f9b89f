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
from gpexplorer.methods.cross_validation.folds import FoldGroup, equal_parts, split
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
    z_eliminated,
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


def dense_fold(task: Problem, group: FoldGroup, theta: Tensor, k: int, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y_T, the gap C z - y_T and the residual y_V - K_VT z of fold k."""
    T, V = (mask.bool()[:, k] for mask in (group.T, group.V))
    X_T, X_V, y_T = group.X[: group.trained][T], group.X[V], group.y[: group.trained][T]
    C = task.kernel(theta, X_T, X_T) + (2 * theta[-1]).exp() * torch.eye(len(X_T), dtype=theta.dtype)
    return y_T, C @ z[T] - y_T, group.y[V] - task.kernel(theta, X_V, X_T) @ z[T]


@pytest.mark.parametrize("theta_method", ["z eliminated", "z follows", "z held still"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_an_iteration_of_three_folds_and_its_report_equal_dense_algebra(theta_method: str, shift: float):
    task = problem(shift)
    method = registry["gpcv-admm"](theta_method=theta_method, cg_tolerance=1e-10, cg_iterations=2000, rank=25, rho=1.3)
    settings = method.fold_settings()._replace(relaxation=0.6, largest_gap=1e9, forcing=0.0)
    [group] = split(task, equal_parts(len(task.train), 3), 3, 1e9, shared=True)
    zero = torch.zeros_like(task.theta)
    penalty = ConsensusPenalty(task.theta + 0.2, 0.7, zero, task.theta, 8.0)
    before = fold_steps.prepare(group, task.theta, settings, "adjoint", penalty)
    before = tuple(fold._replace(nu=zero + 0.4) for fold in before)

    after, report, score = fold_steps.iterate(group, before, penalty, settings, True)

    theta, close = after[0].theta.clone().requires_grad_(), {"rel": 1e-5, "abs": 1e-6}
    Z, dual, old = (group.columns([getattr(one, name) for one in folds])
                    for folds, name in ((after, "z"), (after, "dual"), (before, "dual")))  # fmt: skip
    total, lagrangian, gaps, losses, energy = torch.zeros(()).double(), 0.0, [], [], 0.0
    rho = 0.0 if settings.z_rule is z_eliminated else 1.3
    for k, one in enumerate(after):
        T = group.T.bool()[:, k]
        y_T, c, r = dense_fold(task, group, theta, k, Z[:, k])
        assert one.loss == pytest.approx(float((r @ r).detach()), **close)
        assert one.gap == pytest.approx(float(c.detach().norm()), **close)
        assert one.slack == pytest.approx(float((dual[T, k] @ c).detach()), **close)
        if rho:
            torch.testing.assert_close(dual[T, k], (old[T, k] + 0.6 * rho * c).detach(), rtol=1e-6, atol=1e-7)
        total = total + r @ r + dual[T, k] @ c
        lagrangian += float((r @ r + old[T, k] @ c + 0.5 * rho * c @ c).detach())
        gaps.append(one.gap / float(y_T.norm()))
        exact = torch.zeros(group.trained).double()
        exact[T] = torch.linalg.solve(
            covariance(task, one.theta, type(task.train)(group.X[: group.trained][T], y_T)), y_T
        )
        losses.append(float(dense_fold(task, group, one.theta, k, exact)[2].square().sum()))
        energy += float(y_T @ exact[T])
    (g,) = torch.autograd.grad(total, theta)
    torch.testing.assert_close(after[0].g, g, rtol=1e-5, atol=1e-5)
    difference = theta.detach() - penalty.mean
    residual = float((g + 0.4 + 0.7 * difference).norm()) / sum(one.loss for one in after)
    assert report.gradient == pytest.approx(residual, rel=1e-5)
    assert report.gap == pytest.approx(max(gaps), **close)
    assert report.lagrangian == pytest.approx(lagrangian, rel=1e-6)
    assert not report.rolled_back
    assert score is not None
    assert score.loss == pytest.approx(sum(losses), rel=1e-6)
    assert score.energy == pytest.approx(energy, rel=1e-6)
    moved = after[0].theta - before[0].theta
    assert float(moved.abs().max()) > 1e-3
    if theta_method == "z held still":
        assert after[0].length == pytest.approx(float(moved.norm()))
    else:
        torch.testing.assert_close(after[0].B @ moved, bfgs(before[0].B, moved, after[0].g - before[0].g) @ moved)


def test_the_tolerance_of_a_z_step_is_the_forcing_times_gradient_and_noise_within_its_limits():
    task = problem()
    settings = registry["gpcv-admm"](cg_tolerance=1e-4, rank=25).fold_settings()._replace(forcing=0.3)
    [group] = split(task, equal_parts(len(task.train), 3), 3, 1e9, shared=True)
    zero = torch.zeros_like(task.theta)
    penalty = ConsensusPenalty(task.theta - 0.5, 0.7, zero, task.theta, 8.0)
    local = fold_steps.prepare(group, task.theta, settings, "adjoint", penalty)
    signal = float(group.V.sum(1) @ group.y.square())

    def tolerance(scale: float, loss: float, last: float = float("inf")) -> float:
        g = scale * torch.arange(1.0, 5.0, dtype=torch.float64)
        folds = [one._replace(g=g, nu=zero + 0.1, loss=loss / 3, tolerance=last) for one in local]
        limits = fold_steps.inexact_limits(group, folds, penalty, settings)
        assert limits.iterations == settings.limits.iterations
        return limits.tolerance

    def wanted(scale: float, loss: float) -> float:
        gradient = scale * torch.arange(1.0, 5.0, dtype=torch.float64) + 0.1 + 0.7 * 0.5
        return 0.3 * float(gradient.norm()) / loss * min((loss / signal) ** 0.5, 1.0)

    for scale, share in ((-0.11, 0.5), (0.02, 300.0)):
        expected = wanted(scale, share * signal)
        assert 1e-3 * 1e-4 < expected < 30.0 * 1e-4
        assert tolerance(scale, share * signal) == pytest.approx(expected)
        assert tolerance(scale, share * signal, last=0.5 * expected) == pytest.approx(0.5 * expected)
    assert tolerance(1e9, 1.0) == pytest.approx(30.0 * 1e-4)
    assert tolerance(1e-2, 1e12 * signal) == pytest.approx(1e-3 * 1e-4)
    assert fold_steps.inexact_limits(group, local, penalty, settings._replace(forcing=0.0)) == settings.limits


def test_a_step_that_is_taken_back_makes_the_next_one_four_times_shorter_and_rho_four_times_as_large():
    task = problem()
    settings = registry["gpcv-admm"](cg_tolerance=1e-4, rho=2.0, rho_span=100.0, rank=25).fold_settings()
    [group] = split(task, equal_parts(len(task.train), 3), 3, 1e9, shared=True)
    zero = torch.zeros_like(task.theta)
    penalty = ConsensusPenalty(task.theta, 0.0, zero, task.theta, 8.0)
    local = [one._replace(length=0.8, tolerance=2e-4) for one in
             fold_steps.prepare(group, task.theta, settings, "adjoint", penalty)]  # fmt: skip

    after, report, score = fold_steps.iterate(group, local, penalty, settings._replace(largest_gap=-1.0), True)

    assert report.rolled_back
    assert score is None
    for one, begin in zip(after, local, strict=True):
        torch.testing.assert_close(one.B, 4.0 * begin.B)
        assert (one.rho, one.length, one.tolerance) == pytest.approx((8.0, 0.2, 2e-3))
        assert torch.equal(one.theta, begin.theta)
        assert torch.equal(one.z, begin.z)
    wide = [one._replace(tolerance=1e-3, rho=190.0) for one in local]
    again, _, _ = fold_steps.iterate(group, wide, penalty, settings._replace(largest_gap=-1.0), True)
    assert (again[0].rho, again[0].tolerance) == pytest.approx((200.0, 30.0 * 1e-4))


def test_the_factor_of_a_refused_step_is_taken_back_by_at_most_eight_per_step():
    B, s = curved()
    y = B @ s
    local = fold_steps.Local(
        s, s, s, s, B, 3.0 * torch.ones(5).double(), loss=0.0, slack=0.0, gap=0.0, rho=1.0, length=20.0
    )

    refused, inflation = fold_steps._updated_hessian(local, s, y, refused=0.1)
    torch.testing.assert_close(refused, 64.0 * B)
    assert inflation == 64.0 * 20.0
    none, _ = fold_steps._updated_hessian(local._replace(B=0.0 * B), s, y, refused=0.1)
    torch.testing.assert_close(none, 64.0 * 3.0 * 5**0.5 / FIRST * torch.eye(5, dtype=torch.float64))
    for length, factor, left in ((20.0, 8.0, 2.5), (4.0, 4.0, 1.0), (0.5, 1.0, 1.0)):
        updated, inflation = fold_steps._updated_hessian(local._replace(length=length), s, y, refused=0.0)
        torch.testing.assert_close(updated, bfgs(B / factor, s, y))
        assert inflation == left
    still, inflation = fold_steps._updated_hessian(local, 0.0 * s, y, refused=0.0)
    assert torch.equal(still, B)
    assert inflation == 20.0
