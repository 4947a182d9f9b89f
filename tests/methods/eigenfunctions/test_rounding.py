"""Eigenvalues at the level of rounding error are left out, and the rest stays accurate."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from gpexplorer.features.basis_choices import Leading
from gpexplorer.features.grid_eigenfunctions import Grid
from gpexplorer.methods.eigenfunctions.evidence import evidence_gradient, regress
from gpexplorer.methods.eigenfunctions.grief import Grief
from gpexplorer.methods.eigenfunctions.learning import initial_state, learning_round
from gpexplorer.methods.eigenfunctions.orthogonal_basis import likelihood, likelihood_terms, orthogonalise
from gpexplorer.problem import Problem
from oracles_grief import nlml, problem

SHIFTS = [0.0, 1000.0]


def smooth(shift: float) -> Problem:
    """Lengthscales of ten times the range: most of the thirty 1-D eigenvalues are rounding error, some negative."""
    task = problem(shift)
    task.theta[1:3] = 3.4
    return task


@pytest.mark.parametrize("shift", SHIFTS)
def test_eigenvalues_at_rounding_level_are_dropped_without_loss_of_accuracy(shift: float):
    task = smooth(shift)
    grid = Grid(task.kernel, task.train.X, 30)

    for values, vectors in grid.axis_eigen(task.theta):
        assert 2 <= len(values) == vectors.shape[1] <= 8
        assert float(values.min()) > 1e-10 * float(values.max())
    index = grid.spectrum(task.theta, 1000).axis_indices
    Phi = grid.features(task.theta, task.train.X, index)
    torch.testing.assert_close(Phi @ Phi.T, task.kernel(task.theta, task.train.X, task.train.X), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_gradient_is_right_for_a_nearly_constant_kernel(shift: float):
    task = smooth(shift)
    grid = Grid(task.kernel, task.train.X, 30)
    choice = Leading(grid, grid.spectrum(task.theta, 1000).axis_indices)

    result = evidence_gradient(choice, task.theta, task.train, regress(choice, task.theta, task.train))

    step = 1e-4 * torch.eye(4, dtype=torch.float64)
    ends = [[regress(choice, task.theta + sign * move, task.train).value for sign in (1, -1)] for move in step]
    expected = torch.tensor([(up - down) / 2e-4 for up, down in ends], dtype=torch.float64)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shift", SHIFTS)
def test_repeated_functions_are_removed_from_the_orthogonal_basis(shift: float):
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


def test_a_round_without_improvement_changes_nothing():
    task, method = problem(2.0), Grief(num_eigenfunctions=9, grid_points=6, evaluations=4, basis="eigenvalues")
    state = initial_state(task)._replace(phase="learn", round=1, objective=-1e9)
    choice = method.choose(task, task.theta)
    moved = task.theta + 0.5

    for step in islice(learning_round(method, task, state._replace(theta=moved), choice), 4):
        assert step.state.objective == -1e9
        torch.testing.assert_close(step.state.theta, moved, rtol=0, atol=0)
