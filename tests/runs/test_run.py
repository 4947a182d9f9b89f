"""A run takes steps, times and counts them, ends, resumes and forks. All numbers of the toy method are known."""

from __future__ import annotations

import gc
import math
import threading
import time
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpexplorer import Spec
from gpexplorer.errors import OutOfMemory
from gpexplorer.problem import Cost, Problem
from gpexplorer.runs.budget import Budget, ScoringTime, long_step_note, scheduled
from toy_method import N, Toy, toy_run


def test_records_have_numbers_seconds_and_counts():
    run = toy_run()

    for _ in range(4):
        run.advance()

    assert [record.index for record in run.trace] == [0, 1, 2, 3]
    assert [record.seconds for record in run.trace] == [
        1.0,
        2.0,
        3.0,
        4.0,
    ]  # the clock is read twice per step, one second apart
    assert [record.cost.entries for record in run.trace] == [0, N * N, N * N, N * N]
    assert run.trace[-1].index == 3
    assert [record.index for record in run.trace[1:3]] == [1, 2]


def test_scoring_adds_no_seconds_and_no_kernel_entries():
    plain, scored = toy_run(), toy_run()

    for _ in range(3):
        plain.advance()
        scored.advance(score=True)

    assert [r.seconds for r in plain.trace] == [r.seconds for r in scored.trace]
    assert [r.cost for r in plain.trace] == [r.cost for r in scored.trace]


def test_finish_scores_on_a_schedule_that_does_not_depend_on_the_clock():
    run = toy_run()

    outcome = run.finish(steps=23)

    assert outcome.reason == "budget"
    assert "23 steps" in outcome.message
    assert [r.index for r in run.trace if r.scores] == [0, 1, 2, 5, 10, 20, 23]
    assert [k for k in range(2001) if scheduled(k)] == [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000]


def test_a_budget_of_seconds_counts_the_methods_own_work_and_can_be_raised():
    run = toy_run()

    assert run.finish(seconds=5).reason == "budget"
    assert (run.done, run.trace[-1].seconds) == (4, 5.0)

    run.finish(seconds=9)
    assert run.trace[-1].seconds == 9.0
    assert run.outcome is not None
    assert "9 s" in run.outcome.message


def test_scores_take_less_time_than_the_steps_of_a_run_that_is_given_seconds(monkeypatch: pytest.MonkeyPatch):
    scored: list[int] = []

    def slow(*_: Any) -> dict[str, float]:
        scored.append(run.done)
        time.sleep(0.1)
        return {"smse": 1.0}

    monkeypatch.setattr("gpexplorer.runs.scores.scores_of", slow)
    run = Spec("cholqr", data={"name": "hypercube", "n": 60, "d": 2}, settings={"tolerance": 0.0}).open()

    begin = time.perf_counter()
    run.finish(seconds=0.3)
    took = time.perf_counter() - begin

    # Beside the steps: the last score, one that began in time, and the work between steps.
    assert took < 1.25 * run.trace[-1].seconds + 0.1 * 2 + 0.5
    assert run.trace[-1].scores == {"smse": 1.0}
    assert len(scored) < len([k for k in range(run.done) if scheduled(k)])


@pytest.mark.parametrize(("seconds_of_a_score", "first"), [(0.0, {"smse": 1.0}), (10.0, None)])
def test_the_first_record_of_a_run_that_is_given_seconds_is_scored_when_there_is_time(
    monkeypatch: pytest.MonkeyPatch, seconds_of_a_score: float, first: dict[str, float] | None
):
    clock = [0.0]
    monkeypatch.setattr("gpexplorer.runs.budget.time.perf_counter", lambda: clock[0])

    def score(*_: Any) -> dict[str, float]:
        clock[0] += seconds_of_a_score
        return {"smse": 1.0}

    monkeypatch.setattr("gpexplorer.runs.scores.scores_of", score)
    run = Spec("cholqr", data={"name": "hypercube", "n": 60, "d": 2}, settings={"num_inducing": 4}).open()

    run.finish(steps=3, seconds=5.0)

    assert run.trace[0].scores == first
    assert run.trace[-1].scores == {"smse": 1.0}


def test_no_score_begins_once_scores_have_taken_a_quarter_of_the_time_of_the_steps(monkeypatch: pytest.MonkeyPatch):
    clock = [100.0]
    monkeypatch.setattr("gpexplorer.runs.budget.time.perf_counter", lambda: clock[0])
    limited, unlimited = ScoringTime(Budget(None, 20.0), 5.0), ScoringTime(Budget(9, None), 0.0)

    clock[0] = 100.1
    assert not limited.allowed(5.0)  # before the first step
    clock[0] = 100.0 + 12.0
    assert limited.allowed(5.0 + 10.0)
    clock[0] = 100.0 + 13.0  # three seconds beside ten of steps
    assert not limited.allowed(5.0 + 10.0)
    assert unlimited.allowed(1.0)


def test_a_step_that_is_expected_to_take_too_long_is_announced():
    assert "one step takes about 50 s, longer than the 0.7 s" in long_step_note(50.0, 0.7)
    assert "one step takes about 1,131 minutes: choose smaller settings" in long_step_note(67869.0, None)
    assert long_step_note(0.1, 0.7) == long_step_note(50.0, None) == long_step_note(math.nan, 1.0) == ""


def test_a_run_warns_before_a_step_that_takes_very_long_on_any_machine(monkeypatch: pytest.MonkeyPatch):
    run = toy_run()
    monkeypatch.setattr(Toy, "cost", lambda self, problem: Cost(3.4e15, 8.0, {"K": 8.0}))

    with pytest.warns(UserWarning, match=r"toy on 54 rows takes 3.4e\+15 flops per step. By .* about 57 minutes"):
        run.advance()

    monkeypatch.setattr(Toy, "cost", lambda self, problem: Cost(1e14, 8.0, {"K": 8.0}))
    assert toy_run().advance() is not None  # warnings are errors here


def test_the_methods_own_end_is_final():
    run = toy_run(limit=6)

    assert run.finish(steps=100).reason == "converged"
    assert run.outcome is not None
    assert run.outcome.message == "All 6 steps are done."
    assert run.advance() is None
    assert run.finish(steps=3).reason == "converged"
    assert len(run.trace) == 7


def test_a_method_at_the_end_of_its_own_budget_gives_the_same_answer_again():
    run = Spec("cholqr", {"num_inducing": 6, "max_epochs": 1}, data={"name": "snelson-like", "n": 60}).open()
    while run.advance() is not None:
        pass
    first, steps = run.outcome, run.done

    assert run.advance() is None
    assert run.error is None
    assert run.outcome == first
    assert run.done == steps


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("known", "K_mm [7 x 7] is not positive definite"),
        ("unknown", "An unexpected RuntimeError ended the method at step 3"),
        ("memory", "Memory ran out at step 3"),
    ],
)
def test_an_error_in_a_method_is_an_outcome_and_loses_nothing(fault: str, message: str):
    run = toy_run(fault=fault)

    outcome = run.finish(steps=10)

    assert outcome.reason == "failed"
    assert message in outcome.message
    assert "secret" not in outcome.message
    assert isinstance(run.error, Exception)
    assert [r.index for r in run.trace] == [0, 1, 2]
    assert run.posterior()(np.full((1, 10), 0.5)).mean.isfinite().all()
    assert run.advance() is None


def test_an_interrupt_leaves_the_run_ready_to_continue():
    run, whole = toy_run(fault="interrupt"), toy_run()
    whole.finish(steps=5)

    with pytest.raises(KeyboardInterrupt):
        run.finish(steps=5)
    assert run.done == 2
    assert run.outcome is None

    run.method.fault = ""
    run.finish(steps=5)
    torch.testing.assert_close(run.trace[-1].step.state.alpha, whole.trace[-1].step.state.alpha, rtol=1e-12, atol=0)


def test_stop_from_another_thread_ends_the_run_before_the_next_step():
    run, begun = toy_run(limit=10**6), threading.Event()

    def work() -> None:
        begun.set()
        run.finish()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    run.stop()
    thread.join(timeout=20)

    assert not thread.is_alive()
    assert run.outcome is not None
    assert run.outcome.reason == "stopped"
    assert run.advance() is not None  # the run can continue
    assert run.outcome is None


def test_close_frees_the_method_even_if_a_step_is_in_progress():
    run, inside, go = toy_run(), threading.Event(), threading.Event()

    class Slow(Toy):
        key = ""  # not registered

        def steps(self, problem: Problem, resume: Any = None) -> Any:
            inner = super().steps(problem, resume)
            yield next(inner)
            inside.set()
            go.wait(20)
            yield from inner

    run.method = Slow()
    thread = threading.Thread(target=lambda: [run.advance(), run.advance()])
    thread.start()
    inside.wait(20)
    steps = weakref.ref(run._steps)
    run.close()
    assert steps() is not None
    go.set()
    thread.join(timeout=20)
    gc.collect()

    assert steps() is None
    assert len(run.trace) == 2  # the step in progress was kept
    assert run.advance() is None
    assert run.finish(steps=9).reason == "stopped"


def test_a_fork_shares_its_past_and_repeats_or_changes_its_future():
    run = toy_run()
    run.finish(steps=8)

    resumed, other = run.fork(3), run.fork(3)
    resumed.finish(steps=8)
    other.method = Toy(seed=9)
    other.finish(steps=8)

    assert resumed.trace[3].step is run.trace[3].step
    torch.testing.assert_close(resumed.trace[8].step.state.alpha, run.trace[8].step.state.alpha, rtol=1e-10, atol=1e-12)
    assert not torch.equal(other.trace[8].step.state.alpha, run.trace[8].step.state.alpha)
    assert len(run.trace) == 9
    assert resumed.trace[3].seconds < resumed.trace[4].seconds


def test_a_mapper_replaces_the_methods_own_for_as_long_as_it_is_asked_and_no_longer():
    run, calls = toy_run(), list[Any]()

    def mapper(function: Any, *pieces: Any) -> Any:
        calls.append(function)
        return map(function, *pieces)

    own = run.method
    run.advance()
    with run.using_mapper(mapper):
        assert list(run.method.map(abs, [-2])) == [2]
        assert run.method.param.values() == own.param.values()
        run.advance()
    run.advance()

    assert calls == [abs]
    assert run.method is own
    assert own.map is map
    assert [record.index for record in run.trace] == [0, 1, 2]


def test_a_run_in_a_container_may_use_what_the_container_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("gpexplorer.memory.CGROUP", tmp_path)
    problem = {"data": {"name": "hypercube", "n": 300, "d": 2}, "kernel": {"name": "se", "start": "one"}}
    for limit, reason in (("max", "budget"), ("2000000", "failed"), ("90000000", "budget")):
        (tmp_path / "memory.max").write_text(limit)
        run = Spec("loo", **problem).open()
        assert run.finish(steps=1).reason == reason, run.outcome
    (tmp_path / "memory.max").write_text("2000000")
    run = Spec("loo", **problem).open()
    with run.using_mapper(partial(map)):  # workers have memory of their own
        assert run.finish(steps=1).reason == "budget"


def test_a_method_whose_arrays_are_larger_than_the_machine_is_refused_before_any_work():
    """Linux lets a process take more memory than there is, and ends it later with all that it holds."""
    run = Spec("ml", data={"name": "hypercube", "n": 700_000, "d": 1}, kernel={"name": "se", "start": "one"}).open()

    assert run.finish(steps=1).reason == "failed"
    assert run.outcome is not None
    assert "GB of them for n x n matrices, and this machine has" in run.outcome.message
    assert "use fewer rows, or a method for many" in run.outcome.message
    assert (len(run.trace), type(run.error)) == (0, OutOfMemory)
