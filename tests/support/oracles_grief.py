"""Slow dense formulas with which the eigenfunction methods are compared."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.features.grid_eigenfunctions import Grid
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


def evidences(fixed: Tensor, candidates: Tensor, y: Tensor, s2: float) -> Tensor:
    """Log evidence [M] of y [n] for the functions `fixed` [n, k] together with each of the candidates [n, M]."""
    C = covariance(fixed, torch.ones(fixed.shape[1]).to(y), s2)
    each = C + candidates.T[:, :, None] * candidates.T[:, None, :]  # [M, n, n]
    return -0.5 * (torch.linalg.solve(each, y.expand(len(each), -1)) @ y + torch.logdet(each))


def dense_selection(Phi: Tensor, y: Tensor, s2: float, p: int, price: Tensor) -> list[int]:
    """The functions that join one after the other, by the rise of the dense evidence minus the price."""
    chosen: list[int] = []
    for _ in range(p):
        left = [j for j in range(Phi.shape[1]) if j not in chosen]
        rises = evidences(Phi[:, chosen], Phi[:, left], y, s2) + nlml(Phi[:, chosen], y, s2) - price[left]
        chosen.append(left[int(rises.argmax())] if float(rises.max()) > 0.0 else left[0])
    return chosen


def dense_choice(
    grid: Grid, theta: Tensor, rows: Dataset, p: int, count: int, previous: Tensor | None = None
) -> list[tuple[int, ...]]:
    """Indices of the functions that the steps 1 to 4 of `evidence_choice` select, with matrices of n by n."""
    leading = [tuple(row) for row in grid.spectrum(theta, count).axis_indices.tolist()]
    begin = [] if previous is None else [tuple(row) for row in previous[grid.exist(theta, previous)].tolist()]
    ranks = dict.fromkeys(begin, len(leading)) | {name: rank for rank, name in enumerate(leading, start=1)}
    names = sorted(ranks, key=lambda name: (ranks[name], name))
    price = torch.tensor([max(math.log(ranks[name] / p), 0.0) for name in names], dtype=theta.dtype)
    Phi, s2 = grid.features(theta, rows.X, torch.tensor(names)), math.exp(2.0 * float(theta[-1]))
    chosen = [names.index(name) for name in begin]
    for _ in range(2 if begin else 3):
        q = Phi.T @ torch.linalg.solve(covariance(Phi[:, chosen], torch.ones(len(chosen)).to(theta), s2), rows.y)
        bound = Phi.square().sum(0) / s2
        scores = 0.5 * (q.square() / (1.0 + bound) - (1.0 + bound).log()) - price
        shortlist = scores.sort(descending=True).indices[: 2 * p].tolist()
        members = sorted({*chosen, *shortlist, *range(p)})
        chosen = [members[i] for i in dense_selection(Phi[:, members], rows.y, s2, p, price[members])]
    return [names[i] for i in chosen]
