"""Slow formulas for cross-validated hyperparameters, from dense algebra alone."""

from __future__ import annotations

import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.problem import Dataset, Problem


def problem(shift: float = 0.0, n: int = 60, kernel: str = "se-ard") -> Problem:
    """Rows of a smooth function of two inputs with noise 0.2, `shift` away from the origin."""
    rng = torch.Generator().manual_seed(5)
    X = 3.0 * torch.rand(n, 2, generator=rng, dtype=torch.float64)
    y = torch.sin(2 * X[:, 0]) * X[:, 1] + 0.2 * torch.randn(n, generator=rng, dtype=torch.float64)
    covariance_function = kernels.make(kernel, 2)
    train = Dataset(X + shift, y)
    return Problem(train, covariance_function, covariance_function.start(train))


def covariance(task: Problem, theta: Tensor, train: Dataset) -> Tensor:
    """C = K + s2 I."""
    K = task.kernel(theta, train.X, train.X)
    return K + (2 * theta[-1]).exp() * torch.eye(len(K), dtype=K.dtype)


def held_out(task: Problem, theta: Tensor, T: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    """Residuals and predicted variances of y at rows V, from rows T."""
    train, new = task.train.rows(T), task.train.rows(V)
    C, K = covariance(task, theta, train), task.kernel(theta, new.X, train.X)
    var = task.kernel.diag(theta, new.X) - (K * torch.linalg.solve(C, K.T).T).sum(1) + (2 * theta[-1]).exp()
    return new.y - K @ torch.linalg.solve(C, train.y), var


def one_at_a_time(task: Problem, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Leave-one-out residuals and variances [n], by n solves."""
    n = len(task.train)
    every = torch.arange(n)
    parts = [held_out(task, theta, every[every != i], every[i : i + 1]) for i in range(n)]
    return torch.cat([r for r, _ in parts]), torch.cat([v for _, v in parts])


def central_differences(value, theta: Tensor, step: float = 1e-5) -> Tensor:
    """Return the gradient [p] by central differences."""
    moves = step * torch.eye(len(theta), dtype=theta.dtype)
    return torch.tensor([(value(theta + m) - value(theta - m)) / (2 * step) for m in moves], dtype=theta.dtype)
