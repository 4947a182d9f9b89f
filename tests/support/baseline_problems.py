"""A small problem for the tests of methods with inducing points, and the steps that a method takes on it."""

from __future__ import annotations

from typing import Any

import torch

from gpexplorer import kernels, methods
from gpexplorer.problem import Dataset, Problem, Step

SHIFTS = [0.0, 1000.0]


def problem(shift: float = 0.0, n: int = 70, repeats: int = 0, seed: int = 5) -> Problem:
    """Noisy rows of two inputs, `shift` away from the origin; the first `repeats` pairs of rows have equal inputs."""
    rng = torch.Generator().manual_seed(seed)
    X = 4.0 * torch.rand(n, 2, generator=rng, dtype=torch.float64)
    y = torch.sin(2 * X[:, 0]) + torch.cos(X[:, 1]) + 0.1 * torch.randn(n, generator=rng, dtype=torch.float64)
    X[: 2 * repeats : 2] = X[1 : 2 * repeats : 2]
    theta = torch.tensor([0.1, -0.2, -0.4, -1.5], dtype=torch.float64)
    return Problem(Dataset(X + shift, y), kernels.make("se-ard", 2), theta)


def trajectory(key: str, task: Problem, **settings: Any) -> list[Step]:
    return list(methods[key](**settings).steps(task))
