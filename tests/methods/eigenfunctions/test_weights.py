"""Weights that are optimised and not sampled, and the grid as a preconditioner of exact solves."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.errors import KernelError
from gpexplorer.features.grid_eigenfunctions import grid_root
from gpexplorer.linalg.preconditioners import woodbury
from gpexplorer.methods.eigenfunctions import grief
from gpexplorer.methods.eigenfunctions.chains import Target, log_normal
from gpexplorer.methods.eigenfunctions.grief import FLAT, SMALLEST_LOG, Grief, fisher_scoring, optimise_weights
from gpexplorer.methods.eigenfunctions.orthogonal_basis import OrthogonalBasis, likelihood, likelihood_terms
from gpexplorer.methods.exact.cg import begin, cg
from gpexplorer.methods.langevin import Density
from oracles_grief import nlml, predicted, problem
from whole_run import finished


def made(r: int = 12, n: int = 200) -> OrthogonalBasis:
    rng = torch.Generator().manual_seed(2)
    e = torch.logspace(3, -3, r, dtype=torch.float64)
    u = 3.0 * e.sqrt() * torch.randn(r, generator=rng, dtype=torch.float64)
    return OrthogonalBasis(torch.eye(r, dtype=torch.float64), e, u, 0.5 * (n - r), n)


def test_weights_of_highest_likelihood_equal_their_formula_or_reach_the_lower_bound():
    basis = made()

    z = optimise_weights(basis, FLAT, FLAT)

    s2 = float(z[-1].exp())
    formula = (basis.u.square() - s2) / basis.e
    alive = formula > 1e-3
    assert 3 <= int(alive.sum()) < 12
    torch.testing.assert_close(z[:-1].exp()[alive], formula[alive], rtol=1e-3, atol=0)
    assert float((z[:-1].exp() * basis.e)[formula < 0].max()) < 1e-2 * s2
    assert float(z.min()) >= SMALLEST_LOG
    lost = basis.rest + float(basis.u.square()[formula < 0].sum())
    assert s2 == pytest.approx(lost / (basis.n - int((formula > 0).sum())), rel=1e-2)


def test_an_unbounded_ascent_stops_at_the_lower_bound():
    """If a density grows without bound as weights vanish, the weights stay representable."""

    def decreasing(z: torch.Tensor) -> Density:
        return Density(-z.sum(1), -torch.ones_like(z))

    result = fisher_scoring(decreasing, torch.zeros(3, dtype=torch.float64), torch.ones_like)

    assert result.tolist() == [SMALLEST_LOG] * 3


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize("weights", ["posterior", "likelihood"])
def test_optimised_weights_fit_better_and_predict_as_dense_algebra(weights: str, shift: float):
    task = problem(shift)
    method = Grief(num_eigenfunctions=15, grid_points=6, learn=False, basis="eigenvalues", weights=weights)
    *_, before, last = method.steps(task)
    basis, z, choice = method.optimised_weights(task, last.state)
    X = task.train.X[:6] + 0.05
    grid_phi = [choice(task.theta)(Z).T for Z in (task.train.X, X)]
    Phi, at = (part @ basis.V for part in grid_phi)

    mean, var = method.posterior(task, last.state)(X)
    expected, covariance = predicted(Phi, at, task.train.y, math.exp(float(z[-1])), z[:-1].exp())

    assert last.state.objective < before.state.objective - 1
    torch.testing.assert_close(mean, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(var, covariance.diagonal(), rtol=1e-5, atol=1e-7)
    s2 = math.exp(float(z[-1]))
    noisy = method.posterior(task, last.state).asked_for("y")(X).var
    torch.testing.assert_close(noisy, covariance.diagonal() + s2, rtol=1e-5, atol=1e-7)
    assert method.noise_variance(task, last.state) == pytest.approx(s2)
    assert method.noise_variance(task, before.state) == pytest.approx(math.exp(-2.0))
    assert last.state.step == before.state.step + 1
    assert last.state.objective == pytest.approx(float(nlml(Phi, task.train.y, s2, z[:-1].exp())), rel=1e-8)


@pytest.mark.parametrize("noise_sd", [0.4, 2.0])
@pytest.mark.parametrize("weights", ["posterior", "likelihood"])
def test_the_weights_are_a_mode_of_the_dense_posterior_under_the_priors_of_type_i(weights: str, noise_sd: float):
    """The priors of section 6: the weights have mode 1 and variance 100, the noise that of theta and variance 0.04."""
    task = problem()
    task.theta[-1] = math.log(noise_sd)
    method = Grief(num_eigenfunctions=8, grid_points=6, learn=False, basis="eigenvalues", weights=weights)
    *_, last = method.steps(task)
    basis, z, choice = method.optimised_weights(task, last.state)
    Phi, z = choice(task.theta)(task.train.X).T @ basis.V, z.clone().requires_grad_()

    log_posterior = -nlml(Phi, task.train.y, z[-1].exp(), z[:-1].exp())
    if weights == "posterior":
        for part, (mu, tau) in ((z[:-1], log_normal(1.0, 100.0)), (z[-1:], log_normal(noise_sd**2, 0.04))):
            log_posterior = log_posterior + torch.distributions.Normal(mu, tau).log_prob(part).sum()

    (gradient,) = torch.autograd.grad(log_posterior, z)
    assert float(gradient[z > -10.0].abs().max()) < 1e-3


def test_without_a_prior_the_noise_begins_at_half_the_mean_square(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(grief, "MAX_ITERATIONS", 0)
    basis = made()

    z = optimise_weights(basis, FLAT, FLAT)

    square = float(basis.u.square().sum()) + basis.rest  # of y, since u are its coordinates in an orthonormal basis
    assert z[:-1].tolist() == [0.0] * 12
    assert float(z[-1]) == pytest.approx(math.log(0.5 * square / basis.n), rel=1e-12)


def test_ten_step_lengths_are_tried_and_no_coordinate_moves_by_more_than_four():
    gradient = torch.tensor([3.0, 100.0, -100.0, 0.002], dtype=torch.float64)
    information = torch.tensor([2.0, 1.0, 1.0, 0.0], dtype=torch.float64)  # the last is replaced by 0.001
    tried = []

    def density(z: torch.Tensor) -> Density:
        tried.append(z)
        return Density(-z.square().sum(1), gradient.expand_as(z))

    fisher_scoring(density, torch.zeros(4, dtype=torch.float64), lambda _: information)

    longest = torch.tensor([1.5, 4.0, -4.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(tried[1], torch.stack([longest / 2**k for k in range(10)]))


def test_a_proposal_whose_density_is_not_a_number_is_never_accepted():
    def density(z: torch.Tensor) -> Density:
        return Density(z[:, 0].where(z[:, 0] <= 0.25, math.nan), torch.ones_like(z))

    result = fisher_scoring(density, torch.zeros(1, dtype=torch.float64), torch.ones_like)

    assert 0.25 - 1e-3 < float(result) <= 0.25


@pytest.mark.parametrize(("level", "gain", "moves"), [
    (0.0, 0.5e-9, False), (0.0, 1.5e-9, True), (1e6, 0.5e-3, False), (1e6, 1.5e-3, True), (-1e6, 0.5e-3, False),
])  # fmt: skip
def test_the_scoring_stops_at_a_gain_of_a_billionth_of_the_density(level: float, gain: float, moves: bool):
    def density(z: torch.Tensor) -> Density:
        return Density(level + gain * z[:, 0], torch.ones_like(z))

    result = fisher_scoring(density, torch.zeros(1, dtype=torch.float64), torch.ones_like)

    assert (float(result) > 0.0) == moves


def test_a_run_resumed_from_any_state_ends_with_the_same_weights_and_message():
    task = problem()
    method = Grief(
        num_eigenfunctions=9,
        grid_points=4,
        subset=20,
        evaluations=2,
        max_rounds=2,
        basis="eigenvalues",
        weights="posterior",
    )
    states, outcome = played(method, task, None)

    for k in (0, 2, len(states) - 2, len(states) - 1):
        rest, resumed_outcome = played(method, task, states[k])
        assert resumed_outcome == outcome
        assert len(rest) == len(states) - k - 1
        assert not rest or rest[-1].objective == pytest.approx(states[-1].objective, rel=1e-9)


def played(method: Grief, task, resume) -> tuple[list, object]:
    steps, outcome = finished(method, task, resume)
    return [step.state for step in steps], outcome


def test_the_mode_is_a_mode():
    basis = made()
    weights, noise = log_normal(1.0, 100.0), log_normal(0.5, 0.04)
    z = optimise_weights(basis, weights, noise)

    gradient = Target(basis, weights, noise).density()(z[None]).gradient[0]

    assert float(gradient.abs().max()) < 1e-2
    assert float(likelihood(likelihood_terms(basis), z[None]).value) > float(
        likelihood(likelihood_terms(basis), 0 * z[None]).value
    )


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_the_grid_as_a_preconditioner_saves_most_iterations(shift: float):
    task = problem(shift, n=150)
    s2 = 1e-3
    A = task.kernel(task.theta, task.train.X, task.train.X) + s2 * torch.eye(150, dtype=torch.float64)
    root = grid_root(task.kernel, task.theta, task.train.X, 60)
    apply = woodbury(root, s2)
    v = torch.randn(150, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    dense = torch.linalg.solve(root @ root.T + s2 * torch.eye(150, dtype=torch.float64), v)
    torch.testing.assert_close(apply(v), dense, rtol=1e-6, atol=1e-8 * float(dense.abs().max()))

    def iterations(preconditioner) -> int:
        start = begin(lambda x: A @ x, task.train.y, torch.zeros_like(task.train.y), preconditioner)
        for k, at in enumerate(cg(lambda x: A @ x, start, preconditioner), 1):
            if float(at.r.abs().max()) < 1e-6 or k > 500:
                return k
        return 500

    assert iterations(apply) < 0.25 * iterations(lambda r: r)


def test_a_kernel_that_is_not_a_product_has_no_grid_root():
    task = problem()
    with pytest.raises(KernelError, match="is no product over its 2 inputs"):
        grid_root(kernels.make("matern52-ard", 2), task.theta, task.train.X, 5)
