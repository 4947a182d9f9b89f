"""The first steps of a fold have a suitable length in every hyperparameter, also where the noise is small."""

from __future__ import annotations

import math
from itertools import islice

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.linalg.workspace import Workspace
from gpexplorer.methods.base import registry
from gpexplorer.methods.cross_validation import fold_steps
from gpexplorer.methods.cross_validation.folds import FoldGroup
from gpexplorer.methods.cross_validation.theta_step import ConsensusPenalty, FoldSystems
from gpexplorer.problem import Dataset, Problem
from oracles_admm import problem


def waves(shift: float) -> Problem:
    """Eight periods with little noise: the loss depends much more strongly on the period than on the rest."""
    rng = torch.Generator().manual_seed(0)
    X = torch.linspace(0, 8, 160, dtype=torch.float64)[:, None]
    noise = 0.02 * torch.randn(160, generator=rng, dtype=torch.float64)
    y = torch.sin(2 * math.pi * X[:, 0]) + 0.1 * X[:, 0] + noise
    train, kernel = Dataset(X + shift, (y - y.mean()) / y.std()), kernels.make("se + lp", 1)
    theta = kernel.start(train)
    theta[list(kernel.names).index("lp: period")] = 0.0
    return Problem(train, kernel, theta)


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_folds_move_also_where_the_noise_is_small(shift: float):
    steps = registry["gpcv-admm"](folds=2, rank=20).steps(waves(shift))

    begin, *_, last = islice(steps, 1, 6)

    assert last.state.best < 0.6 * begin.info.objective


def test_first_hessian_is_the_gauss_newton_diagonal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fold_steps, "PROBES", 150)
    task, n_T, p = problem(1000.0, n=24), 14, 4
    fold = FoldGroup(task.kernel, task.train.X, task.train.y, n_T, (slice(n_T, 24),), Workspace(1e9))
    systems = FoldSystems(fold, fold.kernel_matrix(task.theta), 8)

    def held_out(theta: torch.Tensor) -> torch.Tensor:
        M = task.kernel(theta, task.train.X, task.train.X[:n_T])
        C = M[:n_T] + (2 * theta[-1]).exp() * torch.eye(n_T, dtype=M.dtype)
        return task.train.y[n_T:] - M[n_T:] @ torch.linalg.solve(C, task.train.y[:n_T])

    J = torch.autograd.functional.jacobian(held_out, task.theta)
    C = systems.M.columns(torch.arange(n_T)) + systems.s2 * torch.eye(n_T)
    Z = torch.linalg.solve(C, task.train.y[:n_T])[:, None]
    zero = torch.zeros(p, dtype=Z.dtype)
    B = fold_steps.initial_hessian(systems, Z, zero, ConsensusPenalty(zero, 0.0, zero, zero, 8.0))

    torch.testing.assert_close(B.diagonal(), 2.0 * J.square().sum(0), rtol=0.4, atol=1e-6)


def test_a_constant_input_does_not_stop_the_iterations():
    task = problem(n=30)
    X = torch.cat([task.train.X, torch.ones(30, 1, dtype=torch.float64)], 1)
    kernel = kernels.make("se-ard", 3)
    train = Dataset(X, task.train.y)

    steps = list(registry["gpcv-admm-holdout"](max_iterations=4).steps(Problem(train, kernel, kernel.start(train))))

    assert len(steps) > 2
    assert all(step.state.theta.isfinite().all() for step in steps)
