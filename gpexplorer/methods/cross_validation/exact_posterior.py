"""The posterior of the exact GP at one theta, by a Cholesky factor or by conjugate gradients.

    A    = K + s2 I [n, n],   alpha = A^-1 y [n]
    mean = k(x*, X) alpha
    var  = k(x*, x*) - k(x*, X) A^-1 k(X, x*)            Rasmussen and Williams (2006), eqs 2.25 and 2.26

Every method of this family predicts with it. With i iterations of conjugate gradients per solution and t test rows, a
factor costs n^3 / 3 + n^2 t flops and conjugate gradients 2 n^2 i (t + 1): these are cheaper for few test rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...linalg.blocks import row_blocks
from ...linalg.workspace import Workspace
from ...posteriors import exact_gp_posterior
from ...problem import Posterior, Prediction, Problem
from .folds import FoldGroup
from .lagrangian import FoldSystems
from .settings import GIGABYTE
from .solvers import Target, solve

MAX_ITERATIONS = 1000  # of conjugate gradients
RANK = 300  # rows of the preconditioner


def by_cholesky(problem: Problem, theta: Tensor) -> Posterior:
    """Return the posterior of f on all rows by a Cholesky factor of A."""
    return exact_gp_posterior(problem.kernel, theta, problem.train)


class ByConjugateGradients:
    """The posterior of f by products with A alone.

    Parameters
    ----------
    problem : Problem
    theta : Tensor [p]
    gigabytes : float
        Memory for rows of K. Rows beyond it are computed again in every product.
    rank : int
        Rows of the preconditioner, at most.
    tolerance : float
        A solution is accepted where its residual is this share of its right-hand side.

    Notes
    -----
    An iteration costs n^2 flops per right-hand side. Conjugate gradients approach k' A^-1 k from below, so that no
    variance is too small, except for rounding. An error e of the solution changes a variance by e^2 to leading order.
    """

    def __init__(
        self, problem: Problem, theta: Tensor, gigabytes: float, rank: int = RANK, tolerance: float = 1e-7
    ) -> None:
        self.problem, self.theta, self.tolerance, n = problem, theta, tolerance, len(problem.train)
        train, room = problem.train, Workspace(gigabytes * GIGABYTE)
        group = FoldGroup(problem.kernel, train.X, train.y, n, (slice(0, 0),), room)  # it trains on all rows
        self.systems = FoldSystems(group, group.kernel_matrix(theta), rank)
        self.alpha, self.iterations = self._solve(train.y[:, None])

    def _solve(self, B: Tensor) -> tuple[Tensor, int]:
        target = Target(self.tolerance * B.norm(dim=0), MAX_ITERATIONS)
        X, iterations, _ = solve(self.systems.times_C, B, torch.zeros_like(B), self.systems.C_inverse, target)
        return X, iterations

    def flops(self, tests: int) -> float:
        """Predict the flops of `tests` variances."""
        return 2.0 * len(self.problem.train) ** 2 * self.iterations * tests

    def __call__(self, X: Any) -> Prediction:
        kernel, train = self.problem.kernel, self.problem.train
        mean, var = train.y.new_empty(len(X)), kernel.diag(self.theta, X)
        for rows in row_blocks(len(X), 8 * mean.element_size() * len(train) * max(self.iterations, 1)):
            K = kernel(self.theta, train.X, X[rows])  # [n, block]
            mean[rows] = (K.T @ self.alpha)[:, 0]
            var[rows] -= (K * self._solve(K)[0]).sum(0)
        return Prediction(mean, var.clamp_min_(0.0))


def by_flops(problem: Problem, theta: Tensor, gigabytes: float, rank: int) -> Posterior:
    """Return the posterior of f by conjugate gradients, or by a factor where that needs fewer flops and has room.

    The number of iterations is that of the solution for the mean. A factor is computed once, when it is first needed.
    """
    n, element = len(problem.train), problem.train.y.element_size()
    by_products, by_factor = ByConjugateGradients(problem, theta, gigabytes, rank), list[Posterior]()

    def predict(X: Any) -> Prediction:
        factor_flops = 1.0 * n * n * len(X) + (0.0 if by_factor else n**3 / 3.0)
        if by_products.flops(len(X)) <= factor_flops or element * n * n > gigabytes * GIGABYTE:
            return by_products(X)
        if not by_factor:
            by_factor.append(by_cholesky(problem, theta))
        return by_factor[0](X)

    return predict


def exact_posterior(problem: Problem, theta: Tensor, refit: str, gigabytes: float, rank: int = RANK) -> Posterior:
    """Return the posterior of f by the algorithm that the setting `refit` names: "auto", "cholesky" or "cg"."""
    if refit == "auto":
        return by_flops(problem, theta, gigabytes, rank)
    return ByConjugateGradients(problem, theta, gigabytes, rank) if refit == "cg" else by_cholesky(problem, theta)
