"""Parts of posteriors that few methods use, beside dense algebra: outside a grid, unsolved means, scaled rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.kernels.row_scaled import RowScaled, with_row_noise
from gpexplorer.objectives import nystrom
from gpexplorer.posteriors import (
    CovarianceRoot,
    FeaturePosterior,
    MarginalPosterior,
    PrecisionFactor,
    PriorPosterior,
    RowsPosterior,
    UnitRowsPosterior,
    UnsolvedPosterior,
    exact,
    exact_gp_posterior,
    joint_band,
    nystrom_posterior,
    shifted,
)
from gpexplorer.posteriors.features import OutsideGrid
from gpexplorer.posteriors.in_units import in_units
from gpexplorer.posteriors.sample_paths import GROUP, MAX_GROUPS, prior_paths
from gpexplorer.posteriors.weights import DiagonalAndDirection
from gpexplorer.problem import Dataset, Prediction, Problem, Scale

SHIFTS = [0.0, 1000.0]


def rows(n: int = 9, shift: float = 0.0) -> Dataset:
    X = torch.linspace(0.0, 1.0, n, dtype=torch.float64)[:, None]
    return Dataset(X + shift, torch.sin(5.0 * X[:, 0]) + 0.3)


SE, THETA = kernels.make("se", 1), torch.tensor([0.2, -1.1, -1.3], dtype=torch.float64)


class Bumps:
    """Four features that are smaller beyond `edge`, where a grid would end."""

    def __init__(self, edge: float, size: float) -> None:
        self.edge, self.size = edge, size

    def __len__(self) -> int:
        return 4

    def __call__(self, X: Tensor) -> Tensor:
        x = X[:, 0] - self.edge
        return torch.stack([torch.cos(k * x) for k in range(4)]) * torch.where(x > 0.0, self.size, 0.5)


@pytest.mark.parametrize("shift", SHIFTS)
def test_outside_a_grid_the_prior_that_the_features_leave_out_is_added(shift: float):
    edge = shift + 1.0
    R = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = PrecisionFactor(R[0], torch.linalg.cholesky(R @ R.T + torch.eye(4, dtype=torch.float64)), 0.7)
    phi, outside = Bumps(edge, 0.2), OutsideGrid(SE, THETA, lambda X: X[:, 0] > edge)
    posterior, inside_only = (FeaturePosterior(phi, weights, 0.1, outside=part) for part in (outside, None))
    X = edge + torch.tensor([[-0.5], [0.3], [-0.1], [0.9], [1.6]], dtype=torch.float64)
    Phi, out = phi(X), [1, 3, 4]
    cov = 0.7 * Phi.T @ torch.linalg.inv(weights.L @ weights.L.T) @ Phi
    cov[[[o] for o in out], out] += (SE(THETA, X, X) - Phi.T @ Phi)[[[o] for o in out], out]

    torch.testing.assert_close(posterior.cov(X), cov)
    torch.testing.assert_close(posterior.var(X), cov.diagonal())
    torch.testing.assert_close(posterior.cov(X[:1], X[2:3]), cov[:1, 2:3])
    torch.testing.assert_close(posterior.mean(X), weights.mean @ Phi)
    paths, plain = posterior.paths(1500, seed=1), inside_only.paths(1500, seed=1)
    torch.testing.assert_close(paths(X)[:, [0, 2]], plain(X)[:, [0, 2]])
    torch.testing.assert_close(paths(X[[0, 2]]), plain(X[[0, 2]]))
    torch.testing.assert_close(paths(X).var(0), cov.diagonal(), rtol=0.16, atol=0)
    large = FeaturePosterior(Bumps(edge, 3.0), weights, 0.1, outside=outside)
    torch.testing.assert_close(large.var(X), FeaturePosterior(Bumps(edge, 3.0), weights, 0.1).var(X))


@pytest.mark.parametrize("shift", SHIFTS)
def test_an_unsolved_mean_has_its_error_in_variances_and_as_one_function_in_paths(shift: float):
    train = rows(shift=shift)
    solved = exact_gp_posterior(SE, THETA, train)
    alpha = 0.8 * solved.alpha
    parts: Any = (SE, THETA, (train.X, alpha), train.X, solved.solver)
    rest = solved.alpha - alpha
    unsolved, without_error = UnsolvedPosterior(*parts, rest), RowsPosterior(*parts)
    X = train.X[:4] + 0.03
    error = SE(THETA, X, train.X) @ rest

    torch.testing.assert_close(solved.mean(X) - unsolved.mean(X), error)
    torch.testing.assert_close(unsolved.var(X), without_error.var(X) + error.square())
    torch.testing.assert_close(unsolved.cov(X), without_error.cov(X) + torch.outer(error, error))
    added = unsolved.paths(2000, seed=3)(X) - without_error.paths(2000, seed=3)(X)
    coefficient = added[:, 0] / error[0]
    torch.testing.assert_close(added, torch.outer(coefficient, error))
    assert float(coefficient.std()) == pytest.approx(1.0, abs=0.08)
    assert float(coefficient.mean()) == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("m", [9, 4])
def test_covariances_and_paths_are_those_of_dense_algebra(m: int, shift: float):
    """With all rows the exact GP, and with four of them the projected process."""
    train = rows(shift=shift)
    Z, X = train.X[:: 9 // m][:m], train.X[[0, 2, 6]] + 0.07
    K, K_x, K_m, K_mx = SE(THETA, Z, Z), SE(THETA, X, X), SE(THETA, Z, train.X), SE(THETA, Z, X)
    s2 = float((2.0 * THETA[-1]).exp())
    inverse = torch.linalg.inv(K_m @ K_m.T / s2 + K)
    cov = K_x - K_mx.T @ torch.linalg.inv(K) @ K_mx + K_mx.T @ inverse @ K_mx
    mean = K_mx.T @ inverse @ K_m @ train.y / s2
    sparse = nystrom_posterior(SE, THETA, Z, nystrom(SE, THETA, train, Z))

    for posterior in (sparse, exact_gp_posterior(SE, THETA, train))[: 2 if m == 9 else 1]:
        torch.testing.assert_close(posterior.mean(X), mean, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(posterior.cov(X), cov, rtol=1e-5, atol=1e-8)
        torch.testing.assert_close(posterior.cov(X[:1], X), cov[:1], rtol=1e-5, atol=1e-8)
        torch.testing.assert_close(posterior.var(X), cov.diagonal(), rtol=1e-5, atol=1e-8)
        assert posterior.noise_variance == pytest.approx(s2)
        values, sd = posterior.paths(4000, seed=2)(X), cov.diagonal().sqrt()
        assert float(((values.mean(0) - mean) / sd).abs().max()) < 4.5 / 4000**0.5
        torch.testing.assert_close(torch.cov((values / sd).T), cov / torch.outer(sd, sd), rtol=0, atol=0.12)
    prior = sparse.without_rows()
    torch.testing.assert_close(prior.cov(X), K_x)


def test_weights_have_their_covariance_and_draws_of_it():
    R = torch.randn(3, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    mean, A, a = R[1] + 2.0, R @ R.T + torch.eye(3, dtype=torch.float64), R[0].square() + 0.5
    kinds = [
        (PrecisionFactor(mean, torch.linalg.cholesky(A), 2.5), 2.5 * torch.linalg.inv(A)),
        (CovarianceRoot(mean, R[:, :2]), R[:, :2] @ R[:, :2].T),
        (DiagonalAndDirection(mean, a, R[2]), torch.diag(a) + torch.outer(R[2], R[2])),
    ]
    Phi = torch.randn(3, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

    for weights, cov in kinds:
        H, draws = weights.half(Phi), weights.draw(20000, torch.Generator().manual_seed(6))
        torch.testing.assert_close(H.T @ H, Phi.T @ cov @ Phi)
        assert draws.shape == (3, 20000)
        sd = cov.diagonal().sqrt()
        assert float(((draws.mean(1) - mean) / sd).abs().max()) < 4.5 / 20000**0.5
        torch.testing.assert_close(torch.cov(draws), cov, rtol=0, atol=0.05 * float(sd.max()) ** 2)


@pytest.mark.parametrize("shift", SHIFTS)
def test_many_rows_are_factored_in_place_with_the_same_result(shift: float, monkeypatch: pytest.MonkeyPatch):
    train, calls = rows(shift=shift), list[int]()
    in_place = exact.cholesky_in_place

    def noted(fill: Any, A: Tensor, name: str) -> Any:
        calls.append(len(A))
        return in_place(fill, A, name)

    monkeypatch.setattr(exact, "cholesky_in_place", noted)
    usual = exact_gp_posterior(SE, THETA, train)
    monkeypatch.setattr(exact, "IN_PLACE", 9)
    at_the_limit = exact_gp_posterior(SE, THETA, train)
    assert not calls
    monkeypatch.setattr(exact, "IN_PLACE", 8)
    large = exact_gp_posterior(SE, THETA, train)
    assert calls == [9]
    for other in (at_the_limit, large):
        torch.testing.assert_close(other.alpha, usual.alpha)
        torch.testing.assert_close(other.cov(train.X + 0.02), usual.cov(train.X + 0.02))
    noise = torch.linspace(0.1, 0.5, 9, dtype=torch.float64)
    A = SE(THETA, train.X, train.X) + torch.diag(noise)
    solver = exact.CholeskySolver(SE, THETA, train.X, noise=noise)
    torch.testing.assert_close(A @ solver.solve(train.y[:, None])[:, 0], train.y)


@pytest.mark.parametrize("shift", SHIFTS)
def test_rows_of_unequal_noise_are_predicted_at_their_usual_scale(shift: float):
    train = replace(rows(shift=shift), noise=(torch.linspace(0.3, 4.0, 9, dtype=torch.float64), None))
    problem = with_row_noise(Problem(train, SE, THETA))
    theta, ratio = problem.theta, train.noise[0]  # type: ignore[index]
    every = nystrom(problem.kernel, theta, problem.train, problem.train.X)
    posterior = UnitRowsPosterior(nystrom_posterior(problem.kernel, theta, problem.train.X, every))
    X = train.X[:5] + 0.04
    K = SE(THETA, X, train.X)
    A = SE(THETA, train.X, train.X) + torch.diag(ratio * (2.0 * theta[-1]).exp())
    mean, cov = K @ torch.linalg.solve(A, train.y), SE(THETA, X, X) - K @ torch.linalg.solve(A, K.T)

    torch.testing.assert_close(posterior.mean(X), mean, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(posterior.cov(X), cov, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(posterior.var(X), cov.diagonal(), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(posterior.paths(3000)(X).var(0), cov.diagonal(), rtol=0.12, atol=0.0)
    repeated = posterior.without_rows().with_rows(train.X, train.y, noise=ratio * (2.0 * theta[-1]).exp())
    torch.testing.assert_close(repeated.mean(X), mean, rtol=1e-6, atol=1e-7)
    assert isinstance(in_units(posterior.inner, problem).inner, UnitRowsPosterior)


def test_without_a_scale_the_units_of_the_file_are_those_of_the_rows():
    train = rows()
    inner = exact_gp_posterior(SE, THETA, train)

    posterior, X = in_units(inner, Problem(train, SE, THETA)), train.X + 0.02

    assert not isinstance(posterior.inner, UnitRowsPosterior)
    assert posterior.noise_variance == inner.noise_variance
    torch.testing.assert_close(posterior.cov(X), inner.cov(X))
    updated = posterior.with_rows(X, train.y, noise=0.3)
    torch.testing.assert_close(updated.mean(X), inner.with_rows(X, train.y, noise=0.3).mean(X))
    scaled = posterior.asked_for("y").at_scaled(X)
    torch.testing.assert_close(scaled.var, inner.var(X, noise=True))


@pytest.mark.parametrize("shift", SHIFTS)
def test_in_the_units_of_the_file_variances_have_the_square_of_the_unit(shift: float):
    unit = torch.ones(1, dtype=torch.float64)
    scale = Scale(shift * unit, 4.0 * unit, y_mean=-7.0, y_sd=0.3)
    train = replace(rows(), scale=scale)
    inner = exact_gp_posterior(SE, THETA, train)
    posterior, X = in_units(inner, Problem(train, SE, THETA)).asked_for("y"), train.X + 0.02
    file_X = 4.0 * X + shift

    torch.testing.assert_close(posterior.mean(file_X), 0.3 * inner.mean(X) - 7.0)
    torch.testing.assert_close(posterior.cov(file_X, noise=False), 0.09 * inner.cov(X))
    torch.testing.assert_close(posterior.var(file_X), 0.09 * inner.var(X, noise=True))
    for mean, var in (posterior.at_scaled(X), posterior(file_X)):
        torch.testing.assert_close(mean, 0.3 * inner.mean(X) - 7.0)
        torch.testing.assert_close(var, 0.09 * inner.var(X, noise=True))
    torch.testing.assert_close(posterior.paths(3, seed=1)(file_X), 0.3 * inner.paths(3, seed=1)(X) - 7.0)
    updated = posterior.with_rows(file_X, 0.3 * train.y - 7.0, noise=0.09 * 0.2)
    torch.testing.assert_close(updated.mean(file_X), 0.3 * inner.with_rows(X, train.y, noise=0.2).mean(X) - 7.0)
    assert len(posterior.columns) == 0


def test_a_plain_function_is_given_blocks_of_rows_and_has_the_noise_of_theta():
    sizes = list[int]()

    def predict(X: Tensor) -> Prediction:
        sizes.append(len(X))
        return Prediction(X[:, 0], X[:, 0].square())

    posterior = shifted.as_posterior(predict, THETA)
    X = torch.linspace(0.0, 1.0, 3 * shifted.ROWS_TOGETHER, dtype=torch.float64)[:, None]

    mean, var = posterior.asked_for("y")(X)

    assert sizes == [shifted.ROWS_TOGETHER] * 3
    torch.testing.assert_close(mean, X[:, 0])
    torch.testing.assert_close(var, X[:, 0].square() + math.exp(2.0 * -1.3))
    assert isinstance(posterior, MarginalPosterior)


def test_a_band_is_that_of_the_function_and_a_row_without_variance_does_not_widen_it():
    train = rows()
    posterior, X = exact_gp_posterior(SE, THETA, train), train.X + 0.05
    band, other = joint_band(posterior, X), joint_band(posterior.asked_for("y"), X)

    assert other.factor == band.factor
    torch.testing.assert_close(other.upper, band.upper)
    prior = PriorPosterior(RowScaled(SE), THETA)  # the variance of a row is that of f times its last column squared
    X = torch.tensor([[0.3, 0.0], [0.3, 1.0], [0.3, 2.0]], dtype=torch.float64)
    assert prior.noise_variance == pytest.approx(math.exp(2.0 * -1.3))
    with_zero = joint_band(prior, X, size=4000)
    assert with_zero.factor == pytest.approx(1.96, abs=0.08)  # all values are multiples of one normal number
    assert (float(with_zero.lower[0]), float(with_zero.upper[0])) == (0.0, 0.0)


@pytest.mark.parametrize("shift", SHIFTS)
def test_an_answer_that_does_not_depend_on_the_inputs_has_the_derivative_zero(shift: float):
    """The mean of the prior is 0 everywhere, and so is the change of its variance for a stationary kernel."""
    X = rows(shift=shift).X
    gradient = PriorPosterior(SE, THETA).gradient(X)
    assert torch.equal(gradient.mean, torch.zeros_like(X))
    assert torch.equal(gradient.var, torch.zeros_like(X))

    prior = PriorPosterior(kernels.make("linear", 1), torch.tensor([0.4, -1.0], dtype=torch.float64))
    gradient, step = prior.gradient(X), 1e-3 * (1.0 + shift)
    assert torch.equal(gradient.mean, torch.zeros_like(X))
    expected = (prior.var(X + step) - prior.var(X - step))[:, None] / (2.0 * step)
    torch.testing.assert_close(gradient.var, expected, rtol=1e-8, atol=1e-9)


def test_paths_share_random_features_in_groups():
    class Counted:
        calls = 0

        def random_features(self, theta: Tensor, count: int, draw: torch.Generator) -> Any:
            self.calls += 1
            return SE.random_features(theta, count, draw)

    for size, groups in ((1, 1), (GROUP, 1), (GROUP + 1, 2), (100 * GROUP, MAX_GROUPS)):
        kernel: Any = Counted()
        paths = prior_paths(kernel, THETA, size, torch.Generator().manual_seed(0))
        assert kernel.calls == groups
        assert paths(rows().X).shape == (size, 9)
