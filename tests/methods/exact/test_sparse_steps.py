"""Sparse models step by step: the gains of rows, what a step reports, why a run ends, and how it is resumed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from gpexplorer.methods.exact.sparse_regressors import GrowingFit
from gpexplorer.problem import Dataset, Problem
from oracles_gbcd import SHIFTS, gram, noise, penalised_squares, quick, wavy
from whole_run import whole_run


def walked(key: str, task: Problem, resume: Any = None, **settings: Any) -> tuple[list[Any], Any]:
    return whole_run(quick(key, **{"num_regressors": 11, "growth": 4, "chunk": 3, **settings}).steps(task, resume))


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_gain_of_a_row_is_the_decrease_by_its_coefficient_alone(shift: float):
    task = wavy(shift)
    task.theta[-1] = 0.3  # with as much noise as signal every term matters
    K, s2, y = gram(task), noise(task), task.train.y
    fit = GrowingFit(task, task.theta, 8)
    rows = torch.arange(40, 52)
    for new in (torch.tensor([3, 17, 60]), torch.tensor([9]), torch.tensor([], dtype=torch.int64)):
        chosen = fit.rows.tolist()
        a = torch.linalg.solve(s2 * K[chosen][:, chosen] + K[chosen] @ K[:, chosen], K[chosen] @ y) if chosen else y[:0]
        f = K[:, chosen] @ a
        torch.testing.assert_close(fit.f, f, rtol=1e-7, atol=1e-8)
        begin = penalised_squares(task, chosen, a) if chosen else 0.5 * float(y @ y)
        assert fit.value == pytest.approx(begin, rel=1e-8)
        for gain, i in zip(fit.gains(rows).tolist(), rows.tolist(), strict=True):
            best = (K[i] @ (y - f) - s2 * f[i]) / (K[i] @ K[i] + s2 * K[i, i])
            after = penalised_squares(task, [*chosen, i], torch.cat([a, best[None]]))
            assert gain == pytest.approx(begin - after, rel=1e-6)
        assert all(fit.gains(torch.tensor([i]))[0] == -math.inf for i in chosen)
        left = K.diagonal() - (K[:, chosen] * torch.linalg.solve(K[chosen][:, chosen], K[chosen]).T).sum(1)
        torch.testing.assert_close(fit.residual_variance, left.clamp_min(0.0), rtol=1e-6, atol=1e-8)
        fit.join(new)
    assert (fit.jitter, fit.skipped) == (0.0, 0)


def test_rows_that_others_explain_are_skipped_and_counted():
    task = wavy()
    X = task.train.X.clone()
    X[[20, 21]] = X[[3, 3]]
    twins = Problem(Dataset(X, task.train.y), task.kernel, task.theta)
    fit = GrowingFit(twins, task.theta, 8)
    fit.join(torch.tensor([3, 20, 50]))
    assert fit.rows.tolist() == [3, 50]
    assert fit.skipped == 1
    fit.join(torch.tensor([21]))
    assert fit.rows.tolist() == [3, 50]
    assert fit.skipped == 2
    assert float(fit.residual_variance[20]) == 0.0
    assert fit.value == pytest.approx(penalised_squares(twins, [3, 50]), rel=1e-8)
    fit.join(torch.tensor([21, 7]))
    assert fit.rows.tolist() == [3, 50, 7]
    assert fit.skipped == 3


@pytest.mark.parametrize("key", ["subset-of-regressors", "matching-pursuit"])
def test_each_step_adds_as_many_rows_as_the_setting_says(key: str):
    task = wavy()
    steps, outcome = walked(key, task)
    assert [step.info.phase for step in steps] == ["start", "grow", "grow", "grow"]
    assert [step.state.step for step in steps] == [0, 1, 2, 3]
    assert [step.state.position for step in steps] == [0, 1, 2, 3]
    assert [len(step.state.inducing) for step in steps] == [0, 4, 8, 11]
    assert [len(step.info.active) for step in steps[1:]] == [4, 4, 3]
    assert steps[0].info.objective == pytest.approx(0.5 * float(task.train.y @ task.train.y))
    assert (outcome.reason, outcome.message) == (
        "converged",
        "All 11 regressors are chosen, and their weights are the least-squares ones.",
    )


@pytest.mark.parametrize("begin", [0, 1, 2])
@pytest.mark.parametrize("key", ["subset-of-regressors", "matching-pursuit"])
def test_a_resumed_run_repeats_every_step(key: str, begin: int):
    task = wavy()
    steps, outcome = walked(key, task)
    rest, same = walked(key, task, steps[begin].state)
    assert outcome == same
    assert len(rest) == 3 - begin
    for resumed_step, step in zip(rest, steps[begin + 1 :], strict=True):
        assert torch.equal(resumed_step.state.inducing, step.state.inducing)
        assert (resumed_step.state.step, resumed_step.state.position) == (step.state.step, step.state.position)
        assert resumed_step.info.objective == pytest.approx(step.info.objective, rel=1e-9)


def test_theta_is_learned_first_one_evaluation_per_step_and_its_resumption_repeats_none():
    task = wavy()
    settings = {"learn": True, "evaluations": 4, "subset": 30}
    steps, _ = walked("subset-of-regressors", task, **settings)
    assert [step.info.phase for step in steps] == ["start", *["learn"] * 4, *["grow"] * 3]
    assert [step.state.step for step in steps] == list(range(8))
    assert [step.state.position for step in steps] == [0, 1, 2, 3, 4, 1, 2, 3]
    evidences = [step.info.evidence for step in steps[1:5]]
    assert evidences == sorted(evidences, reverse=True)
    assert all(step.info.objective == steps[0].info.objective for step in steps[:5])
    rest, _ = walked("subset-of-regressors", task, steps[2].state, **settings)
    assert [step.state.position for step in rest] == [3, 4, 1, 2, 3]
    torch.testing.assert_close(rest[-1].state.theta, steps[-1].state.theta)


def test_where_no_row_adds_anything_the_run_ends_with_the_number_of_regressors():
    task = wavy()
    few = task.train.X[:5].repeat(8, 1)
    twins = Problem(Dataset(few, task.train.y[:40]), task.kernel, task.theta)
    steps, outcome = walked("subset-of-regressors", twins, num_regressors=30, growth=3)
    assert len(steps[-1].state.inducing) == 5
    assert outcome.message == "5 regressors explain every other row: no further row adds anything."
    steps, outcome = walked("subset-of-regressors", twins, num_regressors=5, growth=9, chunk=9)
    assert len(set(map(tuple, few[steps[-1].state.inducing].tolist()))) == 5
