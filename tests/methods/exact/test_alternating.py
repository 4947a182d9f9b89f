"""Alternating projections compared with the published recursion, written with dense matrices."""

from __future__ import annotations

import itertools
from itertools import islice

import pytest
import torch

from gpexplorer import Spec
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.exact.blocks.alternating import Factors
from oracles_gbcd import SHIFTS, quick, system, wavy

KEY = "alternating-projections"


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("factors", [0.0, 1e-6, 1.0])
def test_the_block_with_the_largest_gradient_is_next_for_every_budget_of_factors(factors: float, shift: float):
    task = wavy(shift)
    A, y = system(task), task.train.y
    blocks = torch.randperm(80, generator=generator(0, "partition")).split(12)
    alpha, visited = torch.zeros_like(y), []
    for step in islice(quick(KEY, factors=factors, tolerance=0.0).steps(task), 1, 20):
        g = A @ alpha - y
        worst = max(range(len(blocks)), key=lambda k: float(g[blocks[k]].norm()))
        rows = blocks[worst]
        alpha[rows] -= torch.linalg.solve(A[rows][:, rows], g[rows])
        visited.append(worst)

        torch.testing.assert_close(step.state.alpha, alpha, rtol=1e-8, atol=1e-9)
        assert step.info.active.tolist() == rows.tolist()
        assert float((A @ alpha - y)[rows].abs().max()) < 1e-11
    assert len(set(visited)) == 7


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_error_decreases_in_the_norm_of_A_and_vanishes(shift: float):
    task = wavy(shift, n=60)
    A = system(task)
    exact, errors = torch.linalg.solve(A, task.train.y), []
    for step in quick(KEY, block=40, tolerance=1e-4).steps(task):
        e = step.state.alpha - exact
        errors.append(float(e @ A @ e))

    assert all(later < before for before, later in itertools.pairwise(errors))
    torch.testing.assert_close(step.state.alpha, exact, rtol=1e-2, atol=1e-2)


def test_kept_factors_fit_into_the_budget_and_are_not_computed_again():
    A = system(wavy())
    factors = Factors(2.0 * 12 * 12 * 8)
    blocks = torch.arange(80).split(12)
    for _ in range(2):
        for place, rows in enumerate(blocks):
            L = factors(place, A[rows], rows, A.dtype)
            torch.testing.assert_close(L @ L.T, A[rows][:, rows])

    assert sorted(factors.kept) == [0, 1]
    assert sum(L.nbytes for L in factors.kept.values()) <= 2 * 12 * 12 * 8
    assert factors(0, A[blocks[0]], blocks[0], A.dtype) is factors.kept[0]


def test_the_scores_of_a_record_belong_to_its_own_alpha():
    data = {"name": "hypercube", "n": 80, "d": 2, "noise": 0.1}
    settings = {"block": 10, "subset": 20, "evaluations": 3, "tolerance": 0.0}
    run = Spec(KEY, settings, data=data, kernel="se").open()
    run.finish(steps=9)
    task, test = run.problem, run.split.test

    errors = [run.scores(k)["smse"] for k in range(10)]
    solving = [k for k, record in enumerate(run.trace) if record.step.info.phase in ("start", "solve")]

    for k in solving:
        state, y = run.trace[k].step.state, test.y
        mean = task.kernel(state.theta, test.X, task.train.X) @ state.alpha
        assert errors[k] == pytest.approx(float((y - mean).square().mean() / y.var(correction=0)), rel=1e-6)
    assert solving == [0, *range(4, 10)]
    assert errors[0] > 0.9 > 2.0 * max(errors[1:4])  # predictions of 20 rows while hyperparameters are learned
    assert errors[9] < errors[5]
