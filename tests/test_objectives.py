"""The sparse objectives and posterior against n x n algebra, autograd and GPyTorch."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.errors import NotPositiveDefinite
from gpexplorer.linalg.cholesky import cholesky
from gpexplorer.objectives import evidence, nystrom, nystrom_gradient
from gpexplorer.posteriors import nystrom_posterior
from gpexplorer.problem import Dataset
from oracles import dense_objective, dense_terms, exact_nlml, exact_prediction, projected_prediction


def case(shift: float = 0.0, n: int = 80, key: str = "se-ard"):
    rng = torch.Generator().manual_seed(2)
    X = 4.0 * torch.rand(n, 2, generator=rng, dtype=torch.float64) + shift
    y = torch.sin(2 * (X[:, 0] - shift)) + torch.cos(X[:, 1] - shift)
    y = y + 0.1 * torch.randn(n, generator=rng, dtype=torch.float64)
    kernel = kernels.make(key, 2)
    theta = torch.tensor([0.1, -0.2, -0.4, -1.5], dtype=torch.float64)
    return kernel, theta, Dataset(X, y), X[torch.randperm(n, generator=rng)[:12]]


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_terms_are_the_dense_ones(shift: float) -> None:
    kernel, theta, train, Z = case(shift)
    terms = nystrom(kernel, theta, train, Z).terms
    for term, dense in zip(terms, dense_terms(kernel, theta, train.X, train.y, Z), strict=True):
        assert term == pytest.approx(float(dense), rel=1e-9)


@pytest.mark.parametrize("objective", ["vfe", "tight-vfe", "pp"])
@pytest.mark.parametrize("key", ["se-ard", "matern32-ard", "se+matern52"])
@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_gradient_is_autograd_of_the_dense_objective(objective: str, key: str, shift: float) -> None:
    kernel, theta, train, Z = case(shift, key=key)
    theta = torch.cat([theta[:1].repeat(kernel.size), theta[-1:]]) if key == "se+matern52" else theta
    at = theta.clone().requires_grad_(True)
    (truth,) = torch.autograd.grad(dense_objective(kernel, at, train.X, train.y, Z, objective), at)
    _, gradient = nystrom_gradient(kernel, theta, train, Z, objective)
    assert torch.allclose(gradient, truth, rtol=1e-6, atol=1e-6 * float(truth.abs().max()))


@pytest.mark.parametrize("key", ["se-ard", "matern32-ard", "se+matern52"])
@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_the_evidence_and_its_gradient_are_those_of_dense_algebra(key: str, shift: float) -> None:
    kernel, theta, train, _ = case(shift, n=40, key=key)
    theta = torch.cat([theta[:1].repeat(kernel.size), theta[-1:]]) if key == "se+matern52" else theta
    leaf = theta.clone().requires_grad_(True)
    expected = exact_nlml(kernel, leaf, train.X, train.y)
    (gradient,) = torch.autograd.grad(expected, leaf)

    value, computed = evidence(kernel, theta, train)

    assert value == pytest.approx(float(expected.detach()), rel=1e-9)
    torch.testing.assert_close(computed, gradient, rtol=1e-7, atol=1e-7 * float(gradient.abs().max()))


def test_all_points_inducing_is_the_exact_gp() -> None:
    kernel, theta, train, _ = case(n=30)
    exact = float(exact_nlml(kernel, theta, train.X, train.y))
    factors = nystrom(kernel, theta, train, train.X)
    assert factors.terms.total("vfe") == pytest.approx(exact, rel=1e-6)
    assert factors.terms.total("pp") == pytest.approx(exact, rel=1e-6)
    mean, var = nystrom_posterior(kernel, theta, train.X, factors)(train.X + 0.3)
    true_mean, true_var = exact_prediction(kernel, theta, train.X, train.y, train.X + 0.3)
    assert torch.allclose(mean, true_mean, atol=1e-6)
    assert torch.allclose(var, true_var, atol=1e-6)


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_vfe_bounds_the_evidence_and_decreases_with_more_points(shift: float) -> None:
    kernel, theta, train, Z = case(shift)
    evidence = float(exact_nlml(kernel, theta, train.X, train.y))
    values = [nystrom(kernel, theta, train, Z[:m]).terms.total("vfe") for m in (2, 5, 12)]
    assert values[0] > values[1] > values[2] > evidence


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize("log_noise", [-1.5, -5.4])  # the second: signal variance / noise variance = 6e4
def test_the_tight_bound_lies_between_vfe_and_the_evidence_and_equals_vfe_where_nothing_is_unexplained(
    shift: float, log_noise: float
) -> None:
    kernel, theta, train, Z = case(shift)
    theta[-1] = log_noise
    evidence = float(exact_nlml(kernel, theta, train.X, train.y))
    for m in (2, 5, 12):
        vfe = nystrom(kernel, theta, train, Z[:m])
        tight = nystrom(kernel, theta, train, Z[:m], "tight-vfe")
        dense = float(dense_objective(kernel, theta, train.X, train.y, Z[:m], "tight-vfe"))
        assert tight.terms.total("tight-vfe") == pytest.approx(dense, rel=1e-9)
        assert evidence < tight.terms.total("tight-vfe") < vfe.terms.total("vfe")
        assert tight.terms[:2] == vfe.terms[:2]
    explained = Dataset(Z, train.y[: len(Z)])  # the inducing inputs are the rows themselves, so that D = 0
    values = [nystrom(kernel, theta, explained, Z, name).terms.total(name) for name in ("vfe", "tight-vfe")]
    assert values[1] == pytest.approx(values[0], abs=1e-9)


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_prediction_is_the_textbook_one(shift: float) -> None:
    kernel, theta, train, Z = case(shift)
    Xs = train.X[:20] + 0.37
    mean, var = nystrom_posterior(kernel, theta, Z, nystrom(kernel, theta, train, Z))(Xs)
    true_mean, true_var = projected_prediction(kernel, theta, train.X, train.y, Z, Xs)
    assert torch.allclose(mean, true_mean, atol=1e-7)
    assert torch.allclose(var, true_var, atol=1e-7)
    assert float(var.min()) > 0.0


def test_vfe_is_gpytorch_sgpr_bound() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gpytorch
    kernel, theta, train, Z = case(n=50)
    n, s2 = len(train), math.exp(2 * float(theta[-1]))

    class Peer(gpytorch.models.ExactGP):
        def __init__(self, likelihood) -> None:
            super().__init__(train.X, train.y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2))
            self.covar_module = gpytorch.kernels.InducingPointKernel(base, Z.clone(), likelihood)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    peer = Peer(likelihood).double()
    likelihood.noise = s2
    peer.covar_module.base_kernel.outputscale = math.exp(2 * float(theta[0]))
    peer.covar_module.base_kernel.base_kernel.lengthscale = theta[1:3].exp()
    peer.train()
    with warnings.catch_warnings(), gpytorch.settings.fast_computations(False, False, False):
        warnings.simplefilter("ignore")
        bound = n * float(gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, peer)(peer(train.X), train.y))
    ours = -nystrom(kernel, theta, train, Z).terms.total("vfe") - n / 2 * math.log(2 * math.pi)
    assert ours == pytest.approx(bound, rel=1e-5)


def test_cholesky_reports_its_jitter_and_gives_up_with_a_sentence() -> None:
    ones = torch.ones(4, 4, dtype=torch.float64)
    assert cholesky(ones + torch.eye(4, dtype=torch.float64), "A").jitter == 0.0
    result = cholesky(ones, "A")
    assert 0.0 < result.jitter < 1e-12
    assert torch.allclose(result.L @ result.L.T, ones, atol=1e-6)
    with pytest.raises(NotPositiveDefinite, match=r"K_mm \[4 x 4\] is not positive definite after jitter"):
        cholesky(-ones, "K_mm")
    with pytest.raises(NotPositiveDefinite, match="not finite"):
        cholesky(ones * math.nan, "K_mm")
