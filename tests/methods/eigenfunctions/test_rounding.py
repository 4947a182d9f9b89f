"""Where eigenvalues fall below rounding: they are left out, and what is left is as exact as without them."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from gpexplorer.features.basis_choices import Leading
from gpexplorer.features.grid_eigenfunctions import Grid
from gpexplorer.methods.eigenfunctions.evidence import evidence_gradient, regress
from gpexplorer.methods.eigenfunctions.grief import Grief
from gpexplorer.methods.eigenfunctions.learning import _round, initial_state
from gpexplorer.methods.eigenfunctions.orthogonal_basis import likelihood, likelihood_terms, orthogonalise
from gpexplorer.problem import Problem
from oracles_grief import nlml, problem

SHIFTS = [0.0, 1000.0]


def smooth(shift: float) -> Problem:
    """Lengthscales of ten times the range: of thirty 1-D eigenvalues, most are rounding, some of it negative."""
    task = problem(shift)
    task.theta[1:3] = 3.4
    return task


@pytest.mark.parametrize("shift", SHIFTS)
def test_eigenvalues_lost_in_rounding_are_dropped_and_the_kernel_is_there_without_them(shift: float):
    task = smooth(shift)
    grid = Grid(task.kernel, task.train.X, 30)

    for values, vectors in grid.axis_eigen(task.theta):
        assert 2 <= len(values) == vectors.shape[1] <= 8
        assert float(values.min()) > 1e-10 * float(values.max())
    index = grid.spectrum(task.theta, 1000).axis_indices
    Phi = grid.features(task.theta, task.train.X, index)
    torch.testing.assert_close(Phi @ Phi.T, task.kernel(task.theta, task.train.X, task.train.X), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_slope_stays_that_of_the_likelihood_where_the_kernel_is_nearly_flat(shift: float):
    task = smooth(shift)
    grid = Grid(task.kernel, task.train.X, 30)
    choice = Leading(grid, grid.spectrum(task.theta, 1000).axis_indices)

    found = evidence_gradient(choice, task.theta, task.train, regress(choice, task.theta, task.train))

    step = 1e-4 * torch.eye(4, dtype=torch.float64)
    ends = [[regress(choice, task.theta + sign * move, task.train).value for sign in (1, -1)] for move in step]
    wanted = torch.tensor([(up - down) / 2e-4 for up, down in ends], dtype=torch.float64)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shift", SHIFTS)
def test_functions_that_repeat_others_are_rotated_away(shift: float):
    task = problem(shift)
    grid = Grid(task.kernel, task.train.X, 6)
    Phi = grid.features(task.theta, task.train.X, grid.spectrum(task.theta, 8).axis_indices)
    Phi, y, s2 = torch.cat([Phi, Phi[:, :5]], 1), task.train.y, (2.0 * task.theta[-1]).exp()

    basis = orthogonalise(Phi.T @ Phi, Phi.T @ y, float(y @ y), len(y), torch.finfo(y.dtype).eps)

    assert len(basis.e) == 8
    assert bool(basis.u.isfinite().all())
    z = torch.zeros(1, 9, dtype=torch.float64)
    z[0, -1] = s2.log()
    assert -float(likelihood(likelihood_terms(basis), z).value) == pytest.approx(float(nlml(Phi, y, s2)), rel=1e-9)


def test_a_round_that_finds_nothing_better_moves_nothing():
    task, method = problem(2.0), Grief(num_eigenfunctions=9, grid_points=6, evaluations=4)
    state = initial_state(task)._replace(phase="learn", round=1, objective=-1e9)
    choice = method.choose(task, task.theta)
    moved = task.theta + 0.5

    for step in islice(_round(method, task, state._replace(theta=moved), choice), 4):
        assert step.state.objective == -1e9
        torch.testing.assert_close(step.state.theta, moved, rtol=0, atol=0)
