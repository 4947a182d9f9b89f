"""Predictions from what is known of the coefficients of an orthogonal basis."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...features.basis_choices import Choice
from ...linalg.blocks import row_blocks
from ...linalg.reduction import Map, sum_of_squares
from ...problem import Posterior, Prediction, Problem
from .evidence import Gram, products
from .grids import grid_of
from .orthogonal_basis import Rotated, rotate


class Known(NamedTuple):
    """Mean and covariance of the coefficients b of psi(x) = V'phi(x)."""

    mean: Tensor  # [r]
    diagonal: Tensor  # [r] covariance: diag(diagonal) + direction direction'
    direction: Tensor  # [r]


def basis_of(problem: Problem, choice: Choice, theta: Tensor, apply: Map) -> Rotated:
    """The basis orthogonal on the training rows. n p^2 flops, and p^3 once."""
    y = problem.train.y
    A, c = products(choice, theta, problem.train, apply)
    return rotate(A, c, sum_of_squares(y), len(y), torch.finfo(y.dtype).eps)


def beyond(points: int, problem: Problem, X: Tensor) -> Tensor:
    """Which rows [t] lie beyond a grid of so many points an input, where the prior answers. O(n d + t d)."""
    return grid_of(problem, points).outside(X)


def answers(problem: Problem, choice: Choice, theta: Tensor, V: Tensor, known: Known) -> Posterior:
    """f(x) = psi(x)'b, and beside it the prior variance that no basis function carries. O(p r) a row."""
    like = problem.train.y
    V, known = V.to(like), Known(*(part.to(like) for part in known))
    with torch.no_grad():
        basis = choice(theta)

    def predict(X: Any) -> Prediction:
        mean, var = like.new_empty(len(X)), problem.kernel.diag(theta, X)
        for rows in row_blocks(len(X), 4 * like.element_size() * len(choice)):
            with torch.no_grad():
                Phi = basis(X[rows]).T
            Psi = Phi @ V
            mean[rows] = Psi @ known.mean
            inside = Psi.square() @ known.diagonal + (Psi @ known.direction).square()
            var[rows] = (var[rows] - Phi.square().sum(1)).clamp_min(0.0) + inside
        return Prediction(mean, var)

    return predict


def plain_answers(problem: Problem, choice: Choice, theta: Tensor, now: Gram) -> Posterior:
    """f(x) = phi(x)'w, w ~ N(A^-1 c, s2 A^-1), and the prior variance that no function carries. O(p^2) a row."""
    like = problem.train.y
    with torch.no_grad():
        basis = choice(theta)

    def predict(X: Any) -> Prediction:
        mean, var = like.new_empty(len(X)), problem.kernel.diag(theta, X)
        for rows in row_blocks(len(X), 3 * like.element_size() * len(choice)):
            with torch.no_grad():
                F = basis(X[rows])  # [p, block]
            mean[rows] = now.w @ F
            half = torch.linalg.solve_triangular(now.L, F, upper=False)
            var[rows] = (var[rows] - F.square().sum(0)).clamp_min(0.0) + now.s2 * half.square().sum(0)
        return Prediction(mean, var)

    return predict
