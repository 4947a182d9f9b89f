"""Predictive distributions of regression on a finite basis, in the given basis and in the orthogonal one."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...features.basis_choices import Choice
from ...linalg.blocks import row_blocks
from ...linalg.reduction import Map, sum_of_squares
from ...problem import Posterior, Prediction, Problem
from .evidence import Regression, gram_products
from .orthogonal_basis import OrthogonalBasis, orthogonalise


class Coefficients(NamedTuple):
    """Mean and covariance of the coefficients b of psi(x) = V'phi(x)."""

    mean: Tensor  # [r]
    diagonal: Tensor  # [r] the covariance is diag(diagonal) + direction direction'
    direction: Tensor  # [r]


def orthogonal_basis(problem: Problem, choice: Choice, theta: Tensor, mapper: Map) -> OrthogonalBasis:
    """Return the basis that is orthogonal on the training rows (section 5). n p^2 flops, and p^3 once."""
    y = problem.train.y
    A, c = gram_products(choice, theta, problem.train, mapper)
    return orthogonalise(A, c, sum_of_squares(y), len(y), torch.finfo(y.dtype).eps)


def orthogonal_posterior(
    problem: Problem, choice: Choice, theta: Tensor, V: Tensor, coefficients: Coefficients
) -> Posterior:
    """Return the predictive distribution of f(x) = psi(x)'b.

    Parameters
    ----------
    problem, choice, theta : the rows and the kernel, the p basis functions, and the hyperparameters [P].
    V : tensor [p, r]
        psi(x) = V'phi(x).
    coefficients : Coefficients
        The distribution of b.

    Notes
    -----
    The variance contains the prior variance k(x, x) - phi(x)'phi(x) that the basis functions leave out. A prediction
    costs O(p r) per row.
    """
    like = problem.train.y
    V, b = V.to(like), Coefficients(*(part.to(like) for part in coefficients))
    with torch.no_grad():
        basis = choice(theta)

    def predict(X: Any) -> Prediction:
        mean, var = like.new_empty(len(X)), problem.kernel.diag(theta, X)
        for rows in row_blocks(len(X), 4 * like.element_size() * len(choice)):
            with torch.no_grad():
                Phi = basis(X[rows]).T  # [block, p]
            Psi = Phi @ V  # [block, r]
            mean[rows] = Psi @ b.mean
            in_basis = Psi.square() @ b.diagonal + (Psi @ b.direction).square()
            var[rows] = (var[rows] - Phi.square().sum(1)).clamp_min(0.0) + in_basis
        return Prediction(mean, var)

    return predict


def regression_posterior(problem: Problem, choice: Choice, theta: Tensor, regression: Regression) -> Posterior:
    """Return the predictive distribution of f(x) = phi(x)'w with w ~ N(A^-1 c, s2 A^-1) (eq 2).

    The variance contains the prior variance k(x, x) - phi(x)'phi(x) that the basis functions leave out. A prediction
    costs O(p^2) per row.
    """
    like = problem.train.y
    with torch.no_grad():
        basis = choice(theta)

    def predict(X: Any) -> Prediction:
        mean, var = like.new_empty(len(X)), problem.kernel.diag(theta, X)
        for rows in row_blocks(len(X), 3 * like.element_size() * len(choice)):
            with torch.no_grad():
                F = basis(X[rows])  # [p, block]
            mean[rows] = regression.w @ F
            half = torch.linalg.solve_triangular(regression.L, F, upper=False)  # [p, block] L^-1 phi(x)
            var[rows] = (var[rows] - F.square().sum(0)).clamp_min(0.0) + regression.s2 * half.square().sum(0)
        return Prediction(mean, var)

    return predict
