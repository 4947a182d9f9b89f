"""Rows added to a posterior: the same as a fit to all rows, to rounding, in any number of parts."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from gpexplorer import Estimator, data, load_posterior
from gpexplorer.errors import DataError, PosteriorError
from gpexplorer.posteriors import (
    FeaturePosterior,
    InducingPosterior,
    PrecisionFactor,
    RowsPosterior,
    StatesPosterior,
    exact_gp_posterior,
    table_posterior,
)
from gpexplorer.problem import Dataset
from gpexplorer.runs import Spec
from steps_of import moved, small_run, small_spec

UPDATED = ["cholqr", "fitc", "sgpr", "grief", "rff", "full-batch", "ml", "cholesky", "states"]


def fitted(key: str, shift: float) -> tuple[Any, Any]:
    """A run on all rows, and its rows."""
    split = data.load(small_spec(key, d=2).data, split=0)
    run = small_spec(key, d=2).open(data=moved(split, shift, 3.0) if shift else split)
    run.finish(steps=60)
    return run, run.problem.train


@pytest.mark.parametrize("shift", [0.0, 2e3])
@pytest.mark.parametrize("key", UPDATED)
def test_a_fit_to_some_rows_and_then_the_others_is_a_fit_to_all(key: str, shift: float):
    run, train = fitted(key, shift)
    whole = run.posterior().inner
    part: Any = of_some_rows(whole, train.rows(torch.arange(20)))

    for rows in (slice(20, 21), slice(21, 40), slice(40, None)):
        part = part.with_rows(train.X[rows], train.y[rows])

    X = torch.cat([train.X[:5] + 0.03, train.X[-5:] - 0.02])
    torch.testing.assert_close(part(X).mean, whole(X).mean, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(part(X).var, whole(X).var, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(part.cov(X), whole.cov(X), rtol=1e-7, atol=1e-9)


def of_some_rows(whole: Any, train: Dataset) -> Any:
    """The posterior of some rows by dense algebra, with the inducing inputs or features of all rows."""
    if isinstance(whole, StatesPosterior):
        return StatesPosterior(whole.kernel, whole.theta, train.X, train.y)
    if isinstance(whole, RowsPosterior):
        return exact_gp_posterior(whole.kernel, whole.theta, train)
    s2 = whole.weights.s2
    if isinstance(whole, InducingPosterior):
        Phi = torch.linalg.solve_triangular(whole.L_mm, whole.kernel(whole.theta, whole.Z, train.X), upper=False)
        V = s2 + (whole.kernel.diag(whole.theta, train.X) - Phi.square().sum(0)) * whole.row_noise
    else:
        Phi, V = whole.features(train.X), torch.full_like(train.y, s2)
    A = s2 * torch.eye(len(Phi)).to(Phi) + (Phi * (s2 / V)) @ Phi.T
    mean = torch.linalg.solve(A, Phi @ (train.y * s2 / V))
    weights = PrecisionFactor(mean, torch.linalg.cholesky(A), s2)
    if isinstance(whole, FeaturePosterior):
        return FeaturePosterior(whole.features, weights, s2, whole.V, whole.outside)
    other = InducingPosterior(whole.kernel, whole.theta, whole.Z, whole.L_mm, weights)
    other.row_noise = whole.row_noise
    return other


@pytest.mark.parametrize("shift", [0.0, 2e3])
def test_a_row_of_half_the_noise_counts_twice_in_the_units_of_the_file(shift: float):
    for key in ("cholqr", "ml"):
        check_half_noise(*fitted(key, shift))


def check_half_noise(run: Any, train: Any) -> None:
    posterior, scale = run.posterior(of="y"), train.scale
    X, y = train.X[:3] * scale.x_sd + scale.x_mean + 0.01, train.y[:3] * scale.y_sd + scale.y_mean

    twice = posterior.with_rows(X, y).with_rows(X, y)
    once = posterior.with_rows(X, y, noise=torch.full((3,), 0.5 * posterior.noise_variance))

    torch.testing.assert_close(once(X).mean, twice(X).mean, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(once(X).var, twice(X).var, rtol=1e-7, atol=1e-9)
    assert once.of == "y"
    assert once.noise_variance == posterior.noise_variance
    assert bool((once.var(X) < posterior.var(X)).all())
    torch.testing.assert_close(pickle.loads(pickle.dumps(once)).var(X), once.var(X), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shift", [0.0, 2e3])
@pytest.mark.parametrize("first", [False, True])
def test_paths_after_rows_with_noise_of_their_own_are_those_of_dense_algebra(shift: float, first: bool, tmp_path: Path):
    """With noise of its own in the fit as well (`first`), and after the posterior was saved."""
    rng, values = np.random.default_rng(3), {"sd": 1.1, "lengthscale": 0.8} | ({} if first else {"noise": 0.2})
    X, new, at = rng.uniform(0.0, 4.0, 30), np.linspace(4.2, 6.0, 8), np.array([3.9, 4.2, 4.7, 5.3, 6.0])
    V_old, V_new = np.geomspace(0.01, 1.0, 30) if first else np.full(30, 0.2**2), np.array([1e-6, 3.0] * 4)
    y, y_new = np.sin(X), np.sin(new)
    model = Estimator("ml", kernel={"name": "se", "values": values, "fixed": ["*"]})
    model.fit(X[:, None] + shift, y, noise=V_old if first else None)
    model.partial_fit(new[:, None] + shift, y_new, noise=V_new)

    def k(x: np.ndarray, z: np.ndarray) -> np.ndarray:
        return 1.1**2 * np.exp(-0.5 * ((x[:, None] - z) / 0.8) ** 2)

    rows, targets = np.concatenate([X, new]), np.concatenate([y, y_new]) - y.mean()
    gain = np.linalg.solve(k(rows, rows) + np.diag(np.concatenate([V_old, V_new])), k(rows, at)).T
    mean, cov = gain @ targets + y.mean(), k(at, at) - gain @ k(rows, at)
    model.posterior_.save(tmp_path / "model")
    for posterior in (model.posterior_, load_posterior(tmp_path / "model")):
        paths = posterior.paths(4000, seed=1)(at[:, None] + shift).numpy()
        sd = np.sqrt(np.diag(cov))
        np.testing.assert_allclose(posterior.cov(at[:, None] + shift, noise=False), cov, atol=1e-6)
        assert np.abs((paths.mean(0) - mean) / (sd + 1e-3)).max() < 0.08
        np.testing.assert_allclose(np.cov(paths.T) / np.outer(sd, sd), cov / np.outer(sd, sd), atol=0.12)


@pytest.mark.parametrize("key", ["cholqr", "fitc", "rff"])
def test_one_pass_over_a_parquet_file_is_a_fit_to_all_its_rows(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run, train = fitted(key, 2e3)
    posterior, scale, names = run.posterior(), train.scale, train.names
    X, y = train.X * scale.x_sd + scale.x_mean, train.y * scale.y_sd + scale.y_mean
    columns = {names[1]: X[:, 1].numpy(), train.target: y.numpy(), "other": y.numpy(), names[0]: X[:, 0].numpy()}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=7)
    monkeypatch.setattr(table_posterior, "STRIP_BYTES", 24 * 16)  # strips of 16 rows

    prior = posterior.without_rows()
    streamed = prior.with_file(tmp_path / "rows.parquet")

    torch.testing.assert_close(streamed(X).mean, posterior(X).mean, rtol=1e-9, atol=1e-7)
    torch.testing.assert_close(streamed.cov(X[:9]), posterior.cov(X[:9]), rtol=1e-7, atol=1e-8)
    k = (
        prior.inner.kernel.diag(prior.inner.theta, train.X)
        if key != "rff"
        else prior.inner.features(train.X).norm(dim=0) ** 2
    )
    torch.testing.assert_close(prior.var(X), k * scale.y_sd**2)
    columns["other"], columns[names[0]] = columns[names[0]], columns[names[0]].copy()
    columns[names[0]][20] = np.nan
    pq.write_table(pa.table(columns), tmp_path / "gap.parquet")
    with pytest.raises(DataError, match=rf"row 21 cannot be learned \(.* cell: {names[0]}\)"):
        prior.with_file(tmp_path / "gap.parquet")
    columns[names[0]], columns[train.target] = columns["other"], columns[names[0]]
    pq.write_table(pa.table(columns), tmp_path / "gap.parquet")
    with pytest.raises(DataError, match=rf"row 21 cannot be learned \(no number: {train.target}\)"):
        prior.with_file(tmp_path / "gap.parquet")
    with pytest.raises(DataError, match="There is no file"):
        prior.with_file(tmp_path / "rows.csv")
    for other, says in (
        ("ml", "consists of them"),
        ("svgp", "variational fit"),
        ("grief-mcmc", "weights of their own"),
    ):
        if key == "rff":
            learned = {"learn": False} if other == "grief-mcmc" else {}  # until it draws, it is an exact GP
            with pytest.raises(PosteriorError, match=says):
                small_run(other, d=2, steps=3, settings=learned).posterior().without_rows()


def test_hard_scales_keep_their_digits():
    """Signal to noise 1e5: the condition number of A is 1e10, and its square would lose every digit."""
    run, train = fitted("cholqr", 0.0)
    inner = run.posterior().inner
    theta = inner.theta.clone()
    theta[-1] = -11.0
    from gpexplorer.objectives import nystrom
    from gpexplorer.posteriors import nystrom_posterior

    first_rows = train.rows(torch.arange(30))
    part = nystrom_posterior(inner.kernel, theta, inner.Z, nystrom(inner.kernel, theta, first_rows, inner.Z))
    whole = nystrom_posterior(inner.kernel, theta, inner.Z, nystrom(inner.kernel, theta, train, inner.Z))

    part = part.with_rows(train.X[30:], train.y[30:])

    torch.testing.assert_close(part(train.X).mean, whole(train.X).mean, rtol=1e-6, atol=1e-7)


def test_what_cannot_be_updated_says_so():
    X, y = torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for key in ("svgp", "grief-mcmc"):
        with pytest.raises(PosteriorError, match="needs; fit the method again"):
            small_run(key, d=2, steps=22).posterior().with_rows(X, y)
    with pytest.raises(PosteriorError, match="has not converged"):
        small_run("cg", d=2, steps=6).posterior().with_rows(X, y)
    posterior = small_run("cholqr", d=2, steps=3).posterior()
    for wrong in (y[:1], y * torch.nan):
        with pytest.raises(PosteriorError, match="one finite target per row"):
            posterior.with_rows(X, wrong)
    for noise, says in ((0.0, "0"), (-2.5, "-2.5"), (torch.nan, "nan"), (torch.inf, "inf")):
        with pytest.raises(PosteriorError, match=f"noise has {says} in row 2 of 2 new rows: give one positive noise"):
            posterior.with_rows(X, y, noise=[1.0, noise])
    with pytest.raises(PosteriorError, match="y has nan in row 2 of 2 new rows: give one finite target per row"):
        posterior.with_rows(X, torch.tensor([1.0, torch.nan]), noise=[1.0, 1.0])
    for wrong in ([1.0], [[1.0], [1.0]], [1.0, 1.0, 1.0]):
        with pytest.raises(PosteriorError, match="give one variance for each of 2 new rows"):
            posterior.with_rows(X, y, noise=wrong)


@pytest.mark.parametrize("theta", [[6.0, 7.5, -13.0], [6.6, 7.7, -13.2]])
def test_rows_join_a_posterior_whose_rounding_exceeds_its_variances(theta: list[float]) -> None:
    x = np.linspace(0.0, 10.0, 40)
    spec = Spec("ml", {"evaluations": 1}, kernel={"name": "se", "theta": theta})  # sf2 / s2 above 6e17
    run = spec.open(data=(x[:, None], x.copy()))
    run.finish(steps=1)
    joined = run.posterior(of="y").with_rows(np.array([[5.0], [5.1]]), np.array([5.0, 5.1]))
    new = np.array([[5.05], [7.3], [20.0]])
    np.testing.assert_allclose(joined.mean(new), new[:, 0], rtol=1e-3)
    assert bool((joined.var(new) > 0).all())


def test_values_with_labels_count_by_their_position_unless_the_labels_say_another_order():
    rng = np.random.default_rng(0)
    X, y = pd.DataFrame({"a": rng.uniform(size=30), "b": rng.uniform(size=30)}), rng.normal(size=30)
    run = Spec("ml", kernel="se-ard").open(data=X.assign(y=y))
    run.finish(steps=3)
    posterior, order = run.posterior(of="y"), rng.permutation(6)
    new, values, noise = X[:6], rng.normal(size=6), rng.uniform(0.1, 1.0, size=6)
    density, more = posterior.log_density(new, values), posterior.with_rows(new, values, noise)
    for labels in (order, range(40, 46)):
        series = pd.Series(values, index=labels)
        torch.testing.assert_close(posterior.log_density(new.to_numpy(), series), density)
        torch.testing.assert_close(posterior.log_density(new.set_axis(labels), series), density)
        labelled = posterior.with_rows(new.to_numpy(), series, pd.Series(noise, index=labels))
        torch.testing.assert_close(labelled.mean(X), more.mean(X))
    levels = pd.Series([0.1, 0.9], index=[1, 0])
    torch.testing.assert_close(posterior.quantile(new, levels), posterior.quantile(new, (0.1, 0.9)))
    for wrong in (
        lambda: posterior.log_density(new, pd.Series(values, index=order)),
        lambda: posterior.with_rows(new, pd.Series(values, index=order)),
        lambda: posterior.with_rows(new, values, pd.Series(noise, index=order)),
    ):
        with pytest.raises(DataError, match="has the index of X in another order"):
            wrong()


def test_masked_values_are_missing():
    run = small_run("ml", d=2)
    posterior, X = run.posterior(of="y"), np.zeros((3, 2))
    masked = np.ma.array([0.1, 0.2, 9.0], mask=[False, False, True])
    assert posterior.log_density(X, masked).isnan().tolist() == [False, False, True]
    with pytest.raises(PosteriorError, match="give one finite target per row"):
        posterior.with_rows(X, masked)


def test_sizes_and_seeds_may_be_numbers_of_numpy():
    posterior, X = small_run("ml", d=2).posterior(), np.zeros((3, 2))
    torch.testing.assert_close(posterior.sample(X, np.int64(2), np.uint8(7)), posterior.sample(X, 2, 7))
    torch.testing.assert_close(posterior.paths(np.int32(2), np.int64(7))(X), posterior.paths(2, 7)(X))


@pytest.mark.parametrize("key", ["vecchia", "states", "ml", "rff", "minimax"])
@pytest.mark.parametrize(("dtype", "far"), [("float64", 1e152), ("float32", 1e30)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_inputs_too_far_for_their_squares_are_refused_and_nearer_ones_have_a_finite_answer(
    key: str, dtype: str, far: float, sign: float
):
    t = np.linspace(0.0, 5.0, 40)[:, None]
    kernel = "matern32" if key == "states" else "se"
    posterior = Estimator(key, kernel, dtype=dtype, budget={"steps": 1}).fit(t, np.sin(t[:, 0])).posterior_

    moments = posterior(np.array([[1.0], [sign * far**0.5]]))

    assert all(bool(part.isfinite().all()) for part in moments)
    for ask in (posterior, posterior.mean, posterior.sample, posterior.gradient, posterior.paths(1)):
        with pytest.raises(DataError, match=f'in column "x0", row 2: more than .* no number as {dtype}'):
            ask(np.array([[1.0], [sign * far]]))


def test_the_column_that_is_too_far_is_named_and_how_far_is_measured_in_its_own_unit():
    t = np.linspace(0.0, 1e-20, 40)[:, None]
    frame = pd.DataFrame(np.hstack([np.sin(t), t]), columns=["a", "b"])
    posterior = Estimator("ml", budget={"steps": 1}).fit(frame, np.linspace(0.0, 1.0, 40)).posterior_

    with pytest.raises(DataError, match='Inputs have -1e\\+140 in column "b", row 3'):
        posterior(pd.DataFrame({"a": [0.0, 1.0, 1.0], "b": [0.0, 0.0, -1e140]}))
