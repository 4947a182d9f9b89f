"""Pivot policies: the trace-norm choice against a slow search, growth with exact columns, rank correlation, regret."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

import pytest
import torch
from scipy import stats

from gpexplorer.methods.inducing.swapping.cholqr import CholQR
from gpexplorer.methods.inducing.swapping.policies import FIRST, best_of_pool
from gpexplorer.methods.inducing.swapping.swap import window_correlation
from swap_problems import SHIFTS, problem, swapper


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_optimised_pivots_are_those_of_a_slow_greedy_search(shift: float) -> None:
    task = problem(shift)
    X, k, theta = task.train.X, task.kernel, task.theta
    R = k(theta, X, X) - k(theta, X, X[:5]) @ torch.linalg.solve(k(theta, X[:5], X[:5]), k(theta, X[:5], X))
    pool = torch.arange(8, 28)

    chosen = best_of_pool(R[pool], pool, 6)

    expected: list[int] = []
    for _ in range(6):
        traces = {}
        for j in set(pool.tolist()) - set(expected):
            J = [*expected, j]
            # |E' C^-1/2|^2, the trace norm of the squared residual explained by J beyond those before
            residual = R - R[:, expected] @ torch.linalg.pinv(R[expected][:, expected]) @ R[expected] if expected else R
            traces[J[-1]] = float(residual[:, j].square().sum() / residual[j, j])
        expected.append(max(traces, key=traces.__getitem__))
    assert chosen.tolist() == expected


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_adaptive_policy_grows_and_its_columns_stay_exact(shift: float) -> None:
    rough = torch.tensor([0.1, -1.6, -1.6, -1.5], dtype=torch.float64)  # a slow spectrum, which few pivots rank badly
    task = replace(problem(shift), theta=rough)
    s = swapper(task, "vfe", z=20, policy="adaptive")
    X, k, theta = task.train.X, task.kernel, task.theta
    assert len(s.pivots.rows) == min(FIRST, 20)

    sizes = []
    for step in range(40):
        s.refresh(step)
        s.swap([step % 8, (step + 1) % 8], step)
        sizes.append(len(s.pivots.rows))
        Z = X[s.factor.inducing]
        residual = k(theta, X, X) - k(theta, X, Z) @ torch.linalg.solve(k(theta, Z, Z), k(theta, Z, X))
        assert torch.allclose(s.pivots.E, residual[s.pivots.rows], atol=1e-8)
        assert torch.allclose(s.pivots.EE, s.pivots.E @ s.pivots.E.T, atol=1e-8)
        assert len(set(s.pivots.rows.tolist())) == len(s.pivots.rows)

    assert sizes == sorted(sizes)
    assert FIRST < sizes[-1] <= 20


def test_the_rank_correlation_is_spearmans() -> None:
    tested = torch.randn(20, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 1e3

    assert window_correlation(tested) == pytest.approx(stats.spearmanr(*tested.T.numpy()).statistic, abs=1e-12)
    assert math.isnan(window_correlation(tested[:3]))


@pytest.mark.parametrize("policy", ["random", "optimised", "adaptive"])
@pytest.mark.parametrize("start", ["random", "greedy-variance", "titsias", "kmeans"])
def test_every_policy_and_start_lowers_the_objective_and_replays(policy: str, start: str) -> None:
    task = problem(50.0)
    settings = CholQR.published | {"num_pivots": 12, "pivot_policy": policy, "start": start}
    method = CholQR(num_inducing=7, learn=False, **settings)
    steps = list(islice(method.steps(task), 31))
    totals = [step.info.objective for step in steps[1:]]

    assert totals == sorted(totals, reverse=True)
    assert all(step.info.regret >= 0 for step in steps if step.info.accepted)
    half, last = len(steps) // 2, steps[-1].state
    again = list(islice(method.steps(task, resume=steps[half].state), len(steps) - half - 1))[-1].state
    assert torch.equal(again.inducing, last.inducing)
    assert torch.equal(again.pivots, last.pivots)
    assert again.objective == pytest.approx(last.objective, rel=1e-9)


def test_an_epoch_has_sixty_swaps_or_one_per_point():
    assert [CholQR()._limit(m) for m in (7, 60, 512)] == [7, 60, 60]
    assert CholQR(swaps_per_epoch=90)._limit(512) == 90
