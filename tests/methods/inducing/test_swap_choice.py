"""One swap: which candidates are tested, which is accepted, what is reported, and what is not computed again."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch

from gpexplorer.methods.inducing.swapping import swap
from gpexplorer.methods.inducing.swapping.factor import Factor
from gpexplorer.methods.inducing.swapping.policies import (
    POLICIES,
    WINDOW,
    Drawn,
    PivotPolicy,
)
from gpexplorer.methods.inducing.swapping.swap import Swapper, Tried, window_correlation
from swap_problems import SHIFTS, decreases, dense, problem, swapper

# -- without proposals: all pivots are tested exactly ------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["vfe", "tight-vfe", "pp"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_the_best_pivot_is_tried_and_accepted_only_where_it_decreases_the_objective(objective: str, shift: float):
    task = problem(shift)
    s = swapper(task, objective, proposals=0, z=10)
    outcomes = set()
    for k in range(24):
        slot, pivots = k % 8, s.pivots.rows.tolist()
        removed, gains = int(s.factor.inducing[slot]), decreases(task, s, slot, pivots)
        tried = s.swap([slot], k)
        best = max(range(10), key=lambda j: gains[j])
        assert (tried.removed, tried.proposed) == (removed, pivots[best])
        assert tried.exact == pytest.approx(gains[best], rel=1e-6, abs=1e-7)
        assert tried.accepted == (gains[best] > 0.0)
        assert math.isnan(tried.approx)
        assert math.isnan(tried.regret)  # random pivots have no scores
        outcomes.add(tried.accepted)
    assert outcomes == {True, False}


def test_the_regret_is_how_much_better_the_best_pivot_is_than_the_one_with_the_best_score():
    task = problem()
    s = swapper(task, "vfe", proposals=0, z=10, policy="scored")
    regrets = []
    for k in range(24):
        if k % 8 == 0:
            s.refresh(k, list(range(8)))
        points, pivots = s.factor.inducing.tolist(), s.pivots.rows.tolist()
        gains = decreases(task, s, k % 8, pivots)
        ranked = [row for row in s.pivots.ranked.tolist() if row in pivots and row not in points]
        tried = s.swap(list(range(k % 8, 8)), k)
        if ranked and tried.regret == tried.regret:
            regrets.append(tried.regret)
            assert tried.regret == pytest.approx(max(gains) - gains[pivots.index(ranked[0])], rel=1e-6, abs=1e-6)
    assert len(regrets) > 8
    assert max(regrets) > 0.0


def test_a_decrease_that_is_only_rounding_is_not_accepted(monkeypatch: pytest.MonkeyPatch):
    for share, accepted in ((0.999, True), (1.001, False)):
        task = problem()
        s = swapper(task, "vfe", proposals=0, z=10)
        gain = max(decreases(task, s, 0, s.pivots.rows.tolist()))
        assert gain > 1e-3
        monkeypatch.setattr(swap, "LEAST_GAIN", share * gain / abs(s.factor.total))
        assert s.swap([0], 0).accepted == accepted


def test_where_all_candidates_are_explained_a_swap_has_no_numbers_of_one():
    nothing = Tried.of(4, 9, False, -math.inf, approx=0.5, regret=0.25, inverse_error=1e-12)
    assert (nothing.removed, nothing.proposed, nothing.accepted, nothing.inverse_error) == (4, -1, False, 1e-12)
    assert all(math.isnan(value) for value in (nothing.approx, nothing.exact, nothing.regret))
    something = Tried.of(4, 9, True, 0.75, approx=0.5, regret=0.25, inverse_error=1e-12)
    assert something == Tried(4, 9, True, 0.5, 0.75, 0.25, 1e-12)


# -- what is evaluated together, and what is kept ----------------------------------------------------------------------


class Counted:
    """Counts the calls of a function of a module, or of a method."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.real, self.calls = getattr(owner, name), []
        monkeypatch.setattr(owner, name, self)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        self.calls.append(inputs)
        return self.real(*inputs, **named)

    def __get__(self, instance: Any, owner: Any = None) -> Any:  # as a method of a class
        return partial(self, instance)


def rejecting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "LEAST_GAIN", 1e9)


def test_tries_are_evaluated_together_until_one_is_accepted(monkeypatch: pytest.MonkeyPatch):
    s = swapper(problem(), "vfe", proposals=0, z=10)
    s.refresh(1, list(range(8)))
    tries = Counted(monkeypatch, swap.Removals, "evaluate")
    rejecting(monkeypatch)
    for k in range(8):
        assert not s.swap(list(range(k, 8)), k).accepted
    assert len(tries.calls) == 1
    assert tries.calls[0][-1] == 8
    assert s.removals.slots == []


def test_after_two_accepted_in_a_row_one_try_is_evaluated_at_a_time(monkeypatch: pytest.MonkeyPatch):
    s = swapper(problem(), "vfe", proposals=0, z=10)
    s.refresh(1, list(range(8)))
    tries = Counted(monkeypatch, swap.Removals, "evaluate")
    monkeypatch.setattr(swap, "LEAST_GAIN", -1e9)  # everything is accepted
    for k in range(3):
        assert s.swap(list(range(k, 8)), k).accepted
    assert [call[-1] for call in tries.calls] == [8, 7, 1]
    rejecting(monkeypatch)
    assert not s.swap(list(range(3, 8)), 3).accepted
    monkeypatch.setattr(swap, "LEAST_GAIN", -1e9)
    for k in range(4, 6):
        assert s.swap(list(range(k, 8)), k).accepted
    assert [call[-1] for call in tries.calls[3:]] == [1, 4, 3]  # one that is rejected begins a new count


def test_other_slots_than_those_that_are_known_are_computed(monkeypatch: pytest.MonkeyPatch):
    task = problem()
    s = swapper(task, "vfe", proposals=0, z=10)
    s.refresh(1, [0, 1, 2])
    rejecting(monkeypatch)
    for slot in (0, 5, 2, 2):
        gains = decreases(task, s, slot, s.pivots.rows.tolist())
        tried = s.swap([slot], 0)
        assert tried.removed == int(s.factor.inducing[slot])
        assert tried.exact == pytest.approx(max(gains), abs=1e-7)


def test_the_inverse_is_computed_again_only_where_its_error_is_large(monkeypatch: pytest.MonkeyPatch):
    task = problem()
    s = swapper(task, "vfe", proposals=0, z=10)
    s.refresh(1, list(range(8)))
    rebuilt = Counted(monkeypatch, s.factor, "rebuild_inverse")
    for k in range(4):
        assert s.swap(list(range(k, 8)), k).inverse_error < 1e-9
    assert not rebuilt.calls
    s.factor.P.mul_(1.0 + 1e-6)
    s.removals.multiply()
    tried = s.swap(list(range(4, 8)), 4)
    assert len(rebuilt.calls) == 1
    assert tried.inverse_error == pytest.approx(1e-6, rel=0.1)  # the error before
    assert s.factor.total == pytest.approx(dense(task, s.factor.inducing, "vfe"), rel=1e-10)
    assert s.swap(list(range(5, 8)), 5).inverse_error < 1e-9


# -- with proposals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "by_score"), [(1, 1), (2, 1), (3, 2), (4, 2)])
def test_half_of_the_proposals_have_the_best_scores_and_none_is_a_pivot(count: int, by_score: int):
    s = swapper(problem(), "vfe", proposals=count, z=6)
    scores = torch.linspace(1.0, 2.0, 90, dtype=torch.float64)
    scores[:40] = -math.inf
    rows = s._proposed_rows(scores, 3).tolist()
    pivots = s.pivots.rows.tolist()
    ranked = [row for row in range(89, 39, -1) if row not in pivots]
    assert rows[:by_score] == ranked[:by_score]
    assert count == 1 or rows[by_score:] != ranked[by_score:count]  # the others are drawn
    assert len(rows) == len(set(rows)) == count
    assert not set(rows) & set(pivots)
    assert min(rows) >= 40
    assert s._proposed_rows(scores, 3).tolist() == rows


def test_without_competition_nothing_is_proposed_where_a_pivot_has_the_best_score():
    s = swapper(problem(), "vfe", z=6)
    alone = Swapper(s.factor, 6, 5, 0, POLICIES["random"], compete=False)
    assert alone.num_proposals == 1
    alone.refresh(0)
    scores = torch.zeros(90, dtype=torch.float64)
    scores[int(alone.pivots.rows[2])] = 1.0
    assert len(alone._proposed_rows(scores, 0)) == 0
    free = next(row for row in range(90) if row not in alone.pivots.rows.tolist())
    scores[free] = 2.0
    assert alone._proposed_rows(scores, 0).tolist() == [free]


@pytest.mark.parametrize("shift", SHIFTS)
def test_pivots_compete_with_proposals_and_the_predicted_decrease_is_that_of_the_score(shift: float):
    task = problem(shift)
    s = swapper(task, "vfe", proposals=3, z=6)
    for k in range(16):
        slot, pivots = k % 8, s.pivots.rows.tolist()
        points, before = set(s.factor.inducing.tolist()), len(s.tested)
        free = [row for row in range(90) if row not in points]
        gains = dict(zip(free, decreases(task, s, slot, free), strict=True))
        tried = s.swap([slot, (k + 1) % 8], k)
        new = len(s.tested) - before if len(s.tested) < WINDOW else 3
        assert 0 < new <= 3
        assert tried.exact == pytest.approx(gains[tried.proposed], rel=1e-6, abs=1e-7)
        assert tried.exact >= max(gains[row] for row in pivots if row not in points) - 1e-7
        assert math.isfinite(tried.approx)
        assert tried.regret >= 0.0


def test_the_newest_tests_are_kept_and_their_correlation():
    s = swapper(problem(), "vfe", z=6)
    approx = torch.arange(40, dtype=torch.float64)
    exact = approx.square()
    exact[3] = -math.inf
    s.set_tested(approx.new_zeros(0, 2))
    s._add_tested(approx, exact)
    assert len(s.tested) == WINDOW == 32
    assert s.tested[-1].tolist() == [39.0, 39.0**2]
    assert s.tested[0].tolist() == [8.0, 64.0]
    assert s.correlation == pytest.approx(1.0)
    s._add_tested(approx[:1] - 5.0, exact[:1] + 1e6)
    assert s.tested[-1].tolist() == [-5.0, 1e6]
    assert s.tested[0].tolist() == [9.0, 81.0]
    assert s.correlation == pytest.approx(window_correlation(s.tested))


def test_pivots_that_are_kept_are_not_drawn_again_and_no_row_left_is_said():
    kept = swapper(problem(), "vfe", z=6, policy="adaptive")
    before = kept.pivots
    assert kept.refresh(5) is True
    assert kept.pivots is before
    task = problem(n=20)
    factor = Factor(task.kernel, task.theta, task.train, torch.arange(20), "vfe")
    everything = Swapper(factor, 4, 0, 0, POLICIES["random"])
    assert everything.refresh(0) is False
    assert everything.pivots is None
    assert swapper(task, "vfe", z=6).refresh(1) is True


def test_a_policy_that_finds_no_pivot_ends_the_swaps():
    s = swapper(problem(), "vfe", z=6)
    s.policy = PivotPolicy(lambda candidates: Drawn(candidates.rows[:0]))
    assert s.refresh(1) is False
    assert s.pivots is None


def test_with_proposals_the_column_of_the_next_removal_alone_is_computed():
    s = swapper(problem(), "vfe", z=6, proposals=2)
    assert len(s.tested) == 0
    assert s.pivots.oldest == 0
    s.refresh(1, [0, 1, 2])
    assert s.removals.slots == [0]
    s.set_pivots(s.pivots.rows, 0, [0, 4])  # the first one is known, also where another follows
    assert s.removals.slots == [0]
    known = s.removals
    s.set_pivots(s.pivots.rows, 0, [0, 4])
    assert s.removals is known
    s.swap([0, 1, 2], 0)
    assert s.removals.slots == [1]


def test_a_rebuild_reports_the_share_by_which_the_objective_was_wrong():
    s = swapper(problem(), "vfe", proposals=0, z=6)
    right = s.factor.total
    s.factor.terms = s.factor.terms._replace(fit=s.factor.terms.fit + 2e-3 * right)
    pivots = s.pivots.rows.clone()
    assert s.rebuild() == pytest.approx(1e-3, rel=1e-5)
    assert s.factor.total == pytest.approx(right)
    assert torch.equal(s.pivots.rows, pivots)
    assert s.removals is None
