"""Correlation of gradients between neighbours: entries, neighbours and coefficients against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpexplorer.methods.exact.gradient_correlation import gradient_correlations, gradient_entries, nearest_rows
from gpexplorer.problem import Problem
from oracles_gbcd import SHIFTS, quick, system, wavy


def iterates(task: Problem) -> torch.Tensor:
    """alpha [t, n] of a few iterations."""
    steps = quick("gbcd", max_iterations=5).steps(task)
    return torch.stack([step.state.alpha for step in steps][1:])


@pytest.mark.parametrize("shift", SHIFTS)
def test_gradient_entries_equal_dense_ones(shift: float):
    task = wavy(shift)
    alphas, rows = iterates(task), torch.tensor([3, 40, 41, 7])

    result = gradient_entries(task, task.theta, alphas, rows)

    torch.testing.assert_close(result, (alphas @ system(task) - task.train.y)[:, rows], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_nearest_rows_are_by_distance_and_exclude_the_row_itself(shift: float):
    task = wavy(shift)

    result = nearest_rows(task, task.theta, torch.arange(80), 4)

    far = (task.train.X[:, None] - task.train.X[None]).square().sum(2).fill_diagonal_(torch.inf)
    torch.testing.assert_close(result.sort(1).values, far.argsort(1)[:, :4].sort(1).values)


def test_coefficients_are_pearsons_and_larger_for_neighbours():
    task = wavy()
    alphas = iterates(task)

    result = gradient_correlations(task, task.theta, alphas, centres=80, neighbours=3)

    g = (alphas @ system(task) - task.train.y).numpy()
    pairs = np.corrcoef(g.T)[np.arange(80)[:, None], nearest_rows(task, task.theta, torch.arange(80), 3).numpy()]
    assert len(result.near) == pairs.size
    np.testing.assert_allclose(np.sort(result.near.numpy()), np.sort(pairs.ravel()), atol=1e-6)
    assert float(result.near.mean()) > float(result.far.mean()) + 0.2


def test_every_other_row_is_a_neighbour_where_more_are_wanted_than_there_are():
    task = wavy()

    result = gradient_correlations(task, task.theta, iterates(task), centres=10, neighbours=500)

    assert len(result.near) == 10 * 79
    assert 10 * 70 < len(result.far) < 10 * 79  # some draws are the centre itself
    assert float(result.near.max()) < 1.0 - 1e-9
    assert float(result.far.max()) < 1.0 - 1e-9


def test_two_iterates_are_enough_and_one_is_not():
    task = wavy()
    alphas = iterates(task)

    assert len(gradient_correlations(task, task.theta, alphas[:2], centres=5, neighbours=3).near) > 0
    none = gradient_correlations(task, task.theta, alphas[:1])
    assert (len(none.near), len(none.far), none.iterations) == (0, 0, 1)
