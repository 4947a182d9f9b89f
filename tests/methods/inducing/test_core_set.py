"""CholQR where swaps among all rows do not fit: points from a core set, and everything else from all rows."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.errors import SettingError
from gpexplorer.methods.inducing.swapping import core_set
from gpexplorer.methods.inducing.swapping.cholqr import CholQR
from gpexplorer.objectives import nystrom
from gpexplorer.problem import Dataset, Outcome, Problem, Step
from gpexplorer.runs.monotone import MonotoneWatch
from gpexplorer.runs.trace import Record

SETTINGS = {"num_inducing": 8, "num_pivots": 12, "max_epochs": 2, "evaluations": 3, "swaps_per_epoch": 6}
MEMORY = core_set.WHILE_REFRESHED * 100 * 8 * (2 * 8 + 16 + 3 * 12) / 1e9  # gigabytes for about 100 rows


def waves(n: int = 300) -> Problem:
    rng = torch.Generator().manual_seed(0)
    X = 10.0 + torch.rand(n, 2, generator=rng, dtype=torch.float64)
    y = torch.sin(8.0 * X[:, 0]) + 0.1 * torch.randn(n, generator=rng, dtype=torch.float64)
    kernel, train = kernels.make("se-ard", 2), Dataset(X, y)
    return Problem(train, kernel, kernel.start(train))


def whole_run(method: CholQR, task: Problem, resume: object = None) -> tuple[list[Step], Outcome]:
    run, steps = method.steps(task, resume), []
    while True:
        try:
            steps.append(next(run))
        except StopIteration as end:
            return steps, end.value


@pytest.fixture(scope="module")
def task() -> Problem:
    return waves()


@pytest.fixture(scope="module")
def limited() -> CholQR:
    return CholQR(**SETTINGS, memory=MEMORY)


@pytest.fixture(scope="module")
def ran(task: Problem, limited: CholQR) -> tuple[list[Step], Outcome]:
    return whole_run(limited, task)


def test_with_enough_memory_nothing_changes(task: Problem) -> None:
    ours, told = whole_run(CholQR(**SETTINGS), task)
    unlimited, same = whole_run(CholQR(**SETTINGS, memory=0.0), task)
    assert told == same
    for a, b in zip(ours, unlimited, strict=True):
        assert torch.equal(a.state.inducing, b.state.inducing)
        assert a.state.objective == b.state.objective


def test_points_are_those_of_a_run_on_the_core_set(
    task: Problem, limited: CholQR, ran: tuple[list[Step], Outcome]
) -> None:
    steps, _ = ran
    core = limited._core_set(task)
    assert core is not None
    assert 90 <= len(core.rows) <= 100
    alone, _ = whole_run(CholQR(**SETTINGS), Problem(task.train.rows(core.rows), task.kernel, task.theta))
    for ours, theirs in zip(steps, alone, strict=False):
        assert torch.equal(ours.state.inducing, core.rows[theirs.state.inducing])
        assert torch.equal(ours.state.pivots, core.rows[theirs.state.pivots])
        if theirs.info.proposed >= 0:
            assert ours.info.proposed == int(core.rows[theirs.info.proposed])
        if math.isfinite(theirs.info.objective):
            assert ours.info.objective == pytest.approx(theirs.info.objective * 300 / len(core.rows), rel=1e-12)
    assert [step.info.phase for step in steps[len(alone) :]] == ["all rows", "learn", "learn"]


def test_the_end_is_that_of_all_rows_and_says_so(
    task: Problem, limited: CholQR, ran: tuple[list[Step], Outcome]
) -> None:
    steps, outcome = ran
    last, first = steps[-1].state, next(step for step in steps if step.info.phase == "all rows")
    Z = task.train.rows(last.inducing).X
    model = nystrom(task.kernel, last.theta, task.train, Z)
    assert steps[-1].info.objective == pytest.approx(model.terms.total("vfe"), rel=1e-9)
    assert last.objective <= first.state.objective
    mean = limited.posterior(task, last)(task.train.X).mean
    assert float((mean - task.train.y).square().mean()) < 0.05
    assert "random rows of 300" in outcome.message
    assert "memory" in outcome.message
    watch = MonotoneWatch(limited.channels, torch.float64)
    assert not [rise for i, step in enumerate(steps) for rise in watch.check(Record(i, 0.0, 0.0, step, {}))]


def test_a_run_resumes_from_every_phase(task: Problem, limited: CholQR, ran: tuple[list[Step], Outcome]) -> None:
    steps, _ = ran
    for begin in (0, len(steps) - 5, len(steps) - 2):
        rest, _ = whole_run(limited, task, steps[begin].state)
        assert len(rest) == len(steps) - begin - 1
        for ours, theirs in zip(rest, steps[begin + 1 :], strict=True):
            assert torch.equal(ours.state.inducing, theirs.state.inducing)
            assert ours.info.objective == pytest.approx(theirs.info.objective, rel=1e-6)


def test_without_learning_the_objective_of_all_rows_is_computed_once(task: Problem) -> None:
    steps, _ = whole_run(CholQR(**SETTINGS, memory=MEMORY, learn=False), task)
    last = steps[-1].state
    assert [step.info.phase for step in steps].count("all rows") == 1
    terms = nystrom(task.kernel, task.theta, task.train, task.train.rows(last.inducing).X).terms
    assert last.objective == pytest.approx(terms.total("vfe"), rel=1e-12)


def test_polishing_follows_on_all_rows(task: Problem) -> None:
    steps, outcome = whole_run(CholQR(**SETTINGS, memory=MEMORY, polish=8), task)
    fitted = next(step for step in reversed(steps) if step.state.phase == "all rows")
    assert [step.state.phase for step in steps[-8:]] == ["polish"] * 8
    assert steps[-1].state.objective < fitted.state.objective
    assert "moved the points" in outcome.message
    assert "random rows of 300" in outcome.message


def test_a_person_swaps_rows_of_the_core_set_only(
    task: Problem, limited: CholQR, ran: tuple[list[Step], Outcome]
) -> None:
    state = ran[0][-1].state
    core = limited._core_set(task)
    assert core is not None
    landscape = limited.swap_landscape(task, state)
    assert landscape is not None
    assert torch.equal(landscape.rows, core.rows)
    row = int(landscape.rows[landscape.approx.argmax()])
    forced = limited.force_swap(task, state, row, slot=2)
    assert int(forced.state.inducing[2]) == row
    outside = next(row for row in range(300) if row not in core.rows.tolist())
    with pytest.raises(SettingError, match=f"Row {outside} is not one of the {len(core.rows)} rows"):
        limited.force_swap(task, state, outside)
    moved = limited.move_point(task, state, 1, task.train.X[outside])
    assert int(moved.state.inducing[1]) in core.rows.tolist()


def test_memory_follows_the_setting() -> None:
    rows = Dataset(
        torch.empty(10_000_000, 8, device="meta"), torch.empty(10_000_000, device="meta", dtype=torch.float64)
    )
    kernel = kernels.make("se-ard", 8)
    task = Problem(rows, kernel, torch.zeros(10, dtype=torch.float64))
    assert CholQR(num_inducing=64, memory=0.0).cost(task).memory > 20e9
    formula = CholQR(num_inducing=64, memory=1.5).cost(task).memory
    assert formula == pytest.approx(1.5e9 / core_set.WHILE_REFRESHED, rel=1e-5)
