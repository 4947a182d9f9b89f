"""Predictions from the nearest training rows."""

from __future__ import annotations

import math
import pickle

import pytest
import torch

import gpexplorer as gpx
from gpexplorer import kernels
from gpexplorer.posteriors import NearestRowsPosterior, exact_gp_posterior
from gpexplorer.problem import Dataset


def rows(n: int, d: int, seed: int, shift: float = 0.0) -> Dataset:
    draw = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=draw, dtype=torch.float64)
    return Dataset(X + shift, torch.sin(6.0 * X.sum(1)) + 0.1 * torch.randn(n, generator=draw, dtype=torch.float64))


def theta_of(d: int, noise: float = 0.1, lengthscale: float = 0.4) -> torch.Tensor:
    return torch.tensor([0.1, *[math.log(lengthscale)] * d, math.log(noise)], dtype=torch.float64)


def posterior(train: Dataset, theta: torch.Tensor, k: int, key: str = "matern32-ard") -> NearestRowsPosterior:
    lengths = torch.ones(train.d, dtype=torch.float64)
    kernel = kernels.make(key, train.d)
    return NearestRowsPosterior(kernel, theta, train.X, train.y, lengths=lengths, neighbours=k)


@pytest.mark.parametrize("noise", [0.1, 1e-5])
@pytest.mark.parametrize("shift", [0.0, 1e3])
@pytest.mark.parametrize("d", [1, 3])
def test_from_all_rows_it_is_the_exact_gp(d: int, shift: float, noise: float):
    train, new = rows(50, d, 0, shift), rows(20, d, 1, shift).X
    theta = theta_of(d, noise)
    exact = exact_gp_posterior(kernels.make("matern32-ard", d), theta, train)

    ours = posterior(train, theta, 50)

    torch.testing.assert_close(ours.mean(new), exact.mean(new), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ours.var(new), exact.var(new), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(ours.cov(new), exact.cov(new), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(ours.cov(new, new[:3] + 0.01), exact.cov(new, new[:3] + 0.01), rtol=1e-5, atol=1e-7)
    for own, of_exact in zip(ours.gradient(new), exact.gradient(new), strict=True):
        torch.testing.assert_close(own, of_exact, rtol=1e-4, atol=1e-5)


def test_from_some_rows_each_prediction_is_that_of_a_gp_of_its_nearest_rows():
    train, new = rows(200, 2, 0), rows(15, 2, 1).X
    theta = theta_of(2)

    ours = posterior(train, theta, 12)

    for x in new:
        nearest = (train.X - x).norm(dim=1).topk(12, largest=False).indices
        small = exact_gp_posterior(kernels.make("matern32-ard", 2), theta, train.rows(nearest))
        torch.testing.assert_close(ours.mean(x[None]), small.mean(x[None]))
        torch.testing.assert_close(ours.var(x[None]), small.var(x[None]))


SEASONS = {  # theta without the noise, which entries have the unit of the input, and how much wider a band may be
    "periodic": ((0.0, -0.2, 0.0), [2], 1.1),
    "lp": ((0.0, -0.2, 0.0, 2.0), [2, 3], 1.1),
    "matern32*periodic": ((0.0, 2.0, 0.0, -0.2, 0.0), [1, 4], 1.1),
    "periodic+matern32": (
        (0.0, -0.2, 0.0, -0.7, -1.0),
        [2, 4],
        1.7,
    ),  # its neighbours are shared between season and trend
    "(matern32+se)*periodic": ((-0.7, 2.0, -0.7, 1.5, 0.0, -0.2, 0.0), [1, 3, 6], 1.1),
}


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (1e4, 365.0)])
@pytest.mark.parametrize("key", SEASONS)
def test_a_season_continues_beyond_the_rows_as_that_of_the_exact_gp(key: str, shift: float, scale: float):
    kernel, noise = kernels.make(key, 1), 0.2
    values, of_input, widest = SEASONS[key]
    theta = torch.tensor([*values, math.log(noise)], dtype=torch.float64)
    theta[of_input] += math.log(scale)
    t = torch.arange(320, dtype=torch.float64)[:, None] / 80.0 * scale + shift  # four periods
    draw = torch.Generator().manual_seed(0)
    S = kernel(theta, t, t) + noise**2 * torch.eye(320, dtype=torch.float64)
    train = Dataset(t, torch.linalg.cholesky(S) @ torch.randn(320, generator=draw, dtype=torch.float64))
    new = t[-1] + torch.linspace(0.2, 0.9, 15, dtype=torch.float64)[:, None] * scale
    exact = exact_gp_posterior(kernel, theta, train).asked_for("y")

    ours = NearestRowsPosterior(kernel, theta, train.X, train.y, lengths=torch.ones(1) * scale, neighbours=40)

    ours, (mean, var) = ours.asked_for("y"), exact(new)
    assert float(((ours.mean(new) - mean) / var.sqrt()).abs().max()) < 0.7
    assert 0.999 < float((ours.var(new) / var).min()) <= float((ours.var(new) / var).max()) < widest


def test_the_covariance_is_that_of_the_errors_of_all_predictions_and_never_negative():
    train, new = rows(200, 2, 0), rows(40, 2, 1).X
    ours = posterior(train, theta_of(2), 5)

    C = ours.cov(new)

    torch.testing.assert_close(C.diagonal(), ours.var(new))
    assert float(torch.linalg.eigvalsh(C).min()) > -1e-10
    kernel, theta = ours.kernel, ours.theta
    W = torch.zeros(40, 200, dtype=torch.float64)
    N = ours.nearest(new)
    for i in range(40):
        K = kernel(theta, train.X[N[i]], train.X[N[i]]) + math.exp(2 * theta[-1]) * torch.eye(5, dtype=torch.float64)
        W[i, N[i]] = torch.linalg.solve(K, kernel(theta, train.X[N[i]], new[i : i + 1]))[:, 0]
    K = kernel(theta, train.X, train.X) + math.exp(2 * theta[-1]) * torch.eye(200, dtype=torch.float64)
    cross = kernel(theta, new, train.X) @ W.T
    torch.testing.assert_close(C, kernel(theta, new, new) - cross - cross.T + W @ K @ W.T)


def test_the_covariance_takes_the_entries_of_the_rows_that_are_near_once():
    train, new = rows(200, 2, 0), rows(40, 2, 1).X
    ours, entries = posterior(train, theta_of(2), 5), []
    kernel = ours.kernel

    def counted(theta, X, Z):
        entries.append(len(X) * len(Z))
        return kernel(theta, X, Z)

    wanted, near = ours.joint(new[:30], new[10:]), [len(ours.nearest(part).unique()) for part in (new[:30], new[10:])]
    ours.kernel = counted
    torch.testing.assert_close(ours.joint(new[:30], new[10:]), wanted)

    assert sum(entries) == (30 + near[0]) * (30 + near[1])


def test_paths_have_the_mean_and_the_covariance():
    train, new = rows(150, 1, 0), torch.linspace(-0.2, 1.2, 25, dtype=torch.float64)[:, None]
    ours = posterior(train, theta_of(1), 20, "se-ard")

    values = ours.paths(4000, seed=1)(new)

    sd = ours.sd(new)
    assert ((values.mean(0) - ours.mean(new)).abs() < 5.0 * sd / 4000**0.5 + 1e-6).all()
    torch.testing.assert_close(torch.cov(values.T), ours.cov(new), rtol=0.2, atol=0.05 * float(sd.max()) ** 2)


def test_more_rows_can_be_added():
    train, more, new = rows(60, 2, 0), rows(10, 2, 2), rows(20, 2, 1).X
    theta, V = theta_of(2), torch.linspace(0.01, 0.5, 10, dtype=torch.float64)
    exact = exact_gp_posterior(kernels.make("matern32-ard", 2), theta, train).with_rows(more.X, more.y, V)

    both = posterior(train, theta, 70).with_rows(more.X, more.y, V)

    assert both.neighbours == 60  # of the rows that there were
    whole = NearestRowsPosterior(
        both.kernel, theta, both.X, both.y, lengths=both.lengths, neighbours=70, noise=both.noise
    )
    torch.testing.assert_close(whole.mean(new), exact.mean(new))
    torch.testing.assert_close(whole.var(new), exact.var(new))


@pytest.mark.parametrize("with_noise", [False, True])
def test_a_saved_model_predicts_alike(tmp_path, with_noise: bool):
    train, new = rows(60, 2, 0), rows(20, 2, 1).X
    ours = posterior(train, theta_of(2), 9)
    ours = ours.with_rows(new[:2], [0.1, 0.2], [0.3, 0.4]) if with_noise else ours

    ours.save(tmp_path / "model.safetensors")
    read = gpx.load_posterior(tmp_path / "model.safetensors")
    copy = pickle.loads(pickle.dumps(ours))

    for other in (read, copy):
        assert torch.equal(other.mean(new), ours.mean(new))
        assert torch.equal(other.var(new), ours.var(new))


def test_training_rows_that_are_alike_do_no_harm():
    train, new = rows(30, 2, 0), rows(10, 2, 1).X
    train = train.rows([*range(30)] * 3)

    mean, var = posterior(train, theta_of(2, 1e-6), 20)(torch.cat([new, train.X[:5]]))

    assert mean.isfinite().all()
    assert (var >= 0.0).all()
