"""The number of inducing points between two epochs: which points stay, which join, and when the gap is small enough."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from gpexplorer.evidence_limits import EvidenceLimits, evidence_limits
from gpexplorer.methods.inducing.selection.streamed_gp import GrowingGP
from gpexplorer.methods.inducing.swapping import after_swaps
from gpexplorer.methods.inducing.swapping.after_swaps import limits_of, most_points, resize, resized
from gpexplorer.methods.inducing.swapping.factor import Factor
from gpexplorer.methods.inducing.swapping.state import SwapState, initial_state
from gpexplorer.problem import Problem
from swap_problems import SHIFTS, dense, problem
from whole_run import whole_run


def state_with(task: Problem, rows: list[int], **changes: Any) -> SwapState:
    begun = initial_state(torch.tensor(rows), task.theta, task.train.y.new_zeros(0, 2))
    busy = {"step": 11, "epoch": 3, "position": 5, "accepted": 4, "epoch_begin": 2.5, "phase": "learn"}
    return begun._replace(
        **busy, pivots=torch.tensor([1, 2]), ranked=torch.tensor([2]), slots=torch.tensor([0, 1]), **changes
    )


def in_order(task: Problem, candidates: list[int], begin: list[int], count: int) -> list[int]:
    """Rows in the order of the variance that those before them leave (Burt et al. 2020), by dense algebra."""
    K, chosen = task.kernel(task.theta, task.train.X, task.train.X), list(begin)
    while len(chosen) < count:
        S = K[:, chosen]
        left = K.diagonal() - (S * torch.linalg.solve(K[chosen][:, chosen], S.T).T).sum(1) if chosen else K.diagonal()
        chosen.append(max((row for row in sorted(candidates) if row not in chosen), key=lambda row: float(left[row])))
    return chosen


def limits_with(task: Problem, rows: list[int]) -> EvidenceLimits:
    return evidence_limits(task.kernel, task.theta, task.train, task.train.X[rows])


def sizes_until(last: int) -> list[int]:
    """The numbers of points at which the limits are computed."""
    sizes = [1]
    while (following := math.ceil(1.05 * sizes[-1] + 1)) < last:
        sizes.append(following)
    return [*sizes, last]


@pytest.fixture
def task() -> Problem:
    return problem(n=70)


ROWS = [5, 60, 33, 2, 47, 51, 19, 8, 68, 12, 24, 39, 44, 55, 30, 16, 63, 27, 1, 36, 41, 58, 10, 22]


@pytest.mark.parametrize("shift", SHIFTS)
def test_points_are_taken_away_where_the_first_ones_in_the_order_are_enough(shift: float):
    task = problem(shift, n=70)
    order = in_order(task, ROWS, [], 24)
    sizes = sizes_until(24)
    for before, k in itertools.pairwise(sizes[2:7]):
        gap = 0.5 * (limits_with(task, order[:before]).gap + limits_with(task, order[:k]).gap)
        changed, limits = resized(task, state_with(task, ROWS), "vfe", gap)
        assert changed is not None
        assert changed.inducing.tolist() == order[:k]
        wanted = limits_with(task, order[:k])
        assert (limits.least, limits.largest) == pytest.approx((wanted.least, wanted.largest), rel=1e-8)


def test_a_set_that_is_about_right_stays(task: Problem):
    order = in_order(task, ROWS, [], 24)
    for k in (kk for kk in sizes_until(24) if kk > 0.9 * 24):
        gap = 1.0001 * limits_with(task, order[:k]).gap
        changed, limits = resized(task, state_with(task, ROWS), "vfe", gap)
        assert changed is None
        assert limits.gap <= gap


def test_the_part_below_which_points_are_taken_away_is_nine_tenths(task: Problem, monkeypatch: pytest.MonkeyPatch):
    order = in_order(task, ROWS, [], 24)
    k = sizes_until(24)[-2]
    gap = 1.0001 * limits_with(task, order[:k]).gap
    changed, _ = resized(task, state_with(task, ROWS), "vfe", gap)
    assert (changed is None) == (k > 0.9 * 24)
    monkeypatch.setattr(after_swaps, "FEWER", k / 24)
    assert resized(task, state_with(task, ROWS), "vfe", gap)[0] is not None
    monkeypatch.setattr(after_swaps, "FEWER", (k - 0.5) / 24)
    assert resized(task, state_with(task, ROWS), "vfe", gap)[0] is None


@pytest.mark.parametrize("objective", ["vfe", "tight-vfe"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_other_rows_join_in_the_same_order_until_the_gap_is_small_enough(objective: str, shift: float):
    task = problem(shift, n=70)
    few = ROWS[:12]
    order = in_order(task, list(range(70)), in_order(task, few, [], 12), 18)
    gaps = [limits_with(task, order[:k]).gap for k in range(12, 19)]
    for needed, reached in ((13, 14), (14, 14), (15, 16), (16, 16), (17, 18), (70, 18)):  # by half at most
        gap = 1.0001 * gaps[needed - 12] if needed < 70 else 1e-9
        changed, limits = resized(task, state_with(task, few), objective, gap)
        assert changed is not None
        assert changed.inducing.tolist() == order[:reached]
        assert limits.gap == pytest.approx(gaps[reached - 12], rel=1e-6)
        assert changed.objective == pytest.approx(dense(task, changed.inducing, objective), rel=1e-8)
        assert (changed.step, changed.epoch, changed.phase) == (12, 4, "swap")
        assert (changed.position, changed.accepted, changed.epoch_begin) == (0, 0, math.inf)
        assert [len(part) for part in (changed.pivots, changed.ranked, changed.slots)] == [0, 0, 0]
        assert torch.equal(changed.theta, task.theta)


def test_the_number_of_points_is_limited_by_rows_and_by_the_size_of_the_factor(monkeypatch: pytest.MonkeyPatch):
    assert most_points(100, 5) == 100
    assert most_points(1_000_000, 5) == 40
    assert most_points(1_000_000, 50) == 50
    task = problem(n=70)
    monkeypatch.setattr(after_swaps, "MOST_ENTRIES", 70 * 14)
    changed, _ = resized(task, state_with(task, ROWS[:12]), "vfe", 1e-9)
    assert changed is not None
    assert len(changed.inducing) == 14
    assert resized(task, state_with(task, ROWS[:14]), "vfe", 1e-9)[0] is None


@pytest.mark.parametrize("objective", ["vfe", "tight-vfe"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_limits_of_a_growing_set_and_of_a_factor_are_those_of_the_points(objective: str, shift: float):
    task = problem(shift, n=70)
    model = GrowingGP(task.kernel, task.theta, task.train, objective, 10)
    yy = float(task.train.y @ task.train.y)
    for row in ROWS[:10]:
        model.add(row)
    wanted = limits_with(task, ROWS[:10])
    found = limits_of(model, yy)
    assert (found.least, found.largest) == pytest.approx((wanted.least, wanted.largest), rel=1e-8)
    least, gap = Factor(task.kernel, task.theta, task.train, torch.tensor(ROWS[:10]), objective).limits()
    assert least == pytest.approx(wanted.least, rel=1e-8)
    assert gap == pytest.approx(wanted.gap, rel=1e-8)


def resize_steps(task: Problem, state: SwapState, gap: float) -> tuple[list[Any], SwapState | None, str]:
    steps, end = whole_run(resize(task, state, "vfe", gap))
    return steps, *end


def test_a_change_is_a_step_and_a_sentence_says_how_far_the_exact_model_is(
    task: Problem, monkeypatch: pytest.MonkeyPatch
):
    state = state_with(task, ROWS[:12])
    assert resize_steps(task, state, 0.0) == ([], None, "")

    (step,), changed, sentence = resize_steps(task, state, 1e-9)
    assert changed is step.state
    assert step.info.phase == "resize"
    assert step.info.objective == step.state.objective
    limits = limits_with(task, step.state.inducing.tolist())
    assert step.info.exact_least == pytest.approx(limits.least, rel=1e-8)
    assert step.info.gap == pytest.approx(limits.gap, rel=1e-6)
    assert all(math.isnan(value) for value in (step.info.fit, step.info.logdet, step.info.trace))
    assert sentence.startswith(" With 12 points: at most ")

    enough = 1.0001 * limits_with(task, ROWS).gap
    steps, changed, sentence = resize_steps(task, state_with(task, in_order(task, ROWS, [], 24)), enough)
    assert (steps, changed) == ([], None)
    assert sentence == f" With 24 points: a{limits_with(task, ROWS).sentence()[1:]}"

    monkeypatch.setattr(after_swaps, "MOST_ENTRIES", 70 * 12)
    steps, changed, sentence = resize_steps(task, state, 1e-9)
    assert (steps, changed) == ([], None)
    assert sentence.endswith(" That is more than the gap of 1e-09, but a factor with more points would be too large.")


def test_where_every_row_is_explained_the_sentence_says_so(monkeypatch: pytest.MonkeyPatch):
    few = problem(n=20, repeats=8)  # 12 different rows
    distinct = [row for row in range(20) if row not in range(0, 16, 2)]
    steps, changed, sentence = resize_steps(few, state_with(few, distinct), -1.0)
    assert (steps, changed) == ([], None)
    assert sentence.endswith(" That is more than the gap of -1, but every row is explained.")


def test_a_present_point_that_others_explain_ends_the_order(task: Problem):
    twins = problem(n=20, repeats=8)
    both: Tensor = torch.tensor([0, 1, 17, 18])  # rows 0 and 1 are equal
    changed, _ = resized(twins, state_with(twins, both.tolist()), "vfe", 1e-9)
    assert changed is not None
    rows = changed.inducing.tolist()
    assert len({0, 1} & set(rows)) == 1
    assert len(set(rows)) == len(rows) == 6
