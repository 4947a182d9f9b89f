"""Grid eigenfunctions against brute force and dense algebra."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from gpexplorer import Spec, kernels
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
    products = torch.stack([axis[which] for axis, which in zip(axes, result.axis_indices.T, strict=True)]).prod(0)
    torch.testing.assert_close(products, result.log_values.exp())
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

    regression = regress(Leading(grid, index), task.theta, task.train)
    gradient = evidence_gradient(Leading(grid, index), task.theta, task.train, regression)

    assert regression.value == pytest.approx(dense(task.theta).item(), rel=1e-9)
    for k in range(len(task.theta)):
        step = torch.zeros_like(task.theta)
        step[k] = 1e-5
        rise = (dense(task.theta + step) - dense(task.theta - step)).item() / 2e-5
        assert float(gradient[k]) == pytest.approx(rise, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("shift", SHIFTS)
def test_predictions_are_those_of_the_truncated_kernel(shift: float):
    task = problem(shift)
    method = Grief(num_eigenfunctions=15, grid_points=6, learn=False, basis="eigenvalues", spacing="equispaced")
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
    method = Grief(num_eigenfunctions=15, grid_points=6, learn=False, basis="eigenvalues", spacing="equispaced")
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
    method = Grief(num_eigenfunctions=12, grid_points=7, learn=False, basis="eigenvalues", spacing="quantile")
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
    assert (value["equispaced"] < value["quantile"]) == (far == 3.0)
    assert best == "mixed" or far != 3.0


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


TERMS = ["matern12-product", "matern52-product", "anova", "se-ard + matern32-product", "(linear-ard + periodic) * se"]


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("key", TERMS)
def test_eigenfunctions_of_sums_and_products_equal_nystrom_term_by_term(key: str, shift: float):
    """All eigenfunctions of every product together are the sum of the Nyström matrices on the whole grid."""
    task = problem(shift)
    kernel = kernels.make(key, 2)
    theta = kernel.start(task.train) - (2.0 * math.log(1.0 + shift) if "linear" in key else 0.0)
    grid = Grid(kernel, task.train.X, (5, 4), "mixed")
    U = torch.cartesian_prod(*grid.axes)

    index = grid.spectrum(theta, 200).axis_indices
    Phi = grid.features(theta, task.train.X, index)

    wanted, values = torch.zeros(60, 60, dtype=torch.float64), []
    for term in kernel.terms(theta):
        K_nu, K_uu = (math.prod(k(Z[:, q], U[:, q]) for q, k in enumerate(term)) for Z in (task.train.X, U))
        wanted += K_nu @ torch.linalg.pinv(K_uu, rtol=1e-10, hermitian=True) @ K_nu.T
        values += torch.linalg.eigvalsh(K_uu).tolist()
    scale = float(wanted.abs().max())
    torch.testing.assert_close(Phi @ Phi.T, wanted, rtol=0.0, atol=1e-6 * scale)
    largest = torch.tensor(sorted(values, reverse=True)[:6], dtype=torch.float64)
    torch.testing.assert_close(grid.spectrum(theta, 6).log_values.exp(), largest, rtol=1e-8, atol=0.0)
    three = index[[5, 0, 3]]
    torch.testing.assert_close(grid.features(theta, task.train.X, three), Phi[:, [5, 0, 3]], rtol=1e-9, atol=1e-12)


def test_the_terms_of_a_kernel_add_up_to_it():
    task = problem(3.0)
    for key in [*TERMS, "linear * linear-ard + se"]:
        kernel = kernels.make(key, 2)
        theta = 0.3 * torch.randn(len(kernel.names), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        X, Z = task.train.X, task.train.X[:9]
        total = sum(math.prod(k(X[:, q], Z[:, q]) for q, k in enumerate(term)) for term in kernel.terms(theta))
        torch.testing.assert_close(total, kernel(theta, X, Z), rtol=1e-10, atol=1e-12)
    assert kernels.make("matern52-ard + se", 2).terms(theta) is None


@pytest.mark.parametrize("basis", ["eigenvalues", "evidence"])
def test_regression_with_a_sum_of_products_equals_dense_algebra_and_learns(basis: str):
    task = problem(2.0)
    kernel = kernels.make("anova + matern32-product", 2)
    joined = Problem(task.train, kernel, kernel.start(task.train))
    settings = {"num_eigenfunctions": 20, "points_per_input": "7, 6", "basis": basis, "candidates": 60}
    settings["spacing"] = "mixed"
    method = Grief(**settings, subset=40, evaluations=5, max_rounds=2)
    *_, last = method.steps(joined)
    X, state = task.train.X[:7] + 0.03, last.state
    choice = method.eigenfunctions(joined, state)
    Phi, at = (choice(state.theta)(Z).T for Z in (task.train.X, X))
    s2 = math.exp(2.0 * float(state.theta[-1]))
    A = Phi @ Phi.T + s2 * torch.eye(60, dtype=torch.float64)

    mean, var = method.posterior(joined, state)(X)

    assert [len(U) for U in choice.grid.axes] == [7, 6]
    assert set(choice.index[:, -1].tolist()) == {0, 1}
    assert state.objective == pytest.approx(float(nlml(Phi, task.train.y, s2)), rel=1e-9)
    torch.testing.assert_close(mean, at @ Phi.T @ torch.linalg.solve(A, task.train.y), rtol=1e-7, atol=1e-8)
    inside = (at @ at.T - at @ Phi.T @ torch.linalg.solve(A, Phi @ at.T)).diagonal()
    torch.testing.assert_close(var, inside, rtol=1e-7, atol=1e-8)


def test_points_per_input_needs_one_number_for_each_input():
    for text in ("5", "5, 5, 5"):
        with pytest.raises(SettingError, match="Give 2 numbers of at least 2"):
            list(Grief(points_per_input=text, learn=False).steps(problem()))
    for text in ("5; 5", "5, 1", "9999, 2", "5,, 5"):
        with pytest.raises(ValueError, match="points_per_input"):
            Grief(points_per_input=text)
        with pytest.raises(SettingError, match=r"points_per_input is .* give whole numbers from 2 to 2,000"):
            Spec("grief", {"points_per_input": text})
    assert Grief(points_per_input="2, 3").sizes(2) == [2, 3]
    assert Grief(grid_points=2).sizes(3) == [2, 2, 2]
    assert Grief(candidates=1).candidates == 1
    with pytest.raises(ValueError, match="candidates"):
        Grief(candidates=0)


def test_a_mixed_axis_has_points_where_the_rows_are_and_over_the_whole_range():
    """A row far away made the equispaced grid so coarse that the eigenfunctions vanished at all other rows."""
    source = torch.Generator().manual_seed(0)
    X = torch.randn(300, 2, generator=source, dtype=torch.float64)
    X[0, 0] = 200.0
    y = (2.0 * X[:, 0]).sin().where(X[:, 0] < 100.0, torch.zeros(())) + 0.1 * torch.randn(300, generator=source)
    U = Grid(kernels.make("se-ard", 2), X, 9, "mixed").axes[0]
    equal = Grid(kernels.make("se-ard", 2), X, 9).axes[0]

    assert (U.diff() > 0.0).all()
    assert U[[0, -1]].tolist() == equal[[0, -1]].tolist()
    assert int((U.abs() < 3.0).sum()) >= 3
    assert float(U.diff().max()) <= 2.0 * float(equal.diff()[0]) + 1e-9
    level = ((X[:, 0] < U[4]).double().mean() + (U[4] - U[0]) / (U[-1] - U[0])) / 2
    assert float(level) == pytest.approx(0.5, abs=0.005)

    task = Problem(Dataset(X, y), kernels.make("se-ard", 2), torch.tensor([0.0, -0.5, 0.5, -2.0], dtype=torch.float64))
    error = {}
    for spacing in ("equispaced", "mixed"):
        method = Grief(num_eigenfunctions=30, grid_points=9, learn=False, basis="eigenvalues", spacing=spacing)
        *_, last = method.steps(task)
        error[spacing] = float((method.posterior(task, last.state)(X).mean - y).square().mean() / y.var())
    assert error["equispaced"] > 0.9
    assert error["mixed"] < 0.4


def test_kernels_that_are_not_products_and_objects_are_refused_with_a_reason():
    task = problem()
    rough = Problem(task.train, kernels.make("matern52-ard", 2), task.theta)
    with pytest.raises(KernelError, match="is no product over its 2 inputs"):
        list(Grief().steps(rough))
    words = Problem(Dataset(["a", "b"], task.train.y[:2]), task.kernel, task.theta)
    with pytest.raises(SettingError, match="lays a grid over columns of numbers"):
        list(Grief(learn=False).steps(words))
