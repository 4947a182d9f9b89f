"""SVGP as a rival on the same kernel: its bound is below the evidence, and its predictions are GPyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gpexplorer import Spec
from gpexplorer.features.deep import views
from gpexplorer.methods.minibatches.gpytorch_svgp import covariance, variance
from gpexplorer.methods.minibatches.svgp import shapes
from oracles_minibatches import begun, dense, method, model, problem

KINDS: list[dict[str, Any]] = [{}, {"kernel": "gaussian"}]


@pytest.mark.parametrize("settings", KINDS)
def test_the_kernel_is_that_of_the_features(settings: dict):
    here = model("svgp", **settings)
    theta, (X, _) = here.start(), here.rows(slice(0, 9))

    K = covariance(here, theta, X, X)

    many = model("svgp", **{**settings, "num_features": 20000})
    Phi = many.features(many.parts(theta), X).Phi
    torch.testing.assert_close(K, Phi @ Phi.T, rtol=0.03, atol=0.03)
    torch.testing.assert_close(K.diagonal(), variance(here, theta, X))


def test_the_bound_stays_below_the_evidence_and_nears_it():
    at = problem(n=50, shift=0.6)
    here, learner = begun(method("svgp", batch_size=50, rate=0.02, width=4), at)

    values = []
    for t in range(150):
        above = -float(dense(here, learner.parameters.theta))
        values.append((-25.0 * float(learner.gradient(torch.arange(50), t)), above))
        learner.move(t)

    assert all(bound <= evidence + 1e-6 for bound, evidence in values)
    assert values[-1][1] - values[-1][0] < 0.2 * (values[0][1] - values[0][0])


@pytest.mark.parametrize("settings", KINDS)
def test_the_mean_over_minibatches_is_the_bound_of_all_rows_and_so_is_the_slope(settings: dict):
    _, learner = begun(method("svgp", batch_size=10, **settings), problem(n=50, shift=0.6))
    parts = torch.randperm(50, generator=torch.Generator().manual_seed(1)).view(5, 10)
    for t in range(5):  # away from the start, where q is the prior
        learner.move(t)

    value, slope = learner.gradient(torch.arange(50), 0), learner.parameters.g.clone()
    values = [(learner.gradient(rows, 0), learner.parameters.g.clone()) for rows in parts]

    assert sum(one for one, _ in values) / 5 == pytest.approx(value)
    torch.testing.assert_close(torch.stack([g for _, g in values]).mean(0), slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("settings", KINDS)
def test_predictions_are_those_of_gpytorch(settings: dict):
    at = problem(n=40)
    small = method("svgp", batch_size=10, rate=0.01, **settings)
    here, learner = begun(small, at)
    for t in range(30):
        learner.move(t)
    state = learner.state(next(small.steps(at)).state)._replace(batches=30)
    X = torch.randn(7, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    mean, var = small.posterior(at, state)(X)

    with torch.no_grad():
        theirs = learner.bound.gp.eval()(X)
    torch.testing.assert_close(mean, theirs.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(var, theirs.variance, rtol=1e-3, atol=1e-4)
    assert [part.shape for part in views(state.w, shapes(here, 10))] == [(10, 3), (10,), (10, 10)]


def test_rows_set_aside_leave_fewer_inducing_inputs():
    chosen = {"validation": 0.5, "batch_size": 64, "num_features": 8, "layers": 1, "width": 4, "search": 0}
    run = Spec("svgp", chosen, {"name": "friedman1", "n": 60}).open()
    run.finish(steps=2)

    mean, var = run.posterior()(run.problem.train.X[:3])
    assert torch.isfinite(mean).all()
    assert (var >= 0).all()
