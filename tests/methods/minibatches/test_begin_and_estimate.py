"""Where learning by minibatches begins, the rates on the way, and the objective that it reports."""

from __future__ import annotations

import math

import pytest
import torch

from oracles_minibatches import begun, method, model, problem


def test_the_noise_and_the_size_of_the_features_at_the_beginning_are_those_of_the_problem():
    at = problem()
    feature_map = model(at=at, kernel="gaussian")

    theta = feature_map.start()

    assert float(theta[-1]) == float(at.theta[-1])
    assert float(theta[-2]) == 0.0
    assert float(theta[-3]) == pytest.approx(0.5 * math.log(feature_map.map.width))
    assert torch.equal(theta[: feature_map.map.size], feature_map.map.start(feature_map.seed).to(theta))


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_the_features_have_the_mean_prior_variance_of_the_own_kernel(kernel: str):
    at = problem()
    feature_map = model(at=at, kernel=kernel)

    theta = feature_map.matched(feature_map.start())

    Phi = feature_map.features(feature_map.parts(theta), at.train.X).Phi
    wanted = at.kernel.diag(at.theta, at.train.X).mean()
    assert float(Phi.square().sum(1).mean()) == pytest.approx(float(wanted))
    assert torch.equal(theta[:-2], feature_map.start()[:-2])
    assert float(theta[-1]) == float(at.theta[-1])


def test_the_rate_follows_half_a_cosine_and_ends_at_zero():
    _, learner = begun(method("scgd", schedule="cosine"), problem())

    rates = [learner.scheduled_rate(t) for t in (0, learner.last // 2, learner.last, learner.last + 5)]

    half = 0.5 * learner.rate * (1.0 + math.cos(math.pi * (learner.last // 2) / learner.last))
    assert rates == pytest.approx([learner.rate, half, 0.0, 0.0])


def test_the_estimate_of_bsgd_is_the_mean_likelihood_of_its_minibatches_scaled_to_all_rows():
    feature_map, learner = begun(method("bsgd", batch_size=16), problem())

    values = []
    for t in range(3):
        (rows,) = learner.indices(t)
        X, y = feature_map.rows(rows)
        theta = learner.parameters.theta
        Phi = feature_map.features(feature_map.parts(theta), X).Phi
        A = Phi @ Phi.T + (2.0 * theta[-1]).exp() * torch.eye(16, dtype=y.dtype)
        values.append(0.5 * float(y @ torch.linalg.solve(A, y) + torch.logdet(A)) * feature_map.n / 16)
        learner.move(t)

    assert learner.estimate() == pytest.approx(sum(values) / 3)
    learner.move(3)
    assert learner.estimate() != pytest.approx(sum(values) / 3)  # the earlier minibatches no longer count
