"""Moments of sampled weights and noise, the priors they are sampled from, and where the chains begin."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.eigenfunctions import chains
from gpexplorer.methods.eigenfunctions.chains import (
    LogNormal,
    Moments,
    Target,
    cast,
    coefficient_covariance,
    log_normal,
    mean_noise,
    merge,
    moments_of,
)
from gpexplorer.methods.eigenfunctions.mcmc import GriefMCMC
from gpexplorer.methods.eigenfunctions.orthogonal_basis import (
    OrthogonalBasis,
    fisher_information,
    likelihood,
    likelihood_terms,
)
from oracles_grief import predicted, problem

SETTINGS = {"num_eigenfunctions": 9, "grid_points": 5, "learn": False, "samples": 4, "warm_up": 2, "per_step": 12}


def sampler(**settings: object) -> GriefMCMC:
    return GriefMCMC(**{**SETTINGS, "thin": 3, "chains": 3, **settings})


def basis_of(shift: float = 0.0) -> OrthogonalBasis:
    task, method = problem(shift), sampler()
    return method.orthogonal(task, next(method.steps(task)).state)[0]


def draws(basis: OrthogonalBasis, count: int, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    z = 0.7 * torch.randn(count, len(basis.e) + 1, generator=random, dtype=torch.float64)
    z[:, -1] -= 2.0
    return z


def fields(moments: Moments) -> list[Tensor]:
    return [torch.as_tensor(value, dtype=torch.float64) for value in moments]


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_moments_are_means_and_centred_sums_over_the_draws(shift: float):
    basis = basis_of(shift)
    z = draws(basis, 11, 1)
    w, s2 = z[:, :-1].exp(), z[:, -1:].exp()
    m = w * basis.e.sqrt() * basis.u / (s2 + w * basis.e)  # posterior mean and variance of each coefficient
    v = s2 * w / (s2 + w * basis.e)
    moments = moments_of(basis, z)
    assert moments.size == 11
    torch.testing.assert_close(moments.weight, z[:, :-1].mean(0))
    torch.testing.assert_close(moments.weight2, 11 * z[:, :-1].var(0, correction=0))
    torch.testing.assert_close(moments.m, m.mean(0))
    torch.testing.assert_close(moments.m2, 11 * m.var(0, correction=0))
    torch.testing.assert_close(moments.v, v.mean(0))
    assert moments.noise == pytest.approx(float(z[:, -1].mean()))
    assert moments.noise2 == pytest.approx(11 * float(z[:, -1].var(correction=0)))
    covariance = ((z[:, -1:] - z[:, -1:].mean()) * (m - m.mean(0))).sum(0)
    torch.testing.assert_close(moments.cross, covariance)


@pytest.mark.parametrize(("first", "second"), [(11, 4), (4, 11), (1, 6), (7, 7)])
def test_moments_of_two_sets_are_those_of_all_draws(first: int, second: int):
    basis = basis_of()
    z = draws(basis, first + second, 2)
    z[first:] += 0.5
    merged = merge(moments_of(basis, z[:first]), moments_of(basis, z[first:]))
    for merged_field, whole in zip(fields(merged), fields(moments_of(basis, z)), strict=True):
        torch.testing.assert_close(merged_field, whole)


def test_the_mean_noise_is_that_of_a_log_normal_distribution():
    basis = basis_of()
    z = draws(basis, 40, 3)
    zeta = z[:, -1]
    wanted = math.exp(float(zeta.mean()) + 0.5 * float(zeta.var(correction=0)))
    assert mean_noise(moments_of(basis, z)) == pytest.approx(wanted)
    exact = stats.lognorm(s=float(zeta.std(correction=0)), scale=math.exp(float(zeta.mean()))).mean()
    assert wanted == pytest.approx(exact)


def test_the_covariance_of_the_coefficients_is_exact_on_the_diagonal_and_goes_through_the_noise_beside_it():
    basis = basis_of()
    moments = moments_of(basis, draws(basis, 30, 4))
    diagonal, direction = coefficient_covariance(moments)
    torch.testing.assert_close(diagonal + direction.square(), moments.v + moments.m2 / 30)
    slope = moments.cross / 30  # covariance with the noise
    through_the_noise = torch.outer(slope, slope) / (moments.noise2 / 30)
    torch.testing.assert_close(torch.outer(direction, direction), through_the_noise)
    alone = moments_of(basis, draws(basis, 1, 4))
    diagonal, direction = coefficient_covariance(alone)
    torch.testing.assert_close(diagonal, alone.v)
    assert not direction.any()


def test_moments_are_cast_to_another_precision():
    moments = cast(moments_of(basis_of(), draws(basis_of(), 5, 5)), torch.zeros(1, dtype=torch.float32))
    assert {part.dtype for part in moments if isinstance(part, Tensor)} == {torch.float32}
    assert moments.size == 5


@pytest.mark.parametrize(("mode", "variance"), [(1.0, 100.0), (1.0, 1e-4), (0.02, 0.04), (3.0, 1e6), (50.0, 0.3)])
def test_a_log_normal_prior_has_the_mode_and_the_variance_that_are_asked_for(mode: float, variance: float):
    prior = log_normal(mode, variance)
    peer = stats.lognorm(s=prior.tau, scale=math.exp(prior.mu))
    assert peer.var() == pytest.approx(variance, rel=1e-6)
    assert math.exp(prior.mu - prior.tau**2) == pytest.approx(mode, rel=1e-9)


def test_the_prior_of_a_target_is_one_for_all_weights_and_one_for_the_noise():
    basis = basis_of()
    target = Target(basis, LogNormal(0.3, 0.8), LogNormal(-2.0, 0.5))
    mu, tau = target.prior
    assert mu.tolist() == [0.3] * len(basis.e) + [-2.0]
    assert tau.tolist() == [0.8] * len(basis.e) + [0.5]
    assert target.mode.tolist() == pytest.approx([0.3 - 0.64] * len(basis.e) + [-2.25])


@pytest.mark.parametrize("tau", [0.4, 5.0])
def test_chains_begin_at_different_points_near_the_mode_of_the_prior(tau: float):
    task, method = problem(), sampler()
    state = next(method.steps(task)).state
    basis = method.orthogonal(task, state)[0]
    target = Target(basis, LogNormal(0.3, tau), LogNormal(-2.0, 0.5))
    begun = chains._begin(method, target, state)
    q = len(basis.e) + 1
    normal = torch.randn(3, q, generator=generator(method.seed, "begin"), dtype=torch.float64)
    spread = torch.tensor([min(tau, 1.0)] * (q - 1) + [0.5], dtype=torch.float64)
    torch.testing.assert_close(begun.z, target.mode + 0.5 * normal * spread)
    precision = torch.tensor([tau**-2] * (q - 1) + [4.0], dtype=torch.float64)
    scales = (fisher_information(basis, target.mode) + precision).rsqrt()
    torch.testing.assert_close(begun.sd, scales)
    assert begun.watched.shape == (3, 0, 5)
    assert begun.tuning.updates == 0


def test_steps_are_counted_and_report_likelihood_noise_and_size_of_a_step():
    task, method = problem(3.0), sampler()
    steps = list(method.steps(task))
    states = [step.state for step in steps]
    assert [step.info.phase for step in steps] == ["start", *["warm-up"] * 2, *["sample"] * 4]
    assert [state.step for state in states] == list(range(7))
    assert [state.position for state in states] == list(range(7))
    assert [state.moments.size for state in states] == [0, 12, 12, 12, 24, 36, 48]  # a step of 3 chains has 4 draws
    basis = method.orthogonal(task, states[-1])[0]
    for step in steps[1:]:
        values = likelihood(likelihood_terms(basis), step.state.z).value
        assert step.info.objective == pytest.approx(-float(values.mean()))
        assert step.info.noise == pytest.approx(math.exp(0.5 * step.state.moments.noise))
        assert step.info.step_size == pytest.approx(math.exp(step.state.tuning.log_eps))
        assert 0.0 <= step.info.acceptance <= 1.0
        assert 0.0 < step.info.kept <= 1.0
    assert [state.watched.shape[1] for state in states[1:]] == [4, 8, 4, 8, 12, 16]
    watched, z = states[-1].watched, states[-1].z
    torch.testing.assert_close(watched[:, -1, 1], z[:, -1])
    torch.testing.assert_close(watched[:, -1, 2:], z[:, :3])
    torch.testing.assert_close(watched[:, -1, 0], likelihood(likelihood_terms(basis), z).value)
    scales = method.priors(task.theta)
    between = states[1]
    later = (fisher_information(basis, between.z.mean(0)) + Target(basis, *scales).prior[1].pow(-2)).rsqrt()
    torch.testing.assert_close(states[2].sd, later)  # during warm-up the scales follow the chains
    torch.testing.assert_close(states[4].sd, states[3].sd)


@pytest.mark.parametrize("begin", [0, 1, 2, 3, 5])
def test_a_resumed_run_repeats_every_draw(begin: int):
    task, method = problem(), sampler()
    states = [step.state for step in method.steps(task)]
    rest = [step.state for step in method.steps(task, states[begin])]
    assert len(rest) == len(states) - begin - 1
    torch.testing.assert_close(rest[-1].z, states[-1].z)
    for resumed_field, field in zip(fields(rest[-1].moments), fields(states[-1].moments), strict=True):
        torch.testing.assert_close(resumed_field, field)


def test_without_draws_the_weights_are_one_and_the_noise_is_that_of_theta():
    task, method = problem(3.0), sampler()
    state = next(method.steps(task)).state
    choice = method.eigenfunctions(task, state)
    Phi, at = (choice(task.theta)(X).T for X in (task.train.X, task.train.X[:5]))
    s2 = math.exp(2.0 * float(task.theta[-1]))
    mean, covariance = predicted(Phi, at, task.train.y, s2, torch.ones(Phi.shape[1], dtype=torch.float64))
    prediction = method.posterior(task, state)(task.train.X[:5])
    torch.testing.assert_close(prediction.mean, mean, rtol=1e-6, atol=1e-8)
    assert bool((prediction.var >= covariance.diagonal() - 1e-8).all())
    assert method.noise_variance(task, state) == pytest.approx(s2)
