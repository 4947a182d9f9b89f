"""Slow dense formulas for the baselines of the CholQR family."""

from __future__ import annotations

import torch
from torch import Tensor

from gpexplorer.problem import Problem
from oracles import dense_objective


def objective_of(task: Problem, rows: list[int], objective: str) -> float:
    """The dense objective with these rows as inducing points; without any, the prior's."""
    train, theta = task.train, task.theta
    if not rows:
        s2 = torch.exp(2.0 * theta[-1])
        D = task.kernel.diag(theta, train.X)
        trace = {"vfe": D.sum() / s2, "tight-vfe": torch.log(1.0 + D / s2).sum()}.get(objective, 0.0)
        return float(0.5 * (train.y @ train.y / s2 + len(train) * torch.log(s2) + trace))
    return float(dense_objective(task.kernel, theta, train.X, train.y, train.X[rows], objective))


def conditional_variances(task: Problem, rows: list[int], noise: bool) -> Tensor:
    """diag(K - K_I (K_II + s2 I)^-1 K_I') [n], with the noise or without."""
    X, theta = task.train.X, task.theta
    K_nn, K_ni, K_ii = (task.kernel(theta, *pair) for pair in ((X, X), (X, X[rows]), (X[rows], X[rows])))
    if noise:
        K_ii = K_ii + torch.exp(2.0 * theta[-1]) * torch.eye(len(rows), dtype=X.dtype)
    return K_nn.diagonal() - (K_ni * torch.linalg.solve(K_ii, K_ni.T).T).sum(1)


def moving_objective(task: Problem, theta: Tensor, Z: Tensor, likelihood: str) -> Tensor:
    """PP, VFE, tight VFE or FITC by n x n algebra, differentiable in theta and Z."""
    X, y = task.train.X, task.train.y
    K_nm, K_mm, s2 = task.kernel(theta, X, Z), task.kernel(theta, Z, Z.clone()), torch.exp(2.0 * theta[-1])
    Khat = K_nm @ torch.linalg.solve(K_mm, K_nm.T)
    D = task.kernel.diag(theta, X) - Khat.diagonal()
    C = Khat + torch.diag(s2 + (D if likelihood == "fitc" else torch.zeros_like(D)))
    trace = {"vfe": D.sum() / s2, "tight-vfe": torch.log(1.0 + D / s2).sum()}.get(likelihood, 0.0)
    return 0.5 * (y @ torch.linalg.solve(C, y) + torch.logdet(C) + trace)


def fitc_prediction(task: Problem, Z: Tensor, Xs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of f under FITC, by n x n algebra."""
    X, y, theta = task.train.X, task.train.y, task.theta
    K_nm, K_sm, K_mm = task.kernel(theta, X, Z), task.kernel(theta, Xs, Z), task.kernel(theta, Z, Z)
    Khat, cross = K_nm @ torch.linalg.solve(K_mm, K_nm.T), K_sm @ torch.linalg.solve(K_mm, K_nm.T)
    C = Khat + torch.diag(torch.exp(2.0 * theta[-1]) + task.kernel.diag(theta, X) - Khat.diagonal())
    var = task.kernel.diag(theta, Xs) - (cross * torch.linalg.solve(C, cross.T).T).sum(1)
    return cross @ torch.linalg.solve(C, y), var
