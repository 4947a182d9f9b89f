"""The tight variational bound: its logarithms, their estimates from some of the rows, and a run that uses both."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from gpexplorer.linalg.ranks import rank_correlation
from gpexplorer.methods.inducing.reductions import SAMPLE, log_reductions
from gpexplorer.methods.inducing.swapping.cholqr import CholQR
from swap_problems import SHIFTS, dense, hard_problem, problem, swapper


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_products_give_the_sum_of_the_logarithms(dtype: torch.dtype, tolerance: float) -> None:
    rng = torch.Generator().manual_seed(0)
    R, D, V = (torch.rand(*size, generator=rng, dtype=torch.float64) for size in [(3, 5001), (3,), (5001,)])
    R[:, :9] *= 0.999999 * (D[:, None] * V[:9]).sqrt() / R[:, :9]  # u^2 / V is almost 1 there
    R[:, 9:] *= (D[:, None] * V[9:]).sqrt()
    v, at_rows = 0.01 * torch.rand(5001, generator=rng, dtype=torch.float64), torch.tensor([0.1, -0.2, 0.0]).double()
    expected = -torch.log(1.0 - R.square() / D[:, None] / V).sum(1)
    arguments = (R - torch.outer(at_rows, v), D, V, v, at_rows)
    reductions = log_reductions(*(each.to(dtype) for each in arguments))
    assert reductions.double().tolist() == pytest.approx(
        expected.tolist(), rel=tolerance if dtype == torch.float64 else 2e-3
    )
    plain = log_reductions(0.5 * R.to(dtype), D.to(dtype), V.to(dtype)).double()
    assert plain.tolist() == pytest.approx(
        (-torch.log(1.0 - 0.25 * R.square() / D[:, None] / V).sum(1)).tolist(), rel=tolerance
    )


@pytest.mark.parametrize("shift", SHIFTS)
def test_scores_and_losses_from_a_sample_rank_as_the_exact_ones(shift: float) -> None:
    task = problem(shift, n=5 * SAMPLE)
    s = swapper(task, "tight-vfe", m=16, z=48, proposals=0, policy="scored")
    rows, losses = s.factor.inducing, s.factor.losses()
    exact = [dense(task, torch.cat([rows[:i], rows[i + 1 :]]), "tight-vfe") - s.factor.total for i in range(s.factor.m)]
    assert rank_correlation(losses.numpy(), np.array(exact)) > 0.95
    assert float((losses / torch.tensor(exact).double() - 1.0).abs().median()) < 0.1

    everything = s.pivots.without(s.factor.no_removal())
    approximate, pivots = everything.approximate()[s.pivots.rows], everything.exact().reduction
    assert float((approximate / pivots - 1.0).abs().median()) < 0.1
    assert rank_correlation(approximate.numpy(), pivots.numpy()) > 0.9


def test_losses_of_a_sample_count_the_own_row_of_each_point() -> None:
    factor = swapper(problem(n=3 * SAMPLE), "tight-vfe", m=12).factor
    without_variances = swapper(problem(n=3 * SAMPLE), "pp", m=12).factor.losses()  # no term depends on the variances
    L = factor.rows(torch.arange(len(factor.D)))
    lengths = factor.T.norm(dim=0)
    squares, V = (L @ factor.T / lengths).square(), (factor.s2 + factor.D)[:, None]  # [n, m], [n, 1]
    own, points = torch.arange(12), factor.inducing
    logs = torch.log1p(squares / V)
    seen = squares[factor.sample].sum(0) + squares[points, own]
    estimated = squares.sum(0) * (logs[factor.sample].sum(0) + logs[points, own]) / seen
    torch.testing.assert_close(factor.losses(), without_variances + 0.5 * estimated, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("make", [lambda: problem(1000.0, n=300), lambda: hard_problem(n=300)])
def test_a_run_carries_the_dense_bound_and_never_increases_it(make) -> None:
    task = make()
    method = CholQR(num_inducing=12, num_pivots=24, objective="tight-vfe", learn=False, max_epochs=6)
    steps = list(method.steps(task))[1:]
    values = [step.info.objective for step in steps]
    assert all(after <= before + 1e-9 * abs(before) for before, after in itertools.pairwise(values))
    assert values[-1] < values[0] - 10.0
    for step in steps[:: len(steps) // 5]:
        assert step.info.objective == pytest.approx(dense(task, step.state.inducing, "tight-vfe"), rel=1e-8)
        assert sum(step.info[2:5]) == pytest.approx(step.info.objective, rel=1e-12)
