"""Small problems and swappers for the tests of CholQR, with the dense objective they are compared with."""

from __future__ import annotations

import torch

import baseline_problems
from gpexplorer import kernels
from gpexplorer.methods.inducing.swapping.factor import Factor
from gpexplorer.methods.inducing.swapping.policies import POLICIES
from gpexplorer.methods.inducing.swapping.swap import Swapper
from gpexplorer.problem import Dataset, Problem
from oracles import dense_objective

SHIFTS = baseline_problems.SHIFTS


def problem(shift: float = 0.0, n: int = 90, repeats: int = 0) -> Problem:
    """The problem of `baseline_problems` with other rows."""
    return baseline_problems.problem(shift, n, repeats, seed=3)


def dense(task: Problem, rows: torch.Tensor, objective: str) -> float:
    train = task.train
    return float(dense_objective(task.kernel, task.theta, train.X, train.y, train.X[rows], objective))


def swapper(
    task: Problem, objective: str, m: int = 8, z: int = 6, seed: int = 0, proposals: int = 2, policy: str = "random"
) -> Swapper:
    rows = torch.randperm(len(task.train), generator=torch.Generator().manual_seed(seed))[:m]
    factor = Factor(task.kernel, task.theta, task.train, rows, objective)
    swapper = Swapper(factor, z, proposals, seed, POLICIES[policy])
    swapper.refresh(0)
    return swapper


def least_loss(factor: Factor, count: int) -> list[int]:
    """The slots whose removal increases the objective least."""
    return factor.losses().topk(count, largest=False).indices.tolist()


def decreases(task: Problem, s: Swapper, slot: int, rows: list[int]) -> list[float]:
    """By how much each row in the place of the point decreases the objective, by dense algebra."""
    before, found = dense(task, s.factor.inducing, s.factor.objective), []
    for row in rows:
        points = s.factor.inducing.clone()
        points[slot] = row
        found.append(before - dense(task, points, s.factor.objective))
    return found


def hard_problem(
    seed: int = 0, n: int = 400, lengthscale: float = 1.5, ratio: float = 6e4, dtype: torch.dtype = torch.float64
) -> Problem:
    """A smooth function of two inputs in [0, 6]^2, with this ratio of signal to noise variance."""
    rng = torch.Generator().manual_seed(seed)
    X = 6.0 * torch.rand(n, 2, generator=rng, dtype=torch.float64)
    y = torch.sin(2 * X[:, 0]) + torch.cos(X[:, 1]) * X[:, 0] / 3
    y = (y - y.mean()) / y.std() + ratio**-0.5 * torch.randn(n, generator=rng, dtype=torch.float64)
    theta = torch.tensor([1.0, lengthscale, lengthscale, ratio**-0.5], dtype=torch.float64).log()
    return Problem(Dataset(X.to(dtype), y.to(dtype)), kernels.make("se-ard", 2), theta.to(dtype))
