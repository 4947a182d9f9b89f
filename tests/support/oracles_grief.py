"""Slow dense formulas with which the eigenfunction methods are compared."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.problem import Dataset, Problem


def problem(shift: float = 0.0, d: int = 2, n: int = 60) -> Problem:
    """Rows on a cube, `shift` from the origin, with a product of waves and noise."""
    rng = torch.Generator().manual_seed(8)
    X = 3.0 * torch.rand(n, d, generator=rng, dtype=torch.float64)
    y = torch.sin(2 * X[:, 0]) * X[:, -1] + 0.2 * torch.randn(n, generator=rng, dtype=torch.float64)
    theta = torch.tensor([0.2, *([-0.1] * d), -1.0], dtype=torch.float64)
    return Problem(Dataset(X + shift, y), kernels.make("se-ard", d), theta)


def covariance(Phi: Tensor, weights: Tensor, s2: Tensor | float) -> Tensor:
    """Phi diag(w) Phi' + s2 I, n by n."""
    return (Phi * weights) @ Phi.T + s2 * torch.eye(len(Phi), dtype=Phi.dtype)


def nlml(Phi: Tensor, y: Tensor, s2: Tensor | float, weights: Tensor | float = 1.0) -> Tensor:
    """Negative log marginal likelihood without its constant."""
    A = covariance(Phi, torch.as_tensor(weights), s2)
    return 0.5 * (y @ torch.linalg.solve(A, y) + torch.logdet(A))


def predicted(Phi: Tensor, at: Tensor, y: Tensor, s2: float, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of f at rows `at` of the basis."""
    A, cross = covariance(Phi, weights, s2), (at * weights) @ Phi.T
    return cross @ torch.linalg.solve(A, y), (at * weights) @ at.T - cross @ torch.linalg.solve(A, cross.T)


def draw(n: int, d: int, lengthscale: float, noise_sd: float, seed: int = 0) -> tuple[Problem, Dataset]:
    """Training rows and 400 test rows of a draw from the SE-ARD process itself, with the problem at its defaults."""
    source = torch.Generator().manual_seed(seed)
    X = 2.0 * torch.rand(n + 400, d, generator=source, dtype=torch.float64) - 1.0
    kernel = kernels.make("se-ard", d)
    theta = torch.tensor([0.0, *([math.log(lengthscale)] * d), 0.0], dtype=torch.float64)
    K = kernel(theta, X, X) + 1e-8 * torch.eye(len(X), dtype=torch.float64)
    f = torch.linalg.cholesky(K) @ torch.randn(len(X), generator=source, dtype=torch.float64)
    y = f + noise_sd * torch.randn(len(X), generator=source, dtype=torch.float64)
    train, test = Dataset(X[:n], y[:n]), Dataset(X[n:], y[n:])
    return Problem(train, kernel, kernel.start(train)), test
