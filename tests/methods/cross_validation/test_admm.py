"""Cross-validation by ADMM against dense algebra: gradients, the z step, and the final state."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from gpexplorer.linalg.workspace import Workspace
from gpexplorer.methods.base import registry
from gpexplorer.methods.cross_validation.folds import FoldGroup, FoldKernel, equal_parts, split
from gpexplorer.methods.cross_validation.scale_direction import scale_direction
from gpexplorer.methods.cross_validation.solvers import (
    NystromInverse,
    Target,
    _Residuals,
    _share_of_step,
    _smoothed,
    solve,
)
from gpexplorer.methods.cross_validation.theta_step import FoldSystems, Limits, lagrangian_terms, theta_gradient
from gpexplorer.problem import Problem
from oracles_admm import central_differences, held_out, problem

SHIFTS = [0.0, 1000.0]
KERNELS = ["se-ard", "se", "lp", "se + lp", "rq-ard * periodic", "matern32"]
SCHEMES = ["gpcv-admm-holdout", "gpcv-admm", "gpcv-admm-naive"]
QUICK = {"max_iterations": 25, "cg_iterations": 200, "cg_tolerance": 1e-8, "rank": 30}


def groups_of(task: Problem, budget: float = 1e9) -> dict[str, FoldGroup]:
    """One fold, and three folds of one theta that share their kernel matrix."""
    [fold] = split(task, [slice(0, 20)], 3, budget)
    [shared] = split(task, equal_parts(len(task.train), 3), 3, budget, shared=True)
    return {"one fold": fold, "three folds": shared}


def columns(group: FoldGroup) -> tuple[torch.Tensor, torch.Tensor]:
    """Random Z and lambda [c, K]."""
    rng = torch.Generator().manual_seed(1)
    Z, dual = torch.randn(2, *group.T.shape, generator=rng, dtype=torch.float64)
    return group.T * Z, group.T * dual


def fold_matrices(task: Problem, group: FoldGroup, theta: torch.Tensor, k: int) -> tuple[torch.Tensor, ...]:
    """C, K_VT, y_T, y_V of fold k, and its training rows."""
    T, V = (mask.bool()[:, k] for mask in (group.T, group.V))
    X_T, X_V = group.X[: group.trained][T], group.X[V]
    C = task.kernel(theta, X_T, X_T) + (2 * theta[-1]).exp() * torch.eye(len(X_T), dtype=theta.dtype)
    return C, task.kernel(theta, X_V, X_T), group.y[: group.trained][T], group.y[V], T


def lagrangian(
    task: Problem, group: FoldGroup, theta: torch.Tensor, Z: torch.Tensor, dual: torch.Tensor, rho: float
) -> float:
    """The definition in section 3.1, summed over the folds."""
    total = 0.0
    for k in range(Z.shape[1]):
        C, K, y_T, y_V, T = fold_matrices(task, group, theta, k)
        r, c = y_V - K @ Z[T, k], C @ Z[T, k] - y_T
        total += float(r @ r + dual[T, k] @ c + 0.5 * rho * c @ c)
    return total


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", ["one fold", "three folds"])
def test_lagrangian_and_its_gradient_match_the_definition(kind: str, kernel: str, shift: float):
    task = problem(shift, kernel=kernel)
    group = groups_of(task)[kind]
    (Z, dual), rho = columns(group), 0.7
    M = group.kernel_matrix(task.theta)

    terms = lagrangian_terms(group, M, Z, dual, rho)
    g = theta_gradient(group, M, Z, dual + rho * terms.c, terms.r)

    assert terms.total == pytest.approx(lagrangian(task, group, task.theta, Z, dual, rho), rel=1e-10)
    expected = central_differences(lambda theta: lagrangian(task, group, theta, Z, dual, rho), task.theta)
    torch.testing.assert_close(g, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("rank", [0, 25])
@pytest.mark.parametrize("kind", ["one fold", "three folds"])
def test_z_step_is_the_minimiser(kind: str, rank: int, shift: float):
    task = problem(shift)
    group, theta, rho = groups_of(task)[kind], task.theta, 0.7
    _, dual = columns(group)

    solution = FoldSystems(group, group.kernel_matrix(theta), rank).z_step(dual, rho, Limits(4000, 1e-10))

    for k in range(dual.shape[1]):
        C, K, y_T, y_V, T = fold_matrices(task, group, theta, k)
        b = 2 * K.T @ y_V + C @ (rho * y_T - dual[T, k])
        exact = torch.linalg.solve(2 * K.T @ K + rho * C @ C, b)
        torch.testing.assert_close(C @ solution.X[T, k], C @ exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("rank", [0, 25])
def test_folds_that_share_a_matrix_have_the_solutions_of_separate_folds(rank: int, shift: float):
    task = problem(shift)
    group = groups_of(task)["three folds"]
    systems = FoldSystems(group, group.kernel_matrix(task.theta), rank)

    Z = systems.solve_C(systems.y_T, torch.zeros_like(systems.y_T), Limits(2000, 1e-12)).X
    adjoint = systems.adjoint(lagrangian_terms(group, systems.M, Z, 0.0 * Z, 0.0).r, 0.0 * Z, Limits(2000, 1e-12)).X

    for k in range(3):
        C, K, y_T, y_V, T = fold_matrices(task, group, task.theta, k)
        z = torch.linalg.solve(C, y_T)
        torch.testing.assert_close(Z[T, k], z, rtol=1e-7, atol=1e-8)
        torch.testing.assert_close(adjoint[T, k], torch.linalg.solve(C, 2 * K.T @ (y_V - K @ z)), rtol=1e-7, atol=1e-8)
        assert not bool(Z[~T, k].any() or adjoint[~T, k].any())


def random_columns(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_smoothed_residual_is_the_shortest_between_two():
    Y, F, X, E = random_columns(4, 20, 3)
    F[:, 1], E[:, 1] = E[:, 1], 0.5 * E[:, 1]  # the shortest is the new one
    E[:, 2] = 2.0 * F[:, 2]  # the shortest is the old one

    smooth, residual = _smoothed(Y, F, X, E)

    shares = torch.linspace(0.0, 1.0, 2001, dtype=torch.float64)
    lengths = (F + shares[:, None, None] * (E - F)).norm(dim=1)  # [2001, 3]
    best = shares[lengths.argmin(0)]
    torch.testing.assert_close(residual.norm(dim=0), lengths.min(0).values, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(smooth, Y + best * (X - Y), rtol=0.0, atol=2e-3)
    assert best[1:].tolist() == [1.0, 0.0]
    assert 0.1 < float(best[0]) < 0.9


def test_the_share_of_a_step_is_the_first_at_which_all_columns_are_within_their_norms():
    for seed in range(5):
        before, after = random_columns(2, 20, 3, seed=seed) * torch.tensor([[[2.0]], [[0.4]]], dtype=torch.float64)
        norms = 0.6 * before.norm(dim=0) + torch.tensor([0.0, 0.0, 9.0], dtype=torch.float64)

        share = _share_of_step(before, after, norms)

        shares = torch.linspace(0.0, 1.0, 4001, dtype=torch.float64)
        within = ((before + shares[:, None, None] * (after - before)).norm(dim=1) <= norms).all(1)
        assert share == pytest.approx(float(shares[int(within.double().argmax())]), abs=3e-4)
    assert _share_of_step(before, after, 2.0 * before.norm(dim=0)) == 0.0


def test_a_residual_is_orthogonal_to_all_earlier_ones_also_when_there_are_many():
    P = random_columns(30, 30, seed=1)
    P = P @ P.T + torch.eye(30, dtype=torch.float64)
    R = random_columns(12, 30, 2, seed=2)
    earlier, kept = _Residuals(R[0]), []

    for residual in R:
        residual = earlier.orthogonal(earlier.orthogonal(residual))
        for other in kept:
            assert float(((P @ other) * residual).sum(0).abs().max()) < 1e-9
        earlier.append(residual, P @ residual, (residual * (P @ residual)).sum(0))
        kept.append(residual)

    assert float(earlier.orthogonal(R[3]).abs().max()) < 1e-8


@pytest.mark.parametrize("of_solution", [False, True])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
def test_a_solution_has_just_reached_its_target_and_says_how_far_it_is(tolerance: float, of_solution: bool):
    """The target of a residual is that of A x - b, and of a solution that of P (A x - b)."""
    U = torch.linalg.qr(random_columns(60, 60)).Q
    A = U @ torch.diag(torch.logspace(0, 3, 60, dtype=torch.float64)) @ U.T
    B, P = random_columns(60, 3, seed=4), torch.full((60,), 0.01, dtype=torch.float64)
    P[:30] = 0.02
    norms = tolerance * torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)

    solution = solve(lambda V: A @ V, B, torch.zeros_like(B), lambda R: P[:, None] * R, Target(norms, 500, of_solution))

    R = A @ solution.X - B
    errors = ((P[:, None] * R) if of_solution else R).norm(dim=0) / norms
    assert solution.error == pytest.approx(float(errors.max()), rel=1e-3)
    assert 1.0 / 1.1 == pytest.approx(solution.error, rel=1e-6)
    assert 5 < solution.iterations < 200
    few = solve(lambda V: A @ V, B, torch.zeros_like(B), lambda R: P[:, None] * R, Target(norms, 4, of_solution))
    assert few.iterations == 4
    assert few.error > 1.0
    repeated = solve(
        lambda V: A @ V, B, torch.linalg.solve(A, B), lambda R: P[:, None] * R, Target(norms, 500, of_solution)
    )
    assert repeated.iterations <= 2


@pytest.mark.parametrize("kind", ["one fold", "three folds"])
def test_the_preconditioner_is_the_inverse_of_a_nystrom_approximation_of_each_fold(kind: str):
    task = problem()
    group, s2 = groups_of(task)[kind], 0.3
    M = group.kernel_matrix(task.theta)
    inverse = NystromInverse(group, M, 12, s2)
    V, _ = columns(group)

    X = inverse(V)

    for k in range(V.shape[1]):
        T = group.T.bool()[:, k]
        L = inverse.L[T]
        torch.testing.assert_close(L @ (L.T @ X[T, k]) + s2 * X[T, k], V[T, k], rtol=1e-8, atol=1e-9)
        assert not bool(X[~T, k].any())
    whole = task.kernel(task.theta, group.X[: group.trained], group.X[: group.trained])
    missing = whole - inverse.L @ inverse.L.T
    rows = torch.linspace(0, group.trained - 1, 12).long()[: inverse.L.shape[1]]
    assert float(missing[rows].abs().max()) < 1e-7  # the rows from which it is made are represented exactly
    assert float(torch.linalg.eigvalsh(missing).min()) > -1e-7
    assert 4 < inverse.L.shape[1] <= 12
    assert torch.equal(NystromInverse(group, M, 0, s2)(V), V)


@pytest.mark.parametrize("budget", [0.0, 40 * 8 * 17.0, 1e9])
def test_products_do_not_depend_on_the_memory_budget(budget: float):
    task = problem(1000.0)
    fold = groups_of(task)["one fold"]
    M, full = (
        FoldKernel(task.kernel, task.theta, fold.X, 40, Workspace(budget), s2=0.1),
        task.kernel(task.theta, fold.X, fold.X[:40]),
    )
    u = torch.linspace(-1, 2, 120, dtype=torch.float64).reshape(60, 2)
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
    # with 25 iterations theta runs to a condition number of 1e12, where dense algebra has no six digits either
    method = registry[key](**{**QUICK, "calibrate": False, "tolerance": 3e-3, "max_iterations": 12})
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
    torch.testing.assert_close(loose.state.mean, torch.stack([fold.theta for fold in loose.state.folds]).mean(0))


@pytest.mark.parametrize(("n", "count"), [(60, 4), (61, 7), (5, 9)])
def test_every_row_is_in_one_validation_set_and_their_sizes_are_nearly_equal(n: int, count: int):
    parts = equal_parts(n, count)
    sizes = [part.stop - part.start for part in parts]

    assert sorted(row for part in parts for row in range(part.start, part.stop)) == list(range(n))
    assert max(sizes) - min(sizes) <= 1
