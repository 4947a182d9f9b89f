"""Variances, covariances and paths of many rows by blocks, beside a Cholesky factor of the whole matrix."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.gbcd.at_points import PointsAnswer, PointsRequest, posterior_at
from gpexplorer import kernels, load_posterior
from gpexplorer.errors import PosteriorError
from gpexplorer.linalg.blocks import BLOCK_BYTES, row_blocks
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.exact import posteriors
from gpexplorer.methods.exact import posteriors as joint
from gpexplorer.methods.exact.block import BlockSizes
from gpexplorer.methods.exact.gbcd import GBCD
from gpexplorer.methods.exact.posteriors import SOLUTION_BYTES, JointPosterior, JointSolver
from gpexplorer.methods.exact.right_hand_sides import BLOCK_MEMORY, Columns, sizes_for, target_limit
from gpexplorer.methods.exact.system import System
from gpexplorer.posteriors import CholeskySolver, RowsPosterior, exact, in_units
from gpexplorer.posteriors.sample_paths import prior_paths
from gpexplorer.problem import Dataset, Problem

CASES = {"origin": (0.0, -1.2), "far away": (1000.0, -1.2), "high signal": (0.0, -5.5)}  # shift, log noise


def task(name: str, n: int = 120) -> tuple[Problem, Tensor]:
    shift, noise = CASES[name]
    rng = torch.Generator().manual_seed(3)
    X = 3.0 * torch.rand(n, 2, generator=rng, dtype=torch.float64)
    kernel, theta = kernels.make("se-ard", 2), torch.tensor([0.3, -0.8, -0.5, noise], dtype=torch.float64)
    y = torch.sin(3 * X[:, 0]) * X[:, 1] + math.exp(noise) * torch.randn(n, generator=rng, dtype=torch.float64)
    Z = torch.cat([X[:6] + 0.1, X[:2] + 40.0]) + shift
    return Problem(Dataset(X + shift, y), kernel, theta), Z


def both(problem: Problem, tolerance: float) -> tuple[RowsPosterior, JointPosterior]:
    """The exact posterior by a factor and by blocks."""
    kernel, theta, X = problem.kernel, problem.theta, problem.train.X
    factor = CholeskySolver(kernel, theta, X)
    rows = (X, factor.solve(problem.train.y[:, None])[:, 0])
    solver = JointSolver(problem, theta, 0.0, tolerance, 0)
    solver.sizes = BlockSizes(block=40, chunk=10, coarse=30)
    return RowsPosterior(kernel, theta, rows, X, factor), JointPosterior(kernel, theta, rows, X, solver)


@pytest.mark.parametrize("name", CASES)
def test_a_factor_in_the_memory_of_its_matrix_is_that_of_dense_algebra(name: str, monkeypatch: pytest.MonkeyPatch):
    problem, Z = task(name)
    kernel, theta, X = problem.kernel, problem.theta, problem.train.X
    noise = torch.linspace(1.0, 9.0, 120, dtype=torch.float64) * math.exp(2 * float(theta[-1]))
    K, B = kernel(theta, X, X), kernel(theta, X, Z)
    monkeypatch.setattr(exact, "IN_PLACE", 119)
    monkeypatch.setattr(
        exact, "row_blocks", lambda n, row_bytes, like: row_blocks(n, row_bytes, like, 17 * row_bytes)
    )  # strips

    for solver, diagonal in (
        (CholeskySolver(kernel, theta, X), torch.full((120,), math.exp(2 * float(theta[-1])), dtype=torch.float64)),
        (CholeskySolver(kernel, theta, X, noise=noise), noise),
    ):
        expected = torch.linalg.solve(K + torch.diag(diagonal), B)
        torch.testing.assert_close(solver.solve(B), expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))
        torch.testing.assert_close(solver.explained(B), (B * expected).sum(0), rtol=1e-8, atol=1e-12)
        assert bool((solver.L.triu(1) == 0.0).all())


@pytest.mark.parametrize("name", CASES)
def test_means_variances_covariances_and_paths_equal_those_of_a_factor(name: str, monkeypatch: pytest.MonkeyPatch):
    problem, Z = task(name)
    dense, blocks = both(problem, 1e-5 if name == "high signal" else 1e-9)
    monkeypatch.setattr(joint, "PATH_TOLERANCE", 1e-5)
    K = problem.kernel(problem.theta, problem.train.X, Z)
    close = {"rtol": 1e-6, "atol": 2e-9}

    torch.testing.assert_close(blocks.mean(Z), dense.mean(Z))
    torch.testing.assert_close(blocks(Z).mean, dense.mean(Z))
    torch.testing.assert_close(pickle.loads(pickle.dumps(blocks)).var(Z), dense.var(Z), **close)
    torch.testing.assert_close(blocks.cov(Z), dense.cov(Z), **close)
    torch.testing.assert_close(blocks.cov(Z[:3], Z), dense.cov(Z[:3], Z), **close)
    torch.testing.assert_close(blocks.solver.explained(K), dense.solver.explained(K), **close)
    torch.testing.assert_close(blocks.paths(5, seed=1)(Z), dense.paths(5, seed=1)(Z), rtol=0, atol=1e-4)
    if name == "high signal":  # whose solution takes seconds
        return
    gradient, expected = blocks.gradient(Z), dense.gradient(Z)
    torch.testing.assert_close(gradient.mean, expected.mean)
    torch.testing.assert_close(gradient.var, expected.var, rtol=1e-3, atol=1e-4 * float(expected.var.abs().max()))


@pytest.mark.parametrize("name", ["origin", "far away"])
def test_moments_at_inputs_with_gradients_are_those_of_a_factor_and_so_are_their_derivatives(name: str):
    problem, Z = task(name)
    dense, blocks = both(problem, 1e-9)
    weights = torch.linspace(1.0, 3.0, len(Z), dtype=torch.float64)
    result = []
    for posterior in (blocks, dense):
        X = Z.clone().requires_grad_()
        mean, var = posterior.moments(X)
        result.append((mean.detach(), var.detach(), *torch.autograd.grad((weights * var).sum(), X)))

    (mean, var, by_input), (dense_mean, dense_var, dense_by_input) = result

    torch.testing.assert_close(mean, dense_mean)
    torch.testing.assert_close(var, dense_var, rtol=1e-6, atol=2e-9)
    torch.testing.assert_close(by_input, dense_by_input, rtol=1e-3, atol=1e-4 * float(dense_by_input.abs().max()))
    assert float(dense_by_input.abs().max()) > 1e-2


def test_a_saved_posterior_is_solved_by_blocks_again(tmp_path: Path):
    problem, Z = task("far away")
    dense, blocks = both(problem, 1e-9)
    in_units(blocks.asked_for("y"), problem).save(tmp_path / "model")

    loaded = load_posterior(tmp_path / "model")

    assert type(loaded.inner) is JointPosterior
    assert loaded.inner.solver.description == blocks.solver.description
    torch.testing.assert_close(loaded(Z).mean, dense.mean(Z))
    torch.testing.assert_close(loaded.var(Z), dense.var(Z, noise=True), rtol=1e-6, atol=1e-9)
    tensors = load_file(tmp_path / "model")
    assert sum(tensor.numel() for tensor in tensors.values()) == 3 * 120 + 4  # inputs, alpha and theta


@pytest.mark.parametrize("name", CASES)
def test_rows_are_added_from_the_coefficients_of_the_others(name: str, monkeypatch: pytest.MonkeyPatch):
    problem, Z = task(name)
    part = replace(problem, train=problem.train.rows(torch.arange(100)))
    monkeypatch.setattr(joint, "PATH_TOLERANCE", 1e-7)
    dense, (_, blocks) = both(problem, 1.0)[0], both(part, 1e-6)
    X, y = problem.train.X[100:], problem.train.y[100:]

    grown = blocks.with_rows(X[:1], y[:1]).with_rows(X[1:], y[1:])
    grown.solver.sizes = blocks.solver.sizes

    torch.testing.assert_close(grown.mean(Z), dense.mean(Z), rtol=0, atol=1e-5)
    torch.testing.assert_close(grown.var(Z, noise=True), dense.var(Z, noise=True), rtol=2e-5, atol=0)
    with pytest.raises(PosteriorError, match="have the noise of the fit"):
        blocks.with_rows(X, y, noise=torch.full((20,), 2.0 * dense.noise_variance))


@pytest.mark.parametrize("name", ["origin", "high signal"])
def test_an_early_stop_errs_upwards_by_no_more_than_the_tolerance(name: str, monkeypatch: pytest.MonkeyPatch):
    problem, Z = task(name)
    dense, blocks = both(problem, 0.2)
    monkeypatch.setattr(joint, "LEAST_MIXED", math.inf)  # without the rounding of float32
    exact, s2 = dense.cov(Z), dense.noise_variance

    var, cov = blocks.var(Z), blocks.cov(Z)

    assert bool((var >= exact.diagonal() - 1e-9).all())
    assert bool((var + s2 <= (exact.diagonal() + s2) / (1 - 0.2)).all())
    torch.testing.assert_close(cov.diagonal(), var, rtol=1e-6, atol=1e-9)
    error = cov - exact
    assert float(torch.linalg.eigvalsh(error).min()) >= -1e-8  # the error is a covariance itself
    assert 1e-3 * s2 < float(error.diagonal().max()) <= 0.2 * float((var + s2).max())


@pytest.mark.parametrize("name", ["origin", "far away"])
def test_kernel_rows_of_float32_change_nothing_beyond_the_tolerance(name: str):
    problem, Z = task(name)
    dense, blocks = both(problem, 0.01)

    var, exact = blocks.var(Z, noise=True), dense.var(Z, noise=True)

    used = [mixed for mixed, system in blocks.solver._systems.items() if "coarse rows" in system._built]
    assert used == [True]
    torch.testing.assert_close(var, exact, rtol=0.01, atol=0)
    torch.testing.assert_close(blocks.cov(Z), dense.cov(Z), rtol=0, atol=0.01 * float(exact.max()))
    paths = blocks.paths(5, seed=1)(Z) - dense.paths(5, seed=1)(Z)
    assert float(paths.abs().max()) < 0.1 * dense.noise_variance**0.5
    assert var.dtype == torch.float64


@pytest.mark.parametrize("name", ["origin", "far away"])
def test_rounding_is_repaired_by_gradients_in_float64_before_everything_is_solved_again(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    problem, Z = task(name)
    dense, blocks = both(problem, 1e-4)
    B = problem.kernel(problem.theta, problem.train.X, Z)
    monkeypatch.setattr(joint, "PATH_TOLERANCE", 1e-5)
    monkeypatch.setattr(joint, "LEAST_MIXED", 0.0)
    monkeypatch.setattr(joint, "ROUNDING", 0.02)
    result, rounding = [], JointSolver._rounding
    monkeypatch.setattr(JointSolver, "_rounding", lambda *all_: result.append(rounding(*all_)) or result[-1])

    solution = blocks.solver.solve(B)

    assert result[0] > joint.ROUNDING >= result[-1]
    assert len(result) in (2, 3)
    assert list(blocks.solver._systems) == [False, True]
    assert not blocks.solver.system._built  # of float64, only numbers were used
    L = dense.solver.L
    residual = (L @ (L.T @ solution) - B).norm(dim=0)
    assert float(residual.max()) <= 1.03 * 1e-5 * (120 * dense.noise_variance) ** 0.5  # the limit, and its rounding


def test_where_float32_is_too_coarse_everything_is_solved_for_in_float64(monkeypatch: pytest.MonkeyPatch):
    problem, Z = task("origin")
    blocks, repeated, weak = both(problem, 0.01)[1], both(problem, 0.01)[1], both(task("high signal")[0], 0.01)[1]
    assert not weak.solver.mixed
    monkeypatch.setattr(joint, "ROUNDING", 1e-9)

    result = blocks.var(Z)

    assert blocks.solver.mixed
    assert sorted(blocks.solver._systems) == [False, True]
    monkeypatch.setattr(joint, "LEAST_MIXED", math.inf)
    assert torch.equal(result, repeated.var(Z))
    assert list(repeated.solver._systems) == [False]


def test_right_hand_sides_that_are_not_solved_are_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch):
    problem, Z = task("high signal")
    monkeypatch.setattr(joint, "PASSES", 0.3)
    with pytest.raises(
        PosteriorError,
        match=r"of 8 right-hand sides of K \+ s2 I \[n=120\] are not solved .* Raise band_tolerance",
    ) as error:
        both(problem, 1e-9)[1].var(Z)
    assert float(str(error.value).split("a residual is ")[1].split()[0]) > 1.0  # times its limit


def test_a_method_uses_blocks_where_a_factor_does_not_fit(monkeypatch: pytest.MonkeyPatch):
    problem, Z = task("origin")
    method = GBCD(learn=False, block=40, coarse=20, bands="exact", band_tolerance=1e-3, cache=1e-4)
    *_, last = method.steps(problem)
    assert type(method.posterior(problem, last.state)) is RowsPosterior  # few rows
    monkeypatch.setattr(posteriors, "FACTOR_BYTES", 8.0 * 119**2)
    large_cache = GBCD(learn=False, block=40, coarse=20, bands="exact", cache=1.0)
    assert type(large_cache.posterior(problem, last.state)) is RowsPosterior  # the factor fits into the cache

    result = method.posterior(problem, last.state)

    assert type(result) is JointPosterior
    dense, _ = both(problem, 1.0)
    torch.testing.assert_close(result.var(Z, noise=True), dense.var(Z, noise=True), rtol=1e-3, atol=0)
    torch.testing.assert_close(result.mean(Z), dense.mean(Z), rtol=0, atol=2e-3)


@pytest.mark.parametrize("name", CASES)
def test_mean_variances_and_samples_that_share_all_rows_equal_those_of_a_factor(name: str):
    problem, Z = task(name)
    dense, _ = both(problem, 1.0)
    X, y, s2 = problem.train.X, problem.train.y, dense.noise_variance
    system = System(problem, problem.theta, 0.0)
    loose = 1e-4 if name == "high signal" else 1e-7
    sizes = BlockSizes(block=40, chunk=10, coarse=30)

    result = posterior_at(system, problem, PointsRequest(Z, 300, loose), target_limit(120, s2, loose), sizes)

    assert result.unfinished == 0
    torch.testing.assert_close(result.mean, dense.mean(Z), rtol=0, atol=1e-5)
    torch.testing.assert_close(result.var + s2, dense.var(Z) + s2, rtol=2 * loose, atol=0)
    torch.testing.assert_close(result.alpha, dense.alpha, rtol=1e-3, atol=1e-3 * float(dense.alpha.abs().max()))
    draw = generator(0, "posterior at points")
    paths = prior_paths(problem.kernel, problem.theta, 300, draw)
    noise = torch.randn(120, 300, generator=draw, dtype=torch.float64)
    C = dense.solver.solve(paths(X).T + math.sqrt(s2) * noise)
    expected = dense.mean(Z) + paths(Z) - C.T @ problem.kernel(problem.theta, X, Z)
    torch.testing.assert_close(result.samples, expected, rtol=0, atol=1e-4)
    error = (result.samples.mean(0) - dense.mean(Z)) / (dense.var(Z) + 1e-6).sqrt()
    assert float(error.abs().max()) < 4.5 / math.sqrt(300)
    assert y.equal(problem.train.y)


def test_without_kernel_entries_the_mean_and_samples_belong_to_the_solutions_that_were_found_early():
    """The products K'alpha and K'C come from residuals, which are large here."""
    problem, Z = task("origin")
    system, s2 = System(problem, problem.theta, 0.0), float((2 * problem.theta[-1]).exp())
    sizes = BlockSizes(block=40, chunk=10, coarse=30)

    result = posterior_at(system, problem, PointsRequest(Z, 3, 0.5), target_limit(120, s2, 0.5), sizes)

    K = problem.kernel(problem.theta, problem.train.X, Z)
    torch.testing.assert_close(result.mean, K.T @ result.alpha, rtol=1e-9, atol=1e-11)
    residual = problem.kernel(problem.theta, problem.train.X, problem.train.X) @ result.alpha + s2 * result.alpha
    assert float((residual - problem.train.y).norm()) > 1e-3
    assert result.samples.shape == (3, len(Z))


def test_the_number_of_blocks_and_of_right_hand_sides_that_are_not_finished_is_counted():
    problem, Z = task("origin")
    sizes = BlockSizes(block=60, chunk=10, coarse=40)

    def answer(samples: int, limit: float) -> PointsAnswer:
        system = System(problem, problem.theta, 0.0)
        return posterior_at(system, problem, PointsRequest(Z, samples, limit), target_limit(120, 1.0, limit), sizes)

    never, at_once = answer(4, 0.0), answer(0, 1e9)

    assert never.blocks * 60 == 100 * 120  # 100 passes
    assert never.unfinished == 1 + 4 + 6  # without the two points that are far from all rows
    assert (at_once.blocks, at_once.unfinished) == (0, 0)
    assert at_once.samples.shape == (0, 8)
    torch.testing.assert_close(at_once.var, problem.kernel.diag(problem.theta, Z))


@pytest.mark.parametrize("number_bytes", [4, 8])
@pytest.mark.parametrize("n", [30, 60, 1500, 7000, 15_000, 30_000, 200_000, 10**7])
def test_blocks_and_coarse_rows_fit_into_the_memory_for_blocks(n: int, number_bytes: int):
    """A quarter of the rows that fit are for a block: 500 to 1000 rows, more than 500 only up to a twelfth of all rows.

    The others are for coarse rows, at most 3000 and at most a third of all rows.
    """
    fit = int(BLOCK_MEMORY / (number_bytes * n))

    sizes = sizes_for(n, 7, number_bytes)

    block = min(1000, fit // 4, n // 12)
    smallest = min(500, n // 2)
    assert sizes.block == (block if block > smallest else smallest)
    assert sizes.coarse == max(0, min(3000, n // 3, fit - sizes.block))
    assert (sizes.chunk, sizes.seed, sizes.shortlist, sizes.pool) == (max(1, sizes.block // 10), 7, 4, 0)


@pytest.mark.parametrize("checked", [30, 120])
def test_the_effect_of_rounding_is_estimated_from_gradients_whose_error_is_known(checked: int):
    problem, Z = task("origin")
    dense, blocks = both(problem, 0.01)
    rng = torch.Generator().manual_seed(1)
    K = problem.kernel(problem.theta, problem.train.X, Z)
    V, E = (torch.randn(*K.shape, generator=rng, dtype=torch.float64) for _ in range(2))
    AV = dense.solver.L @ (dense.solver.L.T @ V)
    limit = target_limit(120, dense.noise_variance, 0.3)
    columns, rows = Columns(K.clone(), limit, start=(V, AV + E)), torch.randperm(120, generator=rng)[:checked]

    estimate = blocks.solver._rounding(columns, rows, K[rows])

    assert estimate == pytest.approx(
        float(E[rows].norm(dim=0).max()) / (0.3 * math.sqrt(checked * dense.noise_variance)), rel=1e-6
    )


def test_float32_rows_are_tried_above_a_tolerance_of_100_roundings_of_the_prior_variance():
    problem, _ = task("origin")
    dense, blocks = both(problem, 0.01)
    least = 100.0 * 2.0**-23 * float(problem.kernel.diag(problem.theta, problem.train.X)[0]) / dense.noise_variance
    numbers = 120 * BLOCK_BYTES / SOLUTION_BYTES

    for factor, mixed, per_row in ((0.99, False, 4.0), (1.01, True, 2.5)):
        blocks.solver.tolerance = factor * least
        assert blocks.solver.mixed == mixed
        assert blocks.row_numbers == math.ceil(per_row * numbers)  # a right-hand side, its solution and its gradient


def test_solutions_for_more_rows_than_memory_holds_are_refused_before_any_work(monkeypatch: pytest.MonkeyPatch):
    problem, Z = task(next(iter(CASES)))
    joint = both(problem, 1e-6)[1]
    wanted = joint.cov(Z)
    monkeypatch.setattr("gpexplorer.methods.exact.posteriors.machine_memory", lambda: 4.0 * 8 * 120 * len(Z))
    assert torch.equal(joint.cov(Z), wanted)
    monkeypatch.setattr(JointSolver, "columns", None)

    with pytest.raises(PosteriorError, match=r"\[n=120\] for each of 16 rows at once, which take 6.14e-05 GB"):
        joint.cov(torch.cat([Z, Z]))
