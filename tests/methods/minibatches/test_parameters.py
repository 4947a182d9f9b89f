"""The parameters in one vector: their places, the gradient of a minibatch by autograd, and the bounds."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer.methods.minibatches.gradients import Parameters
from gpexplorer.methods.minibatches.model import Model
from gpexplorer.problem import Dataset, Problem
from oracles_minibatches import method, model, problem


def begun(shift: float = 0.0) -> tuple[Model, Parameters]:
    """Arbitrary parameters of a small network, with two numbers that the optimiser moves as well."""
    feature_map = model(at=problem(shift=shift))
    w = torch.linspace(-1.0, 2.0, feature_map.D, dtype=torch.float64)
    theta = feature_map.start() + 0.1 * torch.cos(torch.arange(float(feature_map.size), dtype=torch.float64))
    return feature_map, Parameters(feature_map, w, theta, torch.tensor([5.0, 7.0], dtype=torch.float64))


def test_weights_parameters_and_the_rest_follow_each_other_in_one_vector():
    feature_map, parameters = begun()
    D, p = feature_map.D, feature_map.size

    assert (parameters.size, len(parameters.x), len(parameters.g)) == (D + p, D + p + 2, D + p + 2)
    torch.testing.assert_close(torch.cat([parameters.w, parameters.theta, parameters.extra]), parameters.x)
    assert parameters.extra.tolist() == [5.0, 7.0]
    assert [len(part) for part in (parameters.w, parameters.g_w, parameters.theta)] == [D, D, p]
    parameters.g.copy_(torch.arange(D + p + 2))
    assert parameters.g_extra.tolist() == [D + p, D + p + 1]
    assert parameters.g_w.tolist() == list(range(D))
    assert sum(part.numel() for part in parameters.into) == p
    assert float(parameters.into[-1]) == D + p - 1
    assert Parameters(feature_map, parameters.w, parameters.theta).extra.numel() == 0


@pytest.mark.parametrize("shift", [0.0, 1.5])
@pytest.mark.parametrize("solved", [False, True])
def test_the_gradient_of_a_minibatch_is_that_of_autograd(solved: bool, shift: float):
    feature_map, parameters = begun(shift)
    X, y = feature_map.rows(torch.arange(8))
    R = torch.randn(feature_map.D, feature_map.D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    M, scale, n = R + R.T, 0.3, feature_map.n
    w, theta = (part.clone().requires_grad_() for part in (parameters.w, parameters.theta))
    Phi, s2 = feature_map.features(feature_map.parts(theta), X).Phi, (2.0 * theta[-1]).exp()
    fit = (Phi @ w - y).square().sum() / s2
    F = n / 8 * Phi.T @ Phi + s2 * torch.eye(feature_map.D, dtype=torch.float64)
    ((n / 8 * fit + w @ w + (n - feature_map.D) * s2.log() + scale * (M * F).sum()) / (2 * n)).backward()

    parameters.g.fill_(0.25)
    largest = parameters.write_gradient(feature_map.features(parameters.parts, X), y, M, scale, solved)

    assert float(largest) == pytest.approx(float(fit.detach()))
    torch.testing.assert_close(parameters.g[feature_map.D : parameters.size], theta.grad)
    torch.testing.assert_close(parameters.g_w, torch.full_like(w, 0.25) if solved else w.grad)


def test_features_of_single_precision_take_a_matrix_of_double_precision():
    at = problem()
    train = Dataset(at.train.X.float(), at.train.y.float())
    gradients = []
    for feature_map in (Model(method("scgd"), at), Model(method("scgd"), Problem(train, at.kernel, at.theta.float()))):
        like = feature_map.start()
        parameters = Parameters(feature_map, torch.linspace(-1.0, 2.0, feature_map.D).to(like), like)
        X, y = feature_map.rows(torch.arange(8))
        M = torch.eye(feature_map.D, dtype=torch.float64) + 0.5
        parameters.write_gradient(feature_map.features(parameters.parts, X), y, M, 0.3)
        gradients.append(parameters.g.double())

    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


def test_the_noise_is_read_again_after_a_move_and_stays_above_its_floor():
    _, parameters = begun()
    floor = math.log(0.25)
    parameters.x[0], parameters.x[1] = 30.0, -30.0
    for log_sd, kept in ((-1.0, -1.0), (-1.3, -1.3), (-1.5, floor), (-9.0, floor), (2.0, 2.0)):
        parameters.theta[-1] = log_sd
        parameters.project(floor, 20.0)
        assert float(parameters.theta[-1]) == pytest.approx(kept)
        assert float(parameters.s2()) == pytest.approx(math.exp(2.0 * kept))
    assert (float(parameters.x[0]), float(parameters.x[1])) == (20.0, -20.0)
    assert parameters.extra.tolist() == [5.0, 7.0]
    parameters.theta[-1] = 1e6
    parameters.forget_noise()
    assert math.isfinite(float(parameters.s2()))
