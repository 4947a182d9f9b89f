"""Weights and noise sampled by Langevin chains: density and mixture by dense algebra, the chains by quadrature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gpexplorer.errors import SettingError
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.base import registry
from gpexplorer.methods.langevin import initial_tuning, randomness, run_chains
from gpexplorer.methods.minibatches.exact_likelihood import exact_likelihood
from gpexplorer.methods.minibatches.held_out_refit import SetAside, rows_set_aside
from gpexplorer.methods.minibatches.model import Model
from gpexplorer.methods.minibatches.weight_chains import HeldOutDensity, largest_rhat, mixture
from gpexplorer.runs.run import Run
from gpexplorer.runs.storage import codec
from oracles_minibatches import method, problem


def learned(shift: float) -> tuple[Model, Tensor, SetAside]:
    at = problem(n=50, noise=0.5, shift=shift)
    model = Model(method("scgd", folds=1), at, 0.3)
    theta = model.start()
    return model, theta, rows_set_aside(model, theta, exact_likelihood(model, theta))


def dense(model: Model, theta: Tensor, Q: Tensor, z: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [t] and covariance [t, t] of f for the prior covariance Q diag(w) Q' of the weights, by n x n matrices."""
    train, y = model.rows(slice(None))
    Phi, Star = (model.features(model.parts(theta), x).Phi @ Q for x in (train, X))
    w, s2 = z[:-1].exp(), z[-1].exp()
    solved = torch.linalg.solve(Phi * w @ Phi.T + s2 * torch.eye(len(y), dtype=y.dtype), Phi * w @ Star.T)
    return solved.T @ y, Star * w @ Star.T - Star * w @ Phi.T @ solved


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_the_density_is_that_of_the_rows_set_aside_by_dense_algebra(shift: float):
    model, theta, rows = learned(shift)
    density = HeldOutDensity(rows, other_rows=50)
    X, y = model.validation()
    z = (
        density.mu + 0.7 * torch.randn(3, len(density.mu), dtype=y.dtype, generator=generator(3, "z"))
    ).requires_grad_()

    def expected(point: Tensor) -> Tensor:
        mean, cov = dense(model, theta, rows.Q, point, X)
        data = torch.distributions.Normal(mean, (cov.diagonal() + point[-1].exp()).sqrt()).log_prob(y).sum()
        return data + torch.distributions.Normal(density.mu, density.tau).log_prob(point).sum()

    value, gradient = density(z.detach())
    values = torch.stack([expected(point) for point in z])
    wanted = torch.autograd.grad(values.sum(), z)[0]

    torch.testing.assert_close(value - value[0], (values - values[0]).detach(), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(gradient, wanted, rtol=1e-7, atol=1e-8)
    assert float(density.tau[-1]) == pytest.approx(0.2)
    assert float(HeldOutDensity(rows).tau[-1]) == 1.0


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_the_mixture_has_the_mean_and_covariance_of_the_draws(shift: float):
    model, theta, rows = learned(shift)
    density = HeldOutDensity(rows)
    draws = density.mu + torch.randn(5, len(density.mu), dtype=torch.float64, generator=generator(4, "z"))
    X, _ = model.validation()
    parts = [dense(model, theta, rows.Q, z, X) for z in draws]
    means = torch.stack([mean for mean, _ in parts])

    b = mixture(rows, draws)

    torch.testing.assert_close(rows.P @ b.mean, means.mean(0))
    cov = torch.stack([cov for _, cov in parts]).mean(0) + torch.cov(means.T, correction=0)
    torch.testing.assert_close(rows.P @ b.root @ b.root.T @ rows.P.T, cov, rtol=1e-8, atol=1e-8)
    assert b.noise == pytest.approx(float(draws[:, -1].exp().mean()))


def test_chains_on_one_weight_have_the_moments_of_a_grid():
    source = generator(5, "rows")
    P = torch.randn(14, 1, dtype=torch.float64, generator=source)
    y = 2.5 * P[:, 0] + 0.8 * torch.randn(14, dtype=torch.float64, generator=source)
    unit = torch.ones(1, 1, dtype=torch.float64)
    density = HeldOutDensity(SetAside(0.5 * unit[0], 1.4 * unit[0], P, y, 0.3, unit))
    axis = torch.linspace(-5.0, 5.0, 301, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis) + density.mu
    share = density(grid).value.softmax(0)
    mean = share @ grid
    sd = (share @ (grid - mean).square()).sqrt()

    z = density.mu + torch.randn(8, 2, dtype=torch.float64, generator=source)
    tuning = initial_tuning(2)._replace(log_eps=0.0)
    random = randomness(z, generator(6, "chains"), 4000)
    draws = run_chains(density, z, density.scales(), random, lambda tuning, _: tuning, tuning, 4).draws[100:]

    flat = draws.flatten(0, 1)
    np.testing.assert_allclose(flat.mean(0), mean, atol=0.08 * float(sd.min()))
    np.testing.assert_allclose(flat.std(0), sd, rtol=0.06)
    assert largest_rhat(draws) < 1.02


def sampled(**settings: Any) -> Run:
    small = registry["scgd"](**{"width": 12, "epochs": 15, "samples": 12, "folds": 2, **settings})
    run = Run(small, problem(n=80, noise=0.6, shift=1.0))
    run.finish()
    return run


def test_a_run_samples_after_learning_and_continues_from_any_of_its_states():
    run = sampled()
    phases = [record.step.state.phase for record in run.trace]
    first = phases.index("sample")
    last = run.trace[-1].step
    assert phases[first - 1] == "best"
    assert phases[first:] == ["sample"] * 22  # ten steps adapt the step size
    assert 0.3 < last.info.acceptance < 0.85
    assert last.info.rhat < 1.3
    assert last.state.chains.draws.shape == (12, 4, 13)

    for at in (first - 1, first + 3, first + 15):
        resumed = run.fork(at)
        resumed.finish()
        assert torch.equal(resumed.trace[-1].step.state.chains.draws, last.state.chains.draws)
        assert resumed.outcome == run.outcome


def test_predictions_are_those_of_the_mixture_of_draws_also_from_a_stored_state():
    run = sampled()
    stored = codec.decode(codec.encode(run.trace[-1].step), codec.classes_of(type(run.method)))
    assert torch.equal(stored.state.chains.draws, run.trace[-1].step.state.chains.draws)
    assert stored.state.chains.tuning == run.trace[-1].step.state.chains.tuning
    state, model = run.trace[-1].step.state, Model(run.method, run.problem, 0.1)
    rows = rows_set_aside(model, state.theta, exact_likelihood(model, state.theta))
    X = run.problem.train.X[:7] + 0.3
    draws = state.chains.draws.flatten(0, 1)
    parts = [dense(model, state.theta, rows.Q, z, X) for z in draws]
    means = torch.stack([mean for mean, _ in parts])
    var = torch.stack([cov.diagonal() for _, cov in parts]).mean(0) + means.var(0, correction=0)

    mean, var_y = run.posterior(of="y")(X)

    torch.testing.assert_close(mean, means.mean(0), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(var_y, var + draws[:, -1].exp().mean(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("key", "message"),
    [("scgd", "raise validation"), ("svgp", "has no weights of features that could be sampled; set samples to 0")],
)
def test_sampling_that_cannot_be_is_refused_with_a_way_out(key: str, message: str):
    with pytest.raises(SettingError, match=message):
        next(registry[key](samples=5, validation=0.0).steps(problem()))


def test_r_hat_needs_four_draws_and_sees_chains_that_disagree():
    draws = torch.randn(40, 4, 6, dtype=torch.float64, generator=generator(7, "draws"))
    apart = draws.clone()
    apart[:, 0, -1] += 5.0

    assert math.isnan(largest_rhat(draws[:3]))
    assert largest_rhat(draws) < 1.2
    assert largest_rhat(apart) > 1.5
