"""The basis in which likelihood and gradient cost O(p), against dense algebra in the original basis."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer.features.basis_choices import Leading
from gpexplorer.features.grid_eigenfunctions import Grid
from gpexplorer.methods.eigenfunctions.chains import coefficient_covariance, log_normal, merge, moments_of
from gpexplorer.methods.eigenfunctions.evidence import gram_products
from gpexplorer.methods.eigenfunctions.orthogonal_basis import (
    OrthogonalBasis,
    coefficient_posterior,
    fisher_information,
    likelihood,
    likelihood_terms,
    orthogonalise,
)
from gpexplorer.problem import Problem
from oracles_grief import covariance, nlml, predicted, problem

EPS = torch.finfo(torch.float64).eps
SHIFTS = [0.0, 1000.0]


def rotated(task: Problem, p: int = 15) -> tuple[OrthogonalBasis, torch.Tensor, Grid, torch.Tensor]:
    grid = Grid(task.kernel, task.train.X, 6)
    index = grid.spectrum(task.theta, p).axis_indices
    A, c = gram_products(Leading(grid, index), task.theta, task.train)
    Phi = grid.features(task.theta, task.train.X, index)
    return orthogonalise(A, c, float(task.train.y.square().sum()), len(task.train), EPS), Phi, grid, index


def points(r: int, seed: int, count: int = 5) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(count, r + 1, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize(("n", "p"), [(60, 15), (10, 30), (60, 36)])
def test_the_likelihood_equals_dense_algebra_for_any_weights(n: int, p: int, shift: float):
    task = problem(shift, n=n)
    basis, Phi, _, _ = rotated(task, p)
    z = points(len(basis.e), 1)

    value = likelihood(likelihood_terms(basis), z).value

    for k in range(len(z)):
        dense = -nlml(Phi @ basis.V, task.train.y, z[k, -1].exp(), z[k, :-1].exp())
        assert float(value[k]) == pytest.approx(float(dense), rel=1e-8, abs=1e-7)


def test_one_chain_gives_the_same_numbers_as_several_in_arrays_of_its_own():
    basis, _, _, _ = rotated(problem(7.0))
    terms, z = likelihood_terms(basis), points(len(basis.e), 6, 3)

    many = likelihood(terms, z)
    alone = [likelihood(terms, z[k : k + 1]) for k in range(3)]

    torch.testing.assert_close(torch.cat([chain.value for chain in alone]), many.value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.cat([chain.gradient for chain in alone]), many.gradient, rtol=1e-12, atol=1e-12)


def test_a_proposal_that_overflows_has_no_value_and_no_warning():
    basis, _, _, _ = rotated(problem())
    z = torch.full((1, len(basis.e) + 1), 1e4, dtype=torch.float64)

    assert not likelihood(likelihood_terms(basis), z).value.isfinite()
    assert not likelihood(likelihood_terms(basis), z.repeat(2, 1)).value.isfinite().any()


@pytest.mark.parametrize("chains", [1, 5])
def test_every_derivative_equals_autograd(chains: int):
    basis, _, _, _ = rotated(problem(7.0))
    z = points(len(basis.e), 2, chains).requires_grad_(True)
    t = basis.e * z[:, :-1].exp() + z[:, -1:].exp()
    spare = basis.n - len(basis.e)
    value = -0.5 * ((basis.u**2 / t + t.log()).sum(1) + basis.rest / z[:, -1].exp() + spare * z[:, -1])
    (gradient,) = torch.autograd.grad(value.sum(), z)

    result = likelihood(likelihood_terms(basis), z.detach())

    torch.testing.assert_close(result.value, value.detach())
    torch.testing.assert_close(result.gradient, gradient)


@pytest.mark.parametrize("shift", SHIFTS)
def test_with_unit_weights_mean_and_variance_are_those_of_the_original_basis(shift: float):
    task = problem(shift)
    basis, Phi, grid, index = rotated(task)
    X = task.train.X[:7] + 0.03
    at = grid.features(task.theta, X, index)
    z = torch.zeros(1, len(basis.e) + 1, dtype=torch.float64)
    z[0, -1] = -2.0

    m, v = coefficient_posterior(basis, z)
    mean, covariance_ = predicted(Phi, at, task.train.y, math.exp(-2.0), torch.ones(15, dtype=torch.float64))

    torch.testing.assert_close((at @ basis.V) @ m[0], mean, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close((at @ basis.V).square() @ v[0], covariance_.diagonal(), rtol=1e-7, atol=1e-9)


def test_any_weights_give_the_dense_mean_and_variance():
    task = problem(5.0)
    basis, Phi, grid, index = rotated(task)
    z = points(len(basis.e), 3, 1)
    Psi, at = Phi @ basis.V, grid.features(task.theta, task.train.X[:5] - 0.1, index) @ basis.V

    m, v = coefficient_posterior(basis, z)
    mean, covariance_ = predicted(Psi, at, task.train.y, float(z[0, -1].exp()), z[0, :-1].exp())

    torch.testing.assert_close(at @ m[0], mean, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(at.square() @ v[0], covariance_.diagonal(), rtol=1e-6, atol=1e-9)


def test_fisher_information_equals_its_trace_formula():
    task = problem()
    basis, Phi, _, _ = rotated(task, 6)
    z = points(6, 4, 1)[0]
    Psi, s2 = Phi @ basis.V, z[-1].exp()
    inverse = torch.linalg.inv(covariance(Psi, z[:-1].exp(), s2))
    derivatives = [z[j].exp() * torch.outer(Psi[:, j], Psi[:, j]) for j in range(6)]
    derivatives.append(s2 * torch.eye(60, dtype=torch.float64))

    expected = [0.5 * float(torch.trace(inverse @ D @ inverse @ D)) for D in derivatives]

    torch.testing.assert_close(
        fisher_information(basis, z), torch.tensor(expected, dtype=torch.float64), rtol=1e-7, atol=1e-12
    )


def test_merged_moments_equal_those_of_all_draws_and_give_the_same_predictions():
    basis, _, _, _ = rotated(problem(2.0))
    z = points(len(basis.e), 5, 40)
    z[:, -1] = -2.0 + 0.1 * z[:, -1]

    whole, parts = moments_of(basis, z), merge(moments_of(basis, z[:13]), moments_of(basis, z[13:]))

    for first, second in zip(whole, parts, strict=True):
        torch.testing.assert_close(torch.as_tensor(first), torch.as_tensor(second))
    m, v = coefficient_posterior(basis, z)
    diagonal, direction = coefficient_covariance(whole)
    torch.testing.assert_close(diagonal + direction.square(), v.mean(0) + m.var(0, correction=0))


def test_the_covariance_of_coefficients_through_the_noise_is_one_direction():
    basis, _, _, _ = rotated(problem())
    z = torch.zeros(50, len(basis.e) + 1, dtype=torch.float64)
    z[:, -1] = torch.linspace(-2.01, -1.99, 50, dtype=torch.float64)

    m, v = coefficient_posterior(basis, z)
    diagonal, direction = coefficient_covariance(moments_of(basis, z))

    together = torch.cov(m.T, correction=0)
    torch.testing.assert_close(torch.outer(direction, direction), together, rtol=1e-3, atol=1e-9)
    torch.testing.assert_close(diagonal, v.mean(0), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(("mode", "variance"), [(1.0, 100.0), (0.05, 0.04), (3.0, 1e-4), (1e-4, 0.04)])
def test_a_prior_has_the_given_mode_and_variance(mode: float, variance: float):
    mu, tau = log_normal(mode, variance)

    assert math.exp(mu - tau**2) == pytest.approx(mode, rel=1e-9)
    assert math.expm1(tau**2) * math.exp(2 * mu + tau**2) == pytest.approx(variance, rel=1e-6)
