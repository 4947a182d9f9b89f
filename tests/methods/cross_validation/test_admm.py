"""Cross-validation by ADMM against dense algebra: gradients, the z step, and the final state."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from gpexplorer.linalg.workspace import Workspace
from gpexplorer.methods.base import registry
from gpexplorer.methods.cross_validation.folds import Fold, FoldKernel, equal_parts, split
from gpexplorer.methods.cross_validation.lagrangian import FoldSystems, Limits, lagrangian_terms, theta_gradient
from gpexplorer.methods.cross_validation.scale_direction import scale_direction
from gpexplorer.problem import Problem
from oracles_admm import central_differences, covariance, held_out, problem

SHIFTS = [0.0, 1000.0]
KERNELS = ["se-ard", "se", "lp", "se + lp", "rq-ard * periodic", "matern32"]
SCHEMES = ["gpcv-admm-holdout", "gpcv-admm", "gpcv-admm-naive"]
QUICK = {"max_iterations": 25, "cg_iterations": 200, "cg_tolerance": 1e-8, "rank": 30}


def fold_of(task: Problem, budget: float = 1e9) -> Fold:
    [fold] = split(task, [slice(0, 20)], 3, budget)
    return fold


def vectors(fold: Fold) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    z, dual = torch.randn(2, fold.trained, generator=rng, dtype=torch.float64)
    return z, dual


def lagrangian(
    task: Problem, fold: Fold, theta: torch.Tensor, z: torch.Tensor, dual: torch.Tensor, rho: float
) -> float:
    """By the definition in section 3.1."""
    T, V = fold.X[: fold.trained], fold.X[fold.trained :]
    C = task.kernel(theta, T, T) + (2 * theta[-1]).exp() * torch.eye(len(T), dtype=z.dtype)
    r, c = fold.y[fold.trained :] - task.kernel(theta, V, T) @ z, C @ z - fold.y[: fold.trained]
    return float(r @ r + dual @ c + 0.5 * rho * c @ c)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_lagrangian_and_its_gradient_match_the_definition(kernel: str, shift: float):
    task = problem(shift, kernel=kernel)
    fold = fold_of(task)
    (z, dual), rho = vectors(fold), 0.7

    at = lagrangian_terms(fold, fold.kernel_matrix(task.theta), z, dual, rho)
    g = theta_gradient(fold.kernel_matrix(task.theta), z, dual + rho * at.c, at.r)

    assert at.total == pytest.approx(lagrangian(task, fold, task.theta, z, dual, rho), rel=1e-10)
    expected = central_differences(lambda theta: lagrangian(task, fold, theta, z, dual, rho), task.theta)
    torch.testing.assert_close(g, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("rank", [0, 25])
def test_z_step_is_the_minimiser(rank: int, shift: float):
    task = problem(shift)
    fold, theta, rho = fold_of(task), task.theta, 0.7
    z, dual = vectors(fold)
    C = covariance(task, theta, type(task.train)(fold.X[:40], fold.y[:40]))
    K = task.kernel(theta, fold.X[40:], fold.X[:40])

    solution = FoldSystems(fold, fold.kernel_matrix(theta), rank).z_step(dual, rho, z, Limits(4000, 1e-13))

    want = 2 * K.T @ fold.y[40:] + C @ (rho * fold.y[:40] - dual)
    exact = torch.linalg.solve(2 * K.T @ K + rho * C @ C, want)
    torch.testing.assert_close(C @ solution.x, C @ exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("budget", [0.0, 40 * 8 * 17.0, 1e9])
def test_products_do_not_depend_on_the_memory_budget(budget: float):
    task = problem(1000.0)
    fold = fold_of(task)
    M, full = (
        FoldKernel(task.kernel, task.theta, fold.X, 40, Workspace(budget)),
        task.kernel(task.theta, fold.X, fold.X[:40]),
    )
    u = torch.linspace(-1, 2, 60, dtype=torch.float64)
    rows = torch.tensor([3, 39, 0])

    assert M.stored == min(60, int(budget // (40 * 8)))
    torch.testing.assert_close(M.times(u[:40]), full @ u[:40])
    torch.testing.assert_close(M.transposed_times(u), full.T @ u)
    torch.testing.assert_close(M.columns(rows), full[:40, rows])


def test_with_adjoint_multipliers_the_first_gradient_is_that_of_the_loss():
    task = problem(1000.0)
    method = registry["gpcv-admm-holdout"](calibrate=False, **QUICK)
    prepared = list(islice(method.steps(task), 2))[-1].state
    [fold] = split(task, method.validation(60), method.seed, 1.0)
    T, V = torch.arange(fold.trained), torch.arange(fold.trained, 60)
    same = Problem(type(task.train)(fold.X, fold.y), task.kernel, task.theta)

    loss = central_differences(lambda theta: float(held_out(same, theta, T, V)[0].square().sum()), task.theta)
    u = scale_direction(task)
    assert u is not None
    assert float(loss @ u) == pytest.approx(0.0, abs=1e-5)
    torch.testing.assert_close(prepared.folds[0].g, loss, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("key", SCHEMES)
def test_final_constraint_holds_and_the_error_equals_the_one_by_cholesky(key: str, shift: float):
    task = problem(shift)
    method = registry[key](**{**QUICK, "calibrate": False, "tolerance": 3e-3})
    steps = list(method.steps(task))
    last, first = steps[-1], steps[1]

    order = split(task, method.validation(60), method.seed, 1.0)
    loss = 0.0
    for fold in order:
        T, V = torch.arange(fold.trained), torch.arange(fold.trained, 60)
        same = Problem(type(task.train)(fold.X, fold.y), task.kernel, task.theta)
        loss += float(held_out(same, last.state.mean, T, V)[0].square().sum())
    assert last.info.objective == pytest.approx(loss / sum(60 - fold.trained for fold in order), rel=1e-6)
    assert last.state.best < 0.8 * first.info.objective
    assert last.info.gap <= 3e-2
    assert last.state.best == min(step.info.objective for step in steps[1:])


def test_folds_agree_with_consensus_and_not_without():
    task = problem()
    tied, loose = (list(registry[key](**QUICK).steps(task))[-1] for key in SCHEMES[1:])

    assert tied.info.disagreement < 0.2 * loose.info.disagreement
    torch.testing.assert_close(loose.state.mean, torch.stack([one.theta for one in loose.state.folds]).mean(0))


@pytest.mark.parametrize(("n", "count"), [(60, 4), (61, 7), (5, 9)])
def test_every_row_is_in_one_validation_set_and_their_sizes_are_nearly_equal(n: int, count: int):
    parts = equal_parts(n, count)
    sizes = [part.stop - part.start for part in parts]

    assert sorted(row for part in parts for row in range(part.start, part.stop)) == list(range(n))
    assert max(sizes) - min(sizes) <= 1
