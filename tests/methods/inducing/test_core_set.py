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
from gpexplorer.problem import Cost, Dataset, Outcome, Problem, Step
from gpexplorer.runs.rounding import MonotoneWatch
from gpexplorer.runs.trace import Record
from whole_run import finished

SETTINGS = {"num_inducing": 8, "num_pivots": 12, "max_epochs": 2, "evaluations": 3, "swaps_per_epoch": 6}
MEMORY = core_set.WHILE_REFRESHED * 100 * 8 * (2 * 8 + 16 + 3 * 12) / 1e9  # gigabytes for about 100 rows


def waves(n: int = 300) -> Problem:
    rng = torch.Generator().manual_seed(0)
    X = 10.0 + torch.rand(n, 2, generator=rng, dtype=torch.float64)
    y = torch.sin(8.0 * X[:, 0]) + 0.1 * torch.randn(n, generator=rng, dtype=torch.float64)
    kernel, train = kernels.make("se-ard", 2), Dataset(X, y)
    return Problem(train, kernel, kernel.start(train))


@pytest.fixture(scope="module")
def task() -> Problem:
    return waves()


@pytest.fixture(scope="module")
def limited() -> CholQR:
    return CholQR(**SETTINGS, memory=MEMORY)


@pytest.fixture(scope="module")
def ran(task: Problem, limited: CholQR) -> tuple[list[Step], Outcome]:
    return finished(limited, task)


def test_with_enough_memory_nothing_changes(task: Problem) -> None:
    ours, told = finished(CholQR(**SETTINGS), task)
    unlimited, same = finished(CholQR(**SETTINGS, memory=0.0), task)
    assert told == same
    for a, b in zip(ours, unlimited, strict=True):
        assert torch.equal(a.state.inducing, b.state.inducing)
        assert a.state.objective == b.state.objective


def test_points_are_those_of_a_run_on_the_core_set(
    task: Problem, limited: CholQR, ran: tuple[list[Step], Outcome]
) -> None:
    steps, _ = ran
    core = core_set.core_set(limited, task)
    assert core is not None
    assert 90 <= len(core.rows) <= 100
    alone, _ = finished(CholQR(**SETTINGS), Problem(task.train.rows(core.rows), task.kernel, task.theta))
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
        rest, _ = finished(limited, task, steps[begin].state)
        assert len(rest) == len(steps) - begin - 1
        for ours, theirs in zip(rest, steps[begin + 1 :], strict=True):
            assert torch.equal(ours.state.inducing, theirs.state.inducing)
            assert ours.info.objective == pytest.approx(theirs.info.objective, rel=1e-6)


def test_without_learning_the_objective_of_all_rows_is_computed_once(task: Problem) -> None:
    steps, _ = finished(CholQR(**SETTINGS, memory=MEMORY, learn=False), task)
    last = steps[-1].state
    assert [step.info.phase for step in steps].count("all rows") == 1
    terms = nystrom(task.kernel, task.theta, task.train, task.train.rows(last.inducing).X).terms
    assert last.objective == pytest.approx(terms.total("vfe"), rel=1e-12)


def test_polishing_follows_on_all_rows(task: Problem) -> None:
    steps, outcome = finished(CholQR(**SETTINGS, memory=MEMORY, polish=8), task)
    fitted = next(step for step in reversed(steps) if step.state.phase == "all rows")
    assert [step.state.phase for step in steps[-8:]] == ["polish"] * 8
    assert steps[-1].state.objective < fitted.state.objective
    assert "moved the points" in outcome.message
    assert "random rows of 300" in outcome.message


def test_a_person_swaps_rows_of_the_core_set_only(
    task: Problem, limited: CholQR, ran: tuple[list[Step], Outcome]
) -> None:
    state = ran[0][-1].state
    core = core_set.core_set(limited, task)
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


def test_numbers_of_rows_are_translated_both_ways_and_minus_one_stays(
    task: Problem, limited: CholQR, ran: tuple[list[Step], Outcome]
) -> None:
    core = core_set.core_set(limited, task)
    assert core is not None
    assert core._row(-1) == -1
    assert core._row(0) == int(core.rows[0])
    start = ran[0][0]
    assert (start.info.removed, start.info.proposed) == (-1, -1)
    swaps = [step for step in ran[0] if step.info.phase == "swap"]
    for step in swaps:
        there = core._on_part(step.state)
        assert torch.equal(core.rows[there.inducing], step.state.inducing)
        assert torch.equal(core.rows[there.pivots], step.state.pivots)
        assert torch.equal(core.rows[there.ranked], step.state.ranked)
        assert step.info.removed in core.rows
    assert core._on_part(ran[0][-1].state).phase == "learn"
    assert core._on_part(swaps[0].state).phase == "swap"


def test_terms_of_the_core_set_are_reported_for_all_rows_and_add_up(
    task: Problem, limited: CholQR, ran: tuple[list[Step], Outcome]
) -> None:
    core = core_set.core_set(limited, task)
    assert core is not None
    scale = 300 / len(core.rows)
    step = next(step for step in ran[0] if step.info.phase == "swap")
    part = core.part.train
    terms = nystrom(task.kernel, task.theta, part, part.rows(core._on_part(step.state).inducing).X).terms
    wanted = [scale * 0.5 * value for value in terms]
    assert [step.info.fit, step.info.logdet, step.info.trace] == pytest.approx(wanted, rel=1e-8)
    assert step.info.objective == pytest.approx(sum(wanted), rel=1e-8)


def test_the_core_set_keeps_the_settings_but_memory_and_polish(task: Problem) -> None:
    method = CholQR(**SETTINGS, memory=MEMORY, polish=7, seed=4, objective="tight-vfe", learn=False)
    core = core_set.core_set(method, task)
    assert core is not None
    assert (core.method.memory, core.method.polish, core.method.num_inducing) == (0.0, 0, 8)  # type: ignore[attr-defined]
    assert (core.method.seed, core.method.objective, core.method.learn) == (4, "tight-vfe", False)
    assert torch.equal(core.rows, core.rows.sort().values)
    assert torch.equal(core.part.train.y, task.train.y[core.rows])
    other = core_set.core_set(CholQR(**SETTINGS, memory=MEMORY, seed=5), task)
    assert other is not None
    assert not torch.equal(core.rows, other.rows)


def test_the_size_of_the_core_set_follows_from_the_memory() -> None:
    need = Cost(1e6, 1e6, {core_set.FIXED: 100.0, "factor L": 700.0, "pivot columns": 300.0}, 5.0)
    few = CholQR(num_inducing=2)
    task = waves(1000)

    def size(allowed: float) -> int:
        few.memory = allowed * core_set.WHILE_REFRESHED / 1e9
        return core_set.core_size(few, task, need)

    assert size(0.0) == 1000  # no limit
    assert size(1100.0) == size(1101.0) == 1000
    assert size(600.001) == 500
    assert size(350.001) == 250
    assert size(101.0) == size(50.0) == 20  # ten per point, however little memory is allowed
    few.num_inducing = 300
    assert size(600.0) == 1000


def test_the_cost_on_some_rows_is_their_share_but_for_what_does_not_depend_on_rows() -> None:
    cost = Cost(1e6, 2e6, {core_set.FIXED: 100.0, "factor L": 700.0}, 5.0)
    part = core_set.cost_of_rows(cost, 0.25)
    assert (part.flops, part.bytes, part.calls) == (2.5e5, 5e5, 5.0)
    assert part.arrays == {core_set.FIXED: 100.0, "factor L": 175.0}


def test_all_rows_are_learned_with_so_many_evaluations_and_counted(
    task: Problem, ran: tuple[list[Step], Outcome]
) -> None:
    steps, _ = ran
    begin = next(k for k, step in enumerate(steps) if step.info.phase == "all rows")
    last = steps[begin:]
    assert [step.state.step for step in steps] == list(range(len(steps)))
    assert [step.state.position for step in last] == [1, 2, 3]
    assert all(step.state.phase == "all rows" for step in last)
    assert all(torch.equal(step.state.theta_begin, steps[begin - 1].state.theta) for step in last)
    assert all(not len(step.state.slots) for step in last)
    for step in last:
        terms = nystrom(task.kernel, step.state.theta, task.train, task.train.rows(step.state.inducing).X).terms
        assert [step.info.fit, step.info.logdet, step.info.trace] == pytest.approx([0.5 * t for t in terms], rel=1e-8)


def test_without_learning_the_last_step_is_one_and_a_resumed_run_has_nothing_left(task: Problem) -> None:
    method = CholQR(**SETTINGS, memory=MEMORY, learn=False)
    steps, outcome = finished(method, task)
    assert (steps[-1].state.position, steps[-1].state.step) == (1, len(steps) - 1)
    info = steps[-1].info
    assert info.objective == pytest.approx(info.fit + info.logdet + info.trace)
    again, same = finished(method, task, steps[-1].state)
    assert again == []
    assert same.message.startswith("The points are chosen.")
    assert outcome.message.endswith("The last objective and the predictions are those of all 300 rows.")


def test_landscape_and_moved_points_have_the_row_numbers_of_all_rows(
    task: Problem, limited: CholQR, ran: tuple[list[Step], Outcome]
) -> None:
    state = next(step.state for step in ran[0] if step.info.phase == "swap")
    landscape = limited.swap_landscape(task, state, slot=3)
    assert landscape is not None
    assert landscape.removed == int(state.inducing[3])
    assert set(landscape.pivots.tolist()) <= set(landscape.rows.tolist())
    core = core_set.core_set(limited, task)
    assert core is not None
    outside = next(row for row in range(300) if row not in core.rows.tolist())
    with pytest.raises(SettingError, match="raise memory"):
        limited.force_swap(task, state, outside)
    target = task.train.X[int(core.rows[7])]
    free = [row for row in core.rows.tolist() if row not in state.inducing.tolist()]
    nearest = min(free, key=lambda row: float((task.train.X[row] - target).norm()))
    moved = limited.move_point(task, state, 0, target)
    assert int(moved.state.inducing[0]) == nearest
    assert (moved.info.removed, moved.info.proposed) == (int(state.inducing[0]), nearest)
