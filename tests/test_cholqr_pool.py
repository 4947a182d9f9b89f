"""Pivots as the only candidates: chosen by rank, tested exactly, with the removals of least loss, and no read of L."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
import torch

from gpexplorer.methods.cholqr.cholqr import CholQR
from gpexplorer.methods.cholqr.factor import Factor
from gpexplorer.methods.cholqr.removals import least_loss
from gpexplorer.methods.cholqr.swap import Swapper
from gpexplorer.problem import Problem
from test_cholqr import SHIFTS, dense, problem, swapper

POOL = {"num_proposals": 0, "pivot_policy": "scored", "removal": "least loss", "learn": False}


def pooled(task: Problem, objective: str) -> Swapper:
    s = swapper(task, objective)
    s.num_proposals, s.policy, s.num_pivots = 0, "scored", 6
    return s


@pytest.mark.parametrize("objective", ["vfe", "pp"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_losses_are_what_the_objective_rises_by_without_each_point(shift: float, objective: str) -> None:
    task = problem(shift)
    factor = swapper(task, objective).factor
    found = factor.losses()

    rows = factor.inducing
    for i in range(factor.m):
        without = dense(task, torch.cat([rows[:i], rows[i + 1 :]]), objective)
        assert float(found[i]) == pytest.approx(without - factor.total, rel=1e-6, abs=1e-8)
    assert least_loss(factor, 3) == found.argsort()[:3].tolist()


@pytest.mark.parametrize("objective", ["vfe", "pp"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_the_best_pivot_is_taken_and_the_columns_ahead_stay_exact(shift: float, objective: str) -> None:
    task = problem(shift)
    s, moved = pooled(task, objective), 0
    for step in range(6):
        if step % 3 == 0:
            s.refresh(step)
            order = least_loss(s.factor, 3) if step else [5, 3, 5]
        slots, kept, before = order[step % 3 :], s.factor.inducing.clone(), s.factor.total
        pivots = s.pivots.rows.tolist()

        tried = s.swap(slots, step)

        trials = []
        for row in set(pivots) - set(kept.tolist()):
            trial = kept.clone()
            trial[slots[0]] = row
            trials.append(before - dense(task, trial, objective))
        assert tried.exact == pytest.approx(max(trials), rel=1e-6, abs=1e-7)
        assert tried.accepted == (max(trials) > 1e-9)
        moved += tried.accepted
        fresh = Factor(task.kernel, task.theta, task.train, s.factor.inducing, objective)
        assert s.factor.total == pytest.approx(fresh.total, rel=1e-9)
        assert s.ahead.slots == slots[1:]
        if len(slots) > 1:
            # w depends on the root chosen, and v = L w does up to its sign: compare v v'
            V = fresh.times(fresh.directions(slots[1:]))
            assert torch.allclose(s.ahead.V.abs(), V.abs(), atol=1e-7)
    assert moved > 1


def test_a_swap_reads_no_factor_between_two_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    s, reads = pooled(problem(0.0), "vfe"), []
    times, transposed = Factor.times, Factor.transposed_times
    monkeypatch.setattr(Factor, "times", lambda f, W: reads.append(len(W)) or times(f, W))
    monkeypatch.setattr(Factor, "transposed_times", lambda f, R: reads.append(len(R)) or transposed(f, R))
    s.refresh(0)
    reads.clear()
    for k in range(5):
        s.swap([0, 1, 2, 3, 4][k:], k)
    assert reads == [5]  # one product, for all five removals


@pytest.mark.parametrize(("shift", "refresh"), [(0.0, 3), (1e3, 8)])
def test_the_pool_lowers_the_objective_and_replays_from_any_state(shift: float, refresh: int) -> None:
    task = problem(shift)
    method = CholQR(num_inducing=7, num_pivots=12, pivot_refresh=refresh, **POOL)
    steps = list(islice(method.steps(task), 22))
    totals = [step.info.objective for step in steps[1:]]

    assert totals == sorted(totals, reverse=True)
    assert totals[-1] < totals[0]
    assert -1.0 <= steps[-1].info.correlation <= 1.0
    for half in (5, 16):
        again = list(islice(method.steps(task, resume=steps[half].state), len(steps) - half - 1))
        assert torch.equal(again[-1].state.inducing, steps[-1].state.inducing)
        assert again[-1].state.objective == pytest.approx(totals[-1], rel=1e-9)


def test_it_ends_where_every_row_is_explained() -> None:
    task = problem(0.0)
    few = replace(task, train=task.train.rows(torch.arange(9)))
    outcome = None
    steps = CholQR(num_inducing=9, num_pivots=4, max_epochs=3, **POOL).steps(few)
    while outcome is None:
        try:
            next(steps)
        except StopIteration as end:
            outcome = end.value
    assert outcome.reason == "converged"
