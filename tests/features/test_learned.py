"""Learned features as a kernel and as features of a regression, against their formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from gpexplorer.features.deep import Network, Scaled, views
from gpexplorer.features.learned import LearnedFeatures, LearnedKernel
from gpexplorer.features.random_fourier import RandomFourier
from gpexplorer.problem import Dataset

MAPS = {"network": lambda: Network([3, 5, 4], "tanh"), "scaled": lambda: Scaled(3, True)}


def inputs(n: int) -> Tensor:
    return 1.5 + torch.randn(n, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def parameters(map_: Any, *own: float) -> Tensor:
    """Those of a feature map, then these."""
    return torch.cat([map_.start(3), torch.tensor(own, dtype=torch.float64)])


@pytest.mark.parametrize("name", MAPS)
def test_the_linear_kernel_is_the_product_of_the_features(name: str):
    map_, X, Z = MAPS[name](), inputs(6), inputs(9)[6:]
    theta = parameters(map_, 0.4, -1.0)
    kernel = LearnedKernel(map_, linear=True)
    x, z = (map_.layers(views(theta[: map_.size], map_.shapes), rows)[-1] for rows in (X, Z))
    torch.testing.assert_close(kernel(theta, X, Z), math.exp(0.8) * x @ z.T)
    torch.testing.assert_close(kernel(theta, X, X), math.exp(0.8) * x @ x.T)
    torch.testing.assert_close(kernel.diag(theta, X), kernel(theta, X, X).diagonal())
    features = LearnedFeatures(map_, None, theta)
    torch.testing.assert_close(features(X).T @ features(Z), kernel(theta, X, Z))
    assert features(X).shape == (len(features), 6) == (map_.width, 6)


@pytest.mark.parametrize("name", MAPS)
def test_the_gaussian_kernel_has_one_lengthscale_and_a_magnitude(name: str):
    map_, X, Z = MAPS[name](), inputs(6), inputs(9)[6:]
    theta = parameters(map_, -0.3, 0.4, -1.0)
    kernel = LearnedKernel(map_, linear=False)
    x, z = (map_.layers(views(theta[: map_.size], map_.shapes), rows)[-1] for rows in (X, Z))
    exact = math.exp(0.8) * torch.exp(-0.5 * (x[:, None] - z[None]).square().sum(2) / math.exp(-0.6))
    torch.testing.assert_close(kernel(theta, X, Z), exact)
    torch.testing.assert_close(kernel(theta, X, X).diagonal(), kernel.diag(theta, X))
    assert kernel.diag(theta, X).tolist() == pytest.approx([math.exp(0.8)] * 6)
    waves = RandomFourier(map_.width, 4000, "orthogonal", 0).to(theta)
    features = LearnedFeatures(map_, waves, theta)
    assert features(X).shape == (len(features), 6)
    torch.testing.assert_close(features(X).T @ features(Z), exact, rtol=0.0, atol=0.1)


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("name", MAPS)
def test_random_functions_have_the_covariance_of_the_kernel(name: str, linear: bool):
    map_, X = MAPS[name](), inputs(5)
    theta = parameters(map_, *([] if linear else [0.6]), 0.2, -1.0)
    kernel = LearnedKernel(map_, linear)
    draws = kernel.random_features(theta, 100_000, torch.Generator().manual_seed(0))(X)
    wanted = kernel(theta, X, X)
    scale = float(wanted.abs().max())
    torch.testing.assert_close(draws @ draws.T / 100_000, wanted, rtol=0.0, atol=0.03 * scale)


@pytest.mark.parametrize("linear", [True, False])
def test_a_kernel_starts_at_the_feature_map_of_seed_0_with_all_scales_one(linear: bool):
    map_ = Network([3, 5, 4], "tanh")
    kernel = LearnedKernel(map_, linear)
    theta = kernel.start(Dataset(inputs(4), inputs(4)[:, 0]))
    assert torch.equal(theta[: map_.size], map_.start(0))
    assert theta[map_.size :].tolist() == [0.0] * (2 if linear else 3)
    assert len(kernel.names) == len(theta)
    assert kernel.names[0] == "weight 1"
    assert kernel.names[map_.size :] == ("magnitude", "noise") if linear else ("lengthscale", "magnitude", "noise")
