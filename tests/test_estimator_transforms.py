"""An estimator of a transformed target against dense algebra: predictions, evidence, weights, new rows and units."""

from __future__ import annotations

import math
import pickle
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.gaussian_process import kernels as theirs
from sklearn.model_selection import GridSearchCV
from torch import Tensor

from gpexplorer import Estimator, kernels
from gpexplorer.errors import DataError, SettingError
from gpexplorer.objectives import nystrom
from gpexplorer.posteriors import nystrom_posterior
from gpexplorer.problem import Scale
from gpexplorer.target_transforms import YeoJohnson, fitted_transform

Floats = NDArray[np.float64]
EXACT: dict[str, Any] = {"method": "ml", "settings": {"evaluations": 3}}
SHIFTS = [(0.0, 1.0), (3e3, 2e4)]  # of the inputs, and a factor of the targets


def rows(n: int = 60, shift: float = 0.0, factor: float = 1.0) -> tuple[Floats, Floats]:
    """Inputs, and targets above 0 whose logarithm is a function with noise."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, (n, 2))
    log_y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.3 * rng.standard_normal(n)
    return X * [1.0, 5.0] + shift, factor * np.exp(log_y)


def scale_of(model: Estimator) -> Scale:
    return model.posterior_.columns.scale


def dense(model: Estimator, X: Floats, y: Floats, X_new: Floats, ratio: Any = 1.0) -> tuple[Tensor, Tensor]:
    """Mean [t] and covariance [t, t] of observations of T(y), by n x n matrices; the noise of a row is s2 * ratio."""
    scale, theta = scale_of(model), torch.tensor(model.theta_)
    joined, t = (torch.tensor(np.vstack([X_new, X])) - scale.x_mean) / scale.x_sd, len(X_new)
    assert scale.transform is not None
    z = scale.transform.forward(torch.tensor(y)) - scale.y_mean
    K = kernels.make("se-ard", 2)(theta, joined, joined) * scale.y_sd**2
    s2 = float((2.0 * theta[-1]).exp()) * scale.y_sd**2
    A = K[t:, t:] + s2 * torch.diag(torch.as_tensor(ratio) * torch.ones(len(X), dtype=torch.float64))
    gain = torch.linalg.solve(A, K[t:, :t]).T
    return gain @ z + scale.y_mean, K[:t, :t] - gain @ K[t:, :t] + s2 * torch.eye(t, dtype=torch.float64)


def dense_evidence(model: Estimator, X: Floats, y: Floats, ratio: Any = 1.0) -> float:
    """log N(T(y); 0, K + noise) plus the sum of log T'(y), with T' by automatic differentiation."""
    scale, targets = scale_of(model), torch.tensor(y, requires_grad=True)
    assert scale.transform is not None
    z = scale.transform.forward(targets)
    (derivative,) = torch.autograd.grad(z.sum(), targets)
    inputs, theta = (torch.tensor(X) - scale.x_mean) / scale.x_sd, torch.tensor(model.theta_)
    K = kernels.make("se-ard", 2)(theta, inputs, inputs)
    A = K + (2.0 * theta[-1]).exp() * torch.diag(torch.as_tensor(ratio) * torch.ones(len(X), dtype=torch.float64))
    centre = torch.full((len(X),), scale.y_mean, dtype=torch.float64)
    normal = torch.distributions.MultivariateNormal(centre, A * scale.y_sd**2)
    return float(normal.log_prob(z.detach()) + derivative.log().sum())


def lognormal(mean: Tensor, cov: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of exp(z) for a normal z, in closed form."""
    of_y = (mean + 0.5 * cov.diagonal()).exp()
    return of_y, torch.outer(of_y, of_y) * torch.expm1(cov)


@pytest.mark.parametrize(("shift", "factor"), SHIFTS)
def test_predictions_of_a_logarithm_are_those_of_a_lognormal_distribution(shift: float, factor: float):
    X, y = rows(shift=shift, factor=factor)
    model, X_new = Estimator(**EXACT, target_transform="log").fit(X, y), X[:6] + 0.1

    mean, sd = model.predict(X_new, return_std=True)
    cov = model.predict(X_new, return_cov=True)[1]
    samples = model.sample_y(X_new, 4000, random_state=1)

    z_mean, z_cov = dense(model, X, y, X_new)
    expected, expected_cov = lognormal(z_mean, z_cov)
    np.testing.assert_allclose(mean, expected, rtol=1e-7)
    np.testing.assert_allclose(sd, expected_cov.diagonal().sqrt(), rtol=1e-6)
    np.testing.assert_allclose(cov, expected_cov, rtol=1e-6, atol=1e-8 * factor**2)
    np.testing.assert_array_equal(model.predict(X_new), mean)
    assert (samples > 0.0).all()
    np.testing.assert_allclose(np.median(samples, 1), z_mean.exp(), rtol=0.06)
    low = model.posterior_.quantile(X_new, 0.025)
    torch.testing.assert_close(low, (z_mean - 1.9599639845 * z_cov.diagonal().sqrt()).exp(), rtol=1e-7, atol=0.0)


@pytest.mark.parametrize("transform", ["log", "yeo-johnson", "yeo-johnson 0", "yeo-johnson 0.4", "yeo-johnson 2"])
@pytest.mark.parametrize(("shift", "factor"), SHIFTS)
def test_the_evidence_is_that_of_the_targets_in_their_own_units(transform: str, shift: float, factor: float):
    X, y = rows(30, shift, factor)
    weights = np.random.default_rng(0).uniform(0.2, 3.0, 30)
    for given, ratio in (({}, 1.0), ({"sample_weight": weights}, 1.0 / weights)):
        model = Estimator(**EXACT, target_transform=transform).fit(X, y, **given)

        expected = dense_evidence(model, X, y, ratio)
        assert model.log_marginal_likelihood_value_ == pytest.approx(expected, rel=1e-8)


def test_the_evidence_of_a_transform_that_changes_nothing_is_the_one_without_it():
    X, y = rows(shift=40.0, factor=300.0)
    plain, same = (Estimator(**EXACT, target_transform=name).fit(X, y) for name in ("", "yeo-johnson 1"))

    assert same.log_marginal_likelihood_value_ == pytest.approx(plain.log_marginal_likelihood_value_, rel=1e-10)
    np.testing.assert_allclose(same.predict(X, return_std=True), plain.predict(X, return_std=True), rtol=1e-9)
    log = Estimator(**EXACT, target_transform="log").fit(X, y)
    assert log.log_marginal_likelihood_value_ > plain.log_marginal_likelihood_value_ + 5.0  # the data are lognormal


@pytest.mark.parametrize("transform", ["", "log", "yeo-johnson 0.4"])
def test_the_evidence_of_other_units_differs_by_the_logarithm_of_their_ratio(transform: str):
    X, y = rows()
    one, other = (Estimator(**EXACT, target_transform=transform).fit(X, factor * y) for factor in (1.0, 1e-4))
    single = Estimator(**EXACT, target_transform=transform, dtype="float32").fit(X, y)

    change = other.log_marginal_likelihood_value_ - one.log_marginal_likelihood_value_
    assert change == pytest.approx(60 * math.log(1e4), rel=1e-9)
    assert single.log_marginal_likelihood_value_ == pytest.approx(one.log_marginal_likelihood_value_, rel=1e-3)


def test_the_bound_of_a_sparse_method_is_below_the_evidence_and_with_all_rows_equal_to_it():
    X, y = rows(30)
    kernel, fixed = {"name": "se-ard", "theta": [0.0, 0.2, 0.1, -1.0]}, {"learn": False}
    few, all_rows = (
        Estimator("cholqr", kernel, points, fixed, {"steps": 1}, target_transform="log").fit(X, y) for points in (8, 30)
    )

    evidence = dense_evidence(all_rows, X, y)

    assert all_rows.log_marginal_likelihood_value_ == pytest.approx(evidence, rel=1e-5)
    assert few.log_marginal_likelihood_value_ < evidence - 0.1


@pytest.mark.parametrize(("shift", "factor"), SHIFTS)
def test_weights_give_each_row_its_noise_after_the_transform(shift: float, factor: float):
    X, y = rows(shift=shift, factor=factor)
    weights = np.random.default_rng(0).uniform(0.1, 3.0, 60)
    model = Estimator(**EXACT, target_transform="log").fit(X, y, sample_weight=weights)

    mean, sd = model.predict(X[:5] + 0.2, return_std=True)

    z_mean, z_cov = dense(model, X, y, X[:5] + 0.2, 1.0 / weights)
    expected, expected_cov = lognormal(z_mean, z_cov)
    np.testing.assert_allclose(mean, expected, rtol=1e-6)
    np.testing.assert_allclose(sd, expected_cov.diagonal().sqrt(), rtol=1e-5)


@pytest.mark.parametrize(("shift", "factor"), SHIFTS)
def test_new_rows_change_an_exact_model_as_if_they_had_been_there(shift: float, factor: float):
    X, y = rows(shift=shift, factor=factor)
    for noise in (None, np.random.default_rng(2).uniform(0.05, 0.5, 30)):
        model = Estimator(**EXACT, target_transform="log").fit(X[:30], y[:30])
        before = model.predict(X[30:], return_std=True)[1]
        s2 = model.posterior_.noise_variance

        model.partial_fit(X[30:], y[30:], noise)

        ratio = np.ones(60) if noise is None else np.concatenate([np.ones(30), noise / s2])  # of log y, not of y
        expected, expected_cov = lognormal(*dense(model, X, y, X[:5] + 0.2, ratio))
        mean, sd = model.predict(X[:5] + 0.2, return_std=True)
        np.testing.assert_allclose(mean, expected, rtol=1e-6)
        np.testing.assert_allclose(sd, expected_cov.diagonal().sqrt(), rtol=1e-5)
        assert (model.posterior_.quantile(X[30:], 0.975) > 0.0).all()
        assert np.median(model.predict(X[30:], return_std=True)[1] / before) < 1.0


@pytest.mark.parametrize("transform", ["log", "yeo-johnson"])
def test_new_rows_change_a_sparse_model_as_if_they_had_been_there(transform: str):
    X, y = rows(120, 100.0, 50.0)
    model = Estimator("sgpr", num_inducing=10, budget={"steps": 5}, target_transform=transform).fit(X[:60], y[:60])

    for part in (slice(60, 90), slice(90, 120)):
        model.partial_fit(X[part], y[part])

    posterior, train, scale = model.posterior_.inner, model.run_.problem.train, scale_of(model)
    both = type(train)((torch.tensor(X) - scale.x_mean) / scale.x_sd, scale.scaled_target(torch.tensor(y)))
    factors = nystrom(posterior.kernel, posterior.theta, both, posterior.Z)
    fresh = nystrom_posterior(posterior.kernel, posterior.theta, posterior.Z, factors)
    torch.testing.assert_close(posterior(both.X).mean, fresh(both.X).mean, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(posterior(both.X).var, fresh(both.X).var, rtol=1e-7, atol=1e-10)
    medians = scale.target_in_units(fresh(both.X).mean)
    torch.testing.assert_close(model.posterior_.quantile(X, 0.5), medians, rtol=1e-7, atol=1e-9)


def test_a_method_without_updates_is_fitted_again_to_the_targets_of_the_file():
    X, y = rows(90, 10.0, 7.0)
    settings = {"evaluations": 2, "refit": "cg"}
    model = Estimator("loo", settings=settings, target_transform="yeo-johnson").fit(X[:60], y[:60])

    model.partial_fit(X[60:], y[60:])

    transform = fitted_transform("yeo-johnson", torch.tensor(y))
    assert isinstance(transform, YeoJohnson)
    assert asdict(scale_of(model).transform) == pytest.approx(asdict(transform), rel=1e-6)
    assert len(model.run_.problem.train) == 90


def test_several_targets_have_a_transform_each():
    X, y = rows()
    Y = np.column_stack([y, 5.0 + np.log(y[::-1])])
    options: dict[str, Any] = {"num_inducing": 8, "budget": {"steps": 4}, "target_transform": "yeo-johnson"}
    model, alone = Estimator(**options).fit(X, Y), Estimator(**options).fit(X, Y[:, 1])

    mean, sd = model.predict(X[:7], return_std=True)

    np.testing.assert_allclose(np.stack([mean[:, 1], sd[:, 1]]), alone.predict(X[:7], return_std=True), rtol=1e-9)
    powers = [posterior.columns.scale.transform.power for posterior in model.posterior_]
    assert powers[0] < 0.1 < 0.5 < powers[1]
    assert model.log_marginal_likelihood_value_[1] == pytest.approx(alone.log_marginal_likelihood_value_)
    model.partial_fit(X[:1], Y[:1])
    with pytest.raises(DataError, match="1 of 60 training targets are not above 0"):
        Estimator(**options | {"target_transform": "log"}).fit(X, np.column_stack([y, y - y.min()]))


def test_kernels_of_other_packages_are_in_the_units_of_the_transformed_target():
    X, y = rows(factor=1e5)
    kernel = theirs.ConstantKernel(0.7) * theirs.RBF([1.0, 2.0]) + theirs.WhiteKernel(0.09)

    model = Estimator("ml", kernel, settings={"evaluations": 1}, target_transform="log").fit(X, y)

    sd = np.log(y).std()
    expected = [math.sqrt(0.7) / sd, *(np.array([1.0, 2.0]) / X.std(0)), 0.3 / sd]
    np.testing.assert_allclose(model.run_.problem.theta.exp().numpy(), expected, rtol=1e-9)


def test_intervals_hold_what_they_promise_on_data_of_the_model():
    X, y = rows(600)
    model, plain = (Estimator("ml", target_transform=name).fit(X[:300], y[:300]) for name in ("log", ""))

    low, high = model.posterior_.quantile(X[300:], [0.025, 0.975]).numpy()
    density, plain_density = (float(part.posterior_.log_density(X[300:], y[300:]).mean()) for part in (model, plain))

    assert 0.91 < np.mean((low < y[300:]) & (y[300:] < high)) < 0.98
    assert low.min() > 0.0
    assert density > plain_density + 0.1
    assert model.score(X[300:], y[300:]) > 0.6


def test_the_transform_is_a_parameter_like_others():
    X, y = rows()
    model = Estimator(num_inducing=8, budget={"steps": 4}, target_transform="log").fit(X, y)

    assert clone(model).get_params()["target_transform"] == "log"
    assert "target_transform" not in repr(Estimator())
    unpickled = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(unpickled.predict(X, return_std=True), model.predict(X, return_std=True))
    search = GridSearchCV(clone(model), {"target_transform": ["", "yeo-johnson 0.5"]}, cv=2).fit(X, y)
    assert search.best_estimator_.run_.spec.target_transform == search.best_params_["target_transform"]


@pytest.mark.parametrize("value", [0.0, -5.0])
def test_new_rows_that_cannot_be_transformed_are_refused_and_change_nothing(value: float):
    X, y = rows()
    model = Estimator("sgpr", num_inducing=8, budget={"steps": 2}, target_transform="log").fit(X[:50], y[:50])
    before = model.predict(X)

    with pytest.raises(DataError, match=r"1 of 2 targets, .* cannot be transformed by 'log'"):
        model.partial_fit(X[50:52], [value, 1.0])

    np.testing.assert_array_equal(model.predict(X), before)


def test_what_cannot_be_used_is_a_sentence():
    X, y = rows(12)
    for name in ("log 3", "yeo-johnson 5", "box-cox", 7, None):
        with pytest.raises(SettingError, match=r"target_transform is .*give \"log\", \"yeo-johnson\", or"):
            Estimator(target_transform=name).fit(X, y)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"12 of 12 training targets are not above 0 .*choose 'yeo-johnson'"):
        Estimator(target_transform="log").fit(X, -y)
    with pytest.raises(SettingError, match="'log' changes these: give sample_weight in place of noise, or leave"):
        Estimator(**EXACT, target_transform="log").fit(X, y, noise=0.01)
    with pytest.raises(SettingError, match="'yeo-johnson' changes these: give sample_weight in place of noise"):
        Estimator(**EXACT, target_transform="yeo-johnson").partial_fit(X, y, noise=0.1 * y)
