"""Grid eigenfunctions against brute force and dense algebra."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.errors import KernelError, SettingError
from gpexplorer.features.basis_choices import Leading
from gpexplorer.features.grid_eigenfunctions import Grid, largest_products
from gpexplorer.methods.eigenfunctions.evidence import evidence_gradient, regress
from gpexplorer.methods.eigenfunctions.grid_method import SPACINGS
from gpexplorer.methods.eigenfunctions.grief import Grief
from gpexplorer.problem import Dataset, Problem
from oracles_grief import nlml, problem

SHIFTS = [0.0, 1000.0]


@pytest.mark.parametrize("p", [1, 7, 30, 1000])
def test_the_largest_products_equal_a_brute_force_search(p: int):
    rng = torch.Generator().manual_seed(p)
    axes = [torch.rand(k, generator=rng, dtype=torch.float64).sort(descending=True).values for k in (4, 3, 5)]
    every = sorted((math.prod(c) for c in itertools.product(*(axis.tolist() for axis in axes))), reverse=True)

    result = largest_products([axis.log() for axis in axes], p)

    torch.testing.assert_close(result.log_values.exp(), torch.tensor(every[:p], dtype=torch.float64))
    made = torch.stack([axis[which] for axis, which in zip(axes, result.axis_indices.T, strict=True)]).prod(0)
    torch.testing.assert_close(made, result.log_values.exp())
    assert len({tuple(row) for row in result.axis_indices.tolist()}) == len(result.log_values) == min(p, 60)


def test_equal_products_are_ordered_by_index():
    axis = torch.tensor([1.0, 1.0, 0.5], dtype=torch.float64).log()
    first, second = (largest_products([axis, axis], 4) for _ in range(2))

    assert first.axis_indices.tolist() == second.axis_indices.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_a_grid_larger_than_the_universe_is_finite():
    rng = torch.Generator().manual_seed(1)
    axes = [torch.rand(100, generator=rng, dtype=torch.float64).mul(1e-4).sort(descending=True).values.log()] * 100

    result = largest_products(axes, 50)

    assert result.log_values.isfinite().all()
    assert float(result.log_values[0]) < math.log(1e-308)
    assert (result.log_values.diff() <= 0).all()


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_all_eigenfunctions_together_equal_nystrom_on_the_whole_grid(d: int, shift: float):
    task = problem(shift, d)
    grid = Grid(task.kernel, task.train.X, 4)
    U = torch.cartesian_prod(*grid.axes).reshape(-1, d)
    K_nu, K_uu = task.kernel(task.theta, task.train.X, U), task.kernel(task.theta, U, U)

    index = grid.spectrum(task.theta, 4**d).axis_indices
    Phi = grid.features(task.theta, task.train.X, index)

    torch.testing.assert_close(Phi @ Phi.T, K_nu @ torch.linalg.solve(K_uu, K_nu.T), rtol=1e-7, atol=1e-8)
    values = torch.linalg.eigvalsh(K_uu).flip(0)
    torch.testing.assert_close(grid.spectrum(task.theta, 5).log_values.exp(), values[:5], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("d", "p"), [(1, 5), (2, 9), (3, 40), (8, 200), (18, 300)])
def test_products_shared_in_a_tree_equal_sums_of_logarithms_with_signs(d: int, p: int):
    task = problem(1000.0, d)
    grid = Grid(task.kernel, task.train.X, 5)
    index = grid.spectrum(task.theta, p).axis_indices
    log, sign = torch.zeros(60, len(index), dtype=torch.float64), torch.ones(60, len(index), dtype=torch.float64)
    for q, (values, vectors) in enumerate(grid.axis_eigen(task.theta)):
        B = (grid.axis_kernels(task.theta)[q](task.train.X[:, q], grid.axes[q]) @ vectors)[:, index[:, q]]
        log += B.abs().log() - 0.5 * values.log()[index[:, q]]
        sign *= B.sign()

    Phi = grid.features(task.theta, task.train.X, index)

    torch.testing.assert_close(Phi, sign * log.exp(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("shift", SHIFTS)
def test_likelihood_and_gradient_equal_dense_algebra(shift: float):
    task = problem(shift)
    grid = Grid(task.kernel, task.train.X, 6)
    index = grid.spectrum(task.theta, 15).axis_indices

    def dense(theta: torch.Tensor) -> torch.Tensor:
        return nlml(grid.features(theta, task.train.X, index), task.train.y, torch.exp(2 * theta[-1]))

    now = regress(Leading(grid, index), task.theta, task.train)
    gradient = evidence_gradient(Leading(grid, index), task.theta, task.train, now)

    assert now.value == pytest.approx(dense(task.theta).item(), rel=1e-9)
    for k in range(len(task.theta)):
        step = torch.zeros_like(task.theta)
        step[k] = 1e-5
        rise = (dense(task.theta + step) - dense(task.theta - step)).item() / 2e-5
        assert float(gradient[k]) == pytest.approx(rise, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("shift", SHIFTS)
def test_predictions_are_those_of_the_truncated_kernel(shift: float):
    task = problem(shift)
    method = Grief(num_eigenfunctions=15, grid_points=6, learn=False)
    *_, last = method.steps(task)
    grid = Grid(task.kernel, task.train.X, 6)
    X = task.train.X[:7] + 0.03
    Phi, at = (grid.features(task.theta, Z, grid.spectrum(task.theta, 15).axis_indices) for Z in (task.train.X, X))
    A = Phi @ Phi.T + math.exp(-2.0) * torch.eye(60, dtype=torch.float64)

    mean, var = method.posterior(task, last.state)(X)

    torch.testing.assert_close(mean, at @ Phi.T @ torch.linalg.solve(A, task.train.y), rtol=1e-8, atol=1e-9)
    inside = (at @ at.T - at @ Phi.T @ torch.linalg.solve(A, Phi @ at.T)).diagonal()
    torch.testing.assert_close(var, inside, rtol=1e-8, atol=1e-9)


def test_learning_lowers_the_nlml_and_reports_the_share_of_variance_kept():
    steps = list(Grief(num_eigenfunctions=25, grid_points=8, subset=20, evaluations=6).steps(problem()))
    totals = [step.info.objective for step in steps if step.info.phase == "learn"]

    assert totals == sorted(totals, reverse=True)
    assert totals[-1] < totals[0] - 1
    assert all(0 < step.info.kept <= 1 + 1e-9 for step in steps if step.info.phase == "learn")


def test_outside_the_grid_the_prediction_is_the_prior_and_such_rows_are_reported():
    task = problem(1000.0)
    method = Grief(num_eigenfunctions=15, grid_points=6, learn=False)
    *_, last = method.steps(task)
    far = task.train.X[:1] + 80.0

    mean, var = method.posterior(task, last.state)(far)

    assert float(mean.abs()) < 1e-8
    assert float(var) == pytest.approx(float(task.kernel.diag(task.theta, far)), rel=1e-6)
    assert Grid(task.kernel, task.train.X, 6).outside(torch.cat([far, task.train.X])).tolist() == [True] + [False] * 60


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_grid_may_have_different_sizes_per_input_and_follow_quantiles(shift: float):
    task = problem(shift)
    X = torch.cat([task.train.X, task.train.X[:, :1] - shift], 1)
    X[:, 2] = X[:, 2].exp() + shift
    kernel, theta = kernels.make("se-ard", 3), torch.tensor([0.2, -0.1, 0.3, 0.0, -1.0], dtype=torch.float64)

    equal, crowded = Grid(kernel, X, (4, 2, 6)), Grid(kernel, X, [4, 2, 6], "quantile")

    assert [len(U) for U in equal.axes] == [4, 2, 6]
    assert all(torch.allclose(U.diff(), U.diff()[0]) for U in equal.axes)
    for q, U in enumerate(crowded.axes):
        levels = torch.linspace(0, 1, len(U), dtype=torch.float64)[1:-1]
        torch.testing.assert_close(U[1:-1], X[:, q].quantile(levels))
        assert float(U[0]) == pytest.approx(float(equal.axes[q][0]))
    index = crowded.spectrum(theta, 48).axis_indices
    U = torch.cartesian_prod(*crowded.axes)
    K_nu, K_uu = kernel(theta, X, U), kernel(theta, U, U)
    Phi = crowded.features(theta, X, index)
    nystrom = K_nu @ torch.linalg.pinv(K_uu, rtol=1e-10, hermitian=True) @ K_nu.T
    torch.testing.assert_close(Phi @ Phi.T, nystrom, rtol=1e-4, atol=1e-4)
    with pytest.raises(SettingError, match="2 sizes for 3 inputs"):
        Grid(kernel, X, [4, 2])


def test_a_quantile_grid_works_when_rows_repeat_few_values():
    task = problem()
    X = task.train.X.clone()
    X[:, 1] = X[:, 1].round().clamp(0, 1)
    method = Grief(num_eigenfunctions=12, grid_points=7, learn=False, spacing="quantile")
    twos = Problem(Dataset(X, task.train.y), task.kernel, task.theta)

    *_, last = method.steps(twos)

    mean, var = method.posterior(twos, last.state)(X)
    assert mean.isfinite().all()
    assert (var > 0).all()
    assert float((mean - task.train.y).std()) < 0.8 * float(task.train.y.std())


@pytest.mark.parametrize("far", [3.0, 60.0])
def test_spacing_by_likelihood_is_the_one_with_the_larger_likelihood(far: float):
    task = problem()
    X = task.train.X.clone()
    X[0] = far  # far from the others: an equispaced grid then has no point among them
    crowded = Problem(Dataset(X, task.train.y), task.kernel, task.theta)
    settings = {"num_eigenfunctions": 8, "grid_points": 5}

    value = {}
    for spacing in SPACINGS:
        choice = Grief(spacing=spacing, **settings).choose(crowded, task.theta)
        value[spacing] = regress(choice, task.theta, crowded.train).value
    best = min(value, key=lambda spacing: value[spacing])

    assert Grief(spacing="by likelihood", **settings).choose(crowded, task.theta).grid.spacing == best
    assert best == ("equispaced" if far == 3.0 else "quantile")


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("key", ["matern12", "matern32", "matern52", "rq", "se + matern32"])
def test_any_kernel_of_one_input_has_a_grid(key: str, shift: float):
    task = problem(shift, d=1)
    kernel = kernels.make(key, 1)
    theta = kernel.start(task.train)
    grid = Grid(kernel, task.train.X, 12)
    U = grid.axes[0][:, None]
    K_nu, K_uu = kernel(theta, task.train.X, U), kernel(theta, U, U)

    Phi = grid.features(theta, task.train.X, grid.spectrum(theta, 12).axis_indices)

    torch.testing.assert_close(Phi @ Phi.T, K_nu @ torch.linalg.solve(K_uu, K_nu.T), rtol=1e-6, atol=1e-8)
    *_, last = Grief(num_eigenfunctions=10, grid_points=12, subset=30, evaluations=3, max_rounds=1).steps(
        Problem(task.train, kernel, theta)
    )
    assert last.info.objective < math.inf


def test_kernels_that_are_not_products_and_objects_are_refused_with_a_reason():
    task = problem()
    rough = Problem(task.train, kernels.make("matern52-ard", 2), task.theta)
    with pytest.raises(KernelError, match="is not a product over its 2 inputs"):
        list(Grief().steps(rough))
    words = Problem(Dataset(["a", "b"], task.train.y[:2]), task.kernel, task.theta)
    with pytest.raises(SettingError, match="lays a grid over columns of numbers"):
        list(Grief(learn=False).steps(words))
