"""Limits of the exact evidence from inducing points, against dense algebra."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch

from gpexplorer import kernels
from gpexplorer.errors import SettingError
from gpexplorer.estimator import Estimator
from gpexplorer.evidence_limits import evidence_limits, least_objective
from gpexplorer.methods.inducing.swapping.cholqr import CholQR
from gpexplorer.objectives import nystrom
from gpexplorer.problem import Channel, Dataset
from gpexplorer.runs.link import read as read_link
from gpexplorer.runs.run import Run
from gpexplorer.runs.spec import Spec
from gpexplorer.views.runs import convergence
from gpexplorer.views.runs.convergence import Convergence
from oracles import dense_objective, exact_nlml
from swap_problems import hard_problem, problem

TASKS = {"origin": problem(), "shifted": problem(1000.0), "hard": hard_problem(n=120)}


def dense_least(task, Z) -> float:
    """Titsias (2014): the noise is raised by tr(K - K_hat) in the quadratic term alone."""
    X, y, k, theta = task.train.X, task.train.y, task.kernel, task.theta
    Khat = k(theta, X, Z) @ torch.linalg.solve(k(theta, Z, Z), k(theta, Z, X))
    s2, eye = torch.exp(2.0 * theta[-1]), torch.eye(len(X), dtype=X.dtype)
    T = (k(theta, X, X) - Khat).diagonal().sum()
    return float(0.5 * (y @ torch.linalg.solve(Khat + (s2 + T) * eye, y) + torch.logdet(Khat + s2 * eye)))


@pytest.mark.parametrize("name", TASKS)
def test_the_exact_objective_lies_between_the_limits_and_iterations_bring_them_together(name: str) -> None:
    task = TASKS[name]
    X, y, Z = task.train.X, task.train.y, task.train.X[:10]
    exact, arguments = float(exact_nlml(task.kernel, task.theta, X, y)), (task.kernel, task.theta, task.train, Z)

    first = evidence_limits(*arguments)
    assert first.least == pytest.approx(dense_least(task, Z), rel=1e-7)
    assert first.largest == pytest.approx(float(dense_objective(*arguments[:2], X, y, Z, "tight-vfe")), rel=1e-7)
    few, many = evidence_limits(*arguments, iterations=3), evidence_limits(*arguments, iterations=300)
    for limits in (first, few, many):
        assert limits.least < exact < limits.largest
    assert first.gap > few.gap > many.gap
    terms = nystrom(*arguments, "tight-vfe").terms
    K = task.kernel(task.theta, X, X) + torch.exp(2.0 * task.theta[-1]) * torch.eye(len(X))
    quadratic = 2.0 * exact - float(torch.logdet(K))
    assert many.least == pytest.approx(0.5 * (quadratic + terms.complexity), rel=1e-6)
    assert many.largest == pytest.approx(0.5 * (quadratic + terms.complexity + terms.trace), rel=1e-6)


def precise_objective(X: np.ndarray, y: np.ndarray, theta: np.ndarray) -> float:
    """The exact objective of the kernel se with 19 digits."""
    signal, lengthscale, noise = np.exp(theta.astype(np.longdouble))
    X, rest = X.astype(np.longdouble), y.astype(np.longdouble)
    A = signal**2 * np.exp(-0.5 * ((X - X.T) / lengthscale) ** 2) + noise**2 * np.eye(len(X))
    twice = np.longdouble(0.0)
    for k in range(len(X)):  # A - l l' and y - l (y_k / l_k), column by column of the Cholesky factor
        column = A[k:, k] / np.sqrt(A[k, k])
        whitened = rest[k] / column[0]
        twice += whitened**2 + 2.0 * np.log(column[0])
        rest[k:] -= column * whitened
        A[k:, k:] -= np.outer(column, column)
    return float(twice / 2)


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize(
    ("noise", "dtype", "rounding"),
    [
        (1e-3, torch.float64, 1e-7),
        (1e-4, torch.float64, 1e-5),
        (1e-5, torch.float64, 1e-3),
        (1e-2, torch.float32, 1e-5),
    ],
)
def test_iterations_bring_the_limits_together_where_the_noise_is_small(
    noise: float, dtype: torch.dtype, rounding: float, shift: float
) -> None:
    rng = np.random.default_rng(4)
    X = torch.from_numpy(np.sort(rng.uniform(0.0, 1.0, (70, 1)), 0) + shift).to(dtype)
    theta = torch.tensor([0.3, np.log(0.25), np.log(noise)], dtype=dtype)
    values, vectors = np.linalg.eigh(np.exp(0.6) * np.exp(-0.5 * ((X - X.T).double().numpy() / 0.25) ** 2))
    y = torch.from_numpy(vectors @ (np.sqrt(values.clip(0.0) + noise**2) * rng.normal(size=70))).to(dtype)
    numbers = [part.double().numpy() for part in (X, y, theta)]
    exact, task = precise_objective(*numbers), (kernels.make("se", 1), theta, Dataset(X, y), X[::4])

    first, few = (evidence_limits(*task, iterations) for iterations in (0, 8))
    assert first.least - rounding < few.least - rounding < exact < few.largest + rounding <= first.largest + rounding
    assert few.gap < 0.1 * first.gap + 1e-5


def test_with_every_row_inducing_the_limits_meet() -> None:
    task = problem(n=30)
    limits = evidence_limits(task.kernel, task.theta, task.train, task.train.X)
    assert limits.gap == pytest.approx(0.0, abs=1e-6)
    assert limits.sentence().startswith("At most ")
    assert limits.sentence().endswith("nat from the exact model with these hyperparameters.")


@pytest.mark.parametrize("objective", ["vfe", "tight-vfe", "pp"])
def test_runs_report_the_limit_once_per_epoch_and_at_every_evaluation_of_moved_points(objective: str) -> None:
    task = problem(1000.0)
    method = CholQR(num_inducing=8, num_pivots=16, objective=objective, max_epochs=2, evaluations=3, polish=3)
    steps = list(method.steps(task))[1:]
    reported = [step for step in steps if step.info.exact_least == step.info.exact_least]
    if objective == "pp":
        assert reported == []
        return
    assert [step.info.phase for step in reported] == ["swap", "swap", *["polish"] * (len(reported) - 2)]
    assert len(reported) > 3
    for step in reported:
        exact = float(exact_nlml(task.kernel, step.state.theta, task.train.X, task.train.y))
        assert step.info.exact_least < exact < step.info.objective
    last = steps[-1].state
    model = nystrom(task.kernel, last.theta, task.train, last.Z, objective)
    assert steps[-1].info.exact_least == pytest.approx(least_objective(model, float(task.train.y @ task.train.y)))


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize("objective", ["vfe", "tight-vfe"])
def test_the_gap_that_a_run_reports_is_that_of_the_points_of_its_epoch(objective: str, shift: float) -> None:
    task = problem(shift)
    method = CholQR(num_inducing=8, num_pivots=16, objective=objective, max_epochs=2, learn=False)
    steps = list(method.steps(task))

    pairs = [(before, step) for before, step in itertools.pairwise(steps) if step.info.gap == step.info.gap]

    assert len(pairs) >= 2
    for before, step in pairs:  # the first swap of an epoch reports the limits of the points before it
        Z = task.train.X[before.state.inducing]
        limits = evidence_limits(task.kernel, step.state.theta, task.train, Z)
        assert step.info.exact_least == pytest.approx(limits.least, rel=1e-7)
        assert step.info.gap == pytest.approx(limits.gap, rel=1e-7)


def swapped(learn: bool) -> Run:
    settings = {"num_inducing": 8, "num_pivots": 16, "max_epochs": 1, "learn": learn, "swaps_per_epoch": 4}
    run = Spec(method="cholqr", settings=settings, data={"name": "friedman1", "n": 300}, kernel="se-ard").open()
    run.finish(steps=6)
    return run


def test_the_convergence_picture_says_how_far_the_exact_model_is_at_most_and_draws_its_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(convergence, "EXACT_ROWS", 100)
    run = swapped(learn=False)
    table, view = run.table(), Convergence()
    assert view.applies(run)
    layers = view.data(run, 4)
    gap = table["objective"][1] - table["exact_least"][1]
    sentence = f"at step 1: at most {gap:.3g} nat from the exact model with the same hyperparameters"
    assert layers["series"].attrs["title"].startswith(sentence)
    assert "range" not in layers
    assert not len(layers["level"])
    assert view.data(run, 0)["series"].attrs["title"] == ""

    view.limits = True
    drawn = view.data(run, 4)
    assert drawn["range"].to_numpy().tolist() == [[1.0, table["exact_least"][1], table["objective"][1]]]
    elements = [type(element).__name__ for element in view.plot(drawn)]
    assert elements == ["Area", "Curve", "Curve", "Curve", "Scatter", "Curve", "Scatter", "Labels"]


def test_of_few_rows_the_convergence_picture_draws_the_exact_model_and_says_its_distance() -> None:
    run, view = swapped(learn=True), Convergence()
    assert view.applies(run)
    for at in (4, len(run.trace) - 1):  # with the hyperparameters of the start, and with learned ones
        theta, train = run.trace[at].step.state.theta, run.problem.train
        A = run.problem.kernel(theta, train.X, train.X) + theta[-1].exp() ** 2 * torch.eye(len(train))
        exact = float(train.y @ torch.linalg.solve(A, train.y) + torch.linalg.slogdet(A).logabsdet) / 2
        layers = view.data(run, at)
        distance = run.table()["objective"][at] - exact
        assert layers["level"].to_numpy() == pytest.approx(np.array([[0.0, exact], [len(run.trace) - 1, exact]]))
        number = f"{distance:.1f}" if distance < 9.95 else f"{distance:,.0f}"
        assert layers["series"].attrs["title"] == f"{number} nat from the exact model with the same hyperparameters"
        assert layers["series"].attrs["number"] == number
        assert layers["words"]["text"].tolist() == ["exact model"]
        assert np.isfinite(layers["words"]["y"].iloc[0]) == (not layers["level"].attrs["loose"])
    start = run.trace[0].step.state
    Z = run.problem.train.rows(start.inducing).X
    K_nm, K_mm = (run.problem.kernel(start.theta, X, Z) for X in (run.problem.train.X, Z))
    n, s2 = len(run.problem.train), float((2 * start.theta[-1]).exp())
    Q = K_nm @ torch.linalg.solve(K_mm, K_nm.T)
    A, y = Q + s2 * torch.eye(n), run.problem.train.y
    fit = float(y @ torch.linalg.solve(A, y) + torch.linalg.slogdet(A).logabsdet)
    trace = float(run.problem.kernel(start.theta, run.problem.train.X, run.problem.train.X).trace() - Q.trace()) / s2
    first = view.data(run, 0)
    assert first["series"].to_numpy()[0] == pytest.approx([0.0, (fit + trace) / 2], rel=1e-6)
    assert first["now"].to_numpy()[0] == pytest.approx(first["series"].to_numpy()[0])


@pytest.mark.parametrize(
    ("values", "exact", "loose", "axis"),
    [
        ([9.0, 5.0, 3.0], -2.0, False, None),  # the run has 6 of 11
        ([9.0, 8.5, 8.0], -2.0, True, None),  # and here 1 of 11
        ([900.0, 9.0, 6.0, 4.0, 3.0], -2.0, False, (-2.0 - 0.08 * 11.0, 9.0)),  # a first value is off the axis
        ([900.0, 9.0, 6.0, 4.0, 3.0], -90.0, True, (3.0, 9.0)),
    ],
)
def test_the_axis_contains_the_exact_model_unless_it_would_flatten_the_run(
    values: list[float], exact: float, loose: bool, axis: tuple[float, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.DataFrame({"index": range(len(values)), "objective": values, "exact_least": exact - 1})
    method = SimpleNamespace(channels=(Channel("objective", "objective F", "nat"),), learned_channel="")
    run = SimpleNamespace(table=lambda: frame, method=method, problem=SimpleNamespace(kernel=None), rises=[], spec=None)
    monkeypatch.setattr(Convergence, "_exact_objective", lambda *_: exact)
    layers = Convergence().data(cast(Run, run), len(values) - 1)
    assert layers["level"].attrs["loose"] is loose
    assert layers["series"].attrs.get("extent") == axis


@pytest.mark.parametrize("objective", ["vfe", "tight-vfe"])
def test_points_are_added_until_the_exact_model_is_near_enough(objective: str) -> None:
    task = problem(1000.0)
    settings = {"num_inducing": 6, "num_pivots": 16, "objective": objective, "evaluations": 3, "max_epochs": 12}
    method = CholQR(gap=2.0, **settings)
    steps = list(method.steps(task))
    sizes = [len(step.state.inducing) for step in steps]
    for before, step in itertools.pairwise(steps[1:]):
        if step.info.phase != "resize":
            assert len(step.state.inducing) == len(before.state.inducing)
            assert step.info.objective <= before.info.objective + 1e-9 * abs(before.info.objective)
    last = steps[-1].state
    limits = evidence_limits(task.kernel, last.theta, task.train, task.train.X[last.inducing])
    fewer = evidence_limits(task.kernel, last.theta, task.train, task.train.X[last.inducing[:6]])
    assert limits.gap <= 2.0 < fewer.gap
    assert 6 < sizes[-1] < len(task.train)
    assert len(list(CholQR(**settings).steps(task))[-1].state.inducing) == 6
    at = max(k for k, step in enumerate(steps) if step.info.phase == "resize") - 1
    resumed = next(method.steps(task, resume=steps[at].state)).state
    assert torch.equal(resumed.inducing, steps[at + 1].state.inducing)


@pytest.mark.parametrize("settings", [{"objective": "tight-vfe"}, {"gap": 0.5}])
def test_auto_finds_a_number_of_points_that_is_near_enough_to_the_exact_model(settings: dict[str, Any]):
    settings = {"num_inducing": "auto", "num_pivots": 16, "evaluations": 3, "max_epochs": 40, **settings}
    data = {"name": "snelson-like", "n": 160, "seed": 0}
    spec = Spec("cholqr", settings, data=data, kernel="se")
    gap = settings.get("gap", 3.0)
    assert (spec.settings["num_inducing"], spec.settings["gap"]) == (32, gap)
    assert Spec.from_json(spec.to_json()) == spec
    run = spec.open()
    outcome = run.finish()
    state, train = run.trace[-1].step.state, run.problem.train
    m = len(state.inducing)
    limits = evidence_limits(run.problem.kernel, state.theta, train, train.X[state.inducing])
    exact = float(exact_nlml(run.problem.kernel, state.theta, train.X, train.y))
    assert limits.least <= exact <= limits.largest
    assert limits.gap <= gap
    assert m < 40  # a smooth function of one input needs few of 144 rows; rounding decides between 31 and 33
    half = evidence_limits(run.problem.kernel, state.theta, train, train.X[state.inducing[: m // 2]])
    assert half.gap > gap
    said = f"With {m} points: a{limits.sentence()[1:]} {run.start_note}"  # the last sentence is of the starts
    assert run.start_note.startswith("Of 3 starts")
    assert outcome.message.endswith(said)
    assert not run.rises
    gaps = [record.step.info.gap for record in run.trace if record.step.info.phase == "resize"]
    assert min(gaps) <= gap


def test_auto_replaces_a_gap_that_was_not_chosen_and_no_other_word_or_method_takes_it() -> None:
    whole = Spec("cholqr").settings  # with a gap of 0
    assert Spec("cholqr", {**whole, "num_inducing": "auto"}).settings["gap"] == 3.0
    link = read_link("v=1&method=cholqr&data=snelson-like&kernel=se&set.num_inducing=auto", Spec("random"))
    assert (link.spec.settings["num_inducing"], link.spec.settings["gap"]) == (32, 3.0)
    for method, word in (("cholqr", "many"), ("sgpr", "auto")):
        with pytest.raises(SettingError, match=f"{method}'s num_inducing is '{word}'"):
            Spec(method, {"num_inducing": word})


def test_points_are_removed_and_the_run_continues_from_any_step():
    task = problem(1000.0)
    method = CholQR(gap=5.0, num_inducing=40, num_pivots=16, evaluations=3, max_epochs=6)
    steps = list(method.steps(task))
    at = next(k for k, step in enumerate(steps) if step.info.phase == "resize")
    for k in (at - 1, at):
        resumed = list(itertools.islice(method.steps(task, resume=steps[k].state), 3))
        for step, expected in zip(resumed, steps[k + 1 : k + 4], strict=True):
            assert torch.equal(step.state.inducing, expected.state.inducing)
            assert step.info.objective == pytest.approx(expected.info.objective, rel=1e-9)
    assert len(steps[at].state.inducing) < 40


def test_the_estimator_leaves_the_number_of_points_to_the_gap():
    X, y = np.random.default_rng(0).normal(size=(80, 1)), np.random.default_rng(1).normal(size=80)
    model = Estimator(settings={"num_inducing": "auto"}, budget={"steps": 2}).fit(X, y)
    assert (model.run_.method.num_inducing, model.run_.method.gap) == (32, 3.0)
