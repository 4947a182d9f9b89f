"""The choosing rivals against dense algebra: each picks the row its rule names, and tells the exact objective."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from baseline_problems import SHIFTS, problem, trajectory
from gpexplorer import kernels, methods
from gpexplorer.methods.inducing.distinct_rows import distinct_rows
from gpexplorer.methods.inducing.selection.growing_gp import Growing
from gpexplorer.methods.inducing.selection.loop import random_order
from gpexplorer.problem import Dataset, Problem
from oracles_baselines import conditional_variances, objective_of

CHOOSERS = ["random", "greedy-variance", "titsias", "ivm"]


@pytest.mark.parametrize("objective", ["vfe", "pp"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_growing_model_knows_its_dense_objective_and_every_candidates(objective: str, shift: float) -> None:
    task = problem(shift)
    model = Growing(task.kernel, task.theta, task.train, objective, 12)
    assert model.total == pytest.approx(objective_of(task, [], objective), rel=1e-12)
    for row in (3, 17, 44, 9, 60, 31, 2, 50):
        before, rows = model.total, model.rows.tolist()
        candidates = torch.tensor([row, 5, 66])
        falls = model.reductions(candidates)
        for candidate, fall in zip(candidates.tolist(), falls.tolist(), strict=True):
            exact = objective_of(task, rows, objective) - objective_of(task, [*rows, candidate], objective)
            assert fall == pytest.approx(exact, abs=1e-8)
        assert model.add(row) == pytest.approx(float(falls[0]), abs=1e-9)
        assert before - model.total == pytest.approx(float(falls[0]), abs=1e-9)
        assert model.total == pytest.approx(objective_of(task, model.rows.tolist(), objective), rel=1e-9)
        assert torch.allclose(model.D, conditional_variances(task, model.rows.tolist(), noise=False), atol=1e-9)
    assert float(model.reductions(torch.tensor([3]))[0]) == -math.inf


@pytest.mark.parametrize("shift", SHIFTS)
def test_greedy_variance_takes_the_row_explained_least(shift: float) -> None:
    task = problem(shift)
    *_, last = trajectory("greedy-variance", task, num_inducing=9, learn=False)
    rows = last.state.inducing.tolist()
    for k in range(1, 9):
        assert int(conditional_variances(task, rows[:k], noise=False).argmax()) == rows[k]


@pytest.mark.parametrize("noise", [0.2, 1.5])
@pytest.mark.parametrize("shift", SHIFTS)
def test_ivm_takes_the_row_whose_noisy_observation_tells_most(shift: float, noise: float) -> None:
    task = problem(shift)
    task.theta[-1] = math.log(noise)
    *_, last = trajectory("ivm", task, num_inducing=12, learn=False)
    rows = last.state.inducing.tolist()
    for k in range(1, 12):
        left = conditional_variances(task, rows[:k], noise=True)
        assert float(left[rows[k]]) >= float(left.index_fill(0, torch.tensor(rows[:k]), 0.0).max()) * (1.0 - 1e-8)


@pytest.mark.parametrize("objective", ["vfe", "pp"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_titsias_over_all_rows_takes_the_best_by_the_dense_objective(objective: str, shift: float) -> None:
    task = problem(shift, n=40)
    *_, last = trajectory("titsias", task, num_inducing=5, num_candidates=0, objective=objective, learn=False)
    rows = last.state.inducing.tolist()
    for k in range(5):
        values = {j: objective_of(task, [*rows[:k], j], objective) for j in range(40) if j not in rows[:k]}
        assert min(values, key=values.__getitem__) == rows[k]


def test_more_candidates_choose_better_sets() -> None:
    task = problem(n=200)
    reached = [
        trajectory("titsias", task, num_inducing=10, num_candidates=count, learn=False)[-1].info.objective
        for count in (1, 16, 0)
    ]
    assert reached[0] > reached[1] > reached[2]
    assert reached[0] > trajectory("random", task, num_inducing=150, learn=False)[-1].info.objective


def test_random_rows_are_those_that_cholqr_starts_from() -> None:
    task = problem(1000.0, repeats=15)
    *_, last = trajectory("random", task, num_inducing=20, learn=False, seed=3)
    begin = next(methods["cholqr"](num_inducing=20, seed=3).steps(task)).state.inducing
    order = random_order(task, 3)
    assert order[:20].tolist() == begin.tolist()
    assert last.state.inducing.tolist() == distinct_rows(task.kernel, task.theta, task.train, order, 20).tolist()


@pytest.mark.parametrize("key", CHOOSERS)
@pytest.mark.parametrize("shift", SHIFTS)
def test_the_objective_falls_point_by_point_and_epoch_by_epoch(key: str, shift: float) -> None:
    task = problem(shift)
    steps = trajectory(key, task, num_inducing=8, max_epochs=4, evaluations=6)
    values = [step.info.objective for step in steps[1:]]
    assert all(b <= a + 1e-9 * abs(a) for a, b in itertools.pairwise(values))
    assert {step.info.phase for step in steps} == {"start", "choose", "learn"}
    last = steps[-1]
    here = Problem(task.train, task.kernel, last.state.theta)
    assert last.info.objective == pytest.approx(objective_of(here, last.state.inducing.tolist(), "vfe"), rel=1e-8)
    assert last.info.objective == pytest.approx(last.info.fit + last.info.logdet + last.info.trace, rel=1e-12)


def test_a_new_set_is_taken_whole_and_only_where_it_is_better() -> None:
    task = problem(n=120)
    steps = trajectory("titsias", task, num_inducing=6, num_candidates=4, max_epochs=6, evaluations=5)
    later = [step for step in steps if step.state.epoch > 0 and step.info.phase == "choose"]
    assert len(later) >= 6
    for step in later:
        assert len(step.state.inducing) == 6
        here = Problem(task.train, task.kernel, step.state.theta)
        rows = step.state.growing.tolist()
        assert step.info.growing == pytest.approx(objective_of(here, rows, "vfe"), rel=1e-9)
        assert step.info.objective == pytest.approx(objective_of(here, step.state.inducing.tolist(), "vfe"), rel=1e-8)


@pytest.mark.parametrize("key", CHOOSERS)
def test_rows_run_out_with_a_sentence(key: str) -> None:
    task = problem(n=20, repeats=8)
    steps = methods[key](num_inducing=500, learn=False).steps(task)
    while True:
        try:
            last = next(steps)
        except StopIteration as end:
            outcome = end.value
            break
    assert len(last.state.inducing) == 12
    assert outcome.message == "All 12 points are chosen; the hyperparameters stay fixed."
    assert len(torch.unique(task.train.X[last.state.inducing], dim=0)) == 12


@pytest.mark.parametrize("key", CHOOSERS)
def test_the_first_prediction_is_the_prior(key: str) -> None:
    task = problem()
    method = methods[key]()
    mean, var = method.posterior(task, next(method.steps(task)).state)(task.train.X[:4])
    assert mean.tolist() == [0.0] * 4
    assert var.tolist() == pytest.approx([math.exp(0.2)] * 4)


@pytest.mark.parametrize("key", CHOOSERS)
def test_strings_can_be_chosen_too(key: str) -> None:
    texts = ["".join(word) for word in itertools.product("abc", repeat=4)]
    y = torch.tensor([word.count("ab") - word.count("c") for word in texts], dtype=torch.float64)
    train = Dataset(texts, y - y.mean())
    kernel = kernels.make("spectrum", 1)
    task = Problem(train, kernel, kernel.start(train))
    first, *_, last = trajectory(key, task, num_inducing=12, max_epochs=2, evaluations=5)
    mean, _ = methods[key]().posterior(task, last.state)(texts)
    assert len(first.state.inducing) == 0
    assert float((mean - train.y).square().mean()) < 0.8 * float(train.y.square().mean())
