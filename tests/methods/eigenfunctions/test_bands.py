"""Predictive variances of the eigenfunction methods: dense algebra, coverage, and every step of learning."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gpexplorer import Spec, kernels
from gpexplorer.errors import SettingError
from gpexplorer.features.grid_eigenfunctions import MARGIN, MOST, axis_shares, sizes_by_lengthscale
from gpexplorer.kernels.theta.restrictions import restricted_problem
from gpexplorer.methods.base import registry
from gpexplorer.methods.eigenfunctions import posteriors
from gpexplorer.methods.eigenfunctions.grief import Grief
from gpexplorer.methods.eigenfunctions.learning import initial_state
from gpexplorer.methods.eigenfunctions.mcmc import GriefMCMC
from gpexplorer.methods.eigenfunctions.orthogonal_basis import most_likely_noise, orthogonalise, orthogonalise_rows
from gpexplorer.methods.eigenfunctions.posteriors import orthogonal_basis, orthogonal_posterior, refitted_posterior
from gpexplorer.posteriors import DiagonalAndDirection, exact_gp_posterior, load_posterior
from gpexplorer.problem import Dataset, Problem
from gpexplorer.runs import Run
from gpexplorer.runs.scores import coverage, nlpd, smse
from oracles_grief import draw, nlml, predicted, problem

SMALL: dict[str, dict[str, Any]] = {
    "grief": {"num_eigenfunctions": 40, "grid_points": 8, "subset": 150, "evaluations": 10, "max_rounds": 3},
    "ski": {"num_eigenfunctions": 40, "grid_points": 8, "subset": 150, "evaluations": 10, "max_rounds": 3},
    "rff": {"num_features": 40, "subset": 150, "evaluations": 15},
    "grief-mcmc": {
        "num_eigenfunctions": 40, "grid_points": 8, "subset": 150, "evaluations": 10, "per_step": 30, "warm_up": 4,
        "samples": 12, "thin": 3,
    },
}  # fmt: skip


def finished(key: str, task: Problem, **settings: Any) -> Run:
    run = Run(registry[key](**SMALL[key] | settings), task)
    run.finish()
    return run


@pytest.mark.parametrize("key", ["grief", "ski", "rff", "grief-mcmc"])
def test_bands_cover_data_of_the_model_when_few_functions_represent_part_of_the_kernel(key: str):
    """The learned noise contains the variance that 40 functions leave out; counting it twice covers everything."""
    task, test = draw(n=300, d=4, lengthscale=0.8, noise_sd=0.1)

    mean, var = finished(key, task).posterior(of="y")(test.X)

    assert 0.90 <= coverage(test.y, mean, var, 0.95) <= 0.985
    assert 0.60 <= coverage(test.y, mean, var, 0.68) <= 0.78
    noise_free = (test.y - mean).square().mean()
    assert nlpd(test.y, mean, var) < 0.5 * math.log(2 * math.pi * math.e * float(noise_free)) + 0.1


@pytest.mark.parametrize("key", ["grief", "ski", "rff"])
def test_a_prediction_at_any_step_of_learning_is_better_than_a_constant(key: str):
    """The exact GP on a subset learns a tiny noise, with which 40 functions on all rows were far too certain."""
    task, test = draw(n=600, d=4, lengthscale=0.8, noise_sd=0.003, seed=1)
    constant = nlpd(test.y, task.train.y.mean().expand(400), task.train.y.var().expand(400))
    run = Run(registry[key](**SMALL[key]), task)

    while run.advance() is not None:
        mean, var = run.posterior(of="y")(test.X)
        assert nlpd(test.y, mean, var) < constant, (len(run.trace), run.trace[-1].step.info.phase)


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_the_variance_in_the_orthogonal_basis_equals_dense_algebra_with_a_common_direction(shift: float):
    """The direction is as large as the rest, so that a formula without it fails."""
    task = problem(shift)
    method = GriefMCMC(num_eigenfunctions=15, grid_points=6, learn=False)
    basis, choice = method.orthogonal(task, next(method.steps(task)).state)
    source, r = torch.Generator().manual_seed(4), len(basis.e)
    mean, direction = torch.randn(2, r, generator=source, dtype=torch.float64)
    diagonal = torch.rand(r, generator=source, dtype=torch.float64)
    X = task.train.X[:7] + 0.03

    b = DiagonalAndDirection(mean, diagonal, direction)
    result = orthogonal_posterior(task, choice, task.theta, basis.V, b)(X)

    Psi = choice(task.theta)(X).T @ basis.V
    C = torch.diag(diagonal) + torch.outer(direction, direction)
    torch.testing.assert_close(result.mean, Psi @ mean, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(result.var, (Psi @ C @ Psi.T).diagonal(), rtol=1e-9, atol=1e-10)


def test_sampled_predictions_equal_the_average_over_the_draws():
    """Mean and variance of y by the law of total variance over every draw, in dense algebra.

    The noise varies much more than the weights do, so that the coefficients covary through it.
    """
    task = problem(3.0)
    method = GriefMCMC(
        num_eigenfunctions=15, grid_points=6, learn=False, samples=1, warm_up=5, per_step=300, thin=1, chains=3,
        weight_variance=1e-6, noise_prior=1.0,
    )  # fmt: skip
    run = Run(method, task)
    run.finish()
    state = run.trace[-1].step.state
    X = task.train.X[:6] + 0.05
    Phi, Phi_new = (method.choose(task, task.theta)(task.theta)(Z).T for Z in (task.train.X, X))

    log_s2 = state.watched.double()[:, :, 1].flatten()  # the weights are 1 to 1e-3
    means, variances = [], []
    for s2 in log_s2.exp().tolist():
        A = Phi @ Phi.T + s2 * torch.eye(len(Phi), dtype=torch.float64)
        cross = Phi_new @ Phi.T
        means.append(cross @ torch.linalg.solve(A, task.train.y))
        variances.append((Phi_new @ Phi_new.T - cross @ torch.linalg.solve(A, cross.T)).diagonal())
    mean, var = torch.stack(means), torch.stack(variances)
    f = run.posterior(of="f")(X)
    y = run.posterior(of="y")(X)

    torch.testing.assert_close(f.mean, mean.mean(0), rtol=5e-3, atol=5e-3)
    torch.testing.assert_close(f.var, var.mean(0) + mean.var(0), rtol=0.05, atol=1e-4)
    torch.testing.assert_close(y.var - f.var, log_s2.exp().mean().expand(6), rtol=0.05, atol=0.0)


@pytest.mark.parametrize("key", ["grief", "grief-mcmc"])
def test_theta_is_learned_so_that_the_functions_can_represent_its_kernel(key: str):
    """At tiny lengthscales K is nearly diagonal, and the exact GP stays there; all eigenfunctions vanish on the rows.

    Sampling then had a basis of rank 0 and predicted the mean; type II tried lengthscales twice as long only.
    """
    task, test = draw(n=200, d=6, lengthscale=2.0, noise_sd=0.1)
    task.theta[1:-1] = -5.0

    run = finished(key, task)
    mean, var = run.posterior(of="y")(test.X)

    assert smse(test.y, mean) < 0.2
    assert 0.90 <= coverage(test.y, mean, var, 0.95) <= 0.99
    assert run.trace[-1].step.info.kept > 0.5


def test_functions_that_represent_almost_nothing_are_reported_with_a_way_out():
    task, _ = draw(n=60, d=6, lengthscale=1.0, noise_sd=0.1)
    task.theta[1:-1] = -3.0
    for key in ("grief", "ski", "grief-mcmc"):
        run = finished(key, task, learn=False)

        assert run.trace[-1].step.info.kept < 0.05
        assert run.outcome is not None
        assert "40 basis functions represent only" in run.outcome.message
        assert "Raise num_eigenfunctions" in run.outcome.message


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize("key", ["grief", "ski", "grief-mcmc"])
def test_an_input_whose_lengthscale_is_far_below_the_spacing_of_its_grid_is_named(key: str, shift: float):
    """The second input has a grid point every 0.34; the first has a lengthscale that its points do represent."""
    task, _ = draw(n=120, d=2, lengthscale=1.0, noise_sd=0.1)
    theta = torch.tensor([0.0, 0.0, math.log(0.03), -2.0], dtype=torch.float64)
    train = Dataset(task.train.X + shift, task.train.y, names=("age", "height"))
    task = Problem(train, task.kernel, theta)
    messages = []
    for more in ({}, {"points_per_input": "8, 120", "num_eigenfunctions": 300}):
        run = finished(key, task, learn=False, **more)
        assert run.outcome is not None
        messages.append(run.outcome.message)

    assert "The 8 grid points of input 'height' are too far apart" in messages[0]
    assert "points_per_input" in messages[0]
    assert "too far apart" not in messages[1]
    assert "more inputs are affected" not in messages[0]
    task.theta[1] = math.log(0.04)
    outcome = finished(key, task, learn=False).outcome
    assert outcome is not None
    assert "of input 'height' are" in outcome.message
    assert " 1 more inputs are affected." in outcome.message


def test_the_share_of_an_axis_is_that_of_the_dense_projection():
    task = problem(5.0)
    choice = registry["grief"](num_eigenfunctions=9, grid_points=6).choose(task, task.theta)  # type: ignore[attr-defined]
    theta = task.theta.clone()
    theta[2] = -2.0

    shares = axis_shares(choice.grid, theta, task.train.X)

    for i, share in enumerate(shares):
        k = lambda x, z, i=i: torch.exp(-0.5 * ((x[:, None] - z) / theta[1 + i].exp()).square())  # noqa: E731
        x, U = task.train.X[:, i], choice.grid.axes[i]
        projected = (k(x, U) @ torch.linalg.solve(k(U, U), k(U, x))).diagonal()
        assert share == pytest.approx(float(projected.mean()), rel=1e-8)
    assert shares[1] < 0.9 < shares[0]


def test_a_grid_has_its_largest_size_where_no_size_resolves_the_lengthscale():
    task = problem()
    theta = task.theta.clone()
    theta[1] = math.log(1e-4)

    assert sizes_by_lengthscale(task.kernel, task.train.X, theta, "equispaced", 500)[0] == MOST


def test_a_grid_is_no_finer_than_the_functions_on_it_can_use():
    """Ten functions of two inputs leave out more than ten points of an input do; five hundred do not."""
    task = problem()
    theta = task.theta.clone()
    theta[-1] = math.log(1e-3)
    sizes = [sizes_by_lengthscale(task.kernel, task.train.X, theta, "equispaced", p) for p in (10, 500)]

    assert sizes[0] == [10, 10]
    assert max(sizes[1]) > 10


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize("kernel", ["se", "matern32", "matern12"])
@pytest.mark.parametrize("key", ["grief", "ski"])
def test_an_automatic_grid_is_fine_enough_for_the_noise_or_the_outcome_says_that_it_is_not(
    key: str, kernel: str, shift: float
):
    """5 % of the variance of the function is .8 times that of this noise."""
    rng = torch.Generator().manual_seed(3)
    X = 6.0 * torch.rand(150, 1, generator=rng, dtype=torch.float64)
    y = torch.sin(2.0 * X[:, 0]) + 0.3 * torch.randn(150, generator=rng, dtype=torch.float64)
    theta = torch.tensor([1.2, 0.9, 0.3], dtype=torch.float64).log()
    task = Problem(Dataset(X + shift, y), kernels.make(kernel, 1), theta)
    run = Run(registry[key](learn=False), task)
    outcome, new = run.finish(), torch.linspace(0.1, 5.9, 30, dtype=torch.float64)[:, None] + shift
    exact = exact_gp_posterior(task.kernel, theta, task.train)(new)
    mean, var = run.posterior(of="f")(new)

    error, ratios = float((mean - exact.mean).abs().max()) / 0.3, var / exact.var
    says = re.search(r"The 160 grid points of input number 1 leave out .* is (\S+) % of the noise", outcome.message)
    if kernel == "matern12":  # 1 % would take thousands of points
        assert error > 0.1
        assert says is not None
        h = 6.0 * (1.0 + 2.0 * MARGIN) / 159  # what a bridge leaves out is h / 3 l of the variance
        assert float(says[1]) == pytest.approx(100.0 * h / 2.7 * 1.2**2 / 0.3**2, rel=0.1)
    else:
        assert error < 0.03
        assert 0.95 < float(ratios.min()) <= float(ratios.max()) < 1.05
        assert says is None


def test_scores_and_pictures_reuse_the_orthogonal_basis(monkeypatch: pytest.MonkeyPatch):
    calls = []
    for name in ("orthogonalise", "orthogonalise_rows"):
        original = getattr(posteriors, name)
        monkeypatch.setattr(
            posteriors, name, lambda *args, name=name, original=original: calls.append(name) or original(*args)
        )
    task, test = draw(n=60, d=2, lengthscale=1.0, noise_sd=0.1)
    run = Run(registry["grief-mcmc"](**SMALL["grief-mcmc"] | {"learn": False}), task)

    while run.advance() is not None:
        run.posterior(of="y")(test.X)

    assert len(run.trace) == 17
    assert calls == ["orthogonalise"]  # 40 functions and 60 rows


def test_the_bases_that_were_used_last_are_kept():
    task = problem(n=20)
    choice = GriefMCMC(num_eigenfunctions=30, grid_points=6, learn=False).choose(task, task.theta)
    thetas = [task.theta + 0.01 * number for number in range(posteriors.MAX_CACHED + 1)]

    bases = [orthogonal_basis(task, choice, theta) for theta in thetas]
    repeated = [orthogonal_basis(task, choice, theta) for theta in reversed(thetas)]

    assert [a is b for a, b in zip(repeated, reversed(bases), strict=True)] == [True] * posteriors.MAX_CACHED + [False]


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_the_orthogonal_basis_from_rows_equals_that_from_the_gram_matrix(shift: float):
    task = problem(shift, n=20)
    method = GriefMCMC(num_eigenfunctions=30, grid_points=6, learn=False)
    Phi = method.choose(task, task.theta)(task.theta)(task.train.X).T  # [20, 30]
    y, eps = task.train.y, torch.finfo(torch.float64).eps

    rows = orthogonalise_rows(Phi, y, eps)
    gram = orthogonalise(Phi.T @ Phi, Phi.T @ y, float(y @ y), 20, eps)

    r = int((gram.e > 1e-6 * gram.e[0]).sum())
    assert r >= 10
    torch.testing.assert_close(rows.e[:r], gram.e[:r], rtol=1e-6, atol=0.0)
    torch.testing.assert_close(rows.u[:r].abs(), gram.u[:r].abs(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(Phi @ rows.V @ (rows.V.T @ Phi.T), Phi @ Phi.T, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(rows.V.T @ rows.V, torch.eye(len(rows.e), dtype=torch.float64), rtol=0.0, atol=1e-5)
    assert rows.rest == pytest.approx(float(y @ y - rows.u @ rows.u), abs=1e-9)


def test_the_most_likely_noise_is_the_minimum_of_the_dense_likelihood():
    task = problem(2.0)
    method = GriefMCMC(num_eigenfunctions=15, grid_points=6, learn=False)
    choice = method.choose(task, task.theta)
    Phi = choice(task.theta)(task.train.X).T
    log_s2 = most_likely_noise(orthogonal_basis(task, choice, task.theta))

    values = [float(nlml(Phi, task.train.y, math.exp(log_s2 + step))) for step in (-0.02, 0.0, 0.02)]

    assert values[1] < min(values[0], values[2])


@pytest.mark.parametrize(("factor", "sd"), [(2.0, 0.01), (0.4, 0.3)])
def test_a_run_that_stops_early_uses_the_prior_of_the_noise(factor: float, sd: float):
    task = problem(2.0)
    choice = GriefMCMC(num_eigenfunctions=15, grid_points=6, learn=False).choose(task, task.theta)
    free = refitted_posterior(task, choice, task.theta)[1]
    mean = math.log(factor) + 0.5 * math.log(free)
    given = restricted_problem(task, {"priors": {"noise": f"lognormal({mean!r}, {sd})"}})
    s2 = refitted_posterior(given, choice, task.theta)[1]
    Phi = choice(task.theta)(task.train.X).T

    def minus_log(step: float) -> float:  # the density is that of the sd, without the Jacobian of its logarithm
        log_sd = 0.5 * math.log(s2) + step
        log_density = -0.5 * ((log_sd - mean) / sd) ** 2 - log_sd
        return float(nlml(Phi, task.train.y, math.exp(2.0 * log_sd))) - log_density

    assert minus_log(0.0) < min(minus_log(-0.002), minus_log(0.002))
    assert abs(math.log(s2 / free)) > 0.05


def test_the_most_likely_noise_at_the_ends_of_its_range_and_in_other_units():
    source = torch.Generator().manual_seed(3)
    Q = torch.linalg.qr(torch.randn(40, 40, generator=source, dtype=torch.float64)).Q
    Phi, y = 2.0 * Q[:, :5], Q[:, :5].sum(1) + 0.1 * Q[:, 5:].sum(1)  # e = 4, u = 1, rest = .35
    eps = torch.finfo(torch.float64).eps

    def noise(scale: float, y: Tensor) -> float:
        return most_likely_noise(orthogonalise_rows(scale * Phi, scale * y, eps))

    assert noise(1e-4, y) == pytest.approx(noise(1.0, y) + 2.0 * math.log(1e-4), abs=1e-3)
    orthogonal = 1e-3 * Q[:, 5:].sum(1)  # nothing for the functions to explain: y'y = 35e-6 in 35 directions
    assert noise(1.0, orthogonal) == pytest.approx(math.log(1e-6), abs=1e-3)
    in_span = Q[:, :5].sum(1)  # no noise at all: the lower end, 1e-12 of y'y / n
    assert noise(1.0, in_span) == pytest.approx(math.log(1e-12 * 5.0 / 40.0), abs=1e-3)


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_predictions_with_the_most_likely_noise_equal_dense_algebra(shift: float):
    """At a theta whose own noise variance is much larger than the most likely one."""
    task = problem(shift)
    task.theta[-1] += math.log(5.0)
    choice = GriefMCMC(num_eigenfunctions=15, grid_points=6, learn=False).choose(task, task.theta)
    X = task.train.X[:7] + 0.03
    Phi, at = (choice(task.theta)(Z).T for Z in (task.train.X, X))

    posterior, s2 = refitted_posterior(task, choice, task.theta)
    f, y = posterior(X), posterior.asked_for("y")(X)

    assert s2 == pytest.approx(math.exp(most_likely_noise(orthogonal_basis(task, choice, task.theta))))
    mean, C = predicted(Phi, at, task.train.y, s2, torch.ones(15, dtype=torch.float64))
    torch.testing.assert_close(f.mean, mean, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(f.var, C.diagonal(), rtol=1e-6, atol=1e-10)
    torch.testing.assert_close(y.var, C.diagonal() + s2, rtol=1e-6, atol=1e-10)
    method = Grief(num_eigenfunctions=15, grid_points=6)
    state = initial_state(task, "equispaced")._replace(phase="trial")
    assert method.noise_variance(task, state) == pytest.approx(s2, rel=1e-9)
    torch.testing.assert_close(method.posterior(task, state)(X).var, f.var)
    learned = state._replace(phase="learn")
    assert method.noise_variance(task, learned) == pytest.approx(math.exp(2.0 * float(task.theta[-1])))


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize("basis", ["eigenvalues", "evidence"])
def test_the_number_of_grid_points_follows_the_lengthscale(basis: str, shift: float):
    """A lengthscale of a fiftieth of the range of a single input: ten points represent a fraction of its variance."""
    task, test = draw(n=200, d=1, lengthscale=0.07, noise_sd=0.1)
    task = Problem(Dataset(task.train.X + shift, task.train.y), task.kernel, task.theta)
    runs = [
        finished("grief", task, grid_points=points, num_eigenfunctions=120, basis=basis, candidates=160)
        for points in (10, 0)
    ]

    coarse, fine = (smse(test.y, run.posterior()(test.X + shift).mean) for run in runs)

    assert fine < 0.4 * coarse
    assert fine < 0.1
    state, method = runs[1].trace[-1].step.state, runs[1].method
    sizes = [len(U) for U in method.grid(task, state.spacing, state.chosen).axes]  # type: ignore[attr-defined]
    assert 40 <= sizes[0] <= 160


def test_inputs_with_long_lengthscales_keep_ten_points_and_one_point_is_refused():
    task, _ = draw(n=60, d=3, lengthscale=1.0, noise_sd=0.1)
    task.theta[1] = -2.5

    assert [len(U) for U in registry["ski"]().grid(task).axes][1:] == [10, 10]  # type: ignore[attr-defined]
    assert len(registry["ski"]().grid(task).axes[0]) > 20  # type: ignore[attr-defined]
    for points in (10**6, 2001, 1, -1, 2.5):
        with pytest.raises(SettingError, match=r"grid_points is .*; give 0, or a whole number from 2 to 2,000\."):
            Spec("ski", {"grid_points": points})
    with pytest.raises(ValueError, match="grid_points is 1; give 0, or"):
        registry["grief"](grid_points=1)
    settings = registry["grief"].param
    assert settings.grid_points.schema() == {"type": "integer", "minimum": 0, "maximum": 2000, "not": {"const": 1}}
    assert settings.points_per_input.schema()["pattern"] == settings.points_per_input.regex


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_with_more_functions_than_rows_variances_are_those_of_dense_algebra(shift: float, tmp_path: Path):
    """The rows tell nothing of directions in which their features vanish; these keep the variance of the prior."""
    whole, method = problem(shift), GriefMCMC(num_eigenfunctions=24, grid_points=6, learn=False)
    task = Problem(whole.train.rows(torch.arange(9)), whole.kernel, whole.theta)
    choice, X = method.choose(task, task.theta), 0.5 * (task.train.X + task.train.X.flip(0).roll(2, 0))
    Phi, at = (choice(task.theta)(Z).T for Z in (task.train.X, X))

    posterior, s2 = refitted_posterior(task, choice, task.theta)

    mean, C = predicted(Phi, at, task.train.y, s2, torch.ones(24, dtype=torch.float64))
    torch.testing.assert_close(posterior(X).mean, mean, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(posterior(X).var, C.diagonal(), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(posterior.cov(X), C, rtol=1e-6, atol=1e-9)
    paths = posterior.paths(8000, seed=1)(X)  # [paths, rows]; the sd of these variances is 1.6 %
    torch.testing.assert_close(paths.var(0), C.diagonal(), rtol=0.06, atol=1e-3)
    posterior.save(tmp_path / "model.safetensors")
    torch.testing.assert_close(load_posterior(tmp_path / "model.safetensors")(X).var, posterior(X).var)
    torch.testing.assert_close(posterior.to_torch()(X)[1], posterior(X).var)


def test_sampled_bands_do_not_forget_what_the_rows_do_not_show():
    """They covered 43 % of these test rows: the prior variance outside the span of the rows was left out."""
    task, test = draw(n=80, d=3, lengthscale=0.5, noise_sd=0.3, seed=1)

    mean, var = finished("grief-mcmc", task, num_eigenfunctions=500).posterior(of="y")(test.X)

    assert coverage(test.y, mean, var, 0.95) > 0.75
