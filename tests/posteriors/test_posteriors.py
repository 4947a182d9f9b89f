"""Every posterior against dense algebra: means, joint covariances, samples, sample paths and gradients."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gpexplorer import data, kernels, methods
from gpexplorer.errors import PosteriorError, SettingError
from gpexplorer.objectives import nystrom
from gpexplorer.posteriors import (
    FeaturePosterior,
    InducingPosterior,
    MarginalPosterior,
    NearestRowsPosterior,
    PriorPosterior,
    RowsPosterior,
    StatesPosterior,
    UnsolvedPosterior,
    exact_gp_posterior,
    joint_band,
    nystrom_posterior,
)
from gpexplorer.posteriors.sample_paths import prior_paths
from gpexplorer.problem import Dataset
from gpexplorer.runs import Run
from steps_of import moved, small_run, small_spec

KEYS = sorted(methods)
DRAWS = 4000


@pytest.fixture(scope="module", params=KEYS)
def run(request: pytest.FixtureRequest) -> Run:
    return small_run(str(request.param), d=2)


def places(run: Run, count: int = 5) -> Tensor:
    """Rows between training rows, in the scaled space."""
    X = run.problem.train.X
    return 0.5 * (X[:count] + X[count : 2 * count])


def dense(K: Tensor, y: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean and covariance at the first `count` rows of a GP with covariance K [t + n], noise included for the rest."""
    A_inverse = torch.linalg.inv(K[count:, count:])
    gain = K[:count, count:] @ A_inverse
    return gain @ y, K[:count, :count] - gain @ K[count:, :count]


def oracle(run: Run, inner: Any, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of f at X from n x n matrices, or from the explicit covariance of the weights."""
    train, t = run.problem.train, len(X)
    if run.method.key == "subset-of-data":
        train = train.rows(run.trace[-1].step.state.inducing)
    joined, noise = torch.cat([X, train.X]), inner.noise_variance * torch.eye(len(train)).to(X)
    if isinstance(inner, FeaturePosterior):
        Phi = inner.features(joined).T
        Phi = Phi if inner.V is None else Phi @ inner.V
        C = weights_covariance(inner.weights)
        if run.method.key not in ("grief-mcmc",):  # whose weights are not those of a regression with one noise
            K = Phi @ Phi.T
            K[t:, t:] += noise
            return dense(K, train.y, t)
        return Phi[:t] @ inner.weights.mean, Phi[:t] @ C @ Phi[:t].T
    K = inner.kernel(inner.theta, joined, joined)
    if isinstance(inner, RowsPosterior | StatesPosterior):
        mean = K[:t, t:] @ run.trace[-1].step.state.alpha if isinstance(inner, UnsolvedPosterior) else None
        K[t:, t:] += noise
        exact, cov = dense(K, train.y, t)
        return (exact, cov) if mean is None else (mean, cov + torch.outer(exact - mean, exact - mean))
    if isinstance(inner, NearestRowsPosterior):
        K[t:, t:] += noise
        errors = torch.cat([torch.eye(t), torch.zeros(t, len(train))], 1).to(K)  # of f(x) less its prediction
        distances = torch.cdist(X / inner.lengths, train.X / inner.lengths)
        for i, near in enumerate(t + distances.argsort(1)[:, : inner.neighbours]):
            errors[i, near] = -torch.linalg.solve(K[near][:, near], K[near, i])
        return -errors[:, t:] @ train.y, errors @ K @ errors.T
    K_mm, K_m = inner.kernel(inner.theta, inner.Z, inner.Z), inner.kernel(inner.theta, inner.Z, joined)
    if run.method.key == "svgp":
        K_mm.diagonal().add_(run.method.jitter * inner.noise_variance)
        B = K_m[:, :t].T @ torch.linalg.inv(torch.linalg.cholesky(K_mm)).T
        C = weights_covariance(inner.weights)
        return B @ inner.weights.mean, K[:t, :t] - B @ B.T + B @ C @ B.T
    Q = K_m.T @ torch.linalg.inv(K_mm) @ K_m
    if run.method.key == "fitc":
        noise = noise + torch.diag((K - Q).diagonal()[t:])
    A = Q.clone()
    A[t:, t:] += noise
    mean, cov = dense(A, train.y, t)
    return mean, cov + K[:t, :t] - Q[:t, :t]


def weights_covariance(weights: Any) -> Tensor:
    eye = torch.eye(len(weights.mean)).to(weights.mean)
    return weights.half(eye).T @ weights.half(eye)


def inner_of(run: Run) -> Any:
    return run.posterior().inner


def test_mean_variance_and_covariance_equal_dense_algebra(run: Run):
    inner, X = inner_of(run), places(run)
    if isinstance(inner, MarginalPosterior):
        with pytest.raises(PosteriorError, match="no covariance between rows"):
            inner.cov(X)
        return

    mean, cov = oracle(run, inner, X)

    close: dict[str, float] = {"rtol": 1e-6, "atol": 1e-7 if "admm" not in run.method.key else 1e-5}  # by iterations
    torch.testing.assert_close(inner.cov(X), cov, **close)
    torch.testing.assert_close(inner.cov(X[:2], X), cov[:2], **close)
    torch.testing.assert_close(inner.var(X), cov.diagonal(), **close)
    torch.testing.assert_close(inner(X).mean, mean, **close)
    torch.testing.assert_close(inner.mean(X), mean, **close)


def test_gradients_are_those_of_finite_differences_in_the_units_of_the_file(run: Run):
    posterior, h = run.posterior(), 1e-4
    if isinstance(posterior.inner, MarginalPosterior):
        with pytest.raises(PosteriorError, match="no derivatives"):
            posterior.gradient(run.problem.train.X)
        return
    d = run.problem.train.d
    X = run.problem.train.X[:4] * 0.3 + torch.tensor([0.51, 0.47], dtype=torch.float64)[:d]

    gradient = posterior.gradient(X)

    for q in range(d):
        step = h * torch.eye(d, dtype=torch.float64)[q]
        (mean, var), (mean_0, var_0) = posterior(X + step), posterior(X - step)
        torch.testing.assert_close(gradient.mean[:, q], (mean - mean_0) / (2 * h), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(gradient.var[:, q], (var - var_0) / (2 * h), rtol=1e-3, atol=1e-4)
    assert float(gradient.mean.abs().max()) > 1e-3


def test_a_pickled_posterior_predicts_the_same(run: Run):
    posterior = run.posterior(of="y")
    if isinstance(posterior.inner, MarginalPosterior):
        pytest.skip("a plain function cannot be pickled")
    X = run.problem.train.X[:3]

    unpickled = pickle.loads(pickle.dumps(posterior))

    assert torch.equal(unpickled(X).var, posterior(X).var)
    assert len(unpickled.columns) == 0


KINDS = ["cholqr", "svgp", "ml", "grief", "grief-mcmc", "scgd"]


@pytest.mark.parametrize("shift", [0.0, 4e3])
@pytest.mark.parametrize("key", KINDS)
def test_samples_and_paths_have_the_moments_of_the_joint_distribution(key: str, shift: float):
    split = moved(data.load(small_spec(key, d=2).data, split=0), shift, 7.0) if shift else None
    run = small_spec(key, d=2).open(data=split) if shift else small_spec(key, d=2).open()
    run.finish(steps=8)
    posterior = run.posterior()
    scale = run.problem.train.scale
    assert scale is not None
    X = places(run, 4) * scale.x_sd + scale.x_mean
    mean, cov = posterior.mean(X), posterior.cov(X)
    sd = cov.diagonal().sqrt()

    for values in (posterior.sample(X, DRAWS, seed=1), posterior.paths(DRAWS, seed=1)(X)):
        standard = (values - mean) / sd
        assert values.shape == (DRAWS, 4)
        assert float(standard.mean(0).abs().max()) < 4.5 / DRAWS**0.5
        torch.testing.assert_close(torch.cov(standard.T), cov / torch.outer(sd, sd), rtol=0, atol=0.12)

    assert torch.equal(posterior.paths(3, seed=5)(X), posterior.paths(3, seed=5)(X))
    assert not torch.equal(posterior.sample(X, 3, seed=5), posterior.sample(X, 3, seed=6))
    noisy = posterior.sample(X, DRAWS, noise=True)
    torch.testing.assert_close(noisy.var(0), posterior.var(X, noise=True), rtol=0.12, atol=0)
    assert float(posterior.var(X, noise=True)[0] - posterior.var(X)[0]) == pytest.approx(posterior.noise_variance)


@pytest.mark.parametrize("key", ["se", "se-ard", "matern12", "matern32-ard", "matern52", "rq-ard", "periodic", "lp"])
def test_functions_of_the_prior_have_the_covariance_of_the_kernel(key: str):
    check_prior(key)


@pytest.mark.parametrize("key", ["linear", "linear-ard", "se + linear", "se-ard * periodic", "(se + linear) * linear"])
def test_functions_of_composite_priors_have_the_covariance_of_the_kernel(key: str):
    check_prior(key)


def check_prior(text: str) -> None:
    kernel, X = kernels.make(text, d=2), torch.rand(4, 2, generator=torch.Generator().manual_seed(1)).double() * 2
    theta = torch.linspace(-0.4, 0.3, len(kernel.names), dtype=torch.float64)
    K = kernel(theta, X, X)
    total = torch.zeros_like(K)
    for seed in range(4):
        values = prior_paths(kernel, theta, 1500, torch.Generator().manual_seed(seed))(X)
        total += values.T @ values / 6000
    root = K.diagonal().sqrt()
    torch.testing.assert_close(total / torch.outer(root, root), K / torch.outer(root, root), rtol=0, atol=0.09)


def test_a_path_passes_through_rows_whose_noise_is_small_also_on_hard_scales():
    X = torch.linspace(0, 1, 40, dtype=torch.float64)[:, None] * 1e4 + 5e5
    y = torch.sin(X[:, 0] / 1e3)
    kernel = kernels.make("se", 1)
    theta = torch.tensor([0.0, math.log(1.0e3), math.log(1e-3)], dtype=torch.float64)
    train = Dataset(X, y)
    for posterior in (
        exact_gp_posterior(kernel, theta, train),
        nystrom_posterior(kernel, theta, X, nystrom(kernel, theta, train, X)),
    ):
        paths = posterior.paths(5, seed=0)(X)
        assert float((paths - y).abs().max()) < 1e-2
        gap = torch.tensor([[5.3e5]], dtype=torch.float64)
        assert posterior.paths(400, seed=0)(gap).std() > 0.5  # far from the rows it is the prior


@pytest.mark.parametrize("key", ["se", "matern32", "matern52-ard"])
@pytest.mark.parametrize("ratio", [1e2, 1e8])
def test_paths_between_rows_almost_without_noise_spread_as_far_as_the_posterior(key: str, ratio: float):
    """With frequencies of the spectral density alone their sd was .3 of that of the posterior, for matern32."""
    draw = torch.Generator().manual_seed(0)
    X, new = torch.rand(60, 1, generator=draw).double(), torch.rand(40, 1, generator=draw).double()
    theta = torch.tensor([0.0, math.log(0.4), -0.5 * math.log(ratio)], dtype=torch.float64)
    posterior = exact_gp_posterior(kernels.make(key, 1), theta, Dataset(X, torch.sin(5.0 * X[:, 0])))

    paths = torch.cat([posterior.paths(256, seed=seed)(new) for seed in range(3)])

    shares = paths.std(0) / posterior(new)[1].sqrt()
    assert 0.93 < float(shares.median()) < 1.07
    assert 0.8 < float(shares.min()) <= float(shares.max()) < 1.2


@pytest.mark.parametrize("key", ["cholqr", "ml"])
def test_a_joint_band_contains_whole_functions_as_often_as_it_says(key: str):
    posterior, X = small_run(key, d=2, steps=6).posterior(), np.random.default_rng(1).uniform(size=(60, 2))

    band = joint_band(posterior, X, 0.9)

    samples, mean, sd = posterior.sample(X, 4000, seed=9), posterior.mean(X), posterior.sd(X)
    inside = ((samples >= band.lower) & (samples <= band.upper)).all(1).double().mean()
    marginal = ((samples - mean).abs() <= 1.645 * sd).all(1).double().mean()
    assert float(inside) == pytest.approx(0.9, abs=0.03)
    assert float(marginal) < 0.7
    torch.testing.assert_close(band.upper - mean, band.factor * sd)
    with pytest.raises(SettingError, match=r"level is 1\.0"):
        joint_band(posterior, X, 1.0)
    none = joint_band(posterior, X[:0])
    assert (len(none.lower), len(none.upper)) == (0, 0)
    assert math.isnan(none.factor)


def test_quantiles_blocks_and_empty_inputs():
    run = small_run("cholqr", d=2, steps=4)
    posterior, X = run.posterior(of="y"), np.random.default_rng(0).uniform(size=(9, 2))

    low, middle, high = posterior.quantile(X, (0.025, 0.5, 0.975))

    torch.testing.assert_close(middle, posterior.mean(X))
    torch.testing.assert_close(high - low, 2 * 1.959963984540054 * posterior.sd(X))
    assert posterior.quantile(X, 0.9).shape == (9,)
    assert bool((posterior.quantile(X, 0.9, noise=False) < posterior.quantile(X, 0.9)).all())
    assert posterior.cov(X[:0]).shape == (0, 0)
    assert posterior.cov(X[:0], X).shape == (0, 9)
    assert posterior(X[:0]).mean.shape == posterior.var(X[:0]).shape == posterior.mean(X[:0]).shape == (0,)
    assert posterior.paths(2)(X[:0]).shape == (2, 0)
    assert posterior.gradient(X[:0]).mean.shape == (0, 2)
    noise = posterior.cov(X) - posterior.cov(X, noise=False)
    torch.testing.assert_close(
        noise, posterior.noise_variance * torch.eye(9, dtype=torch.float64), atol=1e-9, rtol=1e-6
    )


def test_what_cannot_be_answered_is_a_sentence():
    run = small_run("cholqr", d=2, steps=2)
    posterior = run.posterior()

    with pytest.raises(SettingError, match="probabilities between 0 and 1"):
        posterior.quantile(np.zeros((1, 2)), 1.5)
    with pytest.raises(SettingError, match="probabilities between 0 and 1"):
        posterior.quantile(np.zeros((1, 2)), [[0.1], [0.9]])  # type: ignore[list-item]
    with pytest.raises(PosteriorError, match="at most 5,000 rows, or draw functions"):
        posterior.sample(np.zeros((5001, 2)))
    with pytest.raises(SettingError, match="size is 0"):
        posterior.paths(0)
    with pytest.raises(SettingError, match="seed is None"):
        posterior.sample(np.zeros((1, 2)), seed=None)  # type: ignore[arg-type]


def test_strings_have_joint_samples_but_no_paths_and_no_gradients():
    texts, kernel = ["abab", "abba", "bbbb", "aaab"], kernels.make("spectrum")
    train = Dataset(texts, torch.tensor([1.0, 0.5, -1.0, 0.7], dtype=torch.float64))
    theta = kernel.start(train)
    posterior = exact_gp_posterior(kernel, theta, train)

    assert posterior.sample(["abbb", "aaaa"], 3).shape == (3, 2)
    with pytest.raises(PosteriorError, match="'spectrum' has no random features"):
        posterior.paths()
    with pytest.raises(PosteriorError, match="need numeric columns"):
        posterior.gradient(texts)


def test_the_prior_is_a_posterior_without_rows():
    kernel, X = kernels.make("se", 1), torch.linspace(0, 1, 4, dtype=torch.float64)[:, None]
    theta = torch.tensor([0.3, 0.0, -1.0], dtype=torch.float64)
    prior = PriorPosterior(kernel, theta)

    torch.testing.assert_close(prior.cov(X), kernel(theta, X, X))
    assert prior.mean(X).tolist() == prior(X).mean.tolist() == [0.0] * 4
    torch.testing.assert_close(prior.var(X, noise=True), kernel.diag(theta, X) + math.exp(-2.0))
    assert prior.noise_variance == pytest.approx(math.exp(-2.0))
    assert isinstance(small_run("sgpr", steps=2).posterior(at=0).inner, PriorPosterior)
    assert isinstance(small_run("sgpr", steps=2).posterior().inner, InducingPosterior)


def test_a_covariance_larger_than_the_memory_of_the_machine_is_refused(monkeypatch: pytest.MonkeyPatch):
    run = small_run("subset-of-data")
    posterior, X = run.posterior(), np.linspace(0.0, 1.0, 150).reshape(30, 5)
    monkeypatch.setattr("gpexplorer.posteriors.base.machine_memory", lambda: 4.0 * 8 * 20 * 30)

    assert posterior.cov(X[:20], X).shape == (20, 30)
    with pytest.raises(PosteriorError, match=r"of 21 and 30 rows takes at least 2.02e-05 GB .* fewer rows"):
        posterior.cov(X[:21], X)
    with pytest.raises(PosteriorError, match="The covariance of 30 and 30 rows takes"):
        posterior.inner.cov(posterior.rows(X))


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_many_blocks_of_rows_have_the_moments_of_one_and_their_gradients(
    needs_gradient: bool, monkeypatch: pytest.MonkeyPatch
):
    posterior = small_run("subset-of-data").posterior(of="y").inner
    X = torch.linspace(-1.0, 2.0, 155, dtype=torch.float64).reshape(31, 5).requires_grad_(needs_gradient)
    at_once = posterior(X)
    monkeypatch.setattr(type(posterior), "_blocks", lambda self, X: iter([slice(0, 9), slice(9, 18), slice(18, 31)]))
    in_blocks = posterior(X)

    for ours, theirs in zip(in_blocks, at_once, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
        assert ours.requires_grad == needs_gradient
    if needs_gradient:
        by_blocks, by_all = (
            torch.autograd.grad(sum(part.sum() for part in moments), X) for moments in (in_blocks, at_once)
        )
        torch.testing.assert_close(by_blocks, by_all, rtol=1e-9, atol=1e-12)
