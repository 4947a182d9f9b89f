"""A posterior as a model of BoTorch: the joint moments of groups of candidates, and their derivatives."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gpexplorer import Estimator, Run, Spec
from gpexplorer.errors import SettingError
from gpexplorer.estimator import botorch_model as wrapped
from gpexplorer.estimator.botorch_model import botorch_model, joint_moments
from gpexplorer.posteriors import Of


@pytest.fixture(scope="module")
def run() -> Run:
    run = Spec("cholqr", {"num_inducing": 6}, data={"name": "hypercube", "n": 40, "d": 2}).open()
    run.finish(steps=8)
    return run


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("shape", [(3, 2), (4, 1, 2), (2, 5, 3, 2)])
def test_moments_are_those_of_each_group(
    run: Run, shape: tuple[int, ...], noise: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(wrapped, "MOST_ROWS", 7)  # so that groups are taken a few at a time
    posterior = run.posterior()
    X = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    mean, covariance = joint_moments(posterior, X, noise)

    assert mean.shape == shape[:-1]
    assert covariance.shape == (*shape[:-1], shape[-2])
    groups = zip(X.reshape(-1, *shape[-2:]), mean.reshape(-1, shape[-2]), strict=True)
    for (rows, own), K in zip(groups, covariance.reshape(-1, shape[-2], shape[-2]), strict=True):
        assert torch.allclose(own, posterior.mean(rows))
        assert torch.allclose(K, posterior.cov(rows, noise=noise), atol=1e-12)


@pytest.fixture(scope="module")
def skewed() -> Estimator:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (50, 2)) * [1.0, 40.0] + 500.0
    y = 3e3 * np.exp(np.sin(2 * (X[:, 0] - 500.0)) + 0.3 * rng.standard_normal(50))
    return Estimator("ml", settings={"evaluations": 10}, target_transform="log").fit(X, y)


@pytest.mark.parametrize("of", ["f", "y"])
@pytest.mark.parametrize("noise", [False, True])
def test_moments_of_a_transformed_target_are_those_of_its_samples(skewed: Estimator, noise: bool, of: Of):
    posterior = skewed.posterior_.asked_for(of)
    X = torch.tensor([[499.2, 480.0], [499.3, 482.0], [501.0, 530.0]], dtype=torch.float64)

    mean, covariance = joint_moments(posterior, X[None], noise)
    alone = joint_moments(posterior, X[:, None], noise)

    samples = posterior.sample(X, 40_000, seed=1, noise=noise)
    sd = samples.std(0)
    assert torch.allclose(mean[0] / sd, samples.mean(0) / sd, atol=0.02)
    assert torch.allclose(covariance[0] / sd.outer(sd), samples.T.cov() / sd.outer(sd), atol=0.06)
    assert torch.allclose(alone[0][:, 0], mean[0])
    assert torch.allclose(alone[1][:, 0, 0], covariance[0].diagonal())
    assert covariance[0, 0, 1] > 0.1 * covariance[0, 0, 0]


def test_derivatives_of_the_moments_of_a_transformed_target_are_those_of_finite_differences(skewed: Estimator):
    X = torch.tensor([[[499.2, 480.0], [501.0, 530.0]]], dtype=torch.float64, requires_grad=True)
    step = torch.zeros_like(X)
    step[0, 0, 0] = 1e-4

    for noise in (False, True):
        for part in (0, 1):
            (by_X,) = torch.autograd.grad(joint_moments(skewed.posterior_, X, noise)[part].sum(), X)
            ends = [joint_moments(skewed.posterior_, X.detach() + s * step, noise)[part].sum() for s in (1, -1)]
            assert float(by_X[0, 0, 0]) == pytest.approx(float(ends[0] - ends[1]) / 2e-4, rel=1e-4)


def test_derivatives_go_through_to_the_candidates(run: Run):
    X = torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
    mean, covariance = joint_moments(run.posterior(), X, False)

    (by_mean,) = torch.autograd.grad(mean.sum(), X, retain_graph=True)
    (by_cov,) = torch.autograd.grad(covariance.sum(), X)

    assert torch.allclose(by_mean, run.posterior().gradient(X.detach()).mean)
    assert by_cov.abs().min() > 0


def test_botorch_receives_the_moments_or_is_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch):
    calls: list[Any] = []
    models = {
        "botorch": SimpleNamespace(),
        "botorch.models": SimpleNamespace(),
        "botorch.posteriors": SimpleNamespace(),
    }
    models["botorch.models.model"] = SimpleNamespace(Model=torch.nn.Module)
    models["botorch.posteriors.gpytorch"] = SimpleNamespace(GPyTorchPosterior=calls.append)
    for name, module in models.items():
        monkeypatch.setitem(sys.modules, name, module)
    X = torch.rand(4, 2, dtype=torch.float64)

    model = botorch_model(run.posterior())
    model.posterior(X)

    for noise in (torch.full((4, 1), 0.7), torch.tensor([[0.1], [0.0], [2.0], [0.3]]), torch.tensor([[0.5]])):
        model.posterior(X.expand(3, 4, 2), output_indices=[0], observation_noise=noise)
        expected = run.posterior().cov(X) + torch.diag(noise[:, 0].expand(4).double())
        assert torch.allclose(calls[-1].covariance_matrix, expected.expand(3, 4, 4))
    for yes in (True, np.True_, torch.tensor(True)):  # its own noise
        model.posterior(X, observation_noise=yes)
        assert torch.allclose(calls[-1].covariance_matrix, run.posterior(of="y").cov(X))
    for wrong in ([1], [0, 1], []):
        with pytest.raises(SettingError, match="a posterior has one output"):
            model.posterior(X, output_indices=wrong)
    assert model.num_outputs == 1
    assert torch.allclose(calls[0].mean, run.posterior().mean(X))
    assert torch.allclose(calls[0].covariance_matrix, run.posterior().cov(X))
    monkeypatch.setitem(sys.modules, "botorch.models.model", None)
    with pytest.raises(SettingError, match=r"gpexplorer\[botorch\]"):
        botorch_model(run.posterior())
