"""Polishing: it starts from the swaps, decreases the same objective, resumes from any state, and needs real inputs."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch

from gpexplorer import Spec, kernels
from gpexplorer.errors import SettingError
from gpexplorer.methods.base import registry
from gpexplorer.methods.inducing.swapping.cholqr import CholQR
from gpexplorer.objectives import nystrom
from gpexplorer.problem import Dataset, Problem, Step
from gpexplorer.views import registry as views
from swap_problems import SHIFTS, problem
from whole_run import whole_run

SWAPS, MOVES = 9, 12


def method(**settings: Any) -> CholQR:
    defaults = {"num_inducing": 6, "swaps_per_epoch": SWAPS, "max_epochs": 1, "learn": False, "polish": MOVES}
    return CholQR(**(defaults | settings))


def all_steps(task: Problem, **settings: Any) -> list[Step]:
    return list(method(**settings).steps(task))


@pytest.mark.parametrize("objective", ["vfe", "pp"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_polishing_decreases_the_objective_below_that_of_the_swaps(shift: float, objective: str) -> None:
    task = problem(shift)
    steps = all_steps(task, objective=objective)
    swaps, moves = steps[1 : SWAPS + 1], steps[SWAPS + 1 :]

    assert {step.info.phase for step in moves} == {"polish"}
    assert all(step.state.Z is None for step in swaps)
    assert [step.state.position for step in moves] == list(range(1, MOVES + 1))
    assert moves[0].info.objective == pytest.approx(swaps[-1].info.objective, rel=1e-9)
    values = [step.info.objective for step in moves]
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[0]
    last = moves[-1].state
    dense = nystrom(task.kernel, last.theta, task.train, last.Z).terms.total(objective)
    assert last.objective == pytest.approx(dense, rel=1e-9)
    assert torch.equal(last.theta, task.theta)
    assert torch.equal(moves[0].state.Z, task.train.X[last.inducing])


@pytest.mark.parametrize("learn", [True, False])
def test_a_run_resumes_from_any_state_of_either_phase(learn: bool) -> None:
    task = problem(50.0)
    steps = all_steps(task, learn=learn, evaluations=3)
    for begin in (4, len(steps) - MOVES, len(steps) - 4):
        rest = list(islice(method(learn=learn, evaluations=3).steps(task, resume=steps[begin].state), 100))
        assert len(rest) == len(steps) - begin - 1
        for one, other in zip(rest, steps[begin + 1 :], strict=True):
            assert one.info.objective == pytest.approx(other.info.objective, rel=1e-8)
            assert (one.state.Z is None) == (other.state.Z is None)
        assert torch.allclose(rest[-1].state.Z, steps[-1].state.Z, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("limit", "reason"), [(5, "budget"), (3000, "converged")])
def test_polishing_ends_where_the_gradient_does_or_after_so_many_evaluations(limit: int, reason: str) -> None:
    steps, outcome = whole_run(method(num_inducing=2, polish=limit).steps(problem(n=30)))
    position = steps[-1].state.position
    assert outcome.reason == reason
    assert f"{position} evaluations then moved the points" in outcome.message
    assert (position == limit) == (reason == "budget")


def test_hyperparameters_move_with_the_points_when_they_are_learned() -> None:
    steps = all_steps(problem(0.0), learn=True, evaluations=3)
    first, last = (next(s.state for s in order if s.info.phase == "polish") for order in (steps, steps[::-1]))
    assert not torch.equal(first.theta, last.theta)
    assert last.objective < first.objective


def test_predictions_and_pictures_follow_the_moved_points() -> None:
    settings = {"num_inducing": 6, "swaps_per_epoch": 5, "max_epochs": 1, "learn": False, "polish": 15}
    run = Spec("cholqr", settings, data={"name": "hypercube", "n": 60, "d": 2, "noise": 0.1}).open()
    outcome = run.finish(steps=40)
    state = run.trace[-1].step.state
    assert "off their rows" in outcome.message
    mean = run.method.posterior(run.problem, state)(run.problem.train.X).mean
    at_rows = run.method.posterior(run.problem, state._replace(Z=None))(run.problem.train.X).mean
    y = run.problem.train.y
    assert float((mean - y).square().sum()) < float((at_rows - y).square().sum())
    shown = views["fit"]().data(run, len(run.trace) - 1)["inducing"]
    by = run.problem.train.scale
    expected = state.Z * by.x_sd + by.x_mean
    assert shown[["x", "y"]].to_numpy() == pytest.approx(expected.numpy())
    with pytest.raises(SettingError, match="no longer rows of the data"):
        run.method.force_swap(run.problem, state, 3)


@pytest.mark.parametrize("key", ["cholqr", "sgpr", "fitc"])
def test_inputs_without_a_gradient_are_refused_before_any_work(key: str) -> None:
    counts = torch.arange(24.0, dtype=torch.float64).reshape(8, 3)
    words = [chr(97 + i) * 5 for i in range(8)]
    settings = {"polish": 5} if key == "cholqr" else {}
    for X, name, message in ((counts, "tanimoto", "counts"), (words, "spectrum", "str objects")):
        train = Dataset(X, torch.arange(8.0, dtype=torch.float64))
        kernel = kernels.make(name, train.d)
        task = Problem(train, kernel, kernel.start(train))
        with pytest.raises(SettingError, match=message):
            next(registry[key](**settings).steps(task))


def test_a_sum_with_a_kernel_of_counts_is_a_kernel_of_counts() -> None:
    assert kernels.make("tanimoto + se", 3).inputs == "counts"
    assert kernels.make("se * linear", 3).inputs == "real"
    task = problem(0.0)
    assert replace(task).kernel.inputs == "real"
