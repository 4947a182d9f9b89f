"""Moments of targets whose logarithm is normal, and of Yeo-Johnson ones of small power, also where they are wide."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from gpexplorer.kernels import make
from gpexplorer.posteriors import (
    AveragePosterior,
    InUnits,
    MixtureMarginals,
    NormalMarginals,
    TransformedMarginals,
    exact_gp_posterior,
)
from gpexplorer.posteriors.in_units import in_units_of
from gpexplorer.problem import Dataset, Scale
from gpexplorer.target_transforms import Log, TargetTransform, YeoJohnson

FAR = (0.3, 40.0, 41.0, 90.0)  # one input near the rows, and three without any


def scale_of(transform: TargetTransform, y_sd: float, y_mean: float = 2.0) -> Scale:
    return Scale(torch.full((1,), 5.0).double(), torch.full((1,), 3.0).double(), y_mean, y_sd, transform)


def wide_posterior(log_sd: float, transform: TargetTransform | None = None) -> InUnits:
    """An exact GP of T(y), whose standard deviation far from the rows is `log_sd`."""
    x = torch.linspace(0.0, 6.0, 9, dtype=torch.float64)
    rows = Dataset(x[:, None], torch.cos(x), ("x",), "y", scale_of(transform or Log(), log_sd / 1.25))
    kernel = make("se", 1)
    theta = torch.tensor([math.log(1.25), math.log(0.8), math.log(0.2)], dtype=torch.float64)
    return in_units_of(exact_gp_posterior(kernel, theta, rows), rows)


def of_logarithm(posterior: InUnits, X: Tensor) -> tuple[Tensor, Tensor, float]:
    """Mean, covariance and noise variance of T(y)."""
    scale = posterior.columns.scale
    assert scale is not None
    scaled = scale.scaled_inputs(X)
    inner = posterior.inner
    noise = inner.noise_variance * scale.y_sd**2
    return inner.mean(scaled) * scale.y_sd + scale.y_mean, inner.asked_for("f").cov(scaled) * scale.y_sd**2, noise


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("log_sd", [0.1, 1.0, 5.0, 8.0])
def test_moments_and_covariances_are_the_closed_forms_however_wide(log_sd: float, noise: bool) -> None:
    X = torch.tensor(FAR, dtype=torch.float64)[:, None]
    posterior = wide_posterior(log_sd).asked_for("y" if noise else "f")
    m, C, s2 = of_logarithm(posterior, X)
    v = C.diagonal() + noise * s2
    mean = (m + v / 2).exp()

    torch.testing.assert_close(posterior(X).mean, mean, rtol=1e-10, atol=0.0)
    torch.testing.assert_close(posterior.mean(X), mean, rtol=1e-10, atol=0.0)
    torch.testing.assert_close(posterior(X).var, (2 * m + v).exp() * torch.expm1(v), rtol=1e-9, atol=0.0)
    across = torch.outer(mean, mean) * torch.expm1(C)
    expected = across.clone()
    expected.diagonal().copy_((2 * m + v).exp() * torch.expm1(v))
    torch.testing.assert_close(posterior.cov(X), expected, rtol=1e-9, atol=1e-12 * float(expected.max()))
    torch.testing.assert_close(posterior.cov(X).diagonal(), posterior.var(X), rtol=1e-9, atol=0.0)
    torch.testing.assert_close(posterior.cov(X[:3], X[2:])[:2], across[:2, 2:], rtol=1e-9, atol=0.0)
    correlation = posterior.cov(X) / torch.outer(posterior.sd(X), posterior.sd(X))
    assert float(torch.linalg.eigvalsh(correlation)[0]) > -1e-9


@pytest.mark.parametrize("log_sd", [0.1, 0.6])
def test_samples_have_the_moments_of_the_closed_forms(log_sd: float) -> None:
    X = torch.tensor(FAR[:3], dtype=torch.float64)[:, None]
    posterior = wide_posterior(log_sd).asked_for("y")
    samples = posterior.sample(X, 100_000, seed=4)
    torch.testing.assert_close(samples.mean(0), posterior.mean(X), rtol=0.01, atol=0.0)
    torch.testing.assert_close(samples.std(0), posterior.sd(X), rtol=0.03, atol=0.0)
    sd = posterior.sd(X)
    correlation = torch.from_numpy(np.corrcoef(samples.T.numpy()))
    torch.testing.assert_close(posterior.cov(X) / torch.outer(sd, sd), correlation, rtol=0.0, atol=0.03)


@pytest.mark.parametrize("log_sd", [1.0, 5.0])
def test_derivatives_are_those_of_the_closed_forms(log_sd: float) -> None:
    X, step = torch.tensor([[4.0], [20.0], [23.0]], dtype=torch.float64), 1e-4
    posterior = wide_posterior(log_sd).asked_for("y")
    gradient, up, down = posterior.gradient(X), posterior(X + step), posterior(X - step)
    torch.testing.assert_close(gradient.mean[:, 0], (up.mean - down.mean) / (2 * step), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        gradient.var[:, 0] / up.var, (up.var - down.var) / (2 * step) / up.var, rtol=1e-3, atol=0
    )


@pytest.mark.parametrize("log_sd", [0.5, 6.0])
def test_an_average_has_the_moments_of_its_parts(log_sd: float) -> None:
    X = torch.tensor(FAR, dtype=torch.float64)[:, None]
    parts = [wide_posterior(log_sd), wide_posterior(0.7 * log_sd)]
    average = AveragePosterior(parts, [0.25, 0.75])
    means = [part.mean(X) for part in parts]
    mean = 0.25 * means[0] + 0.75 * means[1]
    pairs = zip((0.25, 0.75), parts, means, strict=True)
    cov = sum(w * (part.cov(X) + torch.outer(own - mean, own - mean)) for w, part, own in pairs)
    torch.testing.assert_close(average.mean(X), mean)
    torch.testing.assert_close(average.cov(X), cov)
    torch.testing.assert_close(average.cov(X).diagonal(), average.var(X))


@pytest.mark.parametrize("transform", [Log(), YeoJohnson(0.0, 1.0, 2.0)])
def test_what_overflows_is_infinite_and_never_nan(transform: TargetTransform) -> None:
    X = torch.tensor(FAR, dtype=torch.float64)[:, None]
    for own in (wide_posterior(60.0, transform), wide_posterior(25.0, transform)):
        for posterior in (own, AveragePosterior([own, wide_posterior(0.1)], [0.5, 0.5])):
            assert posterior.asked_for("y")(X).mean[1:].max() > 1e100
            K = posterior.cov(X)
            assert not K.isnan().any()
            assert not posterior.var(X).isnan().any()
            assert bool(posterior.var(X)[1:].isinf().all()) or float(posterior.var(X)[1:].min()) > 1e200
            assert bool((K.diagonal() == posterior.var(X)).all())


def test_the_lower_end_of_the_numbers() -> None:
    """A small mean of the logarithm with a large variance, no variance, and a missing number."""
    mean = torch.tensor([-2000.0, -3.0, 500.0, 800.0, math.nan, -900.0], dtype=torch.float64)
    var = torch.tensor([1000.0, 0.0, 0.0, 0.0, 1.0, 10.0], dtype=torch.float64)
    average, variance = Log().moments(mean, var)
    torch.testing.assert_close(average[:3], torch.tensor([0.0, math.exp(-3.0), math.exp(500.0)], dtype=torch.float64))
    assert variance[[0, 1, 2, 5]].tolist() == [0.0] * 4
    assert float(average[3]) == float(variance[3]) == math.inf
    assert bool(average[4].isnan() & variance[4].isnan())
    terms = Log().row_terms(mean[:4], torch.full((4,), 1000.0).double())
    K = Log().covariances(torch.full((4, 4), 1000.0).double(), terms, terms)
    assert not K.isnan().any()
    assert float(K[0, 0]) == 0.0
    assert float(K[0, 2]) == pytest.approx(math.exp(-2000.0 + 500.0 + 1000.0 + 1000.0))
    assert Log().covariances(torch.zeros(4, 4).double(), terms, terms).abs().max() == 0.0


@pytest.mark.parametrize("power", [0.0, 0.02, 0.04, 0.3, 1.99, 2.0])
@pytest.mark.parametrize("sd", [0.3, 1.0, 2.0, 4.0, 8.0])
def test_yeo_johnson_is_right_where_z_is_wide(power: float, sd: float) -> None:
    transform = YeoJohnson(power, 5.0, 2.0)
    mean = torch.tensor([-2.0, 0.0, 3.0], dtype=torch.float64)
    xi = torch.arange(-36.0, 36.0, 1e-3, dtype=torch.float64)
    weights = 1e-3 * (-0.5 * xi.square()).exp() / math.sqrt(2.0 * math.pi)
    values = transform.inverse(mean[:, None] + sd * xi)  # [3, nodes]
    exact = values @ weights
    exact_var = (values - exact[:, None]).square() @ weights

    var = torch.full((3,), sd**2, dtype=torch.float64)
    average, variance = transform.moments(mean, var)
    assert bool(((average - exact).abs() <= 1e-3 * exact_var.sqrt()).all())
    torch.testing.assert_close(variance, exact_var, rtol=1e-3, atol=0.0)
    terms = transform.row_terms(mean, var)
    K = transform.covariances(torch.full((3, 3), sd**2, dtype=torch.float64), terms, terms)
    exact_cov = ((values - exact[:, None]) * weights) @ (values - exact[:, None]).T  # of equal xi
    torch.testing.assert_close(K, exact_cov, rtol=1e-3, atol=0.0)


def test_a_mixture_with_an_infinite_mean_has_an_infinite_variance() -> None:
    one = torch.ones(1, dtype=torch.float64)
    parts = [TransformedMarginals(NormalMarginals(one, 1e6 * one), scale_of(Log(), 1.0)), NormalMarginals(one, one)]
    mean, var = MixtureMarginals(parts, [0.5, 0.5]).moments
    assert float(mean) == float(var) == math.inf
