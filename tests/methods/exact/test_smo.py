"""SMO compared with pairs of maximal violation, written with the dense matrix."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from torch import Tensor

from oracles_gbcd import SHIFTS, quick, system, wavy

PAIRS, STEPS = 4, 6


def pair(A: Tensor, y: Tensor, alpha: Tensor) -> tuple[Tensor, set[int]]:
    """alpha with the two rows of the largest and the smallest gradient solved for exactly."""
    g = A @ alpha - y
    rows = [int(g.argmax()), int(g.argmin())]
    alpha = alpha.clone()
    alpha[rows] -= torch.linalg.solve(A[rows][:, rows], g[rows])
    return alpha, set(rows)


@pytest.mark.parametrize("shift", SHIFTS)
def test_every_step_solves_pairs_of_maximal_violation(shift: float):
    task = wavy(shift)
    A, y, alpha = system(task), task.train.y, torch.zeros(80, dtype=torch.float64)

    for step in islice(quick("smo", pairs=PAIRS).steps(task), 1, 1 + STEPS):
        active: set[int] = set()
        for _ in range(PAIRS):
            alpha, rows = pair(A, y, alpha)
            active |= rows
        torch.testing.assert_close(step.state.alpha, alpha, rtol=1e-8, atol=1e-10)
        assert set(step.info.active.tolist()) == active


def test_with_a_single_training_row_a_pair_is_that_row():
    """A single row has the largest and the smallest gradient entry."""
    task = wavy(n=1)

    step = next(islice(quick("smo", pairs=1).steps(task), 1, None))

    torch.testing.assert_close(step.state.alpha, task.train.y / system(task)[0, 0])
    assert step.info.active.tolist() == [0]
