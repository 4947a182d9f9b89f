"""SVGP as a baseline: its bound is below the evidence; bound, gradient and predictions are GPyTorch's."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gpexplorer import Spec
from gpexplorer.features.deep import views
from gpexplorer.methods import gpytorch_parts
from gpexplorer.methods.base import registry
from gpexplorer.methods.minibatches import svgp
from gpexplorer.methods.minibatches.svgp import jitter, shapes
from oracles_minibatches import begun, dense, method, model, problem

gpytorch = gpytorch_parts.package()
KINDS: list[dict[str, Any]] = [{"kernel": "linear"}, {"kernel": "gaussian"}, {"kernel": "gaussian", "layers": 0}]


@pytest.mark.parametrize("settings", KINDS)
def test_the_kernel_is_that_of_the_features(settings: dict):
    feature_map = model("svgp", **settings)
    theta, (X, _) = feature_map.start(), feature_map.rows(slice(0, 9))

    K = feature_map.covariance(theta, X, X)

    many = model("svgp", **{**settings, "num_features": 20000})
    Phi = many.features(many.parts(theta), X).Phi
    torch.testing.assert_close(K, Phi @ Phi.T, rtol=0.03, atol=0.03)
    torch.testing.assert_close(K.diagonal(), feature_map.covariance.diag(theta, X))


def test_before_the_first_minibatch_it_predicts_the_prior_of_no_rows():
    """A regression of all rows on a thousand features stood there, whose score took most of a short limit in time."""
    svgp, at = method("svgp", num_features=2000), problem(n=50, shift=0.6)
    X = at.train.X[:9]

    steps = svgp.steps(at)
    first, later = next(steps).state, next(steps).state
    start = svgp.posterior(at, first)

    assert "those of the prior" in svgp.answer_note(at, first)
    assert svgp.answer_note(at, later) == ""
    assert start.mean(X).tolist() == [0.0] * 9
    torch.testing.assert_close(start.var(X), at.kernel.diag(at.theta, X))


def test_the_bound_stays_below_the_evidence_and_nears_it():
    at = problem(n=50, shift=0.6)
    feature_map, learner = begun(
        method("svgp", batch_size=50, num_inducing=50, rate=0.02, width=4, kernel="linear", variational="optimiser"), at
    )

    values = []
    for t in range(150):
        above = -float(dense(feature_map, learner.parameters.theta))
        values.append((-25.0 * float(learner.gradient(torch.arange(50), t)), above))
        learner.move(t)

    assert all(bound <= evidence + 1e-6 for bound, evidence in values)
    assert values[-1][1] - values[-1][0] < 0.2 * (values[0][1] - values[0][0])


@pytest.mark.parametrize("settings", KINDS)
def test_the_mean_over_minibatches_is_the_bound_of_all_rows_and_so_is_the_slope(settings: dict):
    _, learner = begun(
        method("svgp", batch_size=10, num_inducing=10, variational="optimiser", **settings), problem(n=50, shift=0.6)
    )
    parts = torch.randperm(50, generator=torch.Generator().manual_seed(1)).view(5, 10)
    for t in range(5):  # away from the start, where q is the prior
        learner.move(t)

    value, slope = learner.gradient(torch.arange(50), 0), learner.parameters.g.clone()
    values = [(learner.gradient(rows, 0), learner.parameters.g.clone()) for rows in parts]

    assert sum(one for one, _ in values) / 5 == pytest.approx(value)
    torch.testing.assert_close(torch.stack([g for _, g in values]).mean(0), slope, rtol=1e-6, atol=1e-8)


class TheirBound(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
    """GPyTorch's variational strategy at the parameters of a learner."""

    def __init__(self, model: Any, learner: Any) -> None:
        normal = gpytorch.variational.CholeskyVariationalDistribution(len(learner.Z)).to(learner.Z)
        super().__init__(gpytorch.variational.VariationalStrategy(self, learner.Z.clone(), normal))
        self.theta, self.model = torch.nn.Parameter(learner.parameters.theta), model
        strategy = self.variational_strategy
        strategy.variational_params_initialized.fill_(1)
        normal.variational_mean.data, normal.chol_variational_covar.data = learner.mean, learner.S
        self.varied = [strategy.inducing_points, normal.variational_mean, normal.chol_variational_covar, self.theta]
        s2 = float((2.0 * learner.parameters.theta[-1]).exp())
        strategy.jitter_val = float(jitter(model.covariance(self.theta, learner.Z, learner.Z), s2, learner.jitter))

    def forward(self, X: Tensor) -> Any:
        from linear_operator import to_linear_operator

        K = to_linear_operator(self.model.covariance(self.theta, X, X))
        return gpytorch.distributions.MultivariateNormal(X.new_zeros(len(X)), K)

    def gradient(self, X: Tensor, y: Tensor) -> tuple[float, list[Tensor]]:
        """Return -2 ELBO / n and the gradient of half of it in Z, mean, factor and theta."""
        f, log_s2 = self(X), 2.0 * self.theta[-1]
        fit = ((y - f.mean).square() + f.variance).mean() / log_s2.exp() + log_s2
        loss = 0.5 * fit + self.variational_strategy.kl_divergence() / self.model.n
        return 2.0 * float(loss.detach()), list(torch.autograd.grad(loss, self.varied))


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-10), (torch.float32, 2e-4)])
@pytest.mark.parametrize("variational", ["natural", "optimiser"])
@pytest.mark.parametrize("settings", [*KINDS, {**KINDS[0], "layers": 0}, {**KINDS[0], "features": True}])
def test_bound_and_gradient_are_those_of_gpytorch(settings: dict, variational: str, dtype: torch.dtype, rtol: float):
    at = problem(n=60, shift=2.0)
    at = replace(at, train=at.train.to("cpu", dtype), theta=at.theta.to(dtype))
    numbers = {name: value for name, value in settings.items() if name != "features"}
    chosen = method("svgp", batch_size=20, num_inducing=10, rate=0.02, variational=variational, **numbers)
    if "features" in settings:
        chosen.features = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh())
    feature_map, learner = begun(chosen, at)
    for t in range(20):
        learner.move(t)
    rows = learner.rows(20)

    learner.natural_rate = 1e-12  # the natural step that `gradient` takes first leaves q where it is
    value, gradient = learner.gradient(rows, 20), learner.parameters.g
    X, y = feature_map.rows(rows)
    their_value, their_gradient = TheirBound(feature_map, learner).train().gradient(X, y)

    if variational == "natural":
        their_gradient[1:3] = [torch.zeros_like(part) for part in their_gradient[1:3]]
    theirs = torch.cat([part.flatten() for part in their_gradient])
    assert value == pytest.approx(their_value, rel=rtol)
    torch.testing.assert_close(gradient, theirs, rtol=rtol, atol=rtol * float(theirs.abs().max()))


@pytest.mark.parametrize("variational", ["natural", "optimiser"])
@pytest.mark.parametrize("settings", KINDS)
def test_predictions_are_those_of_gpytorch(settings: dict, variational: str):
    at = problem(n=40)
    small = method("svgp", batch_size=10, num_inducing=10, rate=0.01, variational=variational, **settings)
    feature_map, learner = begun(small, at)
    for t in range(30):
        learner.move(t)
    state = learner.state(next(small.steps(at)).state)._replace(batches=30)
    X = torch.randn(7, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    mean, var = small.posterior(at, state)(X)

    with torch.no_grad():
        theirs = TheirBound(feature_map, learner).eval()(X)
    torch.testing.assert_close(mean, theirs.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(var, theirs.variance, rtol=1e-3, atol=1e-4)
    assert [part.shape for part in views(state.w, shapes(feature_map, 10))] == [(10, 3), (10,), (10, 10)]


def test_rows_set_aside_leave_fewer_inducing_inputs():
    chosen = {
        "validation": 0.5,
        "batch_size": 64,
        "num_features": 8,
        "layers": 1,
        "width": 4,
        "search": 0,
        "num_inducing": 64,
    }
    run = Spec("svgp", chosen, {"name": "friedman1", "n": 60}).open()
    run.finish(steps=2)

    mean, var = run.posterior()(run.problem.train.X[:3])
    assert torch.isfinite(mean).all()
    assert (var >= 0).all()


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_one_natural_step_of_length_one_on_all_rows_is_the_optimum_of_titsias(shift: float):
    at = problem(n=40, shift=shift)
    small = method("svgp", layers=0, kernel="gaussian", batch_size=40, num_inducing=12, natural_rate=1.0, rate=1e-12)
    feature_map, learner = begun(small, at)
    learner.move(0)
    theta, Z = learner.parameters.theta, learner.Z

    X, y = feature_map.rows(slice(None))
    s2 = math.exp(2.0 * float(theta[-1]))
    K_mm = feature_map.covariance(theta, Z, Z) + 1e-4 * s2 * torch.eye(12, dtype=y.dtype)
    K_nm = feature_map.covariance(theta, X, Z)
    Q = K_nm @ torch.linalg.solve(K_mm, K_nm.T)
    A = Q + s2 * torch.eye(40, dtype=y.dtype)
    bound = 0.5 * (y @ torch.linalg.solve(A, y) + torch.logdet(A))
    bound = bound + 0.5 * (feature_map.covariance.diag(theta, X) - Q.diagonal()).sum() / s2

    assert small.evaluate(feature_map, learner).objective == pytest.approx(float(bound), rel=1e-6)


def test_the_objective_of_svgp_is_an_upper_bound_of_the_dense_nlml():
    at = problem(n=60, noise=0.3)
    small = method("svgp", layers=0, kernel="gaussian", batch_size=20, num_inducing=15)
    feature_map, learner = begun(small, at)
    for t in range(30):
        learner.move(t)
        if t % 10 == 9:
            theta = learner.parameters.theta
            X, y = feature_map.rows(slice(None))
            A = feature_map.covariance(theta, X, X) + math.exp(2.0 * float(theta[-1])) * torch.eye(60, dtype=y.dtype)
            dense_nlml = 0.5 * float(y @ torch.linalg.solve(A, y) + torch.logdet(A))
            assert small.evaluate(feature_map, learner).objective >= dense_nlml - 1e-3


def test_the_default_svgp_learns_where_a_network_of_batch_size_inducing_inputs_does_not():
    run = Spec("svgp", {"epochs": 25}, {"name": "friedman1", "n": 400}).open()
    run.finish()
    scores = run.scores()

    assert scores["smse"] < 0.2
    assert 0.85 <= scores["coverage95"] <= 1.0
    assert scores["snlp"] < -0.6


@pytest.mark.parametrize(("n", "noise"), [(60, 1e-3), (120, 1e-3), (90, 3e-3)])
def test_jitter_is_small_beside_the_noise_and_costs_no_likelihood(n: int, noise: float):
    """A jitter of 1e-6, whatever the noise, cost 7.5 nat on 120 rows."""
    at = problem(n=n)
    chosen = {"layers": 0, "kernel": "gaussian", "batch_size": n, "num_inducing": n, "natural_rate": 1.0, "rate": 1e-12}
    model, learner = begun(method("svgp", **chosen), at)
    X, theta = model.rows(slice(None))[0], learner.parameters.theta
    A = model.covariance(theta, X, X) + noise**2 * torch.eye(n, dtype=X.dtype)
    L, draw = torch.linalg.cholesky(A), torch.Generator().manual_seed(0)
    y = L @ torch.randn(n, generator=draw, dtype=X.dtype)  # rows of the model itself
    dense_nlml = 0.5 * float(torch.linalg.solve_triangular(L, y[:, None], upper=False).square().sum())
    dense_nlml += float(L.diagonal().log().sum())

    gaps = {}
    for share in (1e-4, 0.0):
        small = method("svgp", jitter=share, **chosen)
        model, learner = begun(small, replace(at, train=replace(at.train, y=y)))
        with torch.no_grad():
            learner.parameters.theta.copy_(theta)[-1] = math.log(noise)
        learner.move(0)
        gaps[share] = small.evaluate(model, learner).objective - dense_nlml
    assert -1e-2 <= gaps[1e-4] <= 0.1
    assert gaps[0.0] > 1.0


def test_the_jitter_is_reported_at_the_end():
    run = Spec(
        "svgp", {"batch_size": 16, "num_inducing": 9, "epochs": 2, "search": 0}, {"name": "friedman1", "n": 60}
    ).open()
    message = run.finish().message
    noise = float(run.trace[-1].step.state.theta[-1].exp())
    assert f"The jitter on K_mm is {1e-4 * noise**2:.2g}, which is 0.0001 of the noise variance." in message
    assert Spec("svgp").settings["jitter"] == 1e-4
    earlier = {
        name: value for name, value in Spec("svgp").settings.items() if name not in registry["svgp"].added_settings
    }
    assert Spec("svgp", earlier).settings["jitter"] == 0.0


def test_the_bound_of_many_rows_is_estimated_from_some_of_them(monkeypatch: pytest.MonkeyPatch):
    """Of a million rows the bound took 170 s, and with a limit of 20 s a run took 147."""
    spec = Spec("svgp", {"num_inducing": 20, "epochs": 1}, {"name": "friedman1", "n": 4000})
    whole, run, read = spec.open(), spec.open(), list[int]()
    whole.finish()
    rows = svgp.Model.rows

    def counted(model: svgp.Model, index: Any) -> tuple[Tensor, Tensor]:
        X, y = rows(model, index)
        read.append(len(y))
        return X, y

    monkeypatch.setattr(svgp, "EVALUATED_ROWS", 900)
    monkeypatch.setattr(svgp.Model, "rows", counted)
    message, n = run.finish().message, len(run.problem.train)
    first, second = (
        [record.step.info.objective for record in trace if math.isfinite(record.step.info.objective)]
        for trace in (whole.trace, run.trace)
    )
    assert f"The negative ELBO is estimated from 900 of the {n:,} rows." in message
    assert "estimated" not in whole.outcome.message
    assert torch.equal(run.trace[-1].step.state.theta, whole.trace[-1].step.state.theta)  # it learns the same
    assert max(read) == 900
    assert second != first
    assert second == pytest.approx(first, abs=4 * n / math.sqrt(900))
