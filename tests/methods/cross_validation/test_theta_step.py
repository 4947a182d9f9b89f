"""The algebra of a theta step: consensus penalty, BFGS Hessian, rho, and the scale at the end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from gpexplorer.kernels import make
from gpexplorer.methods.base import registry
from gpexplorer.methods.cross_validation import consensus, fold_steps
from gpexplorer.methods.cross_validation.folds import equal_parts, split
from gpexplorer.methods.cross_validation.solvers import Solution
from gpexplorer.methods.cross_validation.theta_step import (
    ARMIJO,
    FIRST,
    LONGEST,
    TRIALS,
    TRIALS_FIXED_Z,
    UNSOLVED,
    ConsensusPenalty,
    FoldSystems,
    Limits,
    ThetaProblem,
    ZRule,
    bfgs,
    bounded_direction,
    fixed_z,
    newton_direction,
    z_eliminated,
    z_follows,
)
from gpexplorer.problem import Dataset, Problem
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


def test_gradient_has_no_part_along_the_scale():
    _, g = curved()
    u = torch.ones(5, dtype=torch.float64) / 5**0.5
    penalty = ConsensusPenalty(g, 1.0, u, torch.zeros_like(g), 8.0)

    assert float(penalty.without_scale(g) @ u) == pytest.approx(0.0, abs=1e-14)


def three_folds(tolerance: float) -> ThetaProblem:
    """The theta step of three folds with one theta, at arbitrary multipliers."""
    task = problem(n=30)
    [group] = split(task, equal_parts(30, 3), 3, 1e9, shared=True)
    dual = group.T * torch.linspace(-1, 2, 30, dtype=torch.float64)[:, None]
    zero = torch.zeros_like(task.theta)
    penalty = ConsensusPenalty(task.theta, 0.0, zero, task.theta, 8.0)
    return ThetaProblem(group, 0.1 * dual, dual, zero, 0.7, 10, Limits(500, tolerance), penalty)


def test_armijos_rule_halves_a_step_until_the_decrease_is_large_enough_for_its_length(monkeypatch: pytest.MonkeyPatch):
    subproblem, tried = three_folds(tolerance=0.1), list[Tensor]()
    d, g = (torch.tensor(numbers, dtype=torch.float64) for numbers in ([3.0, 0, 0, 1], [-2.0, 5, 0, -1]))
    theta, y_T = subproblem.penalty.mean, subproblem.group.T * subproblem.group.y[:, None]
    inaccuracy = 0.1**2 * float(y_T.norm() * subproblem.dual.norm())
    most = [4.0 - 0.5**k * ARMIJO * 7.0 + inaccuracy for k in range(3)]
    values = iter([most[0] + 1e-6, None, most[2] - 1e-6])

    def trial(_: ThetaProblem, theta: Tensor, z_rule: ZRule) -> SimpleNamespace | None:
        tried.append(theta)
        return None if (value := next(values)) is None else SimpleNamespace(value=value)

    monkeypatch.setattr(ThetaProblem, "trial", trial)

    accepted, count = subproblem.armijo(theta, 4.0, (d, g), z_follows)

    assert accepted is not None
    assert (accepted.value, count) == (most[2] - 1e-6, 3)
    for k, each in enumerate(tried):
        torch.testing.assert_close(each, theta + 0.5**k * d)
    for rule, trials in ((z_follows, TRIALS), (z_eliminated, TRIALS), (fixed_z, TRIALS_FIXED_Z)):
        values = iter([most[0] + 1.0] * 99)
        tried.clear()
        assert subproblem.armijo(theta, 4.0, (d, g), rule) == (None, trials)
        assert len(tried) == trials
    for uphill in (d, torch.eye(4, dtype=torch.float64)[2]):
        tried.clear()
        assert subproblem.armijo(theta, 4.0, (uphill, -g), z_follows)[0] is None
        assert not tried


@pytest.mark.parametrize(("tolerance", "largest"), [(1e-3, 1e-3), (1e-12, 2.0**-26)])
def test_a_trial_that_does_not_solve_the_constraint_counts_only_while_z_may_leave_it(
    tolerance: float, largest: float, monkeypatch: pytest.MonkeyPatch
):
    subproblem = three_folds(tolerance)
    theta, group = subproblem.penalty.mean, subproblem.group

    def off_by(share: float) -> None:
        def solve_C(systems: FoldSystems, B: Tensor, X: Tensor, limits: Limits) -> Solution:
            gap = group.T * torch.tensor([0.5, 1.0, 0.2], dtype=torch.float64) * share * B.norm(dim=0)
            return Solution(exact(systems, B + gap / group.T.norm(dim=0), X, Limits(2000, 1e-14)).X, 5, 0.0)

        monkeypatch.setattr(FoldSystems, "solve_C", solve_C)

    exact = FoldSystems.solve_C
    off_by(0.9 * UNSOLVED * largest)
    trial = subproblem.trial(theta, z_eliminated)
    assert trial is not None
    assert trial.gap == pytest.approx(0.9 * UNSOLVED * largest, rel=1e-3)
    assert (trial.iterations, trial.value) == (5, trial.terms.total)
    off_by(1.1 * UNSOLVED * largest)
    assert subproblem.trial(theta, z_eliminated) is None
    still = subproblem.trial(theta, fixed_z)
    assert still is not None
    assert (still.iterations, still.systems.C_inverse.rank) == (0, 0)
    assert still.gap > UNSOLVED * largest
    assert subproblem._replace(Z=subproblem.Z * torch.inf).trial(theta, fixed_z) is None


def test_the_penalty_ties_theta_to_the_mean_and_a_trial_stays_within_the_span():
    subproblem = three_folds(1e-3)
    nu, mean = (torch.tensor(numbers, dtype=torch.float64) for numbers in ([1.0, 0, -2, 3], [0.0, 1, 0, -1]))
    begin = torch.ones(4, dtype=torch.float64)
    penalty = subproblem.penalty._replace(mean=mean, kappa=3.0, begin=begin)
    theta = torch.tensor([9.0, 1, 1, 0], dtype=torch.float64)
    difference = theta - mean

    assert penalty.value(theta, nu) == pytest.approx(float(nu @ difference + 1.5 * difference @ difference))
    far = subproblem.penalty.begin + torch.tensor([9.0, -8.5, 3.0, 0.0], dtype=torch.float64)
    trial = subproblem.trial(far, fixed_z)
    assert trial is not None
    torch.testing.assert_close(trial.theta - subproblem.penalty.begin, far.new_tensor([8.0, -8.0, 3.0, 0.0]))
    assert subproblem.trial(torch.nan * far, fixed_z) is None


def test_no_gradient_is_left_where_a_limit_stops_the_descent():
    """Elsewhere, and where the descent leads back from the limit, it is the gradient itself."""
    begin = torch.zeros(4, dtype=torch.float64)
    penalty = ConsensusPenalty(begin, 0.0, torch.zeros_like(begin), begin, 8.0)
    theta, g = begin.new_tensor([8.0, 8.0, -8.0, -8.0]), begin.new_tensor([-1.0, 1.0, -1.0, 1.0])

    assert penalty.at(theta, g).tolist() == [0.0, 1.0, -1.0, 0.0]
    assert penalty.at(0.99 * theta, g).tolist() == g.tolist()


def test_a_newton_step_within_limits_minimises_the_model_and_descends():
    """Against a fine search along the edge: where one entry is stopped, the others are those of the smaller problem."""
    B, s = curved()
    g = 0.3 * B @ s
    lower, upper = torch.full_like(s, -1.0), torch.full_like(s, 1.0)
    free = newton_direction(g, B, 0.0)
    upper[0], lower[0] = (0.0, -1.0) if free[0] > 0.0 else (1.0, 0.0)
    lower[1] = upper[1] = 0.0  # fixed

    d = bounded_direction(g, B, lower, upper)

    assert d[0] == d[1] == 0.0
    torch.testing.assert_close(d[2:], -torch.linalg.solve(B[2:, 2:], g[2:]))
    assert float(g @ d) <= -float(d @ B @ d) + 1e-12 < 0.0
    assert float((B @ d + g)[0] * free[0]) <= 0.0  # the model would decrease beyond the limit alone


@pytest.mark.parametrize("key", ["gpcv-admm", "gpcv-admm-holdout"])
def test_a_lengthscale_at_its_limit_does_not_keep_the_others_from_a_minimum(key: str, monkeypatch: pytest.MonkeyPatch):
    """The targets do not depend on the second input, so that the error decreases for ever with its lengthscale."""
    rng = torch.Generator().manual_seed(5)
    X = torch.randn(60, 2, generator=rng, dtype=torch.float64)
    y = torch.sin(2.0 * X[:, 0]) + 0.1 * torch.randn(60, generator=rng, dtype=torch.float64)
    kernel = make("se-ard", d=2)
    theta = torch.tensor([0.3, 0.3, 0.0, -1.0], dtype=torch.float64)
    monkeypatch.setattr(consensus, "SPAN", 1.5)
    method, task = registry[key](), Problem(Dataset(X, y), kernel, theta)
    generator = method.steps(task)
    try:
        while True:
            state = next(generator).state
    except StopIteration as end:
        outcome = end.value

    assert outcome.reason == "converged"
    assert outcome.message.endswith(" 1 hyperparameter is a factor of 4 from the initial value, which is the limit.")
    at_the_limit = int((state.mean - theta).abs().argmax())
    assert float((state.mean - theta)[at_the_limit]) == pytest.approx(1.5)
    setup = consensus.make_setup(method, task)
    zeros = [torch.zeros_like(z) for z in (fold.z for fold in state.folds)]
    for j in {0, 1, 3} - {at_the_limit}:  # central differences of the error at the end
        step = 1e-3 * torch.eye(4, dtype=torch.float64)[j]
        high, low = (
            consensus._cross_validated_error(setup, consensus._score(setup, state.mean + s, zeros))
            for s in (step, -step)
        )
        assert abs(high - low) / 2e-3 / state.best < 2e-2


def test_the_hessian_begins_with_the_curvature_of_the_first_step_and_ignores_what_is_not_finite():
    B, s = curved()
    y = B @ s

    torch.testing.assert_close(bfgs(0.0 * B, s, y) @ s, y)
    across = torch.linalg.svd(torch.stack([s, y])).Vh[2]  # orthogonal to the step and to the change
    torch.testing.assert_close(bfgs(0.0 * B, s, y) @ across, across * y.norm() / s.norm())
    assert torch.equal(bfgs(B, s, torch.nan * y), B)
    assert torch.equal(bfgs(B, 0.0 * s, y), B)
    torch.testing.assert_close(bfgs(B, 1e-3 * s, 0.6e-3 * y) @ s, 0.6 * y)
    for share, kept in ((0.21, 0.21), (0.19, 0.2)):
        assert float(s @ bfgs(B, s, share * y) @ s) == pytest.approx(kept * float(s @ y))


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
    folds = [fold._replace(nu=(k + 1.0) * kappa * torch.ones_like(fold.nu)) for k, fold in enumerate(state.folds)]

    mean, after = consensus.form_consensus(setup, state, folds)

    relaxed = [alpha * fold.theta + (1.0 - alpha) * state.mean for fold in folds]
    torch.testing.assert_close(mean, sum(relaxed) / 3 + 2.0)  # the mean of nu / kappa
    for fold, begin, at in zip(after, folds, relaxed, strict=True):
        torch.testing.assert_close(fold.nu, begin.nu + kappa * (at - mean))
    assert float(sum(fold.nu for fold in after).abs().max()) < 1e-9 * kappa  # type: ignore[union-attr]


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
