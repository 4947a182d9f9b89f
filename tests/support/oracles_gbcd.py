"""Slow dense formulas for the solvers of the exact GP and their sparse baselines, written from the papers."""

from __future__ import annotations

import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.methods.base import Method, registry
from gpexplorer.problem import Dataset, Outcome, Problem
from whole_run import finished

SHIFTS = [0.0, 1000.0]


def wavy(shift: float = 0.0, n: int = 80) -> Problem:
    """A two-dimensional problem whose rows may lie far from the origin."""
    rng = torch.Generator().manual_seed(5)
    X = 3.0 * torch.rand(n, 2, generator=rng, dtype=torch.float64)
    y = torch.sin(2 * X[:, 0]) * X[:, 1] + 0.2 * torch.randn(n, generator=rng, dtype=torch.float64)
    theta = torch.tensor([0.1, -0.2, -0.4, -1.2], dtype=torch.float64)
    return Problem(Dataset(X + shift, y), kernels.make("se-ard", 2), theta)


def gram(task: Problem) -> Tensor:
    """K [n, n]."""
    return task.kernel(task.theta, task.train.X, task.train.X)


def noise(task: Problem) -> float:
    """s2."""
    return float((2 * task.theta[-1]).exp())


def system(task: Problem) -> Tensor:
    """K + s2 I [n, n]."""
    K = gram(task)
    return K + noise(task) * torch.eye(len(K), dtype=K.dtype)


def quick(key: str, **changes: object) -> Method:
    """A small method that keeps theta and stops on the gradient; settings that it does not have are left out."""
    kind = registry[key]
    settings = {
        "mean_tolerance": 0.0,
        "learn": False,
        "coarse": 0,
        "block": 12,
        "chunk": 3,
        "rank": 10,
        "pairs": 200,
        "max_iterations": 4000,
    } | changes
    return kind(**{name: value for name, value in {"tolerance": 1e-7, **settings}.items() if name in kind.param})


def penalised_squares(task: Problem, rows: list[int], a: Tensor | None = None) -> float:
    """|y - K_nm a|^2 / 2 + s2 a'K_mm a / 2, at its least where no a is given."""
    K, s2, y = gram(task), noise(task), task.train.y
    K_nm, K_mm = K[:, rows], K[rows][:, rows]
    if a is None:
        a = torch.linalg.solve(s2 * K_mm + K_nm.T @ K_nm, K_nm.T @ y)
    return float(0.5 * (y - K_nm @ a).square().sum() + 0.5 * s2 * a @ K_mm @ a)


def ended(method: Method, task: Problem) -> Outcome:
    """Why a method stopped, with all its steps taken."""
    outcome: Outcome = finished(method, task)[1]
    return outcome
