"""How alike the gradients of neighbours move: gradients, neighbours and coefficients against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpexplorer.methods.exact.gradient_correlation import gradient_correlations, gradient_entries, nearest_rows
from gpexplorer.problem import Problem
from oracles_gbcd import SHIFTS, quick, system, wavy


def course(task: Problem) -> torch.Tensor:
    """alpha [t, n] over a few iterations."""
    steps = quick("gbcd", max_iterations=5).steps(task)
    return torch.stack([step.state.alpha for step in steps][1:])


@pytest.mark.parametrize("shift", SHIFTS)
def test_gradients_are_those_of_the_whole_system(shift: float):
    task = wavy(shift)
    alphas, rows = course(task), torch.tensor([3, 40, 41, 7])

    found = gradient_entries(task, task.theta, alphas, rows)

    torch.testing.assert_close(found, (alphas @ system(task) - task.train.y)[:, rows], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_nearest_rows_are_by_distance_and_never_the_row_itself(shift: float):
    task = wavy(shift)

    found = nearest_rows(task, task.theta, torch.arange(80), 4)

    far = (task.train.X[:, None] - task.train.X[None]).square().sum(2).fill_diagonal_(torch.inf)
    torch.testing.assert_close(found.sort(1).values, far.argsort(1)[:, :4].sort(1).values)


def test_coefficients_are_pearsons_and_neighbours_are_more_alike_than_others():
    task = wavy()
    alphas = course(task)

    found = gradient_correlations(task, task.theta, alphas, centres=80, neighbours=3)

    g = (alphas @ system(task) - task.train.y).numpy()
    pairs = np.corrcoef(g.T)[np.arange(80)[:, None], nearest_rows(task, task.theta, torch.arange(80), 3).numpy()]
    assert len(found.near) == pairs.size
    np.testing.assert_allclose(np.sort(found.near.numpy()), np.sort(pairs.ravel()), atol=1e-6)
    assert float(found.near.mean()) > float(found.far.mean()) + 0.2
