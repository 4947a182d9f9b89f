"""Pivots as the only candidates: chosen by score, tested exactly, offered for removals of least loss; L is not read."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.methods.inducing.swapping.cholqr import CholQR
from gpexplorer.methods.inducing.swapping.factor import Factor
from gpexplorer.methods.inducing.swapping.policies import ORDERS, Turn, by_variance, missed_reduction
from gpexplorer.methods.inducing.swapping.swap import Removals, Swapper
from gpexplorer.problem import Dataset, Problem
from swap_problems import SHIFTS, dense, least_loss, problem, swapper

POOL = {"num_proposals": 0, "pivot_policy": "scored", "removal": "least loss", "learn": False}


def pooled(task: Problem, objective: str) -> Swapper:
    return swapper(task, objective, proposals=0, policy="scored")


@pytest.mark.parametrize("objective", ["vfe", "tight-vfe", "pp"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_losses_are_the_increase_of_the_objective_without_each_point(shift: float, objective: str) -> None:
    task = problem(shift)
    factor = swapper(task, objective).factor
    losses = factor.losses()

    rows = factor.inducing
    for i in range(factor.m):
        without = dense(task, torch.cat([rows[:i], rows[i + 1 :]]), objective)
        assert float(losses[i]) == pytest.approx(without - factor.total, rel=1e-6, abs=1e-8)
    turn = Turn(epoch=0, position=0, per_epoch=8, swaps=3, seed=0)
    assert ORDERS["least loss"].slots(factor, turn, []) == losses.argsort()[:3].tolist()


@pytest.mark.parametrize("objective", ["vfe", "tight-vfe", "pp"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_the_best_pivot_is_accepted_and_the_removal_columns_stay_exact(shift: float, objective: str) -> None:
    task = problem(shift)
    s, accepted = pooled(task, objective), 0
    for step in range(6):
        if step % 3 == 0:
            s.refresh(step)
            order = least_loss(s.factor, 3) if step else [5, 3, 5]
        slots, previous, before = order[step % 3 :], s.factor.inducing.clone(), s.factor.total
        pivots = s.pivots.rows.tolist()

        tried = s.swap(slots, step)

        trials = []
        for row in set(pivots) - set(previous.tolist()):
            trial = previous.clone()
            trial[slots[0]] = row
            trials.append(before - dense(task, trial, objective))
        assert tried.exact == pytest.approx(max(trials), rel=1e-6, abs=1e-7)
        assert tried.accepted == (max(trials) > 1e-9)
        accepted += tried.accepted
        fresh = Factor(task.kernel, task.theta, task.train, s.factor.inducing, objective)
        assert s.factor.total == pytest.approx(fresh.total, rel=1e-9)
        assert s.removals.slots == slots[1:]
        if len(slots) > 1:
            # w depends on the root chosen, and v = L w does up to its sign: compare v v'
            V = fresh.times(fresh.T[:, slots[1:]].T)
            assert torch.allclose(s.removals.V, V, atol=1e-7)
    assert accepted > 1


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
    for half in (len(steps) // 4, 3 * len(steps) // 4):
        again = list(islice(method.steps(task, resume=steps[half].state), len(steps) - half - 1))
        assert torch.equal(again[-1].state.inducing, steps[-1].state.inducing)
        assert again[-1].state.objective == pytest.approx(totals[-1], rel=1e-9)


@pytest.mark.parametrize("objective", ["vfe", "pp"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_tries_evaluated_together_are_differences_of_dense_objectives(shift: float, objective: str) -> None:
    task = problem(shift)
    s = pooled(task, objective)
    slots = least_loss(s.factor, 8)
    s.refresh(0, slots)
    while not s.swap(slots, 0).accepted:  # so that changes of the factors wait
        slots = slots[1:]
    slots, before, points = slots[1:], s.factor.total, s.factor.inducing
    assert len(slots) > 2

    s.removals.evaluate(s.pivots, 8)

    for slot in slots:
        tries = s.removals
        assert tries.is_evaluated
        without = dense(task, torch.cat([points[:slot], points[slot + 1 :]]), objective)
        assert tries.loss == pytest.approx(without - before, rel=1e-6, abs=1e-7)
        for pivot, row in enumerate(s.pivots.rows.tolist()):
            with_pivot = points.clone()
            with_pivot[slot] = row
            reduction = float(tries.effects.reduction[pivot])
            if row not in points:
                expected = without - dense(task, with_pivot, objective)
                assert reduction == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert tries.best[1] == float(tries.effects.reduction.max())
        removal = tries.removal()
        L = s.factor.times(torch.eye(s.factor.m, dtype=torch.float64)).T
        torch.testing.assert_close(removal.v, L @ removal.w, rtol=1e-7, atol=1e-7)
        assert float(removal.w.norm()) == pytest.approx(1.0)
        tries.drop_first()
    assert not tries.is_evaluated


def test_rejected_tries_need_no_operation_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    s, evaluated = pooled(problem(0.0), "vfe"), []
    own = Removals._read
    monkeypatch.setattr(Removals, "_read", lambda r, pivots: evaluated.append(r._count) or own(r, pivots))
    tried: list[bool] = []
    for begin in range(0, 40, 8):
        slots = least_loss(s.factor, 8)
        s.refresh(begin, slots)
        tried += [s.swap(slots[k:], begin + k).accepted for k in range(8)]

    assert 0 < sum(tried) < 20
    # once after pivots were drawn, and once after an accepted swap; once more where a third in a row was expected
    assert len(evaluated) <= 5 + 2 * sum(tried) < len(tried)
    assert any(count > 1 for count in evaluated)


def test_a_run_ends_when_every_row_is_explained() -> None:
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


def test_rows_are_drawn_in_proportion_to_their_variance_and_none_twice() -> None:
    D = torch.tensor([6.0, 3.0, 1.0, 0.0], dtype=torch.float64)
    rng = torch.Generator().manual_seed(1)
    drawn = torch.stack([by_variance(D, 2, rng) for _ in range(4000)])

    first = torch.bincount(drawn[:, 0], minlength=4) / 4000
    assert torch.allclose(first.double(), D / 10, atol=0.03)
    # the second in proportion among those left: 6/10 * 3/4 + 1/10 * 3/9 for row 1
    assert float((drawn[:, 1] == 1).double().mean()) == pytest.approx(0.6 * 0.75 + 0.1 / 3, abs=0.03)
    assert bool((drawn[:, 0] != drawn[:, 1]).all())
    assert by_variance(D, 9, rng).tolist()[3] == 3


def test_a_row_far_from_all_others_is_soon_among_the_pivots() -> None:
    task = problem(0.0, n=300)
    X, y = task.train.X.clone(), task.train.y.clone()
    X[[40, 200]] += torch.tensor([[60.0, 0.0], [0.0, 60.0]], dtype=torch.float64)
    y[[40, 200]] = 8.0  # each is worth an inducing point, and is in the column of no other row
    smooth = torch.tensor([1.0, 1.0, -0.4, -1.5], dtype=torch.float64)  # the others explain each other
    task = replace(task, train=replace(task.train, X=X, y=y), theta=smooth)
    method = CholQR(num_inducing=10, num_pivots=16, pivot_refresh=4, swaps_per_epoch=24, max_epochs=1, **POOL)
    *_, last = method.steps(task)
    assert {40, 200} <= set(last.state.inducing.tolist())


def test_a_swap_reports_the_reduction_that_the_best_score_alone_would_have_missed() -> None:
    task = problem(0.0)
    method = CholQR(num_inducing=7, num_pivots=12, pivot_refresh=4, **POOL)
    steps = list(islice(method.steps(task), 20))
    infos = [step.info for step in steps if step.info.phase == "swap" and step.state.step >= 4]

    assert all(info.regret >= 0.0 for info in infos if math.isfinite(info.regret))
    assert sum(math.isfinite(info.regret) for info in infos) > len(infos) // 2
    assert all(math.isnan(info.approx) for info in infos)  # nothing is predicted where everything is tested
    assert missed_reduction(torch.tensor([3.0, 5.0, 1.0]), torch.tensor([9.0, -math.inf, 2.0])) == 2.0
    assert math.isnan(missed_reduction(torch.tensor([3.0]), torch.tensor([-math.inf])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_explained_to_rounding_end_the_swaps_with_a_sentence(dtype: torch.dtype):
    X = torch.linspace(-1.0, 1.0, 60, dtype=dtype)[:, None]
    train, kernel = Dataset(X, X[:, 0].sin()), kernels.make("se", 1)
    theta = torch.tensor([10.0, 4.0, 0.3], dtype=dtype).log()
    steps = CholQR(num_inducing=12, learn=False).steps(Problem(train, kernel, theta))
    next(steps)
    assert math.isfinite(next(steps).info.objective)  # F of the inducing points, where no swap is possible
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert f"explain each row to the rounding of {str(dtype)[6:]}" in end.value.value.message
