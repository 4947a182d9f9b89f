"""What a solver of the exact GP reports and carries from step to step, when it stops, and what it says then."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import pytest
import torch

from gpexplorer.methods.exact import posteriors
from gpexplorer.methods.exact.joint.posterior import JointPosterior
from gpexplorer.methods.exact.posteriors import Bands, exact_posterior, variance_rows
from gpexplorer.methods.exact.reliability import Point, StepCheck, check_step, error_bounds, used_up, way_out
from gpexplorer.methods.exact.solver import _copies, _in_float64, _repaired_recently
from gpexplorer.methods.exact.system import Iteration, System
from gpexplorer.problem import Outcome, Step
from oracles_gbcd import SHIFTS, gram, noise, quick, system, wavy
from whole_run import whole_run


def walked(method: Any, task: Any, resume: Any = None) -> tuple[list[Step], Outcome]:
    return whole_run(method.steps(task, resume))


# -- phases and positions ----------------------------------------------------------------------------------------------


def test_learning_and_solving_are_counted_from_one_in_each_phase():
    task = wavy()
    method = quick("gbcd", learn=True, evaluations=4, subset=30, max_iterations=5, tolerance=0.0)
    steps, outcome = walked(method, task)
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
        "All 5 iterations are done. Raise max_iterations to continue.",
    )


def test_without_learning_theta_stays():
    task = wavy()
    steps, _ = walked(quick("cg", max_iterations=3, tolerance=0.0), task)
    assert [step.info.phase for step in steps] == ["start", "solve", "solve", "solve"]
    assert all(torch.equal(step.state.theta, task.theta) for step in steps)
    assert not steps[0].state.alpha.any()


@pytest.mark.parametrize("begin", [0, 2, 4, 6])
@pytest.mark.parametrize("key", ["gbcd", "cg"])
def test_a_resumed_run_repeats_every_step(key: str, begin: int):
    task = wavy()
    method = quick(key, learn=True, evaluations=4, subset=30, max_iterations=5, tolerance=0.0)
    steps, told = walked(method, task)
    rest, same = walked(method, task, steps[begin].state)
    assert told == same
    assert [step.state.position for step in rest] == [step.state.position for step in steps[begin + 1 :]]
    for ours, theirs in zip(rest, steps[begin + 1 :], strict=True):
        torch.testing.assert_close(ours.state.theta, theirs.state.theta)
        torch.testing.assert_close(ours.state.alpha, theirs.state.alpha, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("shift", SHIFTS)
def test_every_report_is_that_of_dense_algebra(shift: float):
    task = wavy(shift)
    A, y, s2 = system(task), task.train.y, noise(task)
    steps, _ = walked(quick("gbcd"), task)
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
        steps, outcome = walked(quick("gbcd", tolerance=tolerance), task)
        values = [step.state.largest for step in steps[1:]]
        assert all(value > tolerance for value in values[:-1])
        assert values[-1] <= tolerance
        assert [math.isnan(step.info.drift) for step in steps[1:]] == [True] * (len(steps) - 2) + [False]
        assert steps[-1].info.drift < 1e-9
        bounds = error_bounds(float(gram(task).diagonal().max()), noise(task), steps[-1].state.norm)
        assert outcome == Outcome(
            "converged",
            f"The largest gradient entry is {values[-1]:.2g}. No predictive mean errs by more than {bounds.mean:.2g} "
            f"noise standard deviations, and the objective is at most {bounds.gap:.2g} above its minimum.",
        )


def test_a_run_may_end_on_the_error_of_the_mean_alone():
    task = wavy()
    steps, outcome = walked(quick("gbcd", tolerance=0.0, mean_tolerance=0.3), task)
    bounds = [step.info.mean_bound for step in steps[1:]]
    assert all(bound > 0.3 for bound in bounds[:-1])
    assert bounds[-1] <= 0.3
    assert outcome.reason == "converged"


def test_a_solver_without_further_iterations_says_that_the_system_is_solved(monkeypatch: pytest.MonkeyPatch):
    method = quick("cg", tolerance=0.0)
    real = type(method).iterations
    monkeypatch.setattr(type(method), "iterations", lambda self, *inputs: islice(real(self, *inputs), 3))
    steps, outcome = walked(method, wavy())
    assert len(steps) == 4
    largest = steps[-1].state.largest
    assert outcome == Outcome("converged", f"The system is solved; the largest gradient entry is {largest:.2g}.")


def test_a_refresh_is_due_after_so_many_iterations():
    steps, _ = walked(quick("gbcd", refresh=3, max_iterations=8, tolerance=0.0), wavy())
    assert [k for k, step in enumerate(steps[1:], 1) if not math.isnan(step.info.drift)] == [3, 6]
    steps, _ = walked(quick("gbcd", refresh=0, max_iterations=8, tolerance=0.0), wavy())
    assert all(math.isnan(step.info.drift) for step in steps)


def test_a_gradient_that_is_not_finite_is_divergence():
    task = wavy()
    method = quick("gbcd", tolerance=1e-7)
    steps, _ = walked(method, task)
    state = steps[2].state._replace(largest=math.nan)
    outcome = method._outcome(System(task, task.theta, 0.0), state)
    assert outcome == Outcome("diverged", "The gradient is not finite after 2 iterations.")
    assert method._outcome(System(task, task.theta, 0.0), steps[0].state) is None


def test_a_stalled_run_says_which_precision_is_too_coarse():
    task = wavy()
    method = quick("gbcd", tolerance=1e-7)
    steps, _ = walked(method, task)
    state = steps[2].state._replace(stalled=True, largest=0.5)
    outcome = method._outcome(System(task, task.theta, 0.0), state)
    assert outcome is not None
    assert outcome.reason == "budget"
    assert outcome.message == (
        "The largest gradient entry stays at 0.5, above the tolerance 1e-07: float64 is not accurate enough. "
        "Raise the noise, or drop duplicate rows."
    )


def test_an_end_in_float64_after_float32_says_from_which_iteration_on():
    task = wavy()
    method = quick("gbcd", tolerance=1e-1)
    steps, _ = walked(method, task)
    outcome = method._outcome(System(task, task.theta, 0.0), steps[-1].state._replace(float64_from=3))
    assert outcome is not None
    assert outcome.message.endswith(
        "Kernel columns are float64 from iteration 3 on, because float32 was too inaccurate for this noise."
    )


def test_the_state_from_which_float64_goes_on_starts_with_a_gradient_from_scratch():
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


# -- the check of a step -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_check_of_a_step_is_that_of_dense_algebra(shift: float):
    task = wavy(shift)
    A, y, solver = system(task), task.train.y, System(task, task.theta, 0.0)
    draw = torch.Generator().manual_seed(1)
    old, new = 0.1 * torch.randn(2, 80, generator=draw, dtype=torch.float64)

    def value(alpha: torch.Tensor) -> float:
        return float(0.5 * alpha @ A @ alpha - alpha @ y)

    check = check_step(solver, Point(old, A @ old - y), Point(new, A @ new - y))
    assert check.decrease == pytest.approx(value(old) - value(new))
    assert check.objective == pytest.approx(value(new))
    assert check.largest == pytest.approx(float((A @ new - y).abs().max()))
    assert check.norm == pytest.approx(float((A @ new - y).norm()))
    assert check.error == pytest.approx(0.0, abs=1e-9)
    assert check.resolution == pytest.approx(1e-6 * max(abs(value(old)), abs(value(new))))

    wrong = 0.01 * torch.randn(80, generator=draw, dtype=torch.float64)  # an error of the new gradient
    check = check_step(solver, Point(old, A @ old - y), Point(new, A @ new - y + wrong))
    assert check.error == pytest.approx(float(old @ wrong), abs=1e-9)


@pytest.mark.parametrize(("moved", "seen"), [(1, True), (39, True), (40, True), (41, False), (80, False)])
@pytest.mark.parametrize("mixed", [True, False])
def test_the_first_step_with_float32_columns_is_compared_with_the_objective_from_scratch(
    mixed: bool, moved: int, seen: bool
):
    task = wavy()
    A, y, solver = system(task), task.train.y, System(task, task.theta, 0.0, mixed)
    alpha = torch.zeros_like(y)
    alpha[:moved] = 0.1 * y[:moved]
    wrong = A @ alpha - y + 0.01
    check = check_step(solver, Point(torch.zeros_like(y), -y), Point(alpha, wrong))
    true = float(0.5 * alpha @ A @ alpha - alpha @ y)
    error = 0.5 * 0.01 * float(alpha.sum()) if seen and mixed else 0.0
    assert check.objective == pytest.approx(true + 0.5 * 0.01 * float(alpha.sum()))
    assert check.error == pytest.approx(error, abs=1e-7)
    later = check_step(solver, Point(alpha, A @ alpha - y), Point(0.5 * alpha, 0.5 * (A @ alpha) - y))
    assert later.error == pytest.approx(0.0, abs=1e-9)


def test_a_rise_beyond_rounding_and_an_error_beside_a_small_decrease_are_seen():
    assert not StepCheck(decrease=1.0, error=0.0, resolution=0.01).rises
    assert not StepCheck(decrease=-0.01, error=0.0, resolution=0.01).rises
    assert StepCheck(decrease=-0.011, error=0.0, resolution=0.01).rises
    assert StepCheck(decrease=math.nan, error=0.0, resolution=0.01).rises
    assert StepCheck(decrease=math.inf, error=0.0, resolution=0.01).rises
    assert not StepCheck(decrease=1.0, error=0.1, resolution=0.01).unreliable
    assert StepCheck(decrease=1.0, error=-0.11, resolution=0.01).unreliable
    assert not StepCheck(decrease=0.0, error=0.01, resolution=0.01).unreliable
    assert StepCheck(decrease=0.0, error=0.02, resolution=0.01).unreliable
    assert StepCheck(decrease=1.0, error=math.nan, resolution=0.01).unreliable


def test_the_end_of_a_precision_names_the_ratio_of_signal_and_noise():
    task = wavy()
    solver = System(task, task.theta, 0.0)
    ratio = float(solver.diag.max()) / noise(task)
    up = used_up(StepCheck(decrease=-2.0, error=0.5, resolution=0.01), 9, solver)
    assert (up.reason, up.message) == (
        "diverged",
        "The objective would rise by 2 in iteration 9, although its gradient was computed from scratch: float64 is not "
        f"accurate enough where the signal variance is {ratio:.0e} times the noise. {way_out(torch.float64)}",
    )
    lost = used_up(StepCheck(decrease=0.25, error=-0.5, resolution=0.01), 9, solver)
    assert (lost.reason, lost.message) == (
        "budget",
        "Rounding changes the objective by 0.5 in iteration 9, which decreases it by 0.25: float64 is not accurate "
        f"enough where the signal variance is {ratio:.0e} times the noise. {way_out(torch.float64)}",
    )
    assert "float64" in way_out(torch.float32)


# -- predictions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "solved", "rows"),
    [
        ({"bands": "auto"}, True, 80),
        ({"bands": "rows", "variance_rows": 25}, True, 25),
        ({"bands": "rows", "variance_rows": 0}, True, 80),
        ({"bands": "exact", "variance_rows": 25}, True, 80),
        ({"bands": "exact", "variance_rows": 25}, False, 25),
        ({"bands": "auto", "variance_rows": 25}, False, 25),
    ],
)
def test_variances_use_the_rows_that_the_settings_name(settings: dict, solved: bool, rows: int):
    task = wavy()
    method = quick("gbcd", **settings)
    steps, _ = walked(method, task)
    state = steps[-1].state if solved else steps[2].state
    S = variance_rows(task, rows if rows < 80 else 0, method.seed)
    X = task.train.X[:6] + 0.2
    A, across = system(task)[S][:, S], task.kernel(task.theta, task.train.X[S], X)
    variance = task.kernel.diag(task.theta, X) - (across * torch.linalg.solve(A, across)).sum(0)
    if not solved:
        residual = (task.train.y - system(task) @ state.alpha)[S]
        variance = variance + (torch.linalg.solve(A, across).T @ residual).square()
    mean, got = method.posterior(task, state).moments(X)
    torch.testing.assert_close(got, variance, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(mean, task.kernel(task.theta, X, task.train.X) @ state.alpha, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("room", "cache", "settings", "joint"),
    [
        (8 * 80 * 80, 0.0, {}, False),
        (8 * 80 * 80 - 1, 0.0, {}, True),
        (0, 8 * 80 * 80, {}, False),
        (0, 8 * 80 * 80 - 1, {}, True),
        (0, 0.0, {"rows": 25}, False),
        (0, 0.0, {"solved": False}, False),
    ],
)
def test_variances_of_all_rows_come_from_iterations_where_a_factor_has_no_room(
    room: float, cache: float, settings: dict, joint: bool, monkeypatch: pytest.MonkeyPatch
):
    task = wavy()
    state = walked(quick("gbcd"), task)[0][-1].state
    monkeypatch.setattr(posteriors, "FACTOR_BYTES", room)
    found = exact_posterior(
        task, state, Bands(**{"rows": 0, "seed": 0, "cache": float(cache), "tolerance": 1e-8, **settings})
    )
    assert isinstance(found, JointPosterior) == joint
    if settings.get("rows"):
        return
    X = task.train.X[:4] + 0.1
    A, across = system(task), task.kernel(task.theta, task.train.X, X)
    variance = task.kernel.diag(task.theta, X) - (across * torch.linalg.solve(A, across)).sum(0)
    torch.testing.assert_close(found.moments(X)[1], variance, rtol=1e-5, atol=1e-7)


def test_the_note_beside_a_variance_says_how_many_rows_it_uses():
    task = wavy()
    steps, _ = walked(quick("gbcd"), task)
    begun, solved = steps[2].state, steps[-1].state
    few = quick("gbcd", bands="rows", variance_rows=25)
    assert few.variance_note(task, begun) == "estimated from 25 rows: the solver has not converged"
    assert few.variance_note(task, solved) == few.variance_note(task) == "upper bound from 25 rows"
    assert quick("gbcd", bands="rows", variance_rows=100).variance_note(task, solved) == ""
    assert quick("gbcd", bands="rows", variance_rows=80).variance_note(task, solved) == ""
    assert quick("gbcd", variance_rows=0).variance_note(task, begun) == (
        "estimated from 80 rows: the solver has not converged"
    )
    assert quick("gbcd", bands="exact", variance_rows=25).variance_note(task, solved) == ""
    assert quick("gbcd", bands="auto", variance_rows=25).variance_note(task, solved) == ""


def test_a_state_is_solved_within_either_tolerance_and_in_the_last_phase_only():
    task = wavy()
    method = quick("gbcd", tolerance=1e-3)
    steps, _ = walked(method, task)
    last = steps[-1].state
    assert method._solved(task, last)
    assert not method._solved(task, last._replace(phase="learn"))
    assert not method._solved(task, last._replace(largest=math.inf))
    assert not method._solved(task, last._replace(largest=2e-3))
    loose = quick("gbcd", tolerance=0.0, mean_tolerance=0.2)
    s2, prior = noise(task), float(gram(task).diagonal().max())
    allowed = 0.2 / (0.5 / s2 * math.sqrt(prior))
    assert loose._solved(task, last._replace(norm=0.999 * allowed))
    assert not loose._solved(task, last._replace(norm=1.001 * allowed))


@pytest.mark.parametrize(("rows", "wanted"), [(0, 20), (8, 8), (25, 20)])
def test_bands_of_some_rows_are_shown_beside_and_never_narrower(rows: int, wanted: int):
    task = wavy()
    method = quick("gbcd", variance_rows=rows)
    steps, _ = walked(method, task)
    some, count = method.posterior_of_some_rows(task, steps[-1].state)
    assert count == wanted
    X = task.train.X[:6] + 0.2
    everything = method.posterior(task, steps[-1].state)
    torch.testing.assert_close(some.moments(X)[0], everything.moments(X)[0])
    assert bool((some.moments(X)[1] >= everything.moments(X)[1] - 1e-12).all())


def test_coefficients_of_zero_need_no_kernel_entry_and_change_nothing():
    task = wavy()
    state = list(islice(quick("gbcd").steps(task), 3))[-1].state
    assert 0 < int((state.alpha == 0).sum()) < 80
    X = task.train.X[:5] + 0.1
    mean = exact_posterior(task, state, Bands(rows=10, seed=0)).moments(X)[0]
    torch.testing.assert_close(mean, task.kernel(task.theta, X, task.train.X) @ state.alpha)


def test_correlations_use_the_iterates_of_the_last_phase():
    task = wavy()
    method = quick("gbcd", learn=True, evaluations=3, subset=30, max_iterations=9, tolerance=0.0)
    states = [step.state for step in method.steps(task)]
    solved = [state for state in states if state.phase == "solve"]
    found = method.gradient_correlations(task, states, 10, 4)
    alone = method.gradient_correlations(task, solved, 10, 4)
    assert found.iterations == alone.iterations == 9
    torch.testing.assert_close(found.near, alone.near)
    assert method.gradient_correlations(task, states[:3], 10, 4).iterations == 0
    rows = torch.tensor([3, 50])
    A = system(task)
    last = states[-1]._replace(theta=task.theta)
    wanted = (A @ last.alpha - task.train.y)[rows]
    torch.testing.assert_close(method.gradient_entries(task, last, rows), wanted)
