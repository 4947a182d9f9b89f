"""Learned feature maps: gradients against autograd, layouts, and starts that keep the size of what goes through."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpexplorer.features.deep import ACTIVATIONS, Network, Scaled, views


def inputs(n: int, d: int) -> Tensor:
    return 1.5 + torch.randn(n, d, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


MAPS = [*(Network([3, 7, 5], name) for name in ACTIVATIONS), Network([3, 4], "tanh"), Scaled(3, True), Scaled(3, False)]


@pytest.mark.parametrize("map_", MAPS)
def test_gradients_are_those_of_autograd(map_: Network | Scaled):
    alpha = (map_.start(1) + 0.1).requires_grad_()
    H = map_.layers(views(alpha, map_.shapes), inputs(6, 3))
    G = torch.randn(H[-1].shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    into = torch.full_like(alpha, torch.nan)
    with torch.no_grad():
        map_.pullback(views(alpha, map_.shapes), H, G, views(into, map_.shapes))

    assert H[-1].shape == (6, map_.width)
    torch.testing.assert_close(into, torch.autograd.grad((H[-1] * G).sum(), alpha)[0])


def test_a_network_is_the_torch_module_of_the_same_weights():
    net, X = Network([3, 8, 4], "relu"), inputs(5, 3)
    parts = views(net.start(0), net.shapes)
    layers = [torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4), torch.nn.ReLU()]
    module = torch.nn.Sequential(*layers).double()

    for parameter, part in zip(module.parameters(), parts, strict=True):
        parameter.data = part

    torch.testing.assert_close(net.layers(parts, X)[-1], module(X).detach())


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_start_keeps_the_size_of_what_goes_through(activation: str):
    net = Network([10, 256, 256], activation)

    Z = net.layers(views(net.start(3), net.shapes), inputs(200, 10) - 1.5)[-1]

    assert 0.3 < float(Z.square().mean()) < 4.0


def test_scaled_inputs_with_their_constant_are_bayesian_linear_regression():
    map_, X = Scaled(2, True), inputs(4, 2)
    alpha = torch.tensor([0.5, -1.0, 0.2], dtype=torch.float64)

    Z = map_.layers(views(alpha, map_.shapes), X)[-1]

    K = X @ torch.diag(torch.exp(2 * alpha[:2])) @ X.T + torch.exp(2 * alpha[2])
    torch.testing.assert_close(Z @ Z.T, K)
