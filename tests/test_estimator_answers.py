"""What the estimator gives beside predictions: covariances, samples, evidence, new rows, targets and kernels."""

from __future__ import annotations

import math
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.gaussian_process import kernels as theirs
from sklearn.model_selection import GridSearchCV

from gpexplorer import Estimator, Spec, kernels, load_posterior
from gpexplorer.errors import DataError, KernelError, PosteriorError, SettingError
from gpexplorer.estimator.parameters import Units, spec_kernel
from gpexplorer.methods import gpytorch_parts

gpytorch = gpytorch_parts.package()
SHORT: dict[str, Any] = {"num_inducing": 8, "budget": {"steps": 4}}


def rows(n: int = 80, shift: float = 0.0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (n, 2))
    return X * [1.0, 5.0] + shift, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(n) - shift


@pytest.mark.parametrize("shift", [0.0, 3e3])
def test_covariances_samples_and_inducing_points(shift: float):
    X, y = rows(shift=shift)
    model = Estimator(**SHORT).fit(X, y)

    mean, cov = model.predict(X[:5], return_cov=True)
    sd = model.predict(X[:5], return_std=True)[1]
    samples = model.sample_y(X[:5], 3000, random_state=2)

    np.testing.assert_allclose(np.sqrt(np.diag(cov)), sd, rtol=1e-6)
    assert np.abs(cov - np.diag(np.diag(cov))).max() > 1e-5
    assert samples.shape == (5, 3000)
    np.testing.assert_allclose(np.cov(samples) / np.outer(sd, sd), cov / np.outer(sd, sd), atol=0.12)
    np.testing.assert_allclose(samples.mean(1), mean, atol=0.1)
    assert np.array_equal(samples, model.sample_y(X[:5], 3000, random_state=2))
    distances = np.abs(model.inducing_points_[:, None] - X).max(2).min(1)
    assert model.inducing_points_.shape == (8, 2)
    assert distances.max() < 1e-9 * max(1.0, shift)  # cholqr chooses training rows
    with pytest.raises(SettingError, match="not both"):
        model.predict(X, return_std=True, return_cov=True)


def test_the_evidence_is_that_of_a_dense_gp_in_the_units_of_the_targets():
    X, y = rows(30, 50.0)
    model = Estimator("ml", settings={"evaluations": 3}).fit(X, 7.0 * y)

    kernel = kernels.make("se-ard", 2)
    scaled, theta = torch.tensor((X - X.mean(0)) / X.std(0)), torch.tensor(model.theta_)
    A = kernel(theta, scaled, scaled) + math.exp(2 * theta[-1]) * torch.eye(30, dtype=torch.float64)
    normal = torch.distributions.MultivariateNormal(torch.zeros(30, dtype=torch.float64), A * (7.0 * y).std() ** 2)

    expected = float(normal.log_prob(torch.tensor(7.0 * y - (7.0 * y).mean())))
    assert model.log_marginal_likelihood_value_ == pytest.approx(expected, rel=1e-8)
    assert model.kernel_["name"] == "se-ard"
    with pytest.raises(AttributeError, match="no inducing points"):
        _ = model.inducing_points_
    with pytest.raises(AttributeError, match="does not maximise"):
        _ = Estimator("cholesky", budget={"steps": 1}).fit(X, y).log_marginal_likelihood_value_


def test_a_pickle_holds_the_predictor_and_the_run_only_by_choice():
    X, y = rows(3000)
    slim, whole = (Estimator(keep_run=keep, **SHORT).fit(X, y) for keep in (False, True))

    small, large = pickle.dumps(slim), pickle.dumps(whole)

    assert len(small) < 30_000 < 72_000 < len(large)
    unpickled = pickle.loads(small)
    assert not hasattr(unpickled, "run_")
    assert np.array_equal(unpickled.predict(X[:9], return_std=True)[1], slim.predict(X[:9], return_std=True)[1])
    begin = time.process_time()
    for _ in range(10):
        unpickled.predict(X[:1])
    assert time.process_time() - begin < 1.0  # the posterior is kept, not rebuilt from all rows


def test_rows_are_added_as_if_they_had_been_there():
    X, y = rows(120, 100.0)
    model = Estimator("sgpr", num_inducing=10, budget={"steps": 5}).fit(X[:60], y[:60])
    before = model.predict(X, return_std=True)

    for part in (slice(60, 90), slice(90, 120)):
        model.partial_fit(X[part], y[part])

    posterior, train = model.posterior_.inner, model.run_.problem.train
    scale = train.scale
    both = type(train)((torch.tensor(X) - scale.x_mean) / scale.x_sd, (torch.tensor(y) - scale.y_mean) / scale.y_sd)
    from gpexplorer.objectives import nystrom
    from gpexplorer.posteriors import nystrom_posterior

    factors = nystrom(posterior.kernel, posterior.theta, both, posterior.Z)
    fresh = nystrom_posterior(posterior.kernel, posterior.theta, posterior.Z, factors)
    torch.testing.assert_close(posterior(both.X).mean, fresh(both.X).mean, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(posterior(both.X).var, fresh(both.X).var, rtol=1e-7, atol=1e-10)
    assert (model.predict(X, return_std=True)[1] < before[1]).mean() > 0.9
    repeated = Estimator("loo", settings={"evaluations": 2, "refit": "cg"}).fit(X[:60], y[:60])
    slim = pickle.loads(pickle.dumps(repeated))
    start = repeated.theta_
    repeated.partial_fit(X[60:], y[60:])
    assert repeated.run_.problem.theta.tolist() == pytest.approx(start.tolist())  # warm
    assert len(repeated.run_.problem.train) == 120
    np.testing.assert_allclose(repeated.run_.split.train.scale.x_mean, X.mean(0), rtol=1e-9)
    with pytest.raises(PosteriorError, match="fit the method again"):
        slim.partial_fit(X[:1], y[:1])
    first = Estimator(**SHORT).partial_fit(X, y)
    assert np.array_equal(first.predict(X), Estimator(**SHORT).fit(X, y).predict(X))


def test_several_targets_are_several_fits():
    X, y = rows(60)
    Y = np.column_stack([y, 5.0 - 2.0 * y])
    model, alone = Estimator(**SHORT).fit(X, Y), Estimator(**SHORT).fit(X, Y[:, 1])

    mean, sd = model.predict(X[:7], return_std=True)

    assert mean.shape == sd.shape == (7, 2)
    np.testing.assert_allclose(mean[:, 1], alone.predict(X[:7]), rtol=1e-9)
    assert model.predict(X[:7], return_cov=True)[1].shape == (7, 7, 2)
    assert model.sample_y(X[:7], 4).shape == (7, 2, 4)
    assert len(model.posterior_) == len(model.kernel_) == len(model.inducing_points_) == 2

    model.partial_fit(X[:1], Y[:1])
    assert (model.predict(X[:1], return_std=True)[1] < sd[:1]).all()
    for new_X, new_y in ((X[:3], y[:3]), (X[:2], y[:2]), (X[:3], Y[:3, :1]), (X[:3], np.column_stack([Y, y])[:3])):
        with pytest.raises(DataError, match=r"2 targets per row"):
            model.partial_fit(new_X, new_y)
    with pytest.raises(DataError, match="1 target per row"):
        alone.partial_fit(X[:3], Y[:3])
    alone.partial_fit(X[:3], Y[:3, :1])


def test_settings_are_searched_and_a_fit_starts_warm():
    X, y = rows(60)
    model = Estimator(**SHORT)
    search = GridSearchCV(model, {"settings__num_pivots": [3, 5], "settings__objective": ["pp"]}, cv=2).fit(X, y)

    assert set(search.best_params_) == {"settings__num_pivots", "settings__objective"}
    assert search.best_estimator_.settings["objective"] == "pp"
    assert model.settings is None
    warm = Estimator("ml", settings={"evaluations": 6}, warm_start=True).fit(X, y)
    theta = warm.theta_
    warm.fit(X, y)
    assert warm.run_.problem.theta.tolist() == pytest.approx(theta.tolist())
    network = Estimator("svgp", num_inducing=5, budget={"steps": 1}, warm_start=True).fit(X, y)
    network.fit(X, y).partial_fit(X[:3], y[:3])  # its theta is longer than that of any kernel
    assert len(network.run_.problem.train) == 63


def test_steps_are_printed_and_callbacks_may_stop(capsys: pytest.CaptureFixture[str]):
    X, y = rows(40)
    seen: list[int] = []
    model = Estimator(
        num_inducing=5, verbose=2, callbacks=[lambda record: seen.append(record.index) or record.index >= 4]
    )

    model.fit(X, y)

    assert seen == [0, 1, 2, 3, 4]
    assert capsys.readouterr().out.count("objective") == 3
    silent = Estimator(num_inducing=5, budget={"steps": 6}, callbacks=[lambda record: None]).fit(X, y)
    assert silent.run_.done == 6


@pytest.mark.parametrize("callbacks", [print, [3], "print", {"a": print}])
def test_callbacks_that_are_no_list_of_functions_are_refused_in_a_sentence(callbacks: Any):
    with pytest.raises(SettingError, match="give a list of functions of a record"):
        Estimator(num_inducing=5, callbacks=callbacks).fit(np.arange(20.0)[:, None], np.sin(np.arange(20.0)))


def test_texts_are_inputs():
    texts = ["abab", "abba", "bbbb", "aaab", "baba", "bbab"]
    y = np.array([text.count("ab") for text in texts], float)
    model = Estimator("ml", kernel="spectrum", settings={"evaluations": 5}).fit(texts, y)

    assert model.predict(["ababab"])[0] > model.predict(["bbbbb"])[0]
    with pytest.raises(DataError, match="6 texts have targets"):
        model.fit(texts, y[:3])


def test_smiles_are_inputs_with_samples_and_a_file(tmp_path: Path):
    chains = ["C" * a + end + "C" * b for a in range(1, 5) for b in range(3) for end in ("O", "N", "C(=O)")]
    y = np.array([0.8 * len(text) - 2.0 * text.count("O") for text in chains])
    model = Estimator("cholqr", kernel="molecules", num_inducing=12, budget={"steps": 15}).fit(chains, y)

    mean, cov = model.predict(["CCCCO", "CCCCCCN"], return_cov=True)
    model.posterior_.save(tmp_path / "model")

    assert mean[1] - mean[0] > 1.0
    assert np.all(np.linalg.eigvalsh(cov) > 0.0)
    assert model.score(chains, y) > 0.9
    assert model.sample_y(["CCCCO"], 3).shape == (1, 3)
    np.testing.assert_allclose(load_posterior(tmp_path / "model").mean(["CCCCO", "CCCCCCN"]), mean)


UNITS = Units(np.array([0.5, 2.0]), 3.0)
RBF, CONSTANT = theirs.RBF, theirs.ConstantKernel


@pytest.mark.parametrize(
    "kernel",
    [
        CONSTANT(4.0) * RBF([1.0, 3.0]) + theirs.WhiteKernel(0.2),
        2.0 * theirs.Matern([0.7, 3.0], nu=1.5) + CONSTANT(0.5) * RBF([0.1, 9.0]),
        theirs.Matern([0.7, 3.0], nu=2.5) * RBF([2.0, 2.0]),
        theirs.Matern([0.7, 3.0], nu=0.5),
        CONSTANT(4.0) * (RBF([1.0, 3.0]) + CONSTANT(0.5) * theirs.Matern([0.7, 3.0]) + theirs.WhiteKernel(0.2)),
        (RBF([1.0, 3.0]) * theirs.Matern([0.7, 3.0]) + RBF([0.1, 9.0])) * CONSTANT(0.3) + 2.0 * theirs.WhiteKernel(0.1),
    ],
)
def test_kernels_of_scikit_learn_are_the_same_functions(kernel: Any):
    spec = spec_kernel(kernel, UNITS)
    assert isinstance(spec, dict)
    X = np.random.default_rng(0).normal(size=(6, 2)) * 2.0
    ours, theta = kernels.make(spec["name"], 2), torch.tensor(spec["theta"], dtype=torch.float64)
    Z = torch.tensor(X / UNITS.x_sd)

    K = ours(theta, Z, Z).numpy() * UNITS.y_sd**2
    noise = np.exp(2 * spec["theta"][-1]) * UNITS.y_sd**2 if "White" in str(kernel) else 0.0

    assert ("WhiteKernel" in str(kernel)) == (noise > 0.0)
    np.testing.assert_allclose(K + noise * np.eye(6), kernel(X), rtol=1e-6, atol=1e-9)


def test_kernels_of_gpytorch_are_the_same_functions():
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(2.5, ard_num_dims=2))
    kernel.outputscale, kernel.base_kernel.lengthscale = 2.5, torch.tensor([0.4, 3.0])
    kernel = kernel + gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2))
    kernel = gpytorch.kernels.ScaleKernel(kernel).double()
    kernel.outputscale = 3.0
    spec = spec_kernel(kernel, UNITS)
    assert isinstance(spec, dict)
    X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Z = X / torch.tensor(UNITS.x_sd)

    K = kernels.make(spec["name"], 2)(torch.tensor(spec["theta"], dtype=torch.float64), Z, Z) * UNITS.y_sd**2

    torch.testing.assert_close(K, kernel(X).to_dense().detach(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (theirs.DotProduct(), "no equal"),
        (theirs.Matern(nu=1.0), "no equal"),
        (RBF() + 1.0, "constant that is added"),
        (theirs.WhiteKernel(), "noise alone"),
        (RBF([1.0, 1.0, 1.0]), "3 lengthscales, but the data have 2"),
        ((RBF() + RBF()) * RBF(), "sum of products"),
        (CONSTANT(0.0) * RBF(), "positive"),
        (RBF() * (RBF() + theirs.WhiteKernel()), "product with a noise"),
        (gpytorch.kernels.RBFKernel(active_dims=[0]), "some inputs only"),
        (gpytorch.kernels.SpectralMixtureKernel(num_mixtures=2), "no equal"),
        (7, "kernel is a int"),
    ],
)
def test_kernels_without_an_equal_are_refused(kernel: Any, says: str):
    with pytest.raises(KernelError, match=says):
        spec_kernel(kernel, UNITS)


def test_a_kernel_object_of_this_package_is_its_key():
    X, y = rows(40)

    assert Estimator(kernel=kernels.make("se-ard + linear", 2), **SHORT).fit(X, y).kernel_["name"] == "se-ard+linear"
    fitted = Estimator(kernel=1.0 * RBF([1.0, 1.0]) + theirs.WhiteKernel(0.1), **SHORT).fit(X, y)
    assert fitted.score(X, y) > 0.5


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"y": ["high"] + [0.0] * 19}, 'y has "high" in row 1, where a number is needed: leave this row out'),
        (
            {"y": ["1", "high", "low"] + ["0"] * 17},
            'y has "high" in row 2, .*: leave this row and 1 more without one out',
        ),
        ({"y": ["high"] * 20}, 'y has "high" in row 1 and no number in any row: give numbers, such as 0 and 1'),
        ({"y": [1.0, 2.0, None] + [0.0] * 17}, 'y has "None" in row 3, where a number is needed'),
        ({"y": pd.Series(np.arange(20.0))[::-1]}, r"y has the index of X in another order: give y.loc\[X.index\]"),
        ({"sample_weight": pd.Series(np.ones(20))[::-1]}, "sample_weight has the index of X in another order"),
        ({"X": pd.DataFrame(np.ones((20, 2)), columns=["a", "a"])}, 'the table has the column "a" more than once'),
    ],
)
def test_rows_that_do_not_fit_together_are_named(change: dict[str, Any], says: str):
    rows = {"X": pd.DataFrame({"a": np.arange(20.0)}), "y": np.arange(20.0)} | change
    with pytest.raises(DataError, match=says):
        Estimator("ml", budget={"steps": 1}).fit(**rows)


def read_only(values: NDArray[np.float64]) -> NDArray[np.float64]:
    copied = values.copy()
    copied.setflags(write=False)
    return copied


FORMS: dict[str, Any] = {
    "reversed": lambda values: np.flip(np.flip(values, 0).copy(), 0),
    "all axes reversed": lambda values: np.flip(np.flip(values).copy()),
    "in columns": np.asfortranarray,
    "every second": lambda values: np.repeat(values, 2, 0)[::2],
    "read only": read_only,
    "other byte order": lambda values: values.astype(values.dtype.newbyteorder()),
    "frame": lambda values: (pd.DataFrame if values.ndim > 1 else pd.Series)(values[::-1].copy())[::-1],
}


@pytest.mark.parametrize("key", ["cholqr", "ml"])
@pytest.mark.parametrize("form", FORMS)
def test_arrays_of_any_layout_are_the_same_rows(form: str, key: str):
    X, y = rows(50)
    V, formed = np.linspace(0.01, 0.02, 50), FORMS[form]
    settings: dict[str, Any] = {"num_inducing": 8 if key == "cholqr" else None, "budget": {"steps": 3}}

    def answers(given: Any) -> list[Any]:
        inputs, targets, noise = given(X), given(y), given(V)
        model = Estimator(key, **settings).fit(inputs, targets)
        said = [model.predict(inputs), *model.predict(given(X[:7]), return_std=True)]
        said += [
            model.posterior_.log_density(given(X), given(y)).numpy(),
            model.posterior_.gradient(inputs).mean.numpy(),
        ]
        said.append(model.partial_fit(given(X[:9] + 0.1), given(y[:9])).predict(X))
        said.append(model.partial_fit(given(X[9:12] + 0.1), given(y[9:12]), noise=given(V[9:12])).predict(X))
        two = Estimator(key, **settings).fit(inputs, given(np.stack([y, -y], 1)))
        known = Estimator(key, **settings).fit(inputs, targets, noise=noise)
        return [*said, two.predict(X), known.predict(X), known.fit(inputs, targets, sample_weight=noise).predict(X)]

    for one, other in zip(answers(formed), answers(np.array), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("key", ["cholqr", "ml", "states", "grief", "sgpr"])
def test_a_model_that_is_fitted_in_inference_mode_can_be_differentiated(key: str):
    X, y = rows(40)
    X, kernel = X[:, :1], {"states": "matern32"}.get(key, "se")
    usual = Estimator(key, kernel, budget={"steps": 3}).fit(X, y).partial_fit(X[:3] + 0.1, y[:3])
    with torch.inference_mode():
        model = Estimator(key, kernel, budget={"steps": 3}).fit(X, y).partial_fit(X[:3] + 0.1, y[:3])
        inside = model.posterior_.gradient(X[:4])
        by_spec = Spec(key, kernel=kernel, split="all", budget={"steps": 3}).open(data=(X, y))
        by_spec.finish()

    for gradient in (inside, model.posterior_.gradient(X[:4])):
        for one, other in zip(gradient, usual.posterior_.gradient(X[:4]), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert by_spec.error is None
    assert bool(by_spec.posterior().gradient(X[:4]).var.isfinite().all())
