"""The exact posterior of many rows: variances, covariances and sample paths by blocks that serve all right-hand sides.

    var(x)    = k(x, x) + 2 min f,   f(v) = v'A v / 2 - k'v     an upper bound if it stops early, see `right_hand_sides`
    cov(x, z) = k(x, z) - (v_x'k_z + k_x'v_z - v_x'A v_z)       v_x = A^-1 k_x; its error is a product of two errors
    path      = mean + h(x) - k(x, X) A^-1 (h(X) + e)           h from the prior, e ~ N(0, s2 I), Wilson et al. (2020)

No n x n matrix is formed. All right-hand sides of one call go through the same kernel rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ....errors import PosteriorError
from ....linalg.blocks import BLOCK_BYTES
from ....posteriors import RowsPosterior
from ....posteriors.exact import joined_rows
from ....problem import Dataset, Problem
from ..system import System
from .joint_descent import sizes_for, solve_together
from .right_hand_sides import Columns, Limit, target_limit, variance_limit

SOLUTION_BYTES = 0.6e9  # of the solutions and gradients of right-hand sides that are solved for together
PATH_TOLERANCE = 0.01  # noise standard deviations by which the targets of a sample path are changed, at most
PASSES = 100.0  # over the rows; many more than are needed unless rounding prevents a solution


class JointSolver:
    """Applies A^-1 to many right-hand sides at once, by greedy blocks of rows.

    Parameters
    ----------
    problem : Problem
        Training rows and kernel.
    theta : Tensor [p]
        Log-hyperparameters.
    cache : float
        Bytes of kernel rows that are kept.
    tolerance : float
        Largest relative error of a predictive variance of y; it is an upper bound.
    seed : int
        Seed of the coarse rows and of the choice of blocks.

    Notes
    -----
    Kernel entries: n^2 per pass over the rows, whatever the number of right-hand sides; two or three passes are usual.
    """

    def __init__(self, problem: Problem, theta: Tensor, cache: float, tolerance: float, seed: int) -> None:
        self.problem, self.theta, self.cache, self.tolerance = problem, theta, cache, tolerance
        self.sizes = sizes_for(len(problem.train), seed)
        self._system: System | None = None

    @property
    def system(self) -> System:
        """A and its coarse rows, made at the first use; a pickle does not contain them."""
        if self._system is None:
            self._system = System(self.problem, self.theta, self.cache)
        return self._system

    @property
    def description(self) -> dict[str, float]:
        """What a file says of this solver; `load_posterior` makes it again."""
        return {"cache": self.cache, "tolerance": self.tolerance, "seed": self.sizes.seed}

    def __getstate__(self) -> dict[str, Any]:
        """A copy computes its coarse rows again."""
        return {**self.__dict__, "_system": None}

    def columns(self, B: Float[Tensor, "n t"], limit: Limit) -> Columns:
        """Solve for the columns of B until each is within its limit. B is overwritten.

        Raises
        ------
        PosteriorError
            If rounding or the conditioning of A prevents it.
        """
        columns = Columns(B, limit)
        for _ in solve_together(self.system, [columns], self.sizes, PASSES):
            pass
        if len(columns.active):
            excess = float((columns.norms / columns.limits).max())
            raise PosteriorError(
                f"{len(columns.active)} of {B.shape[1]} right-hand sides of K + s2 I [n={self.system.n}] are not "
                f"solved after {PASSES:g} passes over the rows: a residual is {excess:.2g} times its limit. Raise "
                'band_tolerance or the noise, use dtype float64, or take bands="rows".'
            )
        return columns

    def solve(self, B: Float[Tensor, "n t"]) -> Float[Tensor, "n t"]:
        """Solutions A^-1 B, exact for right-hand sides that differ by 0.01 noise standard deviations per row."""
        limit = target_limit(self.system.n, self.system.s2, PATH_TOLERANCE)
        return self.columns(B.clone(), limit).result()[0]

    def explained(self, B: Float[Tensor, "n t"]) -> Float[Tensor, " t"]:
        """Lower bounds of b'A^-1 b for the columns of B, within tolerance times the noise variance."""
        prior = torch.full_like(B[0], -torch.inf)  # no variance besides the noise
        return -self.columns(B.clone(), variance_limit(prior, self.system.s2, self.tolerance)).result()[2]


class JointPosterior(RowsPosterior):
    """The exact GP of many rows; see `RowsPosterior` for the parameters. The solver is a `JointSolver`."""

    solver: JointSolver

    @property
    def row_numbers(self) -> int:
        return -(-3 * len(self.S) * BLOCK_BYTES // int(SOLUTION_BYTES))  # so that a block fits into SOLUTION_BYTES

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        K, prior = self.kernel(self.theta, self.S, X), self.kernel.diag(self.theta, X)  # [n, b], [b]
        mean = K.T @ self.alpha if self.X is self.S else self.block_mean(X)
        if not K.requires_grad:
            return mean, prior + self.solver.columns(K, self._limit(prior)).result()[2]
        V, _, values = self.solver.columns(K.detach().clone(), self._limit(prior.detach())).result()
        return mean, prior + values - 2.0 * ((K - K.detach()) * V).sum(0)  # the derivative of 2 f in k is -2 v

    def joint(self, X: Any, Z: Any) -> Tensor:
        K, V, AV = self._solved(X)
        same = isinstance(X, Tensor) and isinstance(Z, Tensor) and torch.equal(X, Z)
        K_Z, V_Z, AV_Z = (K, V, AV) if same else self._solved(Z)
        return self.kernel(self.theta, X, Z) - V.T @ K_Z - K.T @ V_Z + V.T @ AV_Z

    def updated(self, X: Any, y: Tensor, V: Tensor) -> JointPosterior:
        """The posterior after new rows, from the coefficients of the old ones; as exact as `JointSolver.solve`."""
        system, solver = self.solver.system, self.solver
        if not torch.allclose(V, torch.full_like(V, system.s2)):
            raise PosteriorError("Rows that are added to a solver by blocks have the noise of the fit; leave it out.")
        alpha, _ = self.with_new_coefficients(X, y, V)
        train = solver.problem.train
        rows = replace(train, X=joined_rows(train.X, X), y=torch.cat([train.y, y.to(train.y)]))
        problem = replace(solver.problem, train=rows)
        grown = JointSolver(problem, self.theta, solver.cache, solver.tolerance, solver.sizes.seed)
        other = JointPosterior(self.kernel, self.theta, (rows.X, alpha), rows.X, grown)
        other.of = self.of
        return other

    def _solved(self, X: Any) -> tuple[Tensor, Tensor, Tensor]:
        """k(S, X) [n, t], solutions V for them, and A V."""
        K, prior = self.kernel(self.theta, self.S, X), self.kernel.diag(self.theta, X)
        k = K.detach()
        V, G, _ = self.solver.columns(k.clone(), self._limit(prior.detach())).result()
        return K, V, G.add_(k)

    def _limit(self, prior: Tensor) -> Limit:
        """The limit for right-hand sides k(S, x)."""
        return variance_limit(prior, self.solver.system.s2, self.solver.tolerance)


def joint_from_rows(posterior: RowsPosterior, description: Mapping[str, float]) -> JointPosterior:
    """Return the posterior that a file of a `JointPosterior` describes; the targets are not in it.

    Parameters
    ----------
    posterior : RowsPosterior
        What the file says without the solver.
    description : mapping
        As `JointSolver.description`.
    """
    X, theta = posterior.X, posterior.theta
    problem = Problem(Dataset(X, torch.zeros_like(posterior.alpha)), posterior.kernel, theta)
    solver = JointSolver(problem, theta, description["cache"], description["tolerance"], int(description["seed"]))
    return JointPosterior(posterior.kernel, theta, (X, posterior.alpha), X, solver)
