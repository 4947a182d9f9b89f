"""What a group of folds computes in one iteration, beside dense algebra: z, multipliers, gradients and reports."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.kernels.theta.restrictions import restricted_problem
from gpexplorer.methods.base import registry
from gpexplorer.methods.cross_validation import fold_steps
from gpexplorer.methods.cross_validation.folds import FoldGroup, equal_parts, split
from gpexplorer.methods.cross_validation.solvers import Solution
from gpexplorer.methods.cross_validation.theta_step import (
    FIRST,
    ConsensusPenalty,
    FoldSystems,
    Limits,
    ThetaProblem,
    ZRule,
    bfgs,
    z_eliminated,
)
from gpexplorer.problem import Dataset, Problem
from oracles_admm import covariance, problem

SHIFTS = [0.0, 1000.0]


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
    Z, dual, old = (group.columns([getattr(local_after, name) for local_after in folds])
                    for folds, name in ((after, "z"), (after, "dual"), (before, "dual")))  # fmt: skip
    total, lagrangian, gaps, losses, energy = torch.zeros(()).double(), 0.0, [], [], 0.0
    rho = 0.0 if settings.z_rule is z_eliminated else 1.3
    for k, local_after in enumerate(after):
        T = group.T.bool()[:, k]
        y_T, c, r = dense_fold(task, group, theta, k, Z[:, k])
        assert local_after.loss == pytest.approx(float((r @ r).detach()), **close)
        assert local_after.gap == pytest.approx(float(c.detach().norm()), **close)
        assert local_after.slack == pytest.approx(float((dual[T, k] @ c).detach()), **close)
        if rho:
            torch.testing.assert_close(dual[T, k], (old[T, k] + 0.6 * rho * c).detach(), rtol=1e-6, atol=1e-7)
        total = total + r @ r + dual[T, k] @ c
        lagrangian += float((r @ r + old[T, k] @ c + 0.5 * rho * c @ c).detach())
        gaps.append(local_after.gap / float(y_T.norm()))
        exact = torch.zeros(group.trained).double()
        exact[T] = torch.linalg.solve(
            covariance(task, local_after.theta, type(task.train)(group.X[: group.trained][T], y_T)), y_T
        )
        losses.append(float(dense_fold(task, group, local_after.theta, k, exact)[2].square().sum()))
        energy += float(y_T @ exact[T])
    (g,) = torch.autograd.grad(total, theta)
    torch.testing.assert_close(after[0].g, g, rtol=1e-5, atol=1e-5)
    difference = theta.detach() - penalty.mean
    residual = float((g + 0.4 + 0.7 * difference).norm()) / sum(local_after.loss for local_after in after)
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
        folds = [fold._replace(g=g, nu=zero + 0.1, loss=loss / 3, tolerance=last) for fold in local]
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
    local = [fold._replace(length=0.8, tolerance=2e-4) for fold in
             fold_steps.prepare(group, task.theta, settings, "adjoint", penalty)]  # fmt: skip

    after, report, score = fold_steps.iterate(group, local, penalty, settings._replace(largest_gap=-1.0), True)

    assert report.rolled_back
    assert score is None
    for fold, begin in zip(after, local, strict=True):
        torch.testing.assert_close(fold.B, 4.0 * begin.B)
        assert (fold.rho, fold.length, fold.tolerance) == pytest.approx((8.0, 0.2, 2e-3))
        assert torch.equal(fold.theta, begin.theta)
        assert torch.equal(fold.z, begin.z)
    lost = [fold._replace(theta=torch.nan * fold.theta) for fold in local]
    beyond, report, _ = fold_steps.iterate(group, lost, penalty, settings, True)
    assert report.rolled_back
    torch.testing.assert_close(beyond[0].B, 4.0 * local[0].B)
    wide = [fold._replace(tolerance=1e-3, rho=190.0) for fold in local]
    repeated, _, _ = fold_steps.iterate(group, wide, penalty, settings._replace(largest_gap=-1.0), True)
    assert (repeated[0].rho, repeated[0].tolerance) == pytest.approx((200.0, 30.0 * 1e-4))


def test_the_factor_of_a_refused_step_is_taken_back_by_at_most_eight_per_step():
    R = torch.randn(5, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    B, s = R @ R.T, R[:, 0]
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


class ArmijoCalls:
    """What Armijo's rule was asked for and what it answered; with `refuse` it accepts no step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refuse: bool = False) -> None:
        self.asked: list[tuple[Tensor, float, Tensor]] = []
        self.accepted: list[Tensor] = []
        original = ThetaProblem.armijo

        def armijo(
            fold_problem: ThetaProblem, theta: Tensor, value: float, step: tuple[Tensor, Tensor], z_rule: ZRule
        ) -> object:
            self.asked.append((theta, value, step[0]))
            trial, count = (None, 6) if refuse else original(fold_problem, theta, value, step, z_rule)
            self.accepted += [] if trial is None else [trial.theta]
            return trial, count

        monkeypatch.setattr(ThetaProblem, "armijo", armijo)


def three_folds(theta_method: str, **settings: object) -> tuple[Problem, FoldGroup, fold_steps.FoldSettings]:
    task = problem()
    method = registry["gpcv-admm"](theta_method=theta_method, cg_tolerance=1e-6, cg_iterations=2000, rank=25, rho=1.3)
    [group] = split(task, equal_parts(len(task.train), 3), 3, 1e9, shared=True)
    return task, group, method.fold_settings()._replace(largest_gap=1e9, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("theta_method", ["z eliminated", "z follows", "z held still"])
def test_the_value_before_a_step_is_the_lagrangian_with_the_penalty(theta_method: str, monkeypatch: pytest.MonkeyPatch):
    task, group, settings = three_folds(theta_method, relaxation=0.6)
    zero = torch.zeros_like(task.theta)
    penalty = ConsensusPenalty(task.theta + 0.2, 0.7, zero, task.theta, 8.0)
    local = fold_steps.prepare(group, task.theta, settings, "ones", penalty)
    torch.testing.assert_close(group.columns([fold.dual for fold in local]), group.T)
    local = tuple(fold._replace(nu=zero + 0.4) for fold in local)
    for _ in range(2):
        calls = ArmijoCalls(monkeypatch)
        after, _, _ = fold_steps.iterate(group, local, penalty, settings, False)
        theta, value, _ = calls.asked[0]
        difference = theta - penalty.mean
        expected = float(0.4 * difference.sum() + 0.35 * difference @ difference)
        rho = 0.0 if settings.z_rule is z_eliminated else local[0].rho
        for k in range(3):
            T, Z = group.T.bool()[:, k], group.columns([each.z for each in local])
            _, c, r = dense_fold(task, group, theta, k, Z[:, k])
            expected += float(r @ r + group.columns([each.dual for each in local])[T, k] @ c + 0.5 * rho * c @ c)
        assert value == pytest.approx(expected, rel=1e-6)
        torch.testing.assert_close(theta, local[0].theta)
        local = after


@pytest.mark.parametrize("length", [0.0, 0.01])
def test_gradient_steps_with_z_fixed_begin_at_the_last_length_and_double_it(
    length: float, monkeypatch: pytest.MonkeyPatch
):
    task, group, settings = three_folds("z held still", gradient_steps=3)
    zero = torch.zeros_like(task.theta)
    penalty = ConsensusPenalty(task.theta, 0.0, zero, task.theta, 8.0)
    local = fold_steps.prepare(group, task.theta, settings, "adjoint", penalty)
    calls = ArmijoCalls(monkeypatch)

    _, report, _ = fold_steps.iterate(group, [fold._replace(length=length) for fold in local], penalty, settings, False)

    lengths = [float(d.norm()) for _, _, d in calls.asked]
    moves = [float((to - theta).norm()) for (theta, _, _), to in zip(calls.asked, calls.accepted, strict=True)]
    assert len(lengths) == 3
    assert lengths == pytest.approx([length or 1.0, *(2.0 * move for move in moves[:2])])
    assert report.refused == 0.0


@pytest.mark.parametrize("shift", SHIFTS)
def test_coordinate_descent_moves_one_hyperparameter_after_the_other_along_its_own_derivative(
    shift: float, monkeypatch: pytest.MonkeyPatch
):
    task = problem(shift)
    settings = registry["gpcv-admm"](theta_method="z held still", one_at_a_time=True, rho=1.3).fold_settings()
    settings = settings._replace(largest_gap=1e9)
    [group] = split(task, equal_parts(len(task.train), 3), 3, 1e9, shared=True)
    zero = torch.zeros_like(task.theta)
    penalty = ConsensusPenalty(task.theta, 0.0, zero, task.theta, 8.0)
    local = fold_steps.prepare(group, task.theta, settings, "ones", penalty)
    calls = ArmijoCalls(monkeypatch)

    after, _, _ = fold_steps.iterate(group, local, penalty, settings, False)

    dual, Z = group.columns([fold.dual for fold in local]), group.columns([fold.z for fold in local])
    assert len(calls.asked) == settings.gradient_steps * len(zero)
    for k, (theta, _, d) in enumerate(calls.asked):
        free = theta.clone().requires_grad_()
        total = torch.zeros(()).double()
        for fold in range(3):
            _, c, r = dense_fold(task, group, free, fold, Z[:, fold])
            total = total + r @ r + dual[group.T.bool()[:, fold], fold] @ c + 0.65 * (c @ c)
        [gradient] = torch.autograd.grad(total, free)
        entry = k % len(zero)
        assert d.nonzero().flatten().tolist() == [entry]
        assert float(d[entry]) * float(gradient[entry]) < 0.0
    assert torch.equal(after[0].theta, calls.accepted[-1])


def test_coordinate_descent_moves_tied_hyperparameters_together_and_leaves_fixed_ones():
    lp = kernels.make("lp", 1)
    theta = torch.tensor([1.0, 0.4, 1.3, 0.4, 0.2], dtype=torch.float64).log()
    X = torch.rand(40, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 6.0
    task = Problem(Dataset(X, torch.sin(2.0 * torch.pi * X[:, 0])), lp, theta)
    task = restricted_problem(task, {"fixed": ["lp.sd", "noise"], "tied": [["lp.lengthscale", "lp.width"]]})
    own = {"theta_method": "z held still", "one_at_a_time": True, "restarts": 0, "max_iterations": 3, "folds": 2}
    states = [step.state for step in registry["gpcv-admm"](**own).steps(task)]
    for state in states:
        assert torch.equal(state.theta[[0, 4]], theta[[0, 4]])
        assert torch.equal(state.theta[1], state.theta[3])
    assert (states[-1].theta[1:3] != theta[1:3]).all()


def test_a_refused_step_reports_the_shortest_length_and_sharpens_the_tolerance(monkeypatch: pytest.MonkeyPatch):
    task, group, settings = three_folds("z eliminated", forcing=0.3)
    zero = torch.zeros_like(task.theta)
    penalty = ConsensusPenalty(task.theta, 0.0, zero, task.theta, 8.0)
    local = fold_steps.prepare(group, task.theta, settings, "zeros", penalty)
    assert not group.columns([fold.dual for fold in local]).any()
    tolerance = fold_steps.inexact_limits(group, local, penalty, settings).tolerance
    for wide, factor in ((local, 0.1), ([fold._replace(tolerance=5e-9) for fold in local], 0.2)):
        calls = ArmijoCalls(monkeypatch, refuse=True)

        after, report, _ = fold_steps.iterate(group, wide, penalty, settings, False)

        assert report.refused == pytest.approx(float(calls.asked[0][2].norm()) / 32)
        assert torch.equal(after[0].theta, local[0].theta)
        assert after[0].tolerance == pytest.approx(factor * min(tolerance, wide[0].tolerance))
    fixed, _, _ = fold_steps.iterate(group, local, penalty, settings._replace(forcing=0.0), False)
    assert fixed[0].tolerance == pytest.approx(1e-6)


def test_the_score_of_an_inexact_solution_errs_by_the_square_of_its_gap():
    task, group, settings = three_folds("z eliminated")
    few = settings._replace(rank=4, limits=settings.limits._replace(tolerance=1e-3))
    theta = task.theta
    exact = fold_steps.score_folds(group, theta, group.vectors(0.0 * group.T), settings)

    score = fold_steps.score_folds(group, theta, group.vectors(0.0 * group.T), few)

    Z, first_order, square = group.columns(score.zs), 0.0, 0.0
    for k in range(3):
        y_T, c, r = dense_fold(task, group, theta, k, Z[:, k])
        assert 1e-4 < float(c.norm() / y_T.norm()) <= 1.001e-3
        first_order += float(r @ r)
        trained = type(task.train)(group.X[: group.trained][group.T.bool()[:, k]], y_T)
        square += float(c @ torch.linalg.solve(covariance(task, theta, trained), c))
    assert abs(score.loss - exact.loss) < 0.2 * abs(first_order - exact.loss)
    assert exact.energy - score.energy == pytest.approx(square, rel=1e-2)  # (y - c)'C^-1 (y + c)


def test_each_kind_of_solution_with_C_has_its_own_limits(monkeypatch: pytest.MonkeyPatch):
    """Ten times the iterations of a z step to prepare, four times for a score, and a hundredth for the Hessian."""
    task, group, settings = three_folds("z eliminated")
    settings = settings._replace(limits=Limits(300, 1e-6))
    zero, requests = torch.zeros_like(task.theta), list[tuple[float, Limits]]()
    solve_C, adjoint = FoldSystems.solve_C, FoldSystems.adjoint

    def noted_solve(systems: FoldSystems, B: Tensor, X: Tensor, limits: Limits) -> Solution:
        requests.append((float((B.norm(dim=0) / systems.y_norms).max()), limits))
        return solve_C(systems, B, X, limits)

    def noted_adjoint(systems: FoldSystems, r: Tensor, X: Tensor, limits: Limits) -> Solution:
        requests.append((0.0, limits))
        return adjoint(systems, r, X, limits)

    monkeypatch.setattr(FoldSystems, "solve_C", noted_solve)
    monkeypatch.setattr(FoldSystems, "adjoint", noted_adjoint)
    penalty = ConsensusPenalty(task.theta, 0.0, zero, task.theta, 8.0)

    local = fold_steps.prepare(group, task.theta, settings, "adjoint", penalty)

    assert [limits for _, limits in requests[:2]] == [Limits(3000, 1e-6)] * 2
    probes = requests[2:]
    assert len(probes) == fold_steps.PROBES
    for scale, limits in probes:
        assert limits == (100, pytest.approx(fold_steps.PROBE_TOLERANCE * scale))
    requests.clear()
    fold_steps.score_folds(group, task.theta, [fold.z for fold in local], settings)
    assert [limits for _, limits in requests] == [Limits(1200, 1e-6), (1200, pytest.approx(1e-3))]
