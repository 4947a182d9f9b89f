"""Alternating projections against the published recursion, written out with dense matrices."""

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
def test_the_worst_block_is_solved_next_whatever_is_kept_of_its_factor(factors: float, shift: float):
    task = wavy(shift)
    A, y = system(task), task.train.y
    blocks = torch.randperm(80, generator=generator(0, "partition")).split(12)
    alpha, met = torch.zeros_like(y), []
    for step in islice(quick(KEY, factors=factors, tolerance=0.0).steps(task), 1, 20):
        g = A @ alpha - y
        worst = max(range(len(blocks)), key=lambda k: float(g[blocks[k]].norm()))
        rows = blocks[worst]
        alpha[rows] -= torch.linalg.solve(A[rows][:, rows], g[rows])
        met.append(worst)

        torch.testing.assert_close(step.state.alpha, alpha, rtol=1e-8, atol=1e-9)
        assert step.info.active.tolist() == rows.tolist()
        assert float((A @ alpha - y)[rows].abs().max()) < 1e-11
    assert len(set(met)) == 7


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_error_is_projected_and_ends_at_nought(shift: float):
    task = wavy(shift, n=60)
    A = system(task)
    exact, errors = torch.linalg.solve(A, task.train.y), []
    for step in quick(KEY, block=40, tolerance=1e-4).steps(task):
        e = step.state.alpha - exact
        errors.append(float(e @ A @ e))

    assert all(later < before for before, later in itertools.pairwise(errors))
    torch.testing.assert_close(step.state.alpha, exact, rtol=1e-2, atol=1e-2)


def test_no_more_factors_are_kept_than_the_budget_holds_and_a_kept_one_is_not_made_again():
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


def test_the_error_shown_at_a_record_is_that_of_its_own_alpha():
    data = {"name": "hypercube", "n": 80, "d": 2, "noise": 0.1}
    settings = {"block": 10, "subset": 20, "evaluations": 3, "tolerance": 0.0}
    run = Spec(KEY, settings, data=data, kernel="se").open()
    run.finish(steps=9)
    task, test = run.problem, run.split.test

    for k, record in enumerate(run.trace):
        state, y = record.step.state, test.y
        mean = task.kernel(state.theta, test.X, task.train.X) @ state.alpha
        assert run.scores(k)["smse"] == pytest.approx(float((y - mean).square().mean() / y.var(correction=0)), rel=1e-6)
    errors = [run.scores(k)["smse"] for k in range(10)]
    assert errors[3] == errors[0] > 0.9  # nothing is solved while hyperparameters are learned
    assert errors[9] < errors[5] < errors[3]
