"""A posterior as a model of BoTorch: the joint moments of groups of candidates, and their derivatives."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpexplorer import Run, Spec
from gpexplorer.errors import SettingError
from gpexplorer.estimator import botorch_model as wrapped
from gpexplorer.estimator.botorch_model import botorch_model, joint_moments


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

    assert model.num_outputs == 1
    assert torch.allclose(calls[0].mean, run.posterior().mean(X))
    assert torch.allclose(calls[0].covariance_matrix, run.posterior().cov(X))
    monkeypatch.setitem(sys.modules, "botorch.models.model", None)
    with pytest.raises(SettingError, match=r"gpexplorer\[botorch\]"):
        botorch_model(run.posterior())
