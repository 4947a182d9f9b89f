"""Learning by an exact objective, one evaluation per step: what a step holds, how a run ends, and its restarts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gpexplorer import kernels
from gpexplorer.errors import NotPositiveDefinite
from gpexplorer.linalg.replayed_descent import ARMIJO, GRADIENT_DESCENT, Evaluated, descend, gradient_descent
from gpexplorer.methods.base import registry
from gpexplorer.methods.cross_validation.learning import (
    SQUARED,
    LearningState,
    dense_cost,
    initial_values,
    learn,
    leave_one_out,
)
from gpexplorer.methods.cross_validation.scale_direction import scale_direction
from gpexplorer.objectives import evidence
from gpexplorer.problem import Dataset, Outcome, Problem
from oracles_admm import problem
from whole_run import whole_run


def method(**settings: Any) -> Any:
    return registry["ml"](**{"evaluations": 8, "tolerance": 0.0, **settings})


def test_a_step_is_one_evaluation_and_holds_the_best_theta_and_all_results():
    task = problem(n=30)
    steps, outcome = whole_run(method().steps(task))
    assert [step.info.phase for step in steps] == ["start", *["learn"] * 8]
    assert [step.state.step for step in steps] == list(range(9))
    assert math.isnan(steps[0].info.objective)
    assert steps[0].state.objective == math.inf
    assert steps[0].state.answers.shape == (0, len(task.theta) + 2)
    for k, step in enumerate(steps[1:], 1):
        value, gradient = evidence(task.kernel, step.state.theta, task.train)
        assert len(step.state.answers) == k
        values = step.state.answers[:, 0]
        assert step.state.objective == step.info.objective == pytest.approx(float(values.min()))
        assert value == pytest.approx(step.state.objective, rel=1e-10)
        assert step.info.slope == pytest.approx(float(gradient.abs().max()), rel=1e-6)
        best = int(values.argmin())
        torch.testing.assert_close(step.state.answers[best, 2:], gradient, rtol=1e-6, atol=1e-8)
    largest = steps[-1].info.slope
    assert outcome == Outcome(
        "budget", f"All 8 evaluations are done; the largest derivative is {largest:.2g}. Raise evaluations."
    )


def test_a_flat_point_that_the_line_search_tries_does_not_end_a_descent():
    task, visited = problem(n=30), list[float]()

    def hollow(theta: Any) -> tuple[float, float, Any]:
        """1 - exp(-50 t^2), flat but for a narrow hollow that a first step of length 1 leaves on the other side."""
        t = theta[0] - task.theta[0] - 0.2
        visited.append(float(t))
        depth = torch.exp(-50.0 * t**2)
        return 1.0 - float(depth), 0.0, torch.cat([(100.0 * t * depth)[None], torch.zeros_like(theta[1:])])

    steps, outcome = whole_run(learn(method(evaluations=60, tolerance=1e-3), task, None, hollow))

    assert abs(visited[1]) > 0.5  # where the derivative is far below the tolerance
    assert steps[-1].state.objective < 1e-4
    assert outcome.reason == "converged"


def test_the_end_of_an_optimiser_that_finds_no_lower_value_is_not_the_end_of_the_evaluations():
    task = problem(n=30)

    def kink(theta: Any) -> tuple[float, float, Any]:
        t = theta - task.theta - 0.3
        return float(t.abs().sum()), 0.0, t.sign()

    steps, outcome = whole_run(learn(method(evaluations=200, tolerance=1e-3), task, None, kink))

    assert len(steps[-1].state.answers) < 200
    assert outcome.reason == "budget"
    assert "Raise" not in outcome.message
    assert f"no lower value after {len(steps[-1].state.answers)} evaluations" in outcome.message


@pytest.mark.parametrize("tolerance", [1e-1, 1e-3])
def test_a_descent_ends_where_no_derivative_exceeds_its_share_of_the_objective(tolerance: float):
    task = problem(n=30)
    steps, outcome = whole_run(method(evaluations=200, tolerance=tolerance).steps(task))
    last = steps[-1]
    allowed = tolerance * max(abs(last.state.objective), 1.0)
    assert last.info.slope <= allowed
    slopes = last.state.answers[:-1, 2:].abs().amax(1)
    values = last.state.answers[:-1, 0]
    lowest = torch.cummin(values, 0).values
    assert bool((slopes > tolerance * lowest.abs().clamp_min(1.0)).all())  # it ends at the first that is small enough
    assert outcome == Outcome(
        "converged", f"The largest derivative is {last.info.slope:.2g} after {len(steps) - 1} evaluations."
    )


@pytest.mark.parametrize(("slope", "ends"), [(0.009, True), (0.011, False)])
def test_an_objective_below_one_has_an_absolute_tolerance(slope: float, ends: bool):
    task = problem(n=12)
    begin = task.theta.clone()

    def small(theta: torch.Tensor) -> tuple[float, float, torch.Tensor]:
        gradient = torch.full_like(theta, slope) if torch.equal(theta, begin) else torch.zeros_like(theta)
        return 0.5 + float((theta - begin).sum()) * slope, 0.0, gradient

    steps, outcome = whole_run(learn(method(tolerance=1e-2), task, None, small))
    assert (len(steps) == 2) == ends
    assert outcome.reason == "converged"


def test_a_small_squared_error_of_the_rows_left_out_has_no_absolute_tolerance():
    """A smooth curve without noise, whose error is some thousandths: with an absolute tolerance, it ends at once."""
    x = torch.linspace(-50.0, -47.0, 60, dtype=torch.float64)
    train, kernel = Dataset(x[:, None], (3.0 * x).sin() + 0.01 * (40.0 * x).cos(), ("t",)), kernels.make("matern52", 1)
    task, loo = Problem(train, kernel, kernel.start(train)), registry["loo"]()

    steps, outcome = whole_run(loo.steps(task))

    state = steps[-1].state
    assert outcome.reason == "converged"
    assert state.objective < 0.05
    assert steps[-1].info.slope <= 1e-4 * state.objective


def test_a_derivative_above_the_absolute_tolerance_is_not_converged():
    def steep(theta):
        return 0.5, 0.0, torch.full_like(theta, 0.015)

    _, outcome = whole_run(learn(method(tolerance=1e-2, evaluations=3), problem(n=12), None, steep))
    assert outcome.reason == "budget"


def test_gradient_descent_refuses_a_decrease_that_is_too_small_for_its_step():
    seen = []

    def nearly_flat(point: np.ndarray) -> Evaluated:
        seen.append(float(point[0]))  # the gradient 1 promises 1; each trial decreases by half of a ten-thousandth
        return Evaluated(10.0 if point[0] == 0.0 else 10.0 - 0.5 * ARMIJO * abs(point[0]), np.ones(1), None)

    result = list(gradient_descent(nearly_flat, np.zeros(1), 5))
    assert [best.value for best in result] == [10.0] * 5
    assert seen == [0.0, -1.0, -0.5, -0.25, -0.125]


def test_the_scale_is_added_along_its_direction_where_the_objective_does_not_depend_on_it():
    task = problem(n=30)
    loo = registry["loo"](evaluations=6, tolerance=0.0)
    steps, _ = whole_run(loo.steps(task))
    along = scale_direction(task)
    assert along is not None
    for step in steps[1:]:
        at_rest = step.state.theta - step.info.scale * along
        value, scale, _ = leave_one_out(task.kernel, at_rest, task.train, SQUARED)
        assert value == pytest.approx(step.state.objective, rel=1e-8)
        assert scale == pytest.approx(step.info.scale, rel=1e-6)


@pytest.mark.parametrize("begin", [0, 1, 4, 8, 11])
@pytest.mark.parametrize("optimiser", ["L-BFGS-B", "CG", GRADIENT_DESCENT])
def test_a_resumed_run_repeats_every_step(optimiser: str, begin: int):
    task = problem(n=24)
    algorithm = method(evaluations=6, restarts=1, optimiser=optimiser)
    steps, outcome = whole_run(algorithm.steps(task))
    assert len(steps) == 13
    rest, same = whole_run(algorithm.steps(task, steps[begin].state))
    assert outcome == same
    assert len(rest) == len(steps) - begin - 1
    for a, b in zip(rest, steps[begin + 1 :], strict=True):
        assert torch.equal(a.state.theta, b.state.theta)
        assert a.state.objective == b.state.objective


def test_restarts_begin_at_theta_and_then_a_standard_normal_number_away():
    theta = torch.linspace(-1.0, 1.0, 2000, dtype=torch.float64)
    values = list(initial_values(theta, 3, seed=4))
    assert len(values) == 4
    assert values[0] is theta
    changes = torch.stack(values[1:]) - theta
    assert changes.std().item() == pytest.approx(1.0, abs=0.05)
    assert changes.mean().item() == pytest.approx(0.0, abs=0.05)
    assert not torch.equal(changes[0], changes[1])
    assert torch.equal(list(initial_values(theta, 1, seed=4))[1], values[1])
    assert not torch.equal(list(initial_values(theta, 1, seed=5))[1], values[1])


def test_each_restart_has_all_evaluations_and_the_lowest_objective_is_kept():
    task = problem(n=24)
    steps, _ = whole_run(method(evaluations=4, restarts=2, seed=3).steps(task))
    assert len(steps) == 1 + 3 * 4
    starts = list(initial_values(task.theta, 2, 3))
    for k in (0, 1, 2):
        value = evidence(task.kernel, starts[k], task.train)[0]
        assert float(steps[-1].state.answers[4 * k, 0]) == pytest.approx(value, rel=1e-9)
    objectives = [step.state.objective for step in steps[1:]]
    assert objectives == sorted(objectives, reverse=True)
    assert objectives[-1] == pytest.approx(float(steps[-1].state.answers[:, 0].min()))


def test_a_point_without_a_value_is_a_row_of_nan_and_the_descent_continues():
    task = problem(n=12)
    calls = []

    def fails_at_second(theta: torch.Tensor) -> tuple[float, float, torch.Tensor]:
        calls.append(theta.clone())
        if len(calls) == 2:
            raise NotPositiveDefinite("C", 12, 0.0)
        if len(calls) == 3:
            return math.inf, 0.0, theta
        return 5.0 + float((theta - 0.3).square().sum()), 0.25, 2.0 * (theta - 0.3)

    steps, _ = whole_run(learn(method(evaluations=12, tolerance=1e-6), task, None, fails_at_second))
    answers = steps[-1].state.answers
    assert answers[1].isnan().all()
    assert answers[2].isnan().all()
    assert answers[0].isfinite().all()
    assert float(answers[0, 1]) == 0.25
    torch.testing.assert_close(steps[-1].state.theta, torch.full_like(task.theta, 0.3), rtol=1e-4, atol=1e-4)
    assert steps[-1].info.slope < 1e-3


def test_no_initial_value_means_failure_with_a_way_out():
    def never(theta: torch.Tensor) -> tuple[float, float, torch.Tensor]:
        raise NotPositiveDefinite("C", 12, 0.0)

    steps, outcome = whole_run(learn(method(restarts=2), problem(n=12), None, never))
    assert len(steps) == 1
    assert outcome == Outcome(
        "failed",
        "K + s2 I has no Cholesky factor at any initial theta. Choose other initial values, or more noise.",
    )


def test_known_noise_stays_in_restarts():
    task = problem(n=20)
    kernel = kernels.make("se-ard", 2)
    object.__setattr__(kernel, "noise_is_known", True)
    seen = []

    def watched(theta: torch.Tensor) -> tuple[float, float, torch.Tensor]:
        seen.append(theta.clone())
        return float((theta[:-1] - 0.1).square().sum()), 0.0, torch.cat([2.0 * (theta[:-1] - 0.1), theta[-1:] * 0.0])

    whole_run(learn(method(restarts=2, evaluations=2, seed=1), replace(task, kernel=kernel), None, watched))
    assert {float(theta[-1]) for theta in seen} == {float(task.theta[-1])}
    for k, start in enumerate(initial_values(task.theta, 2, 1)):
        assert torch.equal(seen[2 * k][:-1], start[:-1])


def test_an_optimiser_goes_back_from_points_without_a_value_or_too_far_away():
    seen = []

    def bowl(point: np.ndarray) -> Evaluated:
        seen.append(point.copy())
        return Evaluated(1e6 * float((point - 20.0) @ (point - 20.0)), 2e6 * (point - 20.0), "here")

    bests = list(descend(bowl, np.zeros(2), "CG", 60))
    assert all(np.abs(point).max() <= 12.0 for point in seen)
    assert [best.value for best in bests] == sorted((best.value for best in bests), reverse=True)
    assert bests[-1].extra == "here"


def test_the_cost_counts_entries_matrices_and_calls():
    task = problem(n=50)
    cost = dense_cost(task, 1e6, 3)
    assert cost.flops == 1e6 + 2.0 * 2500 * (100.0 + 8.0)
    assert cost.bytes == 10.0 * 8 * 2500
    assert cost.arrays == {"n x n matrices": 3 * 8 * 2500}
    assert cost.calls == pytest.approx(60.0 + 40.0, abs=1.0)


def test_a_state_is_only_numbers():
    state = whole_run(method(evaluations=2).steps(problem(n=12)))[0][-1].state
    assert isinstance(state, LearningState)
    assert state.answers.shape == (2, 6)
