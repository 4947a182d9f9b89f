"""A channel that is declared monotone and rises is reported everywhere, and is not drawn as if it were right."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpexplorer import Spec, Store
from gpexplorer.methods.base import Steps, registry
from gpexplorer.problem import Problem, Step
from gpexplorer.runs import Run
from gpexplorer.runs.rounding import first_rise
from gpexplorer.runs.studies import comparison
from gpexplorer.runs.studies.comparison import Finished
from gpexplorer.ui.playback.readings import status_numbers
from gpexplorer.views.runs.convergence import Convergence
from toy_method import Toy, toy_run, toy_spec

RISE_AT = 4


def with_objective(change: Callable[[int, float], float], dtype: torch.dtype = torch.float64) -> Run:
    """A run of the toy method that reports a changed objective."""
    run = toy_run()
    run.method = _changed_toy(change)
    run.problem = Problem(run.problem.train.to("cpu", dtype), run.problem.kernel, run.problem.theta.to(dtype))
    return Run(run.method, run.problem, run.split)


def _changed_toy(change: Callable[[int, float], float]) -> Toy:
    class Changed(Toy):
        key = ""  # not registered

        def steps(self, problem: Problem, resume: Any = None) -> Steps:
            inner = super().steps(problem, resume)
            while True:
                try:
                    step = next(inner)
                except StopIteration as end:
                    return end.value
                objective = change(step.state.step, step.info.objective)
                yield Step(step.state, step.info._replace(objective=objective))

    Changed.key = "toy"
    return Changed()


def jump(step: int, objective: float) -> float:
    """10,000 too much at step 4 and later."""
    return objective + 1e4 * (step >= RISE_AT)


def test_a_rise_is_recorded_and_is_part_of_the_outcome():
    run = with_objective(jump)

    outcome = run.finish(steps=8)

    [rise] = run.rises
    assert (rise.channel.name, rise.index) == ("objective", RISE_AT)
    assert rise.after > rise.before
    assert outcome.message.startswith("The budget of 8 steps is used up")
    assert f"Do not trust the objective from step {RISE_AT} on: it rose there from {rise.before:.6g}" in outcome.message
    assert "the only rise" in outcome.message


def test_a_correct_run_reports_none():
    run = toy_run()
    outcome = run.finish(steps=30)

    assert run.rises == []
    assert "trust" not in outcome.message


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_a_rise_within_rounding_is_none_and_a_larger_one_is(dtype: torch.dtype, factor: float):
    values = [[-500.0, -500.0 * (1 - scale * factor)] for scale in (1.0, 100.0)]

    assert [first_rise(pair, dtype) for pair in values] == [None, 1]


@pytest.mark.parametrize(
    ("values", "position"),
    [
        ([], None),
        ([math.nan, math.inf, 5.0, math.nan, 4.0], None),
        ([5.0, math.nan, 6.0], 2),
        ([5.0, math.inf], 1),
        ([-math.inf, 3.0], 1),
        ([5.0, -2.6e8, -1.3e8], 2),
    ],
)
def test_values_that_are_not_finite(values: list[float], position: int | None):
    assert first_rise(values) == position


def test_a_step_that_a_person_made_may_raise_the_objective():
    run = Spec("cholqr", {"num_inducing": 5, "learn": False}, {"name": "hypercube", "n": 60, "d": 2}).open()
    run.finish(steps=4)
    worse = run.trace[-1].step
    worse = worse._replace(info=worse.info._replace(phase="forced", objective=worse.info.objective + 100.0))

    forked = run.fork(-1, worse)
    forked.advance()

    assert forked.done == 6
    assert forked.rises == []


def test_a_stored_run_still_knows_its_rises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(registry, "toy", type(_changed_toy(jump)))
    store, spec = Store(tmp_path), toy_spec()
    run = store.open(spec)
    run.finish(steps=6)
    run.close()

    reopened = store.open(spec)

    assert [rise.index for rise in reopened.rises] == [RISE_AT]
    assert "Do not trust the objective" in store.table()["message"].iloc[0]
    reopened.close()


def test_the_status_line_says_from_which_step_on():
    run = with_objective(jump)
    run.finish(steps=8)

    numbers = status_numbers(run, 8, None, False)

    assert "Do not trust the objective from step 4 on" in numbers.rise
    assert "objective (not trustworthy from step 4 on)" in [fact.label for fact in numbers.cells]
    assert status_numbers(run, 3, None, False).rise == ""


def test_convergence_draws_the_values_after_a_rise_apart():
    run = with_objective(jump)
    run.finish(steps=8)
    view = Convergence()
    view.applies(run)

    layers = view.data(run, 8)

    assert layers["series"]["x"].tolist() == [1, 2, 3]
    assert layers["untrusted"]["x"].tolist() == [4, 5, 6, 7, 8]
    assert "not trustworthy from step 4 on" in layers["series"].attrs["title"]
    view.channel = "gradient"
    assert len(view.data(run, 8)["series"]) == 8
    assert len(view.data(run, 8)["untrusted"]) == 0


def test_a_comparison_leaves_out_the_values_after_a_rise(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(registry, "toy", type(_changed_toy(jump)))
    run = toy_spec().open()
    run.finish(steps=8)

    frames = comparison.overlay({"a": Finished.of(run)}, "objective")

    assert frames["a"]["x"].tolist() == [1, 2, 3]
    assert len(comparison.overlay({"a": Finished.of(run)}, "gradient")["a"]) == 8
    assert np.isfinite(frames["a"]["y"]).all()
