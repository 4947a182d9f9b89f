"""Chains that reuse their arrays make the same moves as the formulas written out plainly."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gpexplorer.methods.eigenfunctions.chains import Target, log_normal
from gpexplorer.methods.eigenfunctions.orthogonal_basis import (
    OrthogonalBasis,
    fisher_information,
    likelihood,
    likelihood_terms,
)
from gpexplorer.methods.langevin import constant_step, initial_tuning, randomness, run_chains

ITERATIONS = 40


def target(r: int) -> Target:
    """A basis whose eigenvalues decrease by ten orders of magnitude."""
    rng = torch.Generator().manual_seed(r)
    e = torch.logspace(5, -5, r, dtype=torch.float64)
    u = e.sqrt() * torch.randn(r, generator=rng, dtype=torch.float64)
    basis = OrthogonalBasis(torch.eye(r, dtype=torch.float64), e, u, 30.0, 10 * r)
    return Target(basis, log_normal(1.0, 100.0), log_normal(0.2, 0.04))


def plain_density(posterior: Target, z: Tensor) -> tuple[Tensor, Tensor]:
    """Log density and gradient of one chain, by eq 18 and autograd."""
    z = z.clone().requires_grad_(True)
    basis, (mu, tau) = posterior.basis, posterior.prior
    t = z[:-1].exp() * basis.e + z[-1].exp()
    spare = (basis.n - len(basis.e)) * z[-1] + basis.rest / z[-1].exp()
    value = -0.5 * ((basis.u**2 / t + t.log()).sum() + spare + (((z - mu) / tau) ** 2).sum())
    return value.detach(), torch.autograd.grad(value, z)[0]


def plain_transition(posterior: Target, z: Tensor, scale: Tensor, xi: Tensor, uniform: Tensor) -> Tensor:
    """The transition of Girolami and Calderhead: a proposal, accepted by the densities of both proposals."""
    density, gradient = plain_density(posterior, z)
    proposed = z + 0.5 * scale**2 * gradient + scale * xi
    proposed_density, proposed_gradient = plain_density(posterior, proposed)
    forth = -0.5 * xi.square().sum()
    to_z = -0.5 * ((z - proposed - 0.5 * scale**2 * proposed_gradient) / scale).square().sum()
    return proposed if float(uniform) < math.exp(min(0.0, float(proposed_density - density + to_z - forth))) else z


@pytest.mark.parametrize(("r", "chains"), [(19, 1), (19, 3), (16, 3), (5, 2)])
def test_every_transition_equals_the_plain_formulas(r: int, chains: int):
    posterior = target(r)
    mode = posterior.mode
    begin = mode + 0.3 * torch.randn(chains, r + 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sd = (fisher_information(posterior.basis, mode) + posterior.prior[1].square().reciprocal()).rsqrt()
    kept = begin.clone()

    source = torch.Generator().manual_seed(2)
    result = run_chains(
        posterior.density(), begin, sd, randomness(begin, source, ITERATIONS), constant_step, initial_tuning(r + 1), 1
    )

    scale, z, moved = sd * math.exp(initial_tuning(r + 1).log_eps), begin.clone(), 0
    for k, (xi, uniform) in enumerate(randomness(begin, torch.Generator().manual_seed(2), ITERATIONS)):
        after = torch.stack([plain_transition(posterior, z[c], scale, xi[c], uniform[c]) for c in range(chains)])
        moved += int((after != z).any(1).sum())
        z = after
        torch.testing.assert_close(result.draws[k], z, rtol=1e-9, atol=1e-9)
    assert 0 < moved < ITERATIONS * chains
    assert result.acceptance == pytest.approx(moved / (ITERATIONS * chains), abs=0.2)
    torch.testing.assert_close(result.values[-1], torch.stack([plain_density(posterior, row)[0] for row in z]))
    torch.testing.assert_close(begin, kept, rtol=0, atol=0)


@pytest.mark.parametrize("low", [-60.0, -300.0])
def test_weights_and_noise_near_zero_have_a_small_finite_likelihood(low: float):
    """The product of eight variances underflows there, and its logarithm must not be minus infinity."""
    posterior = target(16)
    z = torch.full((2, 17), low, dtype=torch.float64)

    value = likelihood(likelihood_terms(posterior.basis), z).value

    assert float(value.nan_to_num(nan=-math.inf).max()) < -1e20
