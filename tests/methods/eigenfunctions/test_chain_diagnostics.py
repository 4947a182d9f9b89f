"""R-hat, the effective sample size and the tuning of the step size, against their formulas written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from gpexplorer.methods.chain_diagnostics import bulk_ess, rhat
from gpexplorer.methods.langevin import (
    GAMMA,
    KAPPA,
    OPTIMAL,
    T0,
    Density,
    constant_step,
    dual_averaging,
    initial_tuning,
    randomness,
    run_chains,
)


def chains(count: int, length: int, rho: float, seed: int = 0) -> np.ndarray:
    """Autoregressions of order one that start apart."""
    noise = np.random.default_rng(seed).normal(size=(count, length))
    out = noise + np.arange(count)[:, None] * 0.1
    for t in range(1, length):
        out[:, t] = rho * out[:, t - 1] + math.sqrt(1.0 - rho**2) * noise[:, t]
    return out


def halves_in_ranks(draws: np.ndarray) -> np.ndarray:
    """Normal scores of the ranks of all draws of the split chains (Vehtari et al. 2021, eq 14)."""
    half = draws.shape[1] // 2
    split = np.concatenate([draws[:, :half], draws[:, -half:]])
    ranks = stats.rankdata(split, method="average").reshape(split.shape)
    return stats.norm.ppf((ranks - 3.0 / 8.0) / (split.size + 1.0 / 4.0))


def plain_rhat(draws: np.ndarray) -> float:
    """Eqs 1 to 4, chain by chain."""
    n = draws.shape[1]
    means, variances = [chain.mean() for chain in draws], [chain.var(ddof=1) for chain in draws]
    B, W = n * np.var(means, ddof=1), np.mean(variances)
    return math.sqrt(((n - 1) / n * W + B / n) / W)


def plain_ess(draws: np.ndarray) -> float:
    """Eqs 10 to 13 with Geyer's initial monotone sequence, lag by lag."""
    m, n = draws.shape
    W = np.mean([chain.var(ddof=1) for chain in draws])
    var_plus = (n - 1) / n * W + np.var(draws.mean(1), ddof=1)
    rho = []
    for lag in range(n):
        covariance = [
            sum((chain[i] - chain.mean()) * (chain[i + lag] - chain.mean()) for i in range(n - lag)) / n
            for chain in draws
        ]
        rho.append(1.0 - (W - np.mean(covariance)) / var_plus)
    rho[0] = 1.0
    pairs, k = [rho[0] + rho[1]], 1
    while rho[2 * k] + rho[2 * k + 1] > 0.0:
        pairs.append(min(rho[2 * k] + rho[2 * k + 1], pairs[-1]))
        k += 1
    tau = -1.0 + 2.0 * sum(pairs) + max(rho[2 * k], 0.0)
    return m * n / max(tau, 1.0 / math.log10(m * n))


@pytest.mark.parametrize(("count", "length"), [(2, 8), (3, 41), (4, 60)])
@pytest.mark.parametrize("rho", [-0.6, 0.0, 0.7])
def test_r_hat_is_that_of_ranks_in_place_and_in_spread(count: int, length: int, rho: float):
    draws = chains(count, length, rho)
    folded = np.abs(draws - np.median(draws))
    wanted = max(plain_rhat(halves_in_ranks(draws)), plain_rhat(halves_in_ranks(folded)))
    assert rhat(draws) == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize(("count", "length"), [(1, 64), (2, 40), (3, 121), (4, 90)])
@pytest.mark.parametrize("rho", [-0.6, 0.0, 0.4])
def test_the_effective_sample_size_is_that_of_the_sums_over_lags(count: int, length: int, rho: float):
    for seed in range(4):
        draws = chains(count, length, rho, seed)
        assert bulk_ess(draws) == pytest.approx(plain_ess(halves_in_ranks(draws)), rel=1e-8)


def test_few_draws_or_such_as_are_not_finite_have_no_diagnostics():
    draws = chains(2, 8, 0.0)
    assert math.isnan(rhat(draws[:, :3]))
    assert math.isnan(bulk_ess(draws[:, :3]))
    assert math.isfinite(rhat(draws[:, :4]))
    draws[0, 0] = math.inf
    assert math.isnan(rhat(draws))
    assert math.isnan(bulk_ess(draws))


@pytest.mark.parametrize("q", [1, 7, 300])
def test_the_step_size_follows_the_dual_averaging_of_hoffman_and_gelman(q: int):
    start = math.log(1.65) - math.log(q) / 6.0  # q^(-1/6), Roberts and Rosenthal 1998
    tuning = initial_tuning(q)
    assert OPTIMAL == 1.65
    assert tuple(tuning) == pytest.approx((start, start, 0.0, 0))
    shortfall, average, target = 0.0, start, 0.574
    for t, acceptance in enumerate([1.0, 0.2, 0.0, 0.7, 0.6, 0.4] * 4, start=1):
        tuning = dual_averaging(tuning, q, acceptance, target)
        shortfall = (1.0 - 1.0 / (t + T0)) * shortfall + (target - acceptance) / (t + T0)
        log_eps = start - math.sqrt(t) / GAMMA * shortfall
        average = t**-KAPPA * log_eps + (1.0 - t**-KAPPA) * average
        assert tuple(tuning) == pytest.approx((log_eps, average, shortfall, t))
    assert constant_step(tuning, 0.1) is tuning


@pytest.mark.parametrize(("iterations", "every", "kept"), [(12, 4, 3), (13, 5, 2), (5, 1, 5)])
def test_the_points_are_kept_with_their_density_at_a_fixed_interval(iterations: int, every: int, kept: int):
    seen: list[float] = []

    def normal(z: torch.Tensor, gradient: torch.Tensor | None = None) -> Density:
        return Density(-0.5 * z.square().sum(1), -z)

    def adapt(tuning, acceptance):
        seen.append(acceptance)
        return tuning

    z = torch.zeros(3, 2, dtype=torch.float64)
    source = torch.Generator().manual_seed(1)
    segment = run_chains(
        normal, z, torch.ones(2).double(), randomness(z, source, iterations), adapt, initial_tuning(2), every
    )
    assert segment.draws.shape == (kept, 3, 2)
    torch.testing.assert_close(segment.values, -0.5 * segment.draws.square().sum(2))
    assert len(seen) == iterations
    assert segment.acceptance == pytest.approx(sum(seen) / iterations)
    if iterations % every == 0:
        assert torch.equal(segment.draws[-1], segment.z)
