"""Chains, their tuning and their diagnostics, and type I as a whole."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gpexplorer import Spec, load
from gpexplorer.linalg.randomness import generator, random_rows
from gpexplorer.methods.chain_diagnostics import bulk_ess, rhat
from gpexplorer.methods.eigenfunctions import chains
from gpexplorer.methods.eigenfunctions.chains import Target, log_normal
from gpexplorer.methods.eigenfunctions.mcmc import GriefMCMC
from gpexplorer.methods.eigenfunctions.orthogonal_basis import likelihood, likelihood_terms
from gpexplorer.methods.langevin import (
    Density,
    dual_averaging,
    initial_tuning,
    randomness,
    run_chains,
)
from oracles_grief import problem


def gaussian(mean: torch.Tensor, sd: torch.Tensor):
    def density(z: torch.Tensor, gradient: torch.Tensor | None = None) -> Density:
        off = (z - mean) / sd
        return Density(-0.5 * off.square().sum(1), -off / sd)

    return density


@pytest.mark.parametrize("centre", [0.0, 500.0])
def test_the_chains_sample_a_gaussian_at_the_target_acceptance(centre: float):
    rng = torch.Generator().manual_seed(0)
    q, chains = 20, 8
    mean, sd = (
        centre + torch.randn(q, generator=rng, dtype=torch.float64),
        torch.logspace(-2, 2, q, dtype=torch.float64),
    )
    density = gaussian(mean, sd)

    start = mean + sd * torch.randn(chains, q, generator=rng, dtype=torch.float64)
    warm = run_chains(
        density,
        start,
        sd,
        randomness(start, rng, 500),
        lambda tuning, rate: dual_averaging(tuning, q, rate, 0.574),
        initial_tuning(q),
        10,
    )
    eps = warm.tuning._replace(log_eps=warm.tuning.average)
    result = run_chains(density, warm.z, sd, randomness(start, rng, 2500), lambda tuning, rate: tuning, eps, 2)

    off = (result.draws - mean) / sd
    assert result.acceptance == pytest.approx(0.574, abs=0.03)
    ess = min(bulk_ess(off[:, :, j].T.numpy()) for j in range(q))
    assert ess > 300
    assert float(off.mean((0, 1)).abs().max()) < 4.5 / math.sqrt(ess)
    assert float((off.var((0, 1)) - 1).abs().max()) < 6.5 / math.sqrt(ess)
    assert max(rhat(off[:, :, j].T.numpy()) for j in range(q)) < 1.02


def test_a_proposal_without_a_density_is_rejected():
    def nowhere(z: torch.Tensor, gradient: torch.Tensor | None = None) -> Density:
        return Density(torch.where(z[:, 0] > 0, torch.nan, 0.0), torch.zeros_like(z))

    z = -torch.ones(3, 1, dtype=torch.float64)
    rng = torch.Generator().manual_seed(0)

    result = run_chains(
        nowhere,
        z,
        torch.ones(1, dtype=torch.float64),
        randomness(z, rng, 50),
        lambda tuning, rate: tuning,
        initial_tuning(1),
        1,
    )

    assert (result.draws <= 0).all()
    assert 0 < result.acceptance < 1


def ar1(rho: float, chains: int = 4, draws: int = 2000, seed: int = 1) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal((chains, draws))
    out = np.empty_like(noise)
    out[:, 0] = noise[:, 0]
    for t in range(1, draws):
        out[:, t] = rho * out[:, t - 1] + math.sqrt(1 - rho**2) * noise[:, t]
    return out


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_effective_sample_size_of_an_autoregression_equals_theory(rho: float):
    ess = np.mean([bulk_ess(ar1(rho, seed=seed)) for seed in range(4)])

    assert ess == pytest.approx(8000 * (1 - rho) / (1 + rho), rel=0.12)


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize("chains", [1, 3])
def test_the_density_is_likelihood_times_priors_with_the_right_gradient(chains: int, shift: float):
    method = GriefMCMC(num_eigenfunctions=6, grid_points=5, learn=False, weight_variance=2.0)
    basis = method.orthogonal(problem(shift), next(method.steps(problem(shift))).state)[0]
    target = Target(basis, method.priors(problem(shift).theta)[0], log_normal(0.3, 0.04))
    q, rng = len(basis.e) + 1, torch.Generator().manual_seed(3)
    z = torch.randn(chains, q, generator=rng, dtype=torch.float64)

    result = target.density()(z.clone())

    mu, tau = target.prior
    prior = -0.5 * ((z - mu) / tau).square().sum(1)
    torch.testing.assert_close(result.value, likelihood(likelihood_terms(basis), z).value + prior)
    for j in range(q):
        move = torch.zeros_like(z)
        move[:, j] = 1e-5
        up, down = (target.density()(z + sign * move).value for sign in (1, -1))
        torch.testing.assert_close(result.gradient[:, j], (up - down) / 2e-5, rtol=1e-6, atol=1e-6)


def test_sampling_uses_the_average_step_size_of_the_warm_up():
    method = GriefMCMC(num_eigenfunctions=6, grid_points=5, learn=False, warm_up=3, samples=3, per_step=20)

    states = [step.state for step in method.steps(problem())]

    warm = [state for state in states if state.phase == "warm-up"][-1].tuning
    assert warm.log_eps != warm.average
    assert {state.tuning.log_eps for state in states if state.phase == "sample"} == {warm.average}


def test_the_effective_sample_size_depends_on_ranks_and_detects_a_drift():
    draws = ar1(0.5, draws=500)

    assert bulk_ess(np.exp(3.0 * draws)) == pytest.approx(bulk_ess(draws), rel=1e-9)
    halves = np.where(np.arange(500) < 250, 0.0, 3.0)
    assert bulk_ess(draws + halves) < 0.02 * bulk_ess(draws)


def test_r_hat_detects_chains_that_differ_in_mean_in_spread_and_over_time():
    same = ar1(0.3, draws=500)
    assert rhat(same) < 1.01
    assert rhat(100 + 7 * same) == pytest.approx(rhat(same), abs=1e-3)  # ranks do not depend on units
    assert rhat(same + np.arange(4)[:, None]) > 1.3
    assert rhat(same * np.array([1, 1, 1, 6])[:, None]) > 1.1
    assert rhat(same + np.linspace(0, 3, 500)) > 1.2


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_the_sampled_noise_agrees_with_quadrature_if_the_weights_are_almost_fixed(shift: float):
    task = problem(shift)
    method = GriefMCMC(
        num_eigenfunctions=15, grid_points=6, learn=False, samples=20, warm_up=5, weight_variance=1e-6, per_step=100
    )
    *_, last = method.steps(task)
    basis = method.orthogonal(task, last.state)[0]
    target = Target(basis, *method.priors(task.theta))
    line = torch.linspace(-6, 2, 4001, dtype=torch.float64)
    z = torch.cat([torch.zeros(4001, len(basis.e), dtype=torch.float64), line[:, None]], 1)
    log = likelihood(likelihood_terms(basis), z).value - 0.5 * ((line - target.noise.mu) / target.noise.tau) ** 2
    weights = torch.softmax(log, 0)
    mean = float(weights @ line)
    sd = float((weights @ (line - mean) ** 2).sqrt())

    seen = last.state.moments

    assert seen.noise == pytest.approx(mean, abs=0.15 * sd)
    assert math.sqrt(seen.noise2 / seen.size) == pytest.approx(sd, rel=0.15)
    assert last.info.rhat < 1.03


def test_predictions_average_over_the_draws():
    task = problem(3.0)
    method = GriefMCMC(num_eigenfunctions=15, grid_points=6, learn=False, samples=3, warm_up=2, per_step=20, chains=2)
    *_, last = method.steps(task)
    X = task.train.X[:6] + 0.05

    mean, var = method.posterior(task, last.state)(X)
    begin = method.posterior(task, next(method.steps(task)).state)(X)

    assert last.state.moments.size == 3 * 2 * 2
    assert (var > 0).all()
    assert not torch.allclose(mean, begin.mean, rtol=1e-3)
    residual = (method.posterior(task, last.state)(task.train.X).mean - task.train.y).std()
    assert float(residual) < 0.3 * float(task.train.y.std())


def test_watched_draws_are_bounded_and_evenly_spaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chains, "MAX_WATCHED", 32)
    task = problem()
    method = GriefMCMC(
        num_eigenfunctions=6, grid_points=4, learn=False, samples=10, warm_up=2, per_step=30, thin=3, chains=2
    )
    seen = [step.state for step in method.steps(task)]
    watched, stride = seen[-1].watched, seen[-1].stride

    assert watched.shape == (2, 25, 5)
    assert stride == 4
    assert seen[-1].moments.size == 2 * 100
    torch.testing.assert_close(watched[:, :3], seen[3].watched[:, :10:4])


def test_a_run_that_ends_while_theta_is_learned_predicts_with_an_exact_gp_and_says_so():
    """The few functions of an initial theta predicted a constant, without a word."""
    rows = {"name": "hypercube", "n": 260, "d": 16, "noise": 0.1, "seed": 2}
    settings = {"num_eigenfunctions": 10, "subset": 150, "evaluations": 12, "starts": 1}
    run = Spec("grief-mcmc", settings, data=rows).open()
    outcome = run.finish(steps=9)
    state, train = run.trace[-1].step.state, run.problem.train
    assert "predictions are those of an exact GP on 150 rows" in outcome.message
    sample = train.rows(random_rows(len(train), 150, generator(0, "subset")))
    kernel, X = run.problem.kernel, run.split.test.X
    A = kernel(state.theta, sample.X, sample.X) + float((2 * state.theta[-1]).exp()) * torch.eye(150).double()
    mean = kernel(state.theta, X, sample.X) @ torch.linalg.solve(A, sample.y)
    torch.testing.assert_close(run.method.posterior(run.problem, state).moments(X)[0], mean, rtol=1e-6, atol=1e-8)
    assert run.scores()["smse"] < 0.9


def test_a_run_that_ends_before_its_first_draw_says_which_weights_it_predicts_with():
    rows = {"name": "friedman1", "n": 90}
    settings = {"learn": False, "num_eigenfunctions": 10, "warm_up": 2, "samples": 3, "per_step": 5, "chains": 2}
    messages = []
    for steps in (1, 5):
        run = Spec("grief-mcmc", settings, data=rows).open()
        messages.append(run.finish(steps=steps).message)
    note = "No draw has been kept so far: predictions are those of the kernel itself, with all weights 1."
    assert [note in message for message in messages] == [not int(run.trace[1].step.state.moments.size), False]


@pytest.mark.parametrize("shift", [0.0, 500.0])
def test_draws_at_hyperparameters_that_are_not_learned_to_the_end_are_named_as_such(shift: float):
    data = {"num_eigenfunctions": 40, "warm_up": 2, "samples": 2, "per_step": 10}
    rows = load("snelson-like")
    X, y = shift + rows.train.X.numpy(), rows.train.y.numpy() - shift
    outcomes = {
        evaluations: Spec("grief-mcmc", {**data, "evaluations": evaluations}, kernel="se").open(data=(X, y)).finish()
        for evaluations in (2, 200)
    }

    words = "Learning ended before it converged. All 2 evaluations of a descent on the subset are done. Raise eval"
    assert words in outcomes[2].message
    assert "Learning" not in outcomes[200].message
