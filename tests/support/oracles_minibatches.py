"""Slow formulas for finite kernels: everything by n x n matrices and autograd."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.methods.base import registry
from gpexplorer.methods.minibatches.model import Model
from gpexplorer.problem import Dataset, Problem


def problem(n: int = 40, d: int = 3, shift: float = 0.0, noise: float = 0.2) -> Problem:
    """A smooth function of d inputs, with noise, far from the origin where `shift` says so."""
    draw = torch.Generator().manual_seed(7)
    X = torch.randn(n, d, generator=draw, dtype=torch.float64)
    y = torch.sin(X.sum(1)) + 0.3 * X[:, 0] + noise * torch.randn(n, generator=draw, dtype=torch.float64) + shift
    kernel = kernels.make("se-ard", d)
    return Problem(Dataset(X + shift, y), kernel, torch.tensor([0.0] * (d + 1) + [-1.0], dtype=torch.float64))


def method(key: str, **settings: Any) -> Any:
    """A small method of this family, which learns from all rows to the last epoch unless the settings say otherwise."""
    all_rows = {"validation": 0.0, "patience": 0}
    return registry[key](**{**all_rows, "layers": 2, "width": 6, "activation": "tanh", "num_features": 8, **settings})


def model(key: str = "scgd", at: Problem | None = None, **settings: Any) -> Model:
    """The feature map of such a method."""
    return Model(method(key, **settings), at or problem())


def begun(method: Any, at: Problem) -> tuple[Model, Any]:
    """A learner before its first minibatch."""
    model, state = Model(method, at, method.validation), next(method.steps(at)).state
    return model, method.learner(model, state)


def mixed(n: int = 64) -> Problem:
    """A line plus a parabola that a linear kernel must treat as noise: minibatches alone misjudge its variance."""
    draw = torch.Generator().manual_seed(1)
    X, e = (torch.randn(n, k, generator=draw, dtype=torch.float64) for k in (1, 1))
    y = (1.5 * X + X.square() + 0.1 * e)[:, 0]
    return Problem(Dataset(X, y), kernels.make("se-ard", 1), torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64))


def dense(model: Model, theta: Tensor) -> Tensor:
    """NLML without its constant by the n x n matrix, differentiable in theta."""
    X, y = model.rows(slice(None))
    Phi, s2 = model.features(model.parts(theta), X).Phi, (2.0 * theta[-1]).exp()
    A = Phi @ Phi.T + s2 * torch.eye(len(y), dtype=y.dtype)
    return 0.5 * (y @ torch.linalg.solve(A, y) + torch.logdet(A))


def dense_prediction(model: Model, theta: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of f by the n x n matrix."""
    train, y = model.rows(slice(None))
    Phi, Star = (model.features(model.parts(theta), x).Phi for x in (train, X))
    A = Phi @ Phi.T + math.exp(2.0 * float(theta[-1])) * torch.eye(len(y), dtype=y.dtype)
    solved = torch.linalg.solve(A, torch.cat([y[:, None], Phi @ Star.T], 1))
    return Star @ (Phi.T @ solved[:, 0]), (Star @ Star.T - Star @ Phi.T @ solved[:, 1:]).diagonal()


def saddle(model: Model, z: Tensor, w: Tensor, A: Tensor, B: Tensor, mu: float) -> Tensor:
    """Psi / (2n) of eq 3.2 at theta = z, differentiable in all."""
    X, y = model.rows(slice(None))
    Phi, s2 = model.features(model.parts(z), X).Phi, (2.0 * z[-1]).exp()
    F = Phi.T @ Phi + s2 * torch.eye(model.D, dtype=y.dtype)
    g = (Phi @ w - y).square().sum() / s2 + w @ w + (model.n - model.D) * s2.log()
    return (g + torch.logdet(A) + mu * (B * (A - F)).sum() / A.norm()) / (2.0 * model.n)
