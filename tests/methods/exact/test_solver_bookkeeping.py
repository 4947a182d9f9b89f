"""What a solver of the exact GP reports and carries from step to step, when it stops, and what it says then."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import pytest
import torch

from gpexplorer.methods import fixed_subset
from gpexplorer.methods.exact.reliability import error_bounds
from gpexplorer.methods.exact.solver import _copies, _in_float64, _repaired_recently
from gpexplorer.methods.exact.system import Iteration, System
from gpexplorer.methods.fixed_subset import subset_rows
from gpexplorer.objectives import evidence
from gpexplorer.problem import Outcome, Problem
from oracles_gbcd import SHIFTS, gram, noise, quick, system, wavy
from whole_run import finished

# -- phases and positions ----------------------------------------------------------------------------------------------


def test_learning_and_solving_are_counted_from_one_in_each_phase():
    task = wavy()
    method = quick("gbcd", learn=True, evaluations=4, subset=30, max_iterations=5, tolerance=0.0)
    steps, outcome = finished(method, task)
    assert [step.info.phase for step in steps] == ["start", *["learn"] * 4, *["solve"] * 5]
    assert [step.state.step for step in steps] == list(range(10))
    assert [step.state.position for step in steps] == [0, 1, 2, 3, 4, 1, 2, 3, 4, 5]
    assert [step.state.phase for step in steps] == ["learn"] * 5 + ["solve"] * 5
    evidences = [step.info.evidence for step in steps[1:5]]
    assert evidences == sorted(evidences, reverse=True)
    assert all(step.info.objective == 0.0 for step in steps[:5])
    assert all(math.isnan(step.info.evidence) for step in steps[5:])
    assert all(torch.equal(step.state.theta, steps[4].state.theta) for step in steps[5:])
    assert (outcome.reason, outcome.message) == (
        "budget",
        "All 5 iterations are done. Raise max_iterations to continue. Learning ended before it converged. All 4 "
        f"evaluations are done; the largest derivative is {largest_derivative(task, steps[-1].state, 30):.2g}. Raise "
        "evaluations.",
    )


def largest_derivative(task: Problem, state: Any, subset: int) -> float:
    """Of the likelihood of the subset."""
    return float(evidence(task.kernel, state.theta, task.train.rows(subset_rows(task, 0, subset)))[1].abs().max())


@pytest.mark.parametrize("key", ["gbcd", "cholesky", "subset-of-regressors", "matching-pursuit"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_solution_at_hyperparameters_that_are_not_learned_to_the_end_is_named_as_such(key: str, shift: float):
    """Also of a run that is resumed, after any of its evaluations or the solution."""
    task, ends = wavy(shift), {}
    for evaluations in (4, 200):
        method = quick(key, learn=True, evaluations=evaluations, num_regressors=9)
        steps, ends[evaluations] = finished(method, task)
        learned = [k for k, step in enumerate(steps) if step.info.phase == "learn"]
        for k in (learned[0], learned[-1], len(steps) - 1):
            assert finished(method, task, steps[k].state)[1] == ends[evaluations]
        if evaluations == 4:
            slope = f"{largest_derivative(task, steps[-1].state, 80):.2g}"
    assert ends[4].reason == "budget"
    words = f"All 4 evaluations are done; the largest derivative is {slope}. Raise evaluations."
    assert ends[4].message.endswith(f"Learning ended before it converged. {words}")
    assert ends[200].reason == "converged"
    assert "Learning" not in ends[200].message


def test_learning_on_all_rows_follows_that_on_a_subset():
    method = quick("gbcd", learn=True, evaluations=4, subset=30, full_steps=2)
    assert "Learning" not in finished(method, wavy())[1].message


def test_learning_that_rounding_ends_is_named_too(monkeypatch: pytest.MonkeyPatch):
    """A descent that finds nothing lower, at a derivative that is not small."""
    monkeypatch.setattr(fixed_subset, "evidence", lambda *of: (evidence(*of)[0], -evidence(*of)[1]))
    outcome = finished(quick("cholesky", learn=True, evaluations=50), wavy())[1]
    assert outcome.reason == "budget"
    assert "Learning ended before it converged. L-BFGS-B finds no lower value after" in outcome.message


def test_without_learning_theta_stays():
    task = wavy()
    steps, _ = finished(quick("cg", max_iterations=3, tolerance=0.0), task)
    assert [step.info.phase for step in steps] == ["start", "solve", "solve", "solve"]
    assert all(torch.equal(step.state.theta, task.theta) for step in steps)
    assert not steps[0].state.alpha.any()


@pytest.mark.parametrize("begin", [0, 2, 4, 6])
@pytest.mark.parametrize("key", ["gbcd", "cg"])
def test_a_resumed_run_repeats_every_step(key: str, begin: int):
    task = wavy()
    method = quick(key, learn=True, evaluations=4, subset=30, max_iterations=5, tolerance=0.0)
    steps, outcome = finished(method, task)
    rest, same = finished(method, task, steps[begin].state)
    assert outcome == same
    assert [step.state.position for step in rest] == [step.state.position for step in steps[begin + 1 :]]
    for resumed_step, expected in zip(rest, steps[begin + 1 :], strict=True):
        torch.testing.assert_close(resumed_step.state.theta, expected.state.theta)
        torch.testing.assert_close(resumed_step.state.alpha, expected.state.alpha, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("shift", SHIFTS)
def test_every_report_is_that_of_dense_algebra(shift: float):
    task = wavy(shift)
    A, y, s2 = system(task), task.train.y, noise(task)
    steps, _ = finished(quick("gbcd"), task)
    best = torch.linalg.solve(A, y)
    least = float(0.5 * best @ A @ best - best @ y)
    for step in steps[1:]:
        alpha = step.state.alpha
        g = A @ alpha - y
        assert step.info.objective == pytest.approx(float(0.5 * alpha @ A @ alpha - alpha @ y), rel=1e-8)
        assert step.info.largest == pytest.approx(float(g.abs().max()), rel=1e-5, abs=1e-11)
        assert step.info.norm == pytest.approx(float(g.norm()), rel=1e-5, abs=1e-11)
        assert step.state.largest == step.info.largest
        assert step.state.norm == step.info.norm
        prior = float(gram(task).diagonal().max())
        assert step.info.gap_bound == pytest.approx(0.5 * step.info.norm**2 / s2)
        assert step.info.mean_bound == pytest.approx(0.5 * step.info.norm / s2 * math.sqrt(prior))
        assert step.info.objective - least <= step.info.gap_bound + 1e-9
        assert len(step.info.active) == len(step.info.gains) == 12
        assert not len(step.state.gradient)


def test_active_rows_are_those_of_alpha_that_changed_and_gains_what_each_alone_promised():
    task = wavy()
    A, y = system(task), task.train.y
    steps = list(islice(quick("gbcd").steps(task), 4))
    changed = steps[1].state.alpha.nonzero()[:, 0]  # later steps also continue along earlier ones
    assert sorted(steps[1].info.active.tolist()) == changed.tolist()
    first = steps[1].info
    row = int(first.active[0])
    assert float(first.gains[0]) == pytest.approx(float(0.5 * y[row] ** 2 / A[row, row]), rel=1e-6)
    cg = list(islice(quick("cg").steps(task), 2))[1].info
    assert len(cg.active) == len(cg.gains) == 0


# -- why a run ends ----------------------------------------------------------------------------------------------------


def test_a_run_ends_at_the_first_gradient_within_the_tolerance_which_is_computed_from_scratch():
    task = wavy()
    for tolerance in (1e-1, 1e-3):
        steps, outcome = finished(quick("gbcd", tolerance=tolerance), task)
        values = [step.state.largest for step in steps[1:]]
        assert all(value > tolerance for value in values[:-1])
        assert values[-1] <= tolerance
        assert [math.isnan(step.info.drift) for step in steps[1:]] == [True] * (len(steps) - 2) + [False]
        assert steps[-1].info.drift < 1e-9
        bounds = error_bounds(float(gram(task).diagonal().max()), noise(task), steps[-1].state.norm)
        assert (bounds.mean > 0.05) == (tolerance == 1e-1)
        certain = Outcome(
            "converged",
            f"The largest gradient entry is {values[-1]:.2g}. No predictive mean errs by more than {bounds.mean:.2g} "
            f"noise standard deviations, and the objective is at most {bounds.gap:.2g} above its minimum.",
        )
        uncertain = Outcome(
            "budget",
            f"The largest gradient entry is {values[-1]:.2g}, within the tolerance {tolerance:g}, but a predictive "
            f"mean may still err by {bounds.mean:.2g} noise standard deviations. Lower tolerance, or set "
            "mean_tolerance to 0.05, to continue.",
        )
        assert outcome == (uncertain if bounds.mean > 0.05 else certain)


def test_a_run_may_end_on_the_error_of_the_mean_alone():
    task = wavy()
    steps, outcome = finished(quick("gbcd", tolerance=0.0, mean_tolerance=0.3), task)
    bounds = [step.info.mean_bound for step in steps[1:]]
    assert all(bound > 0.3 for bound in bounds[:-1])
    assert bounds[-1] <= 0.3
    assert outcome.reason == "converged"


def test_a_solver_without_further_iterations_says_that_the_system_is_solved(monkeypatch: pytest.MonkeyPatch):
    method = quick("cg", tolerance=0.0)
    real = type(method).iterations
    monkeypatch.setattr(type(method), "iterations", lambda self, *inputs: islice(real(self, *inputs), 3))
    steps, outcome = finished(method, wavy())
    assert len(steps) == 4
    bounds = error_bounds(float(gram(wavy()).diagonal().max()), noise(wavy()), steps[-1].state.norm)
    largest = steps[-1].state.largest
    assert outcome == Outcome(
        "budget",
        f"The system is solved as far as float64 allows. The largest gradient entry is {largest:.2g}, so that a "
        f"predictive mean may err by {bounds.mean:.2g} noise standard deviations. Bands contain an estimate of the "
        "error of the mean. Raise the noise, or drop duplicate rows.",
    )
    exact = finished(quick("cholesky", tolerance=0.0), wavy())
    largest = exact[0][-1].state.largest
    assert exact[1] == Outcome("converged", f"The system is solved; the largest gradient entry is {largest:.2g}.")


def test_a_refresh_is_due_after_the_set_number_of_iterations():
    steps, _ = finished(quick("gbcd", refresh=3, max_iterations=8, tolerance=0.0), wavy())
    assert [k for k, step in enumerate(steps[1:], 1) if not math.isnan(step.info.drift)] == [3, 6]
    steps, _ = finished(quick("gbcd", refresh=0, max_iterations=8, tolerance=0.0), wavy())
    assert all(math.isnan(step.info.drift) for step in steps)


def test_a_gradient_that_is_not_finite_is_divergence():
    task = wavy()
    method = quick("gbcd", tolerance=1e-7)
    steps, _ = finished(method, task)
    state = steps[2].state._replace(largest=math.nan)
    outcome = method._outcome(System(task, task.theta, 0.0), state)
    assert outcome == Outcome("diverged", "The gradient is not finite after 2 iterations.")
    assert method._outcome(System(task, task.theta, 0.0), steps[0].state) is None


def test_a_stalled_run_says_which_precision_is_too_coarse():
    task = wavy()
    method = quick("gbcd", tolerance=1e-7)
    steps, _ = finished(method, task)
    state = steps[2].state._replace(stalled=True, largest=0.5)
    outcome = method._outcome(System(task, task.theta, 0.0), state)
    assert outcome is not None
    assert outcome.reason == "budget"
    assert outcome.message == (
        f"The largest gradient entry stays at 0.5, so that a predictive mean may err by {steps[2].info.mean_bound:.2g} "
        "noise standard deviations: float64 is not accurate enough. Bands contain an estimate of the error of the "
        "mean. Raise the noise, or drop duplicate rows."
    )


def test_an_end_in_float64_after_float32_says_from_which_iteration_on():
    task = wavy()
    method = quick("gbcd", tolerance=1e-3)
    steps, _ = finished(method, task)
    outcome = method._outcome(System(task, task.theta, 0.0), steps[-1].state._replace(float64_from=3))
    assert outcome is not None
    assert outcome.message.endswith(
        "Kernel columns are float64 from iteration 3 on, because float32 was too inaccurate for this noise."
    )


def test_the_state_from_which_float64_continues_starts_with_a_gradient_from_scratch():
    steps = list(islice(quick("cg", mixed=True).steps(wavy()), 4))
    state = steps[-1].state._replace(repaired=2, checked=0.1)
    assert len(state.gradient) == 80
    assert len(state.memory) == 3
    begun = _in_float64(state, 7)
    assert (begun.float64_from, begun.memory, len(begun.gradient)) == (7, (), 0)
    assert (begun.repaired, begun.checked) == (0, math.inf)
    assert begun.position == state.position


def test_a_repair_is_recent_for_as_many_iterations_as_a_gradient_from_scratch_takes():
    state = next(quick("gbcd").steps(wavy())).state
    alpha = torch.zeros(80)
    block = Iteration(alpha, alpha, (), active=torch.arange(20))
    assert not _repaired_recently(state, block, 5)
    assert _repaired_recently(state._replace(repaired=3), block, 7)  # 80 / 20 = 4 iterations
    assert not _repaired_recently(state._replace(repaired=3), block, 8)
    assert _repaired_recently(state._replace(repaired=3), Iteration(alpha, alpha, ()), 4)
    assert not _repaired_recently(state._replace(repaired=3), Iteration(alpha, alpha, ()), 5)


def test_memory_is_copied():
    same, other = torch.ones(3), torch.zeros(3)
    copied = _copies((same, other))
    assert [part.tolist() for part in copied] == [[1.0] * 3, [0.0] * 3]
    copied[0][0] = 5.0
    assert same[0] == 1.0
    uneven = _copies((same, torch.zeros(2)))
    uneven[0][1] = 7.0
    assert same[1] == 1.0
    assert _copies(()) == ()
