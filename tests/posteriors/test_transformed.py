"""A posterior of a transformed target against closed forms, integrals, samples and files; and mixtures of such."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from scipy import stats
from torch import Tensor

import gpexplorer as gpx
from gpexplorer.data.standardising import scaled_inputs, scaled_targets
from gpexplorer.errors import DataError, PosteriorError, SettingError
from gpexplorer.posteriors import AveragePosterior, InUnits, NormalMarginals, TransformedMarginals, joint_band
from gpexplorer.posteriors.in_units import TransformedInUnits
from gpexplorer.runs import scores

LEVELS = (0.025, 0.2, 0.5, 0.975)
KINDS = ("log", "yeo-johnson 0", "yeo-johnson 0.4", "yeo-johnson 1.6")


def rows(n: int = 60) -> tuple[Tensor, Tensor]:
    """Positive skewed targets, and inputs far from the origin."""
    draw = torch.Generator().manual_seed(0)
    X = 50.0 + 3.0 * torch.randn(n, 2, generator=draw, dtype=torch.float64)
    noise = 0.3 * torch.randn(n, generator=draw, dtype=torch.float64)
    return X, 200.0 * torch.exp(0.8 * torch.sin(X[:, 0]) + 0.1 * (X[:, 1] - 50.0) + noise)


def opened(transform: str, method: str = "ml", **settings: object) -> gpx.runs.Run:
    X, y = rows()
    spec = gpx.Spec(
        method, dict(settings), split={"test": 0.2, "seed": 0}, budget={"steps": 8}, target_transform=transform
    )
    run = spec.open(data=(X.numpy(), y.numpy()))
    run.finish()
    return run


@pytest.fixture(scope="module", params=KINDS)
def run(request: pytest.FixtureRequest) -> gpx.runs.Run:
    return opened(str(request.param))


@pytest.fixture(scope="module")
def posterior(run: gpx.runs.Run) -> InUnits:
    return run.posterior(of="y")


def near_and_far() -> Tensor:
    return torch.cat([rows()[0][:4], torch.full((1, 2), 90.0, dtype=torch.float64)])


def scaled_normal(posterior: InUnits, X: Tensor, noise: bool) -> tuple[Tensor, Tensor]:
    """Mean and variance of the scaled and transformed target."""
    mean, var = posterior.inner.asked_for("f")(scaled_inputs(posterior.rows(X), posterior.columns))
    return mean, var + noise * posterior.noise_variance / posterior.y_sd**2


@pytest.mark.parametrize("noise", [False, True])
def test_moments_and_quantiles_are_those_of_the_inverse_of_a_normal_variable(posterior: InUnits, noise: bool) -> None:
    X, scale = near_and_far(), posterior.columns.scale
    assert isinstance(posterior, TransformedInUnits)
    assert scale is not None
    mean, var = scaled_normal(posterior, X, noise)
    u = (torch.arange(400_000, dtype=torch.float64) + 0.5) / 400_000  # the midpoint rule over probabilities
    values = scale.target_in_units(mean[:, None] + var.sqrt()[:, None] * torch.special.ndtri(u))

    answer = posterior.asked_for("y" if noise else "f")(X)
    torch.testing.assert_close(answer.mean, values.mean(1), rtol=2e-4, atol=0.0)
    torch.testing.assert_close(answer.var.sqrt(), values.std(1), rtol=5e-3, atol=0.0)
    torch.testing.assert_close(posterior.var(X, noise), answer.var)
    torch.testing.assert_close(posterior.asked_for("y" if noise else "f").mean(X), answer.mean)
    ends = scale.target_in_units(
        mean + torch.special.ndtri(torch.tensor(LEVELS, dtype=torch.float64))[:, None] * var.sqrt()
    )
    torch.testing.assert_close(posterior.quantile(X, LEVELS, noise), ends)


def test_a_log_target_is_log_normal() -> None:
    posterior, X = opened("log").posterior(of="y"), near_and_far()
    scale = posterior.columns.scale
    assert scale is not None
    mean, var = scaled_normal(posterior, X, True)
    mu, s2 = mean * scale.y_sd + scale.y_mean, var * scale.y_sd**2

    torch.testing.assert_close(posterior(X).mean, (mu + s2 / 2).exp(), rtol=1e-10, atol=0.0)
    torch.testing.assert_close(posterior(X).var, (s2.exp() - 1.0) * (2 * mu + s2).exp(), rtol=1e-8, atol=0.0)
    y = 0.9 * posterior(X).mean
    expected = [
        stats.lognorm.logpdf(float(v), float(s) ** 0.5, scale=float(m.exp())) for v, s, m in zip(y, s2, mu, strict=True)
    ]
    torch.testing.assert_close(posterior.log_density(X, y), torch.tensor(expected, dtype=torch.float64))
    assert (posterior.quantile(X, 1e-6) > 0.0).all()
    assert bool((posterior.log_density(X, -y) == -torch.inf).all())
    assert posterior.marginals(X).cdf(-y).tolist() == [0.0] * 5


def test_the_density_is_the_derivative_of_the_probabilities_and_integrates_to_1(posterior: InUnits) -> None:
    X = near_and_far()[:1]
    marginals = posterior.marginals(X)
    levels = torch.tensor([1e-7, 1 - 1e-7], dtype=torch.float64)
    ends = marginals.quantile(levels)[:, 0]
    y = torch.linspace(float(ends[0]), float(ends[1]), 200_001, dtype=torch.float64)
    density = marginals.log_density(y).exp()

    assert float(torch.trapezoid(density, y)) == pytest.approx(1.0, abs=1e-5)
    middle = slice(20_000, 180_000, 10_000)
    slopes = (marginals.cdf(y[1:]) - marginals.cdf(y[:-1]))[middle] / y.diff()[middle]
    torch.testing.assert_close(slopes, 0.5 * (density[1:] + density[:-1])[middle], rtol=1e-3, atol=1e-9)
    torch.testing.assert_close(
        marginals.cdf(ends), torch.tensor([1e-7, 1 - 1e-7], dtype=torch.float64), rtol=1e-4, atol=0.0
    )


@pytest.mark.parametrize("noise", [False, True])
def test_covariances_and_samples_agree(posterior: InUnits, noise: bool) -> None:
    X = torch.cat([near_and_far()[:3], near_and_far()[:1] + 0.3])
    K = posterior.cov(X, noise=noise)
    samples = posterior.sample(X, 60_000, seed=1, noise=noise)
    sd = K.diagonal().sqrt()

    torch.testing.assert_close(K.diagonal(), posterior.var(X, noise))
    correlation = torch.from_numpy(np.corrcoef(samples.T.numpy()))
    torch.testing.assert_close(K / torch.outer(sd, sd), correlation, rtol=0.0, atol=0.03)
    own = posterior.asked_for("y" if noise else "f")
    torch.testing.assert_close(samples.mean(0), own.mean(X), rtol=0.03, atol=0.0)
    torch.testing.assert_close(own.cov(X[:2], X[2:]), own.cov(X)[:2, 2:], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(own.joint(X[:2], X[2:]), posterior.cov(X, noise=False)[:2, 2:], rtol=1e-9, atol=1e-9)


def test_paths_and_the_joint_band_are_in_the_units_of_the_file(posterior: InUnits) -> None:
    X = near_and_far()
    paths = posterior.paths(4000, seed=0)(X)
    own = posterior.asked_for("f")
    torch.testing.assert_close(paths.quantile(0.5, 0), own.quantile(X, 0.5), rtol=0.1, atol=0.0)
    band = joint_band(own, X)
    samples = own.sample(X, 4000, seed=9)
    inside = ((samples >= band.lower) & (samples <= band.upper)).all(1).double().mean()
    assert float(inside) == pytest.approx(0.95, abs=0.02)


def test_scores_are_those_of_the_target_and_not_of_its_transform(run: gpx.runs.Run) -> None:
    assert run.split is not None
    train, test = run.split.train, run.split.test
    scale = train.scale
    assert scale is not None
    mean, var = run.posterior(of="y").inner.asked_for("y")(test.X)
    y = scale.target_in_units(test.y)
    changed = scores.nlpd(test.y, mean, var) - float(scale.log_derivative(y).mean())

    result = run.scores()
    assert result["nlpd"] == pytest.approx(changed, rel=1e-9)
    assert result["coverage95"] == scores.coverage(test.y, mean, var, 0.95)
    assert result["rmse"] == pytest.approx(scores.rmse(y, run.posterior(of="y").at_scaled(test.X).mean), rel=1e-9)
    own = scale.target_in_units(train.y)
    trivial = scores.nlpd(y, torch.full_like(y, float(own.mean())), torch.full_like(y, float(own.var(correction=0))))
    assert result["snlp"] == pytest.approx(changed - trivial, rel=1e-9)


def test_power_1_is_no_transform() -> None:
    plain, same = opened(""), opened("yeo-johnson 1")
    X = near_and_far()
    torch.testing.assert_close(same.posterior(of="y")(X).mean, plain.posterior(of="y")(X).mean, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(same.posterior(of="y")(X).var, plain.posterior(of="y")(X).var, rtol=1e-5, atol=0.0)
    assert same.scores() == pytest.approx(plain.scores(), rel=1e-5)
    torch.testing.assert_close(same.posterior().cov(X), plain.posterior().cov(X), rtol=1e-5, atol=1e-6)


def test_gradients_are_those_of_finite_differences(posterior: InUnits) -> None:
    X, step = near_and_far()[:3], 1e-4
    gradient = posterior.gradient(X)
    for q in range(2):
        shift = step * torch.eye(2, dtype=torch.float64)[q]
        up, down = posterior(X + shift), posterior(X - shift)
        torch.testing.assert_close(gradient.mean[:, q], (up.mean - down.mean) / (2 * step), rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(gradient.var[:, q], (up.var - down.var) / (2 * step), rtol=1e-3, atol=1.0)


def test_new_rows_are_transformed_as_the_others() -> None:
    X, y = rows()
    posterior = opened("log", "cholqr", num_inducing=10).posterior(of="y")
    updated = posterior.with_rows(X[:5] + 0.1, y[:5])
    scaled = posterior.inner.with_rows(
        scaled_inputs(posterior.rows(X[:5] + 0.1), posterior.columns), scaled_targets(y[:5], posterior.columns)
    )

    assert isinstance(updated, TransformedInUnits)
    inner = scaled_inputs(posterior.rows(X), posterior.columns)
    torch.testing.assert_close(updated.inner(inner).mean, scaled(inner).mean, rtol=1e-7, atol=1e-9)
    assert updated.noise_variance == posterior.noise_variance


def test_files_and_modules_predict_the_same(posterior: InUnits, tmp_path: Path) -> None:
    X, path = near_and_far(), tmp_path / "model.safetensors"
    posterior.save(path)
    loaded = gpx.load_posterior(path)

    assert isinstance(loaded, TransformedInUnits)
    torch.testing.assert_close(loaded(X).mean, posterior(X).mean, rtol=1e-8, atol=0.0)
    torch.testing.assert_close(loaded.quantile(X, LEVELS), posterior.quantile(X, LEVELS), rtol=1e-8, atol=0.0)
    with safe_open(str(path), "pt") as file:
        assert file.metadata()["version"] == "2"  # a program that knows no transforms refuses it
    module = posterior.to_torch()
    torch.testing.assert_close(module(X)[0], posterior(X).mean, rtol=1e-8, atol=0.0)
    torch.testing.assert_close(module(X)[1], posterior(X).var, rtol=1e-6, atol=0.0)
    exported = torch.export.export(module, (X,)).module()
    torch.testing.assert_close(exported(X)[0], posterior(X).mean, rtol=1e-8, atol=0.0)


@pytest.fixture(scope="module")
def mixture() -> AveragePosterior:
    """A normal model and two of transformed targets."""
    parts = [opened(transform).posterior(of="y") for transform in ("", "log", "yeo-johnson 0.4")]
    return AveragePosterior(parts, [0.5, 0.3, 0.2])


def test_marginals_take_numbers_of_any_kind(posterior: InUnits) -> None:
    marginals, y = posterior.marginals(near_and_far()), [0.5, 1.0, 2.0, 3.0, 4.0]
    tensors = torch.tensor(y, dtype=torch.float64)
    for given in (y, np.array(y), tensors):
        assert torch.equal(marginals.log_density(given), marginals.log_density(tensors))
        assert torch.equal(marginals.cdf(given), marginals.cdf(tensors))
    for levels in ([0.1, 0.9], np.array([0.1, 0.9], np.float32)):
        torch.testing.assert_close(marginals.quantile(levels)[1], marginals.quantile(0.9), rtol=1e-6, atol=0.0)
    with pytest.raises(SettingError, match=r"q is 2\.0; give probabilities"):
        marginals.quantile(2.0)
    with pytest.raises(DataError, match="y is 'a lot'; give numbers"):
        marginals.cdf("a lot")


def test_where_a_value_leaves_the_numbers_its_variance_is_infinite_and_never_nan(posterior: InUnits) -> None:
    scale = posterior.columns.scale
    mean, var = TransformedMarginals(NormalMarginals(*torch.full((2, 3), 1e3, dtype=torch.float64)), scale).moments
    assert not var.isnan().any()
    assert bool((var.isfinite() | (var == torch.inf)).all())
    assert bool((mean.isfinite() | var.isinf()).all())


@pytest.mark.parametrize("transform", ["log", "yeo-johnson"])
def test_a_model_whose_moments_are_infinite_far_from_its_rows_opens_again(transform: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), np.exp(3.0 * rng.normal(size=40))
    run = gpx.Spec("ml", kernel="linear", budget={"steps": 3}, target_transform=transform).open(data=(X, y))
    run.finish()
    posterior = run.posterior(of="y")
    assert posterior.var(1e4 * X[:3]).isinf().any()

    posterior.save(tmp_path / "model")

    loaded = gpx.load_posterior(tmp_path / "model")
    torch.testing.assert_close(loaded.quantile(X, LEVELS), posterior.quantile(X, LEVELS), rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("noise", [False, True])
def test_a_mixture_has_the_densities_and_quantiles_of_its_models(mixture: AveragePosterior, noise: bool) -> None:
    X = near_and_far()
    y = mixture.mean(X) * 0.8
    parts = list(zip(mixture.weights, mixture.parts, strict=True))
    density = sum(w * part.log_density(X, y, noise).exp() for w, part in parts)
    torch.testing.assert_close(mixture.log_density(X, y, noise).exp(), density)

    ends = mixture.quantile(X, LEVELS, noise)
    assert ends.shape == (4, 5)
    for level, end in zip(LEVELS, ends, strict=True):
        shares = sum(w * part.marginals(X, noise).cdf(end) for w, part in parts)
        torch.testing.assert_close(shares, torch.full((5,), level, dtype=torch.float64), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(mixture.quantile(X, 0.5, noise), ends[2])


@pytest.mark.parametrize("noise", [False, True])
def test_covariances_of_a_mixture_agree_with_its_samples(mixture: AveragePosterior, noise: bool) -> None:
    X = near_and_far()[:3]
    K, samples = mixture.cov(X, noise=noise), mixture.sample(X, 80_000, seed=3, noise=noise)
    sd = K.diagonal().sqrt()

    torch.testing.assert_close(K.diagonal(), mixture.var(X, noise))
    correlation = torch.from_numpy(np.corrcoef(samples.T.numpy()))
    torch.testing.assert_close(K / torch.outer(sd, sd), correlation, rtol=0.0, atol=0.03)
    torch.testing.assert_close(samples.std(0), sd, rtol=0.05, atol=0.0)
    own = mixture.asked_for("y" if noise else "f")
    torch.testing.assert_close(own.cov(X), K)
    torch.testing.assert_close(own.sample(X, 5, seed=3), mixture.sample(X, 5, seed=3, noise=noise))
    torch.testing.assert_close(own.joint(X[:2], X[2:]), mixture.cov(X, noise=False)[:2, 2:])


def test_a_saved_mixture_predicts_the_same(mixture: AveragePosterior, tmp_path: Path) -> None:
    X, path = near_and_far(), tmp_path / "model.safetensors"
    mixture.save(path)
    loaded = gpx.load_posterior(path)
    torch.testing.assert_close(loaded.quantile(X, LEVELS), mixture.quantile(X, LEVELS), rtol=1e-7, atol=0.0)
    torch.testing.assert_close(mixture.to_torch()(X)[1], mixture(X).var, rtol=1e-6, atol=0.0)
    with safe_open(str(path), "pt") as file:
        assert file.metadata()["version"] == "2"


def test_a_trend_of_the_logarithm_that_is_uncertain_far_ahead_can_be_saved(tmp_path: Path) -> None:
    """Thirty ranges ahead the mean of y is infinite, which is no reason to refuse the file."""
    t = torch.linspace(0.0, 9.0, 60, dtype=torch.float64)[:, None]
    y = torch.exp(1.0 + 0.1 * t[:, 0] + 0.05 * torch.sin(5.0 * t[:, 0]))
    kernel = {"name": "linear * linear", "theta": [0.0, 1.0, 0.0, 1.0, 0.5]}
    spec = gpx.Spec("ml", kernel=kernel, budget={"steps": 1}, target_transform="log")
    run = spec.open(data=(t.numpy(), y.numpy()))
    run.finish()
    posterior = run.posterior(of="y")
    assert not bool(torch.isfinite(posterior.at_scaled(30.0 * run.problem.train.X).mean).all())
    posterior.save(tmp_path / "model.safetensors")
    again = gpx.load_posterior(tmp_path / "model.safetensors")
    torch.testing.assert_close(again(t).mean, posterior(t).mean)


def test_noise_of_an_average_is_that_of_its_models(mixture: AveragePosterior) -> None:
    assert mixture.asked_for("y", mixture.noise_variance).of == "y"
    with pytest.raises(PosteriorError, match="has their noise"):
        mixture.asked_for("y", 2.0 * mixture.noise_variance)


def test_probabilities_that_are_none_are_refused(mixture: AveragePosterior, posterior: InUnits) -> None:
    for own in (mixture, posterior):
        with pytest.raises(SettingError, match="between 0 and 1"):
            own.quantile(near_and_far(), 1.0)
