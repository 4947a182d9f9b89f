"""Rows that are chosen one after another: what a step holds, rounds of choosing again, and resumption."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from baseline_problems import SHIFTS, problem
from gpexplorer import methods
from gpexplorer.methods.inducing.selection.csi import Lookahead
from gpexplorer.methods.inducing.settings import SETTLED
from gpexplorer.objectives import nystrom
from gpexplorer.problem import Problem
from whole_run import whole_run

SMALL = {"num_inducing": 7, "evaluations": 3, "tolerance": 0.0, "max_epochs": 3}


def walked(key: str, task: Problem, resume: Any = None, **settings: Any) -> tuple[list[Any], Any]:
    return whole_run(methods[key](**{**SMALL, **settings}).steps(task, resume))


def total(task: Problem, theta: torch.Tensor, rows: torch.Tensor) -> float:
    return nystrom(task.kernel, theta, task.train, task.train.X[rows]).terms.total("vfe")


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("key", ["titsias", "greedy-variance", "random"])
def test_each_point_is_a_step_with_the_decrease_that_it_brings(key: str, shift: float):
    task = problem(shift)
    steps, _ = walked(key, task, learn=False)
    assert [step.info.phase for step in steps] == ["start", *["choose"] * 7]
    assert [step.state.step for step in steps] == list(range(8))
    begin = 0.5 * (
        float(task.train.y.square().sum()) / math.exp(2.0 * float(task.theta[-1]))
        + 2.0 * len(task.train) * float(task.theta[-1])
        + float(task.kernel.diag(task.theta, task.train.X).sum()) / math.exp(2.0 * float(task.theta[-1]))
    )
    for k, step in enumerate(steps[1:], 1):
        rows = step.state.inducing
        assert len(rows) == k
        assert torch.equal(step.state.growing, rows)
        assert step.info.proposed == int(rows[-1])
        value = total(task, task.theta, rows)
        assert step.info.objective == step.info.growing == pytest.approx(value, rel=1e-8)
        assert step.info.exact == pytest.approx(begin - value, rel=1e-5, abs=1e-6)
        assert step.info.fit + step.info.logdet + step.info.trace == pytest.approx(value, rel=1e-8)
        begin = value


def test_without_learning_the_run_ends_with_the_points():
    steps, outcome = walked("titsias", problem(), learn=False)
    assert (outcome.reason, outcome.message) == (
        "converged",
        "All 7 points are chosen; the hyperparameters stay fixed.",
    )
    assert len(steps) == 8


@pytest.mark.parametrize("again", [True, False])
def test_epochs_of_learning_follow_and_points_are_chosen_again_where_the_setting_says_so(again: bool):
    task = problem()
    steps, outcome = walked("greedy-variance", task, again=again)
    assert [step.state.step for step in steps] == list(range(len(steps)))
    for epoch in range(3):
        phases = [step.info.phase for step in steps[1:] if step.state.epoch == epoch]
        chosen = phases.count("choose")
        assert chosen == (7 if again or epoch == 0 else 0)
        assert phases == ["choose"] * chosen + ["learn"] * (len(phases) - chosen)
        learned = [step for step in steps if step.state.epoch == epoch and step.info.phase == "learn"]
        assert [step.state.position for step in learned] == list(range(1, len(learned) + 1))
        for step in learned:
            assert step.info.objective == pytest.approx(total(task, step.state.theta, step.state.inducing), rel=1e-8)
            last = [other for other in steps if other.state.epoch < epoch]
            begin = last[-1].info.objective if epoch else steps[7].info.objective
            assert step.state.epoch_begin == pytest.approx(begin)
            assert torch.equal(step.state.theta_begin, last[-1].state.theta if epoch else task.theta)
    assert outcome.message == "All 3 epochs are done; raise max_epochs to continue."


def test_a_new_set_is_only_taken_where_it_is_better_and_reported_while_it_grows():
    task = problem()
    steps, _ = walked("titsias", task, again=True)
    second = [step for step in steps if step.state.epoch == 1]
    chosen = [step for step in second if step.info.phase == "choose"]
    before = [step for step in steps if step.state.epoch == 0][-1]
    for k, step in enumerate(chosen, 1):
        assert torch.equal(step.state.inducing, before.state.inducing)  # the old set stays while a new one grows
        assert len(step.state.growing) == k
        assert step.info.objective == pytest.approx(before.info.objective)
        assert step.info.growing == pytest.approx(total(task, step.state.theta, step.state.growing), rel=1e-8)
    better = chosen[-1].info.growing < before.info.objective
    after = next(step for step in second if step.info.phase == "learn")
    wanted = chosen[-1].state.growing if better else before.state.inducing
    assert torch.equal(after.state.inducing, wanted)


@pytest.mark.parametrize("tolerance", [0.0, 0.02, 1.0])
def test_a_run_ends_where_an_epoch_decreases_too_little(tolerance: float):
    task = problem()
    steps, outcome = walked("titsias", task, tolerance=tolerance, max_epochs=6)
    ends = [[step for step in steps if step.state.epoch == epoch][-1] for epoch in range(steps[-1].state.epoch + 1)]
    decreases = [step.state.epoch_begin - step.info.objective for step in ends]
    allowed = [tolerance * max(abs(step.info.objective), 1.0) for step in ends]
    assert all(decrease > most for decrease, most in zip(decreases[:-1], allowed, strict=False))
    assert ("less than the tolerance" in outcome.message) == (decreases[-1] <= allowed[-1])
    assert (outcome.reason == "converged") == (decreases[-1] <= min(allowed[-1], SETTLED))


@pytest.mark.parametrize(("settings", "is_random"), [
    ({"num_candidates": 5}, True), ({"num_candidates": 0}, False), ({"num_candidates": 5, "again": False}, False),
])  # fmt: skip
def test_a_run_of_random_candidates_says_that_others_may_be_better(settings: dict[str, Any], is_random: bool):
    _, outcome = walked("titsias", problem(), max_epochs=6, tolerance=1.0, **settings)
    assert ("Each point was the best of 5 random candidates" in outcome.message) == is_random
    assert "improved the objective by" in outcome.message


@pytest.mark.parametrize("begin", [0, 1, 5, 7, 8, 12, -5, -1])
@pytest.mark.parametrize("key", ["titsias", "greedy-variance"])
def test_a_resumed_run_repeats_every_step(key: str, begin: int):
    task = problem()
    steps, outcome = walked(key, task, again=True)
    rest, same = walked(key, task, steps[begin].state, again=True)
    assert outcome == same
    assert len(rest) == len(steps) - 1 - (begin if begin >= 0 else len(steps) + begin)
    for resumed_step, step in zip(rest, steps[len(steps) - len(rest) :], strict=True):
        assert torch.equal(resumed_step.state.inducing, step.state.inducing)
        assert torch.equal(resumed_step.state.growing, step.state.growing)
        assert resumed_step.info.objective == pytest.approx(step.info.objective, rel=1e-7)


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_rows_ahead_are_deflated_by_a_row_that_joins_whether_it_is_one_of_them_or_not(shift: float):
    task = problem(shift, n=24)
    K = task.kernel(task.theta, task.train.X, task.train.X)
    factor = Lookahead(task.kernel, task.theta, task.train, 6, ahead=3)
    ahead: list[int] = []

    def residual(chosen: list[int]) -> torch.Tensor:
        return K - K[:, chosen] @ torch.linalg.solve(K[chosen][:, chosen], K[chosen]) if chosen else K

    def draw() -> None:
        left = residual([*factor.rows.tolist(), *ahead]).diagonal()
        ahead.append(int(left.argmax()))

    for _ in range(3):
        draw()
    outside = next(row for row in range(24) if row not in ahead)
    for row in (outside, ahead[1]):
        factor.add(row)
        if row in ahead:
            ahead.remove(row)
            draw()
        R = residual(factor.rows.tolist())
        explained = R[:, ahead] @ torch.linalg.solve(R[ahead][:, ahead], R[ahead])
        torch.testing.assert_close(factor.W.T @ factor.W, explained, rtol=1e-6, atol=1e-8)
        assert len(factor.W) == 3
