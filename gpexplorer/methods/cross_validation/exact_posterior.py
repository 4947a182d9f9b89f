"""The posterior of the exact GP at one theta, by a Cholesky factor or by conjugate gradients.

    A    = K + s2 I [n, n],   alpha = A^-1 y [n]
    mean = k(x*, X) alpha
    var  = k(x*, x*) - k(x*, X) A^-1 k(X, x*)            Rasmussen and Williams (2006), eqs 2.25 and 2.26

Every method of this family predicts with it. With i iterations of conjugate gradients per solution and t test rows, a
factor costs n^3 / 3 + n^2 t flops and conjugate gradients 2 n^2 i (t + 1): these are cheaper for few test rows.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...linalg.blocks import row_blocks
from ...linalg.workspace import Workspace
from ...posteriors import CholeskySolver, Posterior, RowsPosterior, Solver, exact_gp_posterior
from ...problem import Problem
from .folds import FoldGroup
from .settings import GIGABYTE
from .solvers import Target, solve
from .theta_step import FoldSystems

MAX_ITERATIONS = 1000  # of conjugate gradients
RANK = 300  # rows of the preconditioner
TOLERANCE = 3e-8  # a solution is accepted where its residual is this share of its right-hand side
LARGEST_RESIDUAL = 1e-3  # |A alpha - y| / |y|, from its definition: with a larger one, rounding decides alpha
EPSILONS = 10.0  # a smaller residual than this many roundings of the right-hand side is not asked for


def by_cholesky(problem: Problem, theta: Tensor) -> RowsPosterior:
    """Return the posterior of f on all rows by a Cholesky factor of A."""
    return exact_gp_posterior(problem.kernel, theta, problem.train)


class ConjugateGradientSolver:
    """A^-1 by products with A alone.

    Parameters
    ----------
    theta : Tensor [p]
    gigabytes : float
        Memory for rows of K. Rows beyond it are computed again in every product.
    rank : int
        Rows of the preconditioner, at most.

    Attributes
    ----------
    alpha : Tensor [n]
        A^-1 y.
    iterations : int
        The number of iterations that alpha took.

    Notes
    -----
    An iteration costs n^2 flops per right-hand side. Conjugate gradients approach k' A^-1 k from below, so that no
    variance is too small, except for rounding. An error e of the solution changes a variance by e^2 to leading order.
    """

    def __init__(self, problem: Problem, theta: Tensor, gigabytes: float, rank: int = RANK) -> None:
        self.problem, self.theta, self.gigabytes, self.rank = problem, theta, gigabytes, rank
        solution, self.iterations = self._solve(problem.train.y[:, None])
        self.alpha = solution[:, 0]

    def __getstate__(self) -> dict[str, Any]:
        """A copy computes rows of the kernel and the preconditioner again."""
        return {name: value for name, value in self.__dict__.items() if name != "systems"}

    @cached_property
    def systems(self) -> FoldSystems:
        """Products with A, and the preconditioner."""
        train, workspace = self.problem.train, Workspace(self.gigabytes * GIGABYTE)
        group = FoldGroup(self.problem.kernel, train.X, train.y, len(train), (slice(0, 0),), workspace)
        return FoldSystems(group, group.kernel_matrix(self.theta), self.rank)

    def solve(self, B: Tensor) -> Tensor:
        """A^-1 B [n, t]; the residuals that the iterations remember take 8 numbers per row, column and iteration."""
        blocks = row_blocks(B.shape[1], 8 * B.element_size() * len(B) * max(self.iterations, 1), B)
        parts = [self._solve(B[:, columns])[0] for columns in blocks]
        return torch.cat(parts, 1) if parts else B

    def explained(self, B: Tensor) -> Tensor:
        """The quadratic forms b'A^-1 b [t]."""
        return (B * self.solve(B)).sum(0)

    def residual(self) -> float:
        """Return |A alpha - y| / |y|, computed from its definition; the iterations only update it."""
        y = self.problem.train.y
        return float((self.systems.times_C(self.alpha[:, None])[:, 0] - y).norm() / y.norm().clamp_min(1e-30))

    def flops(self, tests: int) -> float:
        """Predict the flops of `tests` solutions."""
        return 2.0 * len(self.alpha) ** 2 * self.iterations * tests

    def _solve(self, B: Tensor) -> tuple[Tensor, int]:
        tolerance = max(TOLERANCE, EPSILONS * torch.finfo(B.dtype).eps)
        target = Target(tolerance * B.norm(dim=0), MAX_ITERATIONS)
        X, iterations, _ = solve(self.systems.times_C, B, torch.zeros_like(B), self.systems.C_inverse, target, B)
        return X, iterations


class CheaperSolver(CholeskySolver):
    """A^-1 by a Cholesky factor from the call on for which it costs fewer flops, and by conjugate gradients before.

    All columns solved so far count: conjugate gradients serve a few columns, and the factor serves many.

    Parameters
    ----------
    by_products : ConjugateGradientSolver
        For the same problem and theta.
    """

    def __init__(self, by_products: ConjugateGradientSolver) -> None:
        problem = by_products.problem
        super().__init__(problem.kernel, by_products.theta, problem.train.X)
        self.by_products, self.columns_solved = by_products, 0

    def solve(self, B: Tensor) -> Tensor:
        """A^-1 B [n, t] by the solver that is cheaper."""
        return self.by_products.solve(B) if self._products_are_cheaper(B.shape[1]) else super().solve(B)

    def explained(self, B: Tensor) -> Tensor:
        """The quadratic forms b'A^-1 b [t] by the solver that is cheaper."""
        return self.by_products.explained(B) if self._products_are_cheaper(B.shape[1]) else super().explained(B)

    def _products_are_cheaper(self, columns: int) -> bool:
        """Whether conjugate gradients need fewer flops for these columns and those before than the factor."""
        n = len(self.by_products.alpha)
        self.columns_solved += columns
        by_factor = 1.0 * n * n * self.columns_solved + n**3 / 3.0
        return self._L is None and self.by_products.flops(self.columns_solved) <= by_factor


def exact_posterior(problem: Problem, theta: Tensor, refit: str, gigabytes: float, rank: int = RANK) -> Posterior:
    """Return the posterior of f by the algorithm that the setting `refit` names: "auto", "cholesky" or "cg".

    "auto" begins with conjugate gradients and changes to a factor where that needs fewer flops and has room. Where
    rounding keeps conjugate gradients from the solution, as in float32 at a high signal-to-noise ratio, a factor is
    taken for both.
    """
    if refit == "cholesky":
        return by_cholesky(problem, theta)
    n, train = len(problem.train), problem.train
    by_products = ConjugateGradientSolver(problem, theta, gigabytes, rank)
    if not by_products.residual() <= LARGEST_RESIDUAL:
        return by_cholesky(problem, theta)
    solver: Solver = by_products
    if refit == "auto" and train.y.element_size() * n * n <= gigabytes * GIGABYTE:
        solver = CheaperSolver(by_products)
    return RowsPosterior(problem.kernel, theta, (train.X, by_products.alpha), train.X, solver)
