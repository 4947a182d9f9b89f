"""Noise per row: every method that takes it against dense algebra with a diagonal noise matrix, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gpexplorer import Estimator, kernels, load_posterior, methods
from gpexplorer.errors import GPExplorerError, SettingError
from gpexplorer.features.basis_choices import ChosenFeatures
from gpexplorer.methods.base import registry
from gpexplorer.posteriors import FeaturePosterior, InducingPosterior, UnitRowsPosterior
from steps_of import SMALL, inputs_of

Floats = NDArray[np.float64]
STEPS: dict[str, Any] = {"budget": {"steps": 60}, "num_inducing": 8}


def rows(n: int = 40, shift: float = 0.0, scale: float = 1.0) -> tuple[Floats, Floats, Floats]:
    """Inputs, targets, and noise variances that differ by a factor of 100."""
    rng = np.random.default_rng(4)
    X, V = rng.uniform(-2, 2, (n, 2)), 10.0 ** rng.uniform(-3, -1, n)
    y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + np.sqrt(V) * rng.standard_normal(n)
    return X * scale + shift, y * scale - shift, V * scale**2


def fitted(key: str, X: Floats, y: Floats, **noise: Any) -> Estimator:
    left = ("num_inducing", *(["max_iterations"] if key == "gbcd" else []))  # which runs until it is solved
    settings = {name: value for name, value in SMALL.items() if name in registry[key].param and name not in left}
    return Estimator(key, registry[key].example_kernel, settings=settings, **STEPS).fit(X, y, **noise)


def dense(model: Estimator, X: Floats, y: Floats, ratio: Floats, Z: Floats) -> tuple[Any, Any]:
    """Mean and covariance at Z by n x n matrices, with noise s2 * ratio per row."""
    inner: Any = model.posterior_.inner
    inner = inner.inner if isinstance(inner, UnitRowsPosterior) else inner
    scale = model.posterior_.columns.scale
    joined = (torch.tensor(np.vstack([Z, X])) - scale.x_mean) / scale.x_sd
    target, t, s2 = (torch.tensor(y) - scale.y_mean) / scale.y_sd, len(Z), inner.noise_variance
    noise = s2 * torch.tensor(ratio)
    if isinstance(inner, FeaturePosterior):
        features = ChosenFeatures(inner.features.choice, inner.features.theta)
        Phi = features(joined)
        K = prior = Phi.T @ Phi
    else:
        K = prior = inner.kernel.base(inner.theta, joined, joined)
    if isinstance(inner, InducingPosterior):
        U = inner.Z[:, :-1]
        K_m = inner.kernel.base(inner.theta, U, joined)
        K = K_m.T @ torch.linalg.solve(inner.kernel.base(inner.theta, U, U), K_m)
        noise = noise + inner.row_noise * (prior - K).diagonal()[t:]
    A = K[t:, t:] + torch.diag(noise)
    gain = torch.linalg.solve(A, K[t:, :t]).T
    cov = prior[:t, :t] - gain @ K[t:, :t]
    return gain @ target * scale.y_sd + scale.y_mean, cov * scale.y_sd**2


KEYS = sorted(key for key in methods if registry[key].row_noise and key not in ("subset-of-data", "grief-mcmc"))
MOVED = ("sgpr", "gbcd", "loo")  # methods that are tested far from the origin and in other units


@pytest.mark.parametrize("key", KEYS)
def test_noise_per_row_is_a_diagonal_matrix_in_dense_algebra(key: str):
    shift, scale = (300.0, 20.0) if key in MOVED else (0.0, 1.0)
    X, y, V = rows(shift=shift, scale=scale)
    X = X[:, : inputs_of(key, 2)]
    Z, takes_noise = X[:5] + 0.03 * scale, "known" in registry[key].row_noise

    model = fitted(key, X, y, **({"noise": V} if takes_noise else {"sample_weight": 0.01 / V}))

    posterior, y_sd = model.posterior_.asked_for("f"), model.posterior_.columns.scale.y_sd
    if takes_noise:  # it stays as it is, while other hyperparameters are learned
        assert posterior.noise_variance == pytest.approx(V.mean(), rel=1e-12)
        assert model.theta_[-1] == pytest.approx(math.log(math.sqrt(V.mean()) / y_sd), abs=1e-12)
    mean, cov = dense(model, X, y, V / V.mean() if takes_noise else 100.0 * V, Z)
    if registry[key].family in ("eigenfunctions", "inducing", "cross_validation") or key in (
        "cholesky",
        "gbcd",
        "states",
    ):
        rtol = 1e-3 if "admm" in key else 1e-5
        if key not in ("grief", "ski", "rff"):  # which stop here with a noise fitted to the functions
            torch.testing.assert_close(posterior.mean(Z), mean, rtol=rtol, atol=2e-4 * scale)
            torch.testing.assert_close(posterior.cov(Z), cov, rtol=rtol, atol=1e-6 * scale**2)


def test_the_subset_of_data_keeps_the_noise_of_its_rows():
    X, y, V = rows(shift=300.0, scale=20.0)
    Z, settings = X[:5] + 0.6, {"num_rows": 12, "evaluations": 4}

    model = Estimator("subset-of-data", settings=settings, budget={"steps": 20}).fit(X, y, noise=V)

    chosen = model.run_.trace[-1].step.state.inducing.numpy()
    mean, cov = dense(model, X[chosen], y[chosen], V[chosen] / V.mean(), Z)
    posterior = model.posterior_.asked_for("f")
    assert len(chosen) == 12
    assert posterior.noise_variance == pytest.approx(V.mean(), rel=1e-12)
    torch.testing.assert_close(posterior.mean(Z), mean, rtol=1e-8, atol=1e-6)
    torch.testing.assert_close(posterior.cov(Z), cov, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (300.0, 20.0)])
def test_interpolation_from_a_grid_has_noise_per_row(shift: float, scale: float):
    X, y, V = rows(shift=shift, scale=scale)
    Z, settings = X[:5] + 0.03 * scale, {"learn": False, "num_eigenfunctions": 30, "grid_points": 6}

    model = Estimator("ski", settings=settings, budget={"steps": 20}).fit(X, y, sample_weight=0.01 * scale**2 / V)

    mean, cov = dense(model, X, y, V / (0.01 * scale**2), Z)
    posterior = model.posterior_.asked_for("f")
    torch.testing.assert_close(posterior.mean(Z), mean, rtol=1e-6, atol=1e-6 * scale)
    torch.testing.assert_close(posterior.cov(Z), cov, rtol=1e-6, atol=1e-8 * scale**2)


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (300.0, 20.0)])
def test_a_draw_of_weights_is_a_dense_gp_with_noise_per_row(shift: float, scale: float):
    X, y, V = rows(shift=shift, scale=scale)
    Z, ratio = X[:5] + 0.03 * scale, torch.tensor(100.0 * V / scale**2)
    chain = {"chains": 1, "per_step": 1, "thin": 1, "warm_up": 3, "samples": 1}
    settings = {"num_eigenfunctions": 20, "grid_points": 6, "subset": 20, "evaluations": 4} | chain

    model = Estimator("grief-mcmc", settings=settings).fit(X, y, sample_weight=1.0 / ratio.numpy())

    z, inner, units = model.run_.trace[-1].step.state.z[0], model.posterior_.inner, model.posterior_.columns.scale
    joined = (torch.tensor(np.vstack([Z, X])) - units.x_mean) / units.x_sd
    Psi = ChosenFeatures(inner.features.choice, inner.features.theta)(joined).T @ inner.V
    K = Psi @ torch.diag(z[:-1].exp()) @ Psi.T
    gain = torch.linalg.solve(K[5:, 5:] + z[-1].exp() * torch.diag(ratio), K[5:, :5]).T
    posterior, target = model.posterior_.asked_for("f"), (torch.tensor(y) - units.y_mean) / units.y_sd
    mean, cov = gain @ target * units.y_sd + units.y_mean, (K[:5, :5] - gain @ K[5:, :5]) * units.y_sd**2
    torch.testing.assert_close(posterior.mean(Z), mean, rtol=1e-6, atol=1e-6 * scale)
    torch.testing.assert_close(posterior.cov(Z), cov, rtol=1e-6, atol=1e-8 * scale**2)
    assert posterior.noise_variance == pytest.approx(float(z[-1].exp()) * units.y_sd**2, rel=1e-9)


def test_the_evidence_is_that_of_a_dense_gp_with_this_noise_and_theta_is_learned_with_it():
    X, y, V = rows(scale=5.0, shift=10.0)
    model = Estimator("ml", settings={"evaluations": 30}).fit(X, y, noise=V)
    scale, theta = model.posterior_.columns.scale, torch.tensor(model.theta_)
    kernel, Z = kernels.make("se-ard", 2), (torch.tensor(X) - scale.x_mean) / scale.x_sd

    def log_density(theta: torch.Tensor) -> float:
        A = kernel(theta, Z, Z) * scale.y_sd**2 + torch.diag(torch.tensor(V))
        normal = torch.distributions.MultivariateNormal(torch.zeros(40, dtype=torch.float64), A)
        return float(normal.log_prob(torch.tensor(y) - scale.y_mean))

    assert model.log_marginal_likelihood_value_ == pytest.approx(log_density(theta), rel=1e-9)
    for q in range(3):  # theta is a maximum
        step = 0.02 * torch.eye(4, dtype=torch.float64)[q]
        assert max(log_density(theta + step), log_density(theta - step)) < log_density(theta) + 1e-6
    assert model.kernel_["name"] == "se-ard"
    assert abs(np.sqrt(V.mean()) - np.median(model.predict(X, return_std=True)[1])) < np.sqrt(V.mean())


@pytest.mark.parametrize("key", ["cholqr", "gbcd", "grief", "rff"])
def test_two_equal_rows_count_as_one_of_twice_the_weight(key: str):
    X, y, _ = rows(30)
    kernel = {"name": "se-ard", "theta": [0.0, 0.0, 0.3, -1.0]}
    settings: dict[str, Any] = {"learn": False} if "learn" in registry[key].param else {"max_epochs": 0}
    settings |= {name: SMALL[name] for name in ("num_eigenfunctions", "num_features") if name in registry[key].param}
    weights, repeats = np.ones(30), np.arange(30)
    weights[::3], weights[5] = 2.0, 0.0
    repeats = np.concatenate([np.delete(repeats, 5), repeats[::3]])
    model, twice = (Estimator(key, kernel, 30, settings, budget={"steps": 40}) for _ in range(2))

    model.fit(X, y, sample_weight=weights)
    twice.fit(X[repeats], y[repeats])

    # Rows are standardised without weights, so the same theta is not the same model: compare in dense algebra.
    mean, cov = dense(model, np.delete(X, 5, 0), np.delete(y, 5), 1.0 / np.delete(weights, 5), X[:4])
    torch.testing.assert_close(model.posterior_.mean(X[:4]), mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model.posterior_.cov(X[:4], noise=False), cov, rtol=1e-4, atol=1e-6)
    assert np.abs(model.predict(X) - twice.predict(X)).max() < 0.5


@pytest.mark.parametrize("key", ["cholqr", "ml", "gbcd", "rff", "grief"])
def test_such_a_posterior_is_saved_updated_exported_and_differentiated(key: str, tmp_path: Path):
    X, y, V = rows()
    posterior, Z = fitted(key, X, y, sample_weight=0.01 / V).posterior_.asked_for("f"), torch.tensor(X[:4]) + 0.02
    posterior.save(tmp_path / "model")

    loaded, module = load_posterior(tmp_path / "model"), posterior.to_torch()

    torch.testing.assert_close(loaded.cov(Z), posterior.cov(Z), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(module(Z)[0], posterior.mean(Z), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(module(Z)[1], posterior.var(Z), rtol=1e-6, atol=1e-9)
    values = (posterior.paths(3000)(Z) - posterior.mean(Z)) / posterior.sd(Z)
    assert float(values.mean(1).abs().max()) < 6.0
    assert 0.85 < float(values.std(0).min()) <= float(values.std(0).max()) < 1.15
    step = torch.tensor([1e-5, 0.0], dtype=torch.float64)
    slope = (posterior.var(Z + step) - posterior.var(Z - step)) / 2e-5
    torch.testing.assert_close(posterior.gradient(Z).var[:, 0], slope, rtol=1e-3, atol=1e-5)
    if key in ("cholqr", "rff"):
        more = posterior.with_rows(Z, y[:4], noise=V[:4])
        torch.testing.assert_close(more(Z).mean, loaded.with_rows(Z, y[:4], noise=V[:4])(Z).mean)
        assert bool((more.var(Z) < posterior.var(Z)).all())


@pytest.mark.parametrize("key", ["cholesky", "ml", "loo", "states", "sgpr", "vecchia"])
@pytest.mark.parametrize("weight", [4.0, 0.5])
def test_equal_weights_divide_a_fixed_noise_and_a_new_row_has_weight_1(key: str, weight: float):
    X, y, _ = rows(shift=300.0, scale=20.0)
    X = X[:, :1]
    values = {"sd": 20.0, "lengthscale": 15.0, "noise": 4.0}
    kernel = {"name": "matern32", "values": values, "fixed": list(values)}
    settings: dict[str, Any] = {"num_neighbours": 39, "num_nearest": 40} if key == "vecchia" else {}
    number = 40 if "num_inducing" in registry[key].param else None
    model = Estimator(key, kernel, number, settings, budget={"steps": 5})

    model.fit(X, y, sample_weight=np.full(40, weight))

    def k(A: Floats, B: Floats) -> Floats:
        r = math.sqrt(3.0) * np.abs(A - B.T) / values["lengthscale"]
        return values["sd"] ** 2 * (1.0 + r) * np.exp(-r)

    Z, s2 = X[:5] + 0.6, values["noise"] ** 2
    gain = np.linalg.solve(k(X, X) + s2 / weight * np.eye(40), k(X, Z)).T
    mean, sd = model.predict(Z, return_std=True)
    np.testing.assert_allclose(mean, y.mean() + gain @ (y - y.mean()), rtol=1e-6)
    np.testing.assert_allclose(sd, np.sqrt(s2 + np.diag(k(Z, Z) - gain @ k(X, Z))), rtol=1e-5)


@pytest.mark.parametrize(
    "restricted", [{}, {"bounds": {"noise": [0.15, 0.3]}}, {"priors": {"noise": "lognormal(-1.5, 0.3)"}}]
)
def test_equal_weights_are_the_limit_of_nearly_equal_ones(restricted: dict[str, Any]):
    X, y, _ = rows()
    fits = [
        Estimator("ml", {"name": "se-ard"} | restricted).fit(X, y, sample_weight=weights)
        for weights in (np.full(40, 4.0), np.where(np.arange(40) % 2, 4.0, 4.0001), np.ones(40))
    ]

    noises = [fit.hyperparameters_["noise"].value for fit in fits]
    sds = [fit.predict(X[:5], return_std=True)[1] for fit in fits]
    assert noises[0] == pytest.approx(noises[1], rel=1e-3)
    np.testing.assert_allclose(sds[0], sds[1], rtol=1e-3)
    assert sds[0].min() > 1.2 * sds[2].max()  # a new row has weight 1, and more noise than a row of weight 4
    assert fits[0].log_marginal_likelihood_value_ == pytest.approx(fits[1].log_marginal_likelihood_value_, abs=0.01)


@pytest.mark.parametrize("key", ["ml", "svgp"])
def test_weights_of_1_are_as_none_and_other_equal_ones_are_used_or_refused(key: str):
    X, y, _ = rows(12)
    model, same = (Estimator(key, budget={"steps": 2}) for _ in range(2))

    zero_or_one = np.where(np.arange(12) < 3, 0.0, 1.0)

    assert model.fit(X, y, sample_weight=zero_or_one).run_.problem.train.d == 2
    np.testing.assert_array_equal(model.predict(X), same.fit(X[3:], y[3:]).predict(X))
    if key == "svgp":
        with pytest.raises(SettingError, match="'svgp' takes no relative noise per row, because it treats all rows"):
            model.fit(X, y, sample_weight=np.full(12, 2.0))


def test_what_cannot_be_used_is_a_sentence():
    X, y, V = rows(12)
    for key in methods:
        method = registry[key]
        for kind, given in (("relative", {"sample_weight": V}), ("known", {"noise": V})):
            if kind not in method.row_noise:
                with pytest.raises(SettingError, match=f"{key!r} takes no {kind} noise per row, because"):
                    fitted(key, X, y, **given)
    for given, says in (
        ({"sample_weight": V, "noise": V}, "not both"),
        ({"sample_weight": V[:5]}, "finite number of 0 or more for each of 12 rows"),
        ({"sample_weight": -V}, "0 or more"),
        ({"noise": 0.0 * V}, "positive variance, in the units of y squared"),
        ({"noise": "many"}, "positive variance"),
        ({"sample_weight": np.eye(12)[0]}, "has 1 weights above zero"),
    ):
        with pytest.raises(SettingError, match=says):
            Estimator(budget={"steps": 1}).fit(X, y, **given)
    with pytest.raises(GPExplorerError, match="columns of numbers"):
        Estimator("ml", kernel="spectrum").fit(["ab", "ba", "bb"], [1.0, 2.0, 3.0], noise=[0.1, 0.2, 0.3])
    same = Estimator(budget={"steps": 2}).fit(X, y, sample_weight=np.ones(12))
    assert np.array_equal(same.predict(X), Estimator(budget={"steps": 2}).fit(X, y).predict(X))
