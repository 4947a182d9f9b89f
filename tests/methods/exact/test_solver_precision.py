"""What a solver does where its precision is not enough: steps taken back, float64 columns, and how a run ends."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from gpexplorer.errors import NotPositiveDefinite
from gpexplorer.methods.exact.cg import ConjugateGradients
from gpexplorer.methods.exact.reliability import Point, check_step, way_out
from gpexplorer.methods.exact.system import Iteration, System
from gpexplorer.problem import Problem
from oracles_gbcd import quick, system, wavy
from whole_run import whole_run


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("before", "stalls"), [(math.inf, False), (2.1, False), (1.9, True), (1.0, True)])
def test_a_gradient_that_is_no_longer_halved_between_two_looks_has_stalled(mixed: bool, before: float, stalls: bool):
    task = wavy()
    solver, method = System(task, task.theta, 0.0, mixed), quick("cg", tolerance=1e-3)
    alpha = 0.1 * task.train.y
    exact = system(task) @ alpha - task.train.y
    largest = float(exact.abs().max())
    state = next(method.steps(task)).state._replace(phase="solve", position=4, step=9, checked=before * largest)
    claimed = Iteration(alpha, torch.zeros_like(alpha), (torch.ones(80).double(),))  # within the tolerance, it says
    check = check_step(solver, Point(alpha, exact), Point(alpha, claimed.gradient))

    after, step, gradient = method._accepted(solver, state, claimed, None, check)

    torch.testing.assert_close(gradient, exact)
    assert after.largest == step.info.largest == pytest.approx(largest)
    assert after.checked == pytest.approx(largest)
    assert after.stalled == (stalls and not mixed)
    assert after.float64_from == (6 if stalls and mixed else 0)
    assert (after.position, after.step, after.repaired) == (5, 10, 0)
    assert step.info.drift == pytest.approx(largest)
    assert after.memory == ()
    if mixed:
        torch.testing.assert_close(after.gradient, exact)
    else:
        assert not len(after.gradient)


@pytest.mark.parametrize("repaired", [True, False])
def test_a_repair_is_remembered_and_a_gradient_that_is_within_the_tolerance_has_not_failed(repaired: bool):
    task = wavy()
    solver, method = System(task, task.theta, 0.0), quick("cg", tolerance=1e-3)
    solution = torch.linalg.solve(system(task), task.train.y)
    exact = system(task) @ solution - task.train.y
    state = next(method.steps(task)).state._replace(phase="solve", position=4, repaired=2)
    check = check_step(solver, Point(solution, exact), Point(solution, exact))
    repaired_gradient = exact if repaired else None
    after, _, _ = method._accepted(solver, state, Iteration(solution, exact), repaired_gradient, check)
    assert after.repaired == (5 if repaired else 2)
    assert after.checked == math.inf
    assert not after.stalled


def rising_forever(self: Any, system: System, state: Any) -> Iterator[Iteration]:
    """Iterations that raise the objective."""
    while True:
        alpha = state.alpha + 100.0
        yield Iteration(alpha, system.gradient(alpha))


def without_a_factor(self: Any, system: System, state: Any) -> Iterator[Iteration]:
    """Iterations of which the first needs a factor that does not exist."""
    raise NotPositiveDefinite("A_BB", 12, 1e-3)
    yield


def test_steps_that_rise_are_taken_back_and_repeated_in_float64(monkeypatch: pytest.MonkeyPatch):
    real = ConjugateGradients.iterations

    def rising_in_float32(self: Any, system: System, state: Any) -> Iterator[Iteration]:
        yield from (rising_forever if system.mixed else real)(self, system, state)

    monkeypatch.setattr(ConjugateGradients, "iterations", rising_in_float32)
    task = wavy()
    method = quick("cg", mixed=True, tolerance=1e-6)
    steps, outcome = whole_run(method.steps(task))
    values = [step.info.objective for step in steps]
    assert values == sorted(values, reverse=True)
    assert steps[1].state.float64_from == 1
    assert [step.state.position for step in steps] == list(range(len(steps)))
    torch.testing.assert_close(
        steps[-1].state.alpha, torch.linalg.solve(system(task), task.train.y), rtol=1e-4, atol=1e-5
    )
    assert outcome.message.endswith(
        "Kernel columns are float64 from iteration 1 on, because float32 was too inaccurate for this noise."
    )


def in_float32(task: Problem) -> Problem:
    train = replace(task.train, X=task.train.X.float(), y=task.train.y.float())
    return Problem(train, task.kernel, task.theta.float())


def test_a_block_without_a_factor_is_an_error_with_the_way_out_of_the_precision(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ConjugateGradients, "iterations", without_a_factor)
    task, method = wavy(), quick("cg")
    with pytest.raises(NotPositiveDefinite, match="Use dtype float64"):
        whole_run(method.steps(in_float32(task)))
    with pytest.raises(NotPositiveDefinite) as failure:
        whole_run(method.steps(task))
    assert "Use dtype float64" not in str(failure.value)


def test_steps_that_rise_in_every_precision_end_the_run_with_the_number_of_the_iteration(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(ConjugateGradients, "iterations", rising_forever)
    steps, outcome = whole_run(quick("cg").steps(wavy()))
    assert len(steps) == 1
    assert outcome.reason == "diverged"
    assert "in iteration 1, although its gradient was computed from scratch" in outcome.message
    assert outcome.message.endswith(way_out(torch.float64))
