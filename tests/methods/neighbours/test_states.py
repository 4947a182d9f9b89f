"""A Kalman filter is the exact GP of one input: likelihood, gradient, predictions, at hard scales and with ties."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import ive

from gpexplorer import Spec, kernels
from gpexplorer.errors import KernelError
from gpexplorer.kernels.row_scaled import with_row_noise
from gpexplorer.kernels.states import filtering, transitions
from gpexplorer.kernels.states.transitions import StateSpace
from gpexplorer.methods.base import registry
from gpexplorer.methods.neighbours.states import Likelihood
from gpexplorer.objectives import evidence
from gpexplorer.posteriors import StatesPosterior, exact_gp_posterior
from gpexplorer.problem import Dataset, Problem, RowNoise

MATERNS = ["matern12", "matern32", "matern52", "matern52+matern12", "matern12-ard+matern32+matern52"]
PERIODIC = ["periodic", "matern32+periodic", "matern12*periodic+matern52", "(matern12+periodic)*matern12"]
KERNELS = [*MATERNS, "(matern32+matern12)*matern52", *PERIODIC]
SCALES: list[dict[str, float]] = [
    {},
    {"shift": 1.6e9},  # seconds since 1970
    {"scale": 1e-6},  # all rows within a millionth of a lengthscale
    {"scale": 1e5},  # rows that say nothing about each other
    {"noise": 1e-3},
    {"scale": 1e4, "lengthscale": 1e4, "noise": 1e-3, "shift": -1e8},
]


def problem(key: str = "matern32", n: int = 90, **changes: float) -> Problem:
    """Rows at irregular times in any order, with ties and a long gap, in other units and far from the origin."""
    draw, scale = torch.Generator().manual_seed(n), changes.get("scale", 1.0)
    t = 8.0 * torch.rand(n, generator=draw, dtype=torch.float64)
    t[n // 2 :] += 20.0
    t[[3, 4, 70]] = t[[5, 5, 71]]
    noise = changes.get("noise", 0.3)
    y = torch.sin(2.0 * t) + noise * torch.randn(n, generator=draw, dtype=torch.float64)
    kernel = kernels.make(key, 1)
    values, lengths = [], 0
    for name, after in zip(kernel.names, [*kernel.names[1:], ""], strict=True):
        is_length = ("lengthscale" in name and not after.endswith("period")) or name.endswith("period")  # no sine's
        values.append(math.log(changes.get("lengthscale", 1.0)) + 0.1 * lengths if is_length else 0.0)
        lengths += is_length
    values[-1] = math.log(noise)
    train = Dataset((scale * t + changes.get("shift", 0.0))[:, None], y)
    return Problem(train, kernel, torch.tensor(values, dtype=torch.float64))


def places(given: Problem) -> torch.Tensor:
    """Times before, between and behind the rows, in the gap, and at rows, in any order."""
    X = given.train.X
    low, high = X.min(), X.max()
    grid = low + (high - low) * torch.linspace(-0.2, 1.3, 40, dtype=torch.float64)[:, None]
    new = torch.cat([grid, X[:5], 0.5 * (X[6:9] + X[7:10])])
    return new[torch.randperm(len(new), generator=torch.Generator().manual_seed(0))]


@pytest.mark.parametrize("changes", SCALES, ids=str)
@pytest.mark.parametrize("key", KERNELS)
def test_likelihood_gradient_and_predictions_are_those_of_the_exact_gp(
    key: str, changes: dict[str, float], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transitions, "TOLERANCE", 1e-13)
    given = problem(key, **changes)
    rel = 1e-7 if "periodic" in key and {"scale", "noise"} & changes.keys() else 1e-9  # angles of 1e7 have few digits
    atol = 1e-7 if key == "periodic" else 1e-8  # of the dense answer: waves alone are of low rank
    value, gradient = Likelihood(given)(given.theta)
    exact, slope = evidence(given.kernel, given.theta, given.train)
    assert value == pytest.approx(exact, rel=rel)
    torch.testing.assert_close(gradient, slope, rtol=100.0 * rel, atol=100.0 * rel * float(slope.abs().max()))

    ours = StatesPosterior(given.kernel, given.theta, given.train.X, given.train.y)
    dense = exact_gp_posterior(given.kernel, given.theta, given.train)
    X = places(given)
    torch.testing.assert_close(ours.mean(X), dense.mean(X), rtol=1e-8, atol=atol)
    torch.testing.assert_close(ours.var(X), dense.var(X), rtol=1e-8, atol=0.1 * atol)
    torch.testing.assert_close(ours.cov(X), dense.cov(X), rtol=1e-7, atol=0.1 * atol)


@pytest.mark.parametrize("changes", [{}, {"noise": 1e-3}, {"noise": 3.0}], ids=str)
@pytest.mark.parametrize("key", PERIODIC)
def test_the_waves_that_are_left_out_change_no_more_than_the_bound_says(key: str, changes: dict[str, float]):
    given = problem(key, **changes)
    X = places(given)
    noise = float(torch.exp(2.0 * given.theta[-1]))

    space = StateSpace(given.kernel, given.theta)
    waves = space.waves(X[:1, 0])
    variance = float(space.h @ space.P @ space.h + waves.square().sum())

    exact = float(given.kernel.diag(given.theta, X[:1])[0])
    assert 0.0 < exact - variance <= transitions.TOLERANCE * noise
    value, _ = Likelihood(given)(given.theta)
    alpha_bound = len(given.train) * transitions.TOLERANCE * float(given.train.y.square().mean()) / noise
    assert value == pytest.approx(evidence(given.kernel, given.theta, given.train)[0], abs=max(1e-4, alpha_bound))
    ours = StatesPosterior(given.kernel, given.theta, given.train.X, given.train.y)
    dense = exact_gp_posterior(given.kernel, given.theta, given.train)
    sd = dense.var(X).clamp_min(1e-3 * noise).sqrt()
    assert float(((ours.mean(X) - dense.mean(X)) / sd).abs().max()) < 0.02
    assert float((ours.var(X) - dense.var(X)).abs().max()) < max(3.0 * transitions.TOLERANCE * noise, 1e-10)


@pytest.mark.parametrize("lengthscale", [0.15, 0.5, 1.0, 10.0, 300.0])
def test_waves_are_those_of_the_fourier_series(lengthscale: float):
    z = torch.tensor(lengthscale**-2.0, dtype=torch.float64)
    for share in (1e-3, 1e-12):
        count = transitions.wave_count(float(z), share)
        shares = ive(np.arange(200), float(z)) * np.r_[1.0, np.full(199, 2.0)]

        np.testing.assert_allclose(transitions.wave_variances(z, count), shares[: count + 1], rtol=1e-12)
        assert shares[count + 1 :].sum() <= share
        assert count == 0 or shares[count:].sum() > share


def test_the_number_of_waves_follows_lengthscale_and_noise_and_has_a_limit():
    given = problem("periodic")

    def size(lengthscale: float, noise: float) -> int:
        theta = given.theta.clone()
        theta[1], theta[-1] = math.log(lengthscale), math.log(noise)
        return StateSpace(given.kernel, theta).q

    assert size(10.0, 0.3) < size(1.0, 0.3) < size(0.5, 0.3) < size(0.5, 1e-4)
    with pytest.raises(KernelError, match=r"needs \d+ numbers .*, and 64 .*Raise that lengthscale"):
        size(0.1, 0.3)
    short = given.theta.clone()
    short[1] = math.log(0.1)
    with pytest.raises(KernelError, match="or choose the method vecchia"):
        next(registry["states"]().steps(Problem(given.train, given.kernel, short)))


def test_learning_goes_around_hyperparameters_that_need_too_many_waves(monkeypatch: pytest.MonkeyPatch):
    draw = torch.Generator().manual_seed(1)
    t = 40.0 * torch.rand(400, generator=draw, dtype=torch.float64)
    y = (t % 1.0 < 0.5).double() + 0.02 * torch.randn(400, generator=draw, dtype=torch.float64)  # a square wave
    kernel = kernels.make("periodic", 1)
    theta = torch.tensor([0.0, 0.0, 0.0, math.log(0.3)], dtype=torch.float64)
    run = registry["states"](seed=0).steps(Problem(Dataset(t[:, None], y), kernel, theta))
    monkeypatch.setattr(transitions, "MOST_STATES", 25)

    states = [step.state for step in run]

    assert any(bool(row[0].isnan()) for row in states[-1].answers)
    assert states[-1].objective < states[2].objective
    assert StateSpace(kernel, states[-1].theta).q <= 25


def test_a_start_of_a_race_that_needs_too_many_waves_gets_longer_lengthscales():
    given = problem("matern32 + periodic + periodic")
    short = given.theta.clone()
    lengthscales = [i for i, name in enumerate(given.kernel.names) if name.endswith("periodic: lengthscale")]
    short[lengthscales] = math.log(0.1)
    begin = registry["states"].beginning
    moved = (begin(given.kernel, short) != short).nonzero()[:, 0].tolist()
    assert moved == lengthscales
    assert 40 < StateSpace(given.kernel, begin(given.kernel, short)).q <= transitions.MOST_STATES
    assert torch.equal(begin(given.kernel, given.theta), given.theta)


def test_smooth_functions_with_hardly_any_noise_are_resolved():
    given = problem("matern52", noise=1e-5, lengthscale=5.0)
    exact, slope = evidence(given.kernel, given.theta, given.train)

    value, gradient = Likelihood(given)(given.theta)

    assert value == pytest.approx(exact, rel=1e-5)
    torch.testing.assert_close(gradient, slope, rtol=1e-3, atol=1e-4 * float(slope.abs().max()))


@pytest.mark.parametrize(
    ("key", "length", "block"),
    [
        *(("matern52+matern12", length, 30) for length in (1, 3, 90, 200)),
        ("matern52+matern12", 3, 7),
        ("matern12*periodic+matern52", 3, 30),
        ("periodic+matern12", 90, 30),
        ("periodic", 5, 7),
    ],
)
def test_the_answer_does_not_depend_on_how_the_rows_are_cut(
    key: str, length: int, block: int, monkeypatch: pytest.MonkeyPatch
):
    given = problem(key)
    rows = Likelihood(given).rows
    theta = given.theta.clone().requires_grad_(True)
    whole = filtering.nlml(given.kernel, theta, rows)
    (slope,) = torch.autograd.grad(whole, theta)
    mean = StatesPosterior(given.kernel, given.theta, given.train.X, given.train.y).mean(places(given))
    monkeypatch.setattr(filtering, "LEAST", length)

    parts = filtering.nlml(given.kernel, theta, rows, block)

    (gradient,) = torch.autograd.grad(parts, theta)
    assert float(parts.detach()) == pytest.approx(float(whole.detach()), rel=1e-12)
    torch.testing.assert_close(gradient, slope, rtol=1e-9, atol=1e-9)
    again = StatesPosterior(given.kernel, given.theta, given.train.X, given.train.y).mean(places(given))
    torch.testing.assert_close(again, mean, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("key", ["matern32", "matern12+periodic", "matern12*periodic"])
def test_the_filter_is_the_exact_gp_of_the_rows_until_then(key: str):
    given = problem(key)
    ours = StatesPosterior(given.kernel, given.theta, given.train.X, given.train.y)
    for time in (2.0, 9.0, 27.3):
        X = torch.tensor([[time]], dtype=torch.float64)
        dense = exact_gp_posterior(
            given.kernel, given.theta, given.train.rows((given.train.X[:, 0] <= time).nonzero()[:, 0])
        )

        mean, var = ours.smoother.filtered(torch.cat([X[:, 0] + 0.01, X[:, 0]]))

        torch.testing.assert_close(mean[0, 1:], dense.mean(X), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(var[1:], dense.var(X), rtol=1e-4, atol=1e-6)


def test_paths_and_slopes_of_a_season_are_those_of_the_exact_gp():
    given = problem("matern32+periodic")
    ours = StatesPosterior(given.kernel, given.theta, given.train.X, given.train.y)
    dense = exact_gp_posterior(given.kernel, given.theta, given.train)
    X = places(given)[:12].requires_grad_(True)

    slopes = [torch.autograd.grad(each.moments(X)[0].sum(), X)[0] for each in (ours, dense)]
    paths = ours.draw_paths(600, torch.Generator().manual_seed(0))(X.detach()).detach()

    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-5)
    sd = ours.var(X.detach()).sqrt()
    assert float(((paths.mean(0) - ours.mean(X.detach())) / sd).abs().max()) < 5.0 / math.sqrt(600)
    assert float((paths.std(0) / sd - 1.0).abs().max()) < 0.2


@pytest.mark.parametrize("key", ["matern32", "matern32+periodic"])
def test_noise_per_row_is_in_likelihood_and_predictions(key: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transitions, "TOLERANCE", 1e-13)
    given = problem(key)
    ratio = torch.linspace(0.2, 4.0, 90, dtype=torch.float64)
    train = Dataset(given.train.X, given.train.y, noise=RowNoise(ratio))
    scaled = with_row_noise(Problem(train, given.kernel, given.theta))

    value, gradient = Likelihood(scaled)(scaled.theta)

    exact, slope = evidence(scaled.kernel, scaled.theta, scaled.train)
    assert value == pytest.approx(exact, rel=1e-10)
    torch.testing.assert_close(gradient, slope, rtol=1e-8, atol=1e-8)
    X = torch.cat([places(given), torch.full((48, 1), 1.7, dtype=torch.float64)], 1)
    ours = StatesPosterior(scaled.kernel, scaled.theta, scaled.train.X, scaled.train.y)
    dense = exact_gp_posterior(scaled.kernel, scaled.theta, scaled.train)
    torch.testing.assert_close(ours.mean(X), dense.mean(X), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ours.cov(X), dense.cov(X), rtol=1e-8, atol=1e-9)


def test_a_forecast_returns_to_the_prior():
    given = problem()
    X = given.train.X.max() + torch.tensor([[0.1], [1.0], [50.0]], dtype=torch.float64)

    mean, var = StatesPosterior(given.kernel, given.theta, given.train.X, given.train.y)(X)[:2]

    assert (var.diff() > 0.0).all()
    assert var[-1] == pytest.approx(1.0, abs=1e-12)
    assert mean[-1] == pytest.approx(0.0, abs=1e-12)


def test_single_precision_rows_are_computed_in_double_precision():
    given = problem(noise=1e-3)
    narrow = Problem(given.train.to("cpu", torch.float32), given.kernel, given.theta.float())
    wide = Problem(narrow.train.to("cpu", torch.float64), given.kernel, narrow.theta.double())

    values = [Likelihood(each)(each.theta) for each in (narrow, wide)]

    assert values[0][0] == values[1][0]
    assert torch.equal(values[0][1], values[1][1])


@pytest.mark.parametrize("key", ["se", "rq", "lp", "matern32+linear", "(se+matern12)*matern52"])
def test_a_kernel_without_a_small_state_is_refused_with_those_that_have_one(key: str):
    given = problem(key)

    with pytest.raises(KernelError, match=r"needs matern12, matern32, matern52 or periodic, or sum.* or the method"):
        next(registry["states"]().steps(given))


def test_several_inputs_are_refused():
    X = torch.rand(20, 2, dtype=torch.float64)
    kernel = kernels.make("matern32", 2)
    train = Dataset(X, X[:, 0])

    with pytest.raises(KernelError, match="needs one input, such as time, but there are 2; choose vecchia"):
        next(registry["states"]().steps(Problem(train, kernel, kernel.start(train))))


def run_of(n: int = 400, kernel: Any = "matern32", **settings: Any) -> Any:
    random = np.random.default_rng(3)
    x = np.sort(random.uniform(0.0, n / 20, n))
    y = np.sin(x) + 0.5 * np.sin(5.0 * x) + 0.3 * random.normal(size=n)
    run = Spec("states", settings=settings, kernel=kernel).open(data=(x[:, None], y))
    run.finish()
    return run


def test_it_learns_what_exact_maximum_likelihood_learns():
    run = run_of()
    state = run.trace[-1].step.state
    exact, slope = evidence(run.problem.kernel, state.theta, run.problem.train)

    assert run.outcome.reason == "converged"
    assert state.objective == pytest.approx(exact, rel=1e-9)
    assert float(slope.abs().max()) < 1e-3 * abs(exact)


def test_a_long_series_is_learned_from_a_stretch_first_and_resumes_in_either_part():
    run = run_of(900, stretch=100, tolerance=1e-3)
    infos = [record.step.info for record in run.trace]
    phases = [info.phase for info in infos]
    first = phases.index("learn")
    assert phases == ["start", *["stretch"] * (first - 1), *["learn"] * (len(phases) - first)]
    whole = run_of(900, stretch=900, tolerance=1e-3)
    assert infos[-1].objective == pytest.approx(whole.trace[-1].step.info.objective, rel=1e-3)

    for at in (2, first - 1, first + 1):
        resumed = list(run.method.steps(run.problem, run.trace[at].step.state))
        assert [step.info for step in resumed] == infos[at + 1 :]


@pytest.mark.parametrize("kind", ["a step", "off but for a burst"])
def test_a_constant_stretch_does_not_decide_where_learning_from_all_rows_begins(kind: str):
    x = np.linspace(0.0, 10.0, 300)
    y = (x > 5.003) * 1.0 if kind == "a step" else np.where(abs(x - 1.0) < 0.2, np.sin(40.0 * x), 0.0)
    settings = {"stretch": 40, "evaluations": 10}
    run = Spec("states", settings=settings, kernel={"name": "matern52", "start": "one"}).open(data=(x[:, None], y))
    run.finish()
    learned = [record for record in run.trace if record.step.info.phase == "learn"]
    first = learned[0].index
    assert run.trace[first - 1].step.state.theta[-1] < -5.0  # what the constant stretch says of the noise

    assert torch.equal(run.trace[first].step.state.theta, run.problem.theta)
    assert learned[0].step.info.objective == Likelihood(run.problem)(run.problem.theta)[0]
    assert learned[-1].step.info.objective < learned[0].step.info.objective - 100.0
    resumed = [step.info for step in run.method.steps(run.problem, run.trace[first].step.state)]
    assert resumed == [record.step.info for record in run.trace[first + 1 :]]


def test_without_learning_theta_stays():
    run = run_of(learn=False)

    assert torch.equal(run.trace[-1].step.state.theta, run.problem.theta)
    assert run.done == 1
