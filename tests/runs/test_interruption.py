"""A person who asks for the end does not wait for a long step: it is given up, and begins again if the run goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import gpexplorer as gpx
from gpexplorer.cli.run_commands import progress_line
from gpexplorer.errors import SettingError
from gpexplorer.linalg.blocks import row_blocks, sum_over_rows
from gpexplorer.linalg.interruption import Interrupted, go_on, interruptible
from gpexplorer.problem import Problem, Step
from gpexplorer.runs import Run
from gpexplorer.runs.budget import PATIENCE, Budget
from gpexplorer.runs.studies import machine_speed
from toy_method import Toy, same, toy_run

LONG = 30.0  # seconds of a step that nobody waits for
SOON = 10.0  # far less than LONG, far more than PATIENCE


class Slow(Toy):
    """The toy with a step that takes LONG, in a loop over blocks of rows."""

    key = ""  # not registered
    slow_step = 2
    seconds = LONG

    def steps(self, problem: Problem, resume: Any = None) -> Any:
        for index, step in enumerate(super().steps(problem, resume), resume.step + 1 if resume else 0):
            if index == self.slow_step:
                spend_long(problem.train.y, self.seconds)
            yield step


def spend_long(y: torch.Tensor, seconds: float = LONG) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in row_blocks(len(y), 8, y, 64):
            time.sleep(0.001)


def slow_run(slow_step: int = 2, seconds: float = LONG) -> Run:
    run, method = toy_run(), Slow()
    method.slow_step, method.seconds = slow_step, seconds
    run._clock, run.method = time.perf_counter, method
    return run


def seconds_of(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpexplorer.runs.budget.PATIENCE", 0.05)


def test_loops_over_rows_ask_whether_to_go_on_and_nothing_asks_outside():
    X, asked, blocks = torch.zeros(10, 2), [], []

    def ask() -> bool:
        asked.append(True)
        return len(asked) > 2

    go_on()
    with pytest.raises(Interrupted), interruptible(ask):
        blocks.extend(row_blocks(10, 8, X, 8))
    assert blocks == [slice(0, 1), slice(1, 2)]  # the third is not begun
    with pytest.raises(Interrupted), interruptible(ask):
        sum_over_rows(lambda strip: (strip[0].sum(),), (X,), rows=5)
    assert len(list(row_blocks(10, 8, X, 8))) == 10


@pytest.mark.parametrize("slow_step", [1, 2])
def test_a_long_step_is_given_up_a_second_after_stop_and_begins_again(slow_step: int):
    run, whole = slow_run(slow_step), toy_run()
    threading.Timer(0.3, run.stop).start()

    took = seconds_of(run.finish)

    assert PATIENCE <= took < SOON
    assert run.outcome is not None
    assert run.outcome.reason == "stopped"
    assert f"Step {slow_step} was given up before its end, and begins again" in run.outcome.message
    assert run.done == slow_step - 1
    assert run.trace[-1].scores
    run.method = Toy()
    run.finish(steps=4)
    whole.finish(steps=4)
    assert same(run.trace[-1].step, whole.trace[-1].step)


@pytest.mark.usefixtures("short_patience")
def test_kernel_entries_of_a_step_that_was_given_up_are_not_counted():
    run = slow_run(1)
    threading.Timer(0.1, run.stop).start()

    run.finish()

    assert run.counter.entries == 0


def test_a_step_after_the_first_is_given_up_well_after_the_limit_in_seconds():
    run, first = slow_run(2, seconds=2.0), slow_run(1, seconds=2.0)

    took, took_first = seconds_of(lambda: run.finish(seconds=0.5)), seconds_of(lambda: first.finish(seconds=0.5))

    assert 1.5 * 0.5 < took < 1.9
    assert run.outcome is not None
    assert run.outcome.reason == "budget"
    expected = "The budget of 0.5 s is used up after 1 steps; raise it to go on. Step 2 was given up before its end"
    assert run.outcome.message.startswith(expected)
    assert took_first > 2.0  # nothing is learned without the first step
    assert first.done == 1
    assert Budget(seconds=0.5).is_overrun(0.9)
    assert not Budget(seconds=0.5).is_overrun(0.8)
    assert Budget(seconds=20.0).is_overrun(91.0, in_first_step=True)
    assert not Budget(seconds=20.0).is_overrun(89.0, in_first_step=True)
    assert not Budget(steps=2).is_overrun(1e9)


def test_the_first_step_is_given_up_long_after_the_limit_and_record_0_is_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpexplorer.runs.budget.FIRST_PATIENCE", 0.1)
    run, start = slow_run(1), slow_run(0, seconds=1.0)

    took = seconds_of(lambda: run.finish(seconds=0.2))
    start.finish(seconds=0.2)

    assert 3 * 0.2 + 0.1 <= took < SOON
    assert run.outcome is not None
    assert run.outcome.reason == "budget"
    assert "Step 1 was given up before its end" in run.outcome.message
    assert run.outcome.message.endswith("Nothing is learned before the end of this step.")
    assert len(run.trace) == 1  # what is predicted is that of the start
    assert len(start.trace) == 1


def test_an_estimator_says_that_nothing_was_learned():
    X = np.random.default_rng(0).uniform(size=(200, 2))
    model = gpx.Estimator("sgpr", budget={"seconds": 1e-6})

    with pytest.warns(ConvergenceWarning, match="used up after 0 steps"):
        model.fit(X, np.sin(6 * X[:, 0]))

    assert np.isfinite(model.predict(X[:5])).all()


@pytest.mark.filterwarnings("ignore:gpcv-admm:UserWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_answer_that_takes_as_long_as_a_lost_step_is_a_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpexplorer.runs.budget.FIRST_PATIENCE", -1.0)
    X = np.random.default_rng(0).uniform(size=(300, 2))
    model = gpx.Estimator("gpcv-admm", budget={"seconds": 1e-3})

    with pytest.raises(SettingError, match=r"^gpcv-admm learned nothing from 300 rows in 0\.001 s, and what it pred"):
        model.fit(X, np.sin(6 * X[:, 0]))


def test_a_first_step_that_will_be_given_up_is_announced_before_any_work(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine_speed, "machine", lambda: machine_speed.Speed(1e4, 1e9))  # 4 s per million flops
    X = np.random.default_rng(0).uniform(size=(200, 2))
    model = gpx.Estimator("sgpr", num_inducing=8, budget={"seconds": 0.2})

    with pytest.warns(UserWarning, match=r"^sgpr: .* longer than the 0.2 s .* The first one is given up after 31 s\.$"):
        model.fit(X, np.sin(6 * X[:, 0]))

    monkeypatch.setattr(machine_speed, "machine", lambda: machine_speed.Speed(1e9, 1e9))
    model.fit(X, np.sin(6 * X[:, 0]))  # without a warning


@pytest.mark.usefixtures("short_patience")
def test_the_last_scores_are_given_up_too_and_can_be_taken_later(monkeypatch: pytest.MonkeyPatch):
    real = gpx.runs.scores.scores_of
    monkeypatch.setattr("gpexplorer.runs.scores.scores_of", lambda *_: spend_long(torch.zeros(4)))
    run = toy_run(limit=3)
    for _ in range(4):
        run.advance()
    threading.Timer(0.3, run.stop).start()

    took = seconds_of(run.finish)

    assert took < SOON
    assert run.outcome is not None
    assert run.outcome.reason == "converged"
    assert run.trace[-1].scores is None
    monkeypatch.setattr("gpexplorer.runs.scores.scores_of", real)
    assert run.scores()["smse"] < 10.0
    assert run.finish().reason == "converged"  # the request is forgotten


@pytest.mark.usefixtures("short_patience")
def test_closing_gives_up_a_long_step():
    run = slow_run(1)
    threading.Timer(0.2, run.close).start()

    took = seconds_of(run.finish)

    assert took < SOON
    assert run._steps is None
    assert len(run.trace) == 1


@pytest.mark.parametrize("method", ["scgd", "minimax", "svgp", "bsgd", "full-batch"])
def test_the_first_step_of_a_minibatch_method_can_be_given_up_at_every_pass(
    method: str, monkeypatch: pytest.MonkeyPatch
):
    """However late it is given up, the same step follows."""
    monkeypatch.setattr("gpexplorer.runs.budget.PATIENCE", -1.0)
    X = np.random.default_rng(0).uniform(size=(300, 2))
    spec = gpx.Spec(method, {"num_features": 8} if method != "svgp" else {"num_inducing": 8}, seed=1)
    run, whole = (spec.open(data=(X, np.sin(6 * X[:, 0]))) for _ in range(2))
    run.advance(), whole.advance(), whole.advance()
    calls: list[float] = []

    def stop_at(count: int) -> None:
        calls.clear()
        original = go_on

        def counted() -> None:
            calls.append(0.0)
            if len(calls) == count:
                run.stop()
            original()

        for module in ("linalg.blocks", "methods.minibatches.learner", "runs.counting"):
            monkeypatch.setattr(f"gpexplorer.{module}.go_on", counted)

    for count in (1, 3):
        stop_at(count)
        assert run.advance() is None
        assert run.outcome is not None
        assert run.outcome.reason == "stopped"
    stop_at(0)
    step = run.advance()

    assert step is not None
    assert isinstance(step.step, Step)
    assert same(step.step, whole.trace[-1].step)


def test_scores_in_progress_say_how_long_they_still_take(monkeypatch: pytest.MonkeyPatch):
    clock, run, lines = [0.0], toy_run(), []
    monkeypatch.setattr("gpexplorer.runs.budget.time.monotonic", lambda: clock[0])

    def score(*_: Any) -> dict[str, float]:
        clock[0] += 8.0
        lines.append(progress_line(run))
        clock[0] += 12.0
        return {"smse": 1.0}

    monkeypatch.setattr("gpexplorer.runs.scores.scores_of", score)

    run.finish(steps=1)

    assert [line.split(", ", 3)[-1] for line in lines] == [
        "taking scores",
        "taking scores, about 0:12 to go",
    ]
    assert run.scoring.latest == 20.0
    assert run.scoring.progress is None


def test_a_run_that_gets_a_smaller_limit_than_it_has_used_blames_no_step_for_it() -> None:
    ticks = iter(range(1000))
    run = gpx.Spec("random", {"num_inducing": 5}, data="snelson-like", kernel="se").open()
    run._clock = lambda: float(next(ticks))
    run.finish(steps=9)

    message = run.finish(seconds=0.25).message

    assert "The run had used 10 s before it was given this limit." in message
    assert "last step took" not in message
