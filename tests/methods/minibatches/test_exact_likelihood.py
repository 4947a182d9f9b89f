"""The exact objective of a finite kernel against n x n formulas."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer.errors import SettingError
from gpexplorer.methods.minibatches import exact_likelihood as exact_module
from gpexplorer.methods.minibatches.exact_likelihood import exact_gradient, exact_likelihood, exact_posterior
from gpexplorer.problem import Dataset, Problem
from oracles_minibatches import begun, dense, dense_prediction, method, model, problem

KINDS = [
    {},
    {"layers": 0},
    {"kernel": "gaussian"},
    {"kernel": "gaussian", "layers": 0, "frequencies": "plain"},
    {"width": 60, "layers": 1},
]


@pytest.mark.parametrize("settings", KINDS)
@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_the_likelihood_its_gradient_and_its_posterior_are_those_of_the_dense_gp(settings: dict, shift: float):
    feature_map = model(at=problem(shift=shift), **settings)
    theta = (feature_map.start() + 0.1).requires_grad_()
    want = dense(feature_map, theta)
    slope = torch.autograd.grad(want, theta)[0]

    with torch.no_grad():
        likelihood = exact_likelihood(feature_map, theta)
        gradient = exact_gradient(feature_map, theta, likelihood)
        X = torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        mean, var = exact_posterior(feature_map, theta.detach())(X)
        means, variances = dense_prediction(feature_map, theta.detach(), X)

    assert likelihood.value == pytest.approx(float(want.detach()))
    torch.testing.assert_close(gradient, slope, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(mean, means)
    torch.testing.assert_close(var, variances, rtol=1e-6, atol=1e-8)


def test_the_start_has_the_prior_variance_of_the_problems_kernel():
    for settings in KINDS:
        feature_map = model(**settings)
        theta = feature_map.matched(feature_map.start())

        Phi = feature_map.features(feature_map.parts(theta), feature_map.problem.train.X).Phi

        assert float(Phi.square().sum(1).mean()) == pytest.approx(1.0)
        assert float(theta[-1]) == -1.0


def test_rows_set_aside_are_not_learned_from():
    feature_map = model(validation=0.25)
    assert feature_map.n == 40
    aside = type(feature_map)(method("scgd"), problem(), 0.25)

    X, y = aside.rows(slice(None))
    validation_X, targets = aside.validation()

    assert (aside.n, len(targets)) == (30, 10)
    assert sorted(torch.cat([y, targets]).tolist()) == sorted(problem().train.y.tolist())
    assert not (X[:, None] == validation_X[None]).all(2).any()


def test_objects_are_refused_before_any_work():
    words = Problem(Dataset(["a", "b"], torch.zeros(2)), problem().kernel, problem().theta)

    with pytest.raises(SettingError, match="SCGD needs columns of numbers, but the inputs are str objects"):
        next(method("scgd").steps(words))


def test_in_single_precision_small_noise_leaves_the_likelihood_what_it_is():
    """n / s2 is 10^8 here: no float32 matrix holds both ends of F, and jitter would take the place of the noise."""
    task = problem(n=2000, noise=0.001)
    short = Problem(task.train.to("cpu", torch.float32), task.kernel, task.theta.float())
    wide, narrow = (model(at=at, kernel="gaussian", layers=0, num_features=60) for at in (task, short))
    theta = wide.start()
    theta[-1] = -5.5

    want, result = exact_likelihood(wide, theta), exact_likelihood(narrow, theta.float())

    assert result.model.jitter == 0.0
    assert result.value == pytest.approx(want.value, rel=1e-4)
    assert (result.w.dtype, result.gram.dtype) == (torch.float32, torch.float64)


def test_minimax_in_single_precision_goes_the_same_way():
    """Its matrices hold F and F^-1, whose ends are 10^8 apart; features of single precision do no harm."""
    at = problem(n=2000, noise=0.001)
    at.theta[-1] = -6.0
    short = Problem(at.train.to("cpu", torch.float32), at.kernel, at.theta.float())
    shared = {"kernel": "gaussian", "layers": 0, "num_features": 60, "batch_size": 32, "rate": 0.03, "epochs": 3}
    ends = {}
    for head in ("descend", "solve"):
        minimax = method("minimax", **shared, head=head)

        wide, narrow = ([step.info.objective for step in minimax.steps(task)][1:] for task in (at, short))

        assert narrow == pytest.approx(wide, rel=1e-3)
        ends[head] = wide  # after each epoch
    assert ends["descend"][-1] < ends["descend"][0] - 1000.0
    assert ends["solve"][1] < ends["descend"][-1]  # two epochs with solved weights are ahead of three epochs of moves
    assert ends["solve"][-1] < ends["solve"][0]


def test_the_full_batch_reports_the_likelihood_of_each_move_and_follows_its_gradient_per_row():
    model, learner = begun(method("full-batch"), problem(shift=0.5))
    for t in range(2):
        before = learner.parameters.theta.clone()
        learner.move(t)
        exact = exact_likelihood(model, before)

        assert learner.estimate() == pytest.approx(exact.value, rel=1e-12)
        torch.testing.assert_close(learner.parameters.g[model.D :], exact_gradient(model, before, exact) / model.n)


@pytest.mark.parametrize("shift", [0.0, 20.0])
def test_the_standard_error_of_the_gradient_is_that_of_a_sum_of_parts_of_the_rows(shift: float):
    """Against autograd of the terms of each part, with w and F^-1 of all rows."""
    at, K = problem(n=130, shift=shift), exact_module.PARTS
    feature_map = model(at=at)
    theta = feature_map.start().requires_grad_()
    exact = exact_likelihood(feature_map, theta.detach())
    w, inverse, n = exact.w, torch.cholesky_inverse(exact.L), feature_map.n
    gradients = []
    for k in range(K):
        X, y = feature_map.rows(torch.arange(k, n, K))
        Phi, s2 = feature_map.features(feature_map.parts(theta), X).Phi, (2.0 * theta[-1]).exp()
        share = len(y) / n
        terms = (Phi @ w - y).square().sum() / s2 + share * (n - len(w)) * s2.log() + share * s2 * inverse.trace()
        terms = 0.5 * (terms + (Phi @ inverse * Phi).sum())
        gradients.append(torch.autograd.grad(terms, theta)[0])
    g = torch.stack(gradients)  # [K, p]
    total = g.sum(0)
    torch.testing.assert_close(total, exact_gradient(feature_map, theta.detach(), exact), rtol=1e-7, atol=1e-8)

    result = exact_module.gradient_in_standard_errors(feature_map, theta.detach(), exact)

    assert result == pytest.approx(float(total.norm() / (K * g.var(0)).sum().sqrt()), rel=1e-6)
    assert math.isnan(exact_module.gradient_in_standard_errors(model(), model().start(), exact))
