"""Predictions from what is known of the coefficients of an orthogonal basis."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...features.grid import Grid
from ...linalg.blocks import row_blocks
from ...linalg.reduction import Map, sum_of_squares
from ...problem import Posterior, Prediction, Problem
from .evidence import products
from .rotated import Rotated, rotate


class Known(NamedTuple):
    """Mean and covariance of the coefficients b of psi(x) = V'phi(x)."""

    mean: Tensor  # [r]
    diagonal: Tensor  # [r] covariance: diag(diagonal) + direction direction'
    direction: Tensor  # [r]


def basis_of(problem: Problem, grid: Grid, theta: Tensor, index: Tensor, apply: Map) -> Rotated:
    """The basis orthogonal on the training rows. n p^2 flops, and p^3 once."""
    y = problem.train.y
    A, c = products(grid, theta, problem.train, index, apply)
    return rotate(A, c, sum_of_squares(y), len(y), torch.finfo(y.dtype).eps)


def answers(problem: Problem, grid: Grid, theta: Tensor, index: Tensor, V: Tensor, known: Known) -> Posterior:
    """f(x) = psi(x)'b, and beside it the prior variance that no eigenfunction carries. O(p r) a row."""
    like = problem.train.y
    V, known = V.to(like), Known(*(part.to(like) for part in known))

    def predict(X: Any) -> Prediction:
        mean, var = like.new_empty(len(X)), problem.kernel.diag(theta, X)
        for rows in row_blocks(len(X), 4 * like.element_size() * len(index)):
            with torch.no_grad():
                Phi = grid.features(theta, X[rows], index)
            Psi = Phi @ V
            mean[rows] = Psi @ known.mean
            inside = Psi.square() @ known.diagonal + (Psi @ known.direction).square()
            var[rows] = (var[rows] - Phi.square().sum(1)).clamp_min(0.0) + inside
        return Prediction(mean, var)

    return predict
