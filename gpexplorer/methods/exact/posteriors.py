"""Predictions of the exact GP from alpha: the mean needs no factor; each variance is one more linear system.

    mean = k(x*, X) alpha                                                                                     eq 1
    var  = k(x*, x*) - k' (K + s2 I)^-1 k,   k = k(X, x*)         eq 2, by a factor, or for many x* at once
         <= k(x*, x*) - k_S' (K_SS + s2 I)^-1 k_S                              S a random subset of the rows

Before a solver has converged its mean is not yet that of the GP, and the GP's variance says nothing about the
difference k' A^-1 (y - A alpha). It is estimated on the rows S, and its square is added to the variance:

    error = k_S' (K_SS + s2 I)^-1 (y - A alpha)_S,   var + error^2

At alpha = 0 these are the bands of a GP of the rows S around a mean of zero; at the solution nothing is added.
Equation numbers are those of Bo and Sminchisescu (2008).

For many x* the variances, covariances and sample paths come from blocks that serve all right-hand sides:

    var(x)    = k(x, x) + 2 min f,   f(v) = v'A v / 2 - k'v     an upper bound if it stops early, see `right_hand_sides`
    cov(x, z) = k(x, z) - (v_x'k_z + k_x'v_z - v_x'A v_z)       v_x = A^-1 k_x; its error is a product of two errors
    path      = mean + h(x) - k(x, X) A^-1 (h(X) + e)           h from the prior, e ~ N(0, s2 I), Wilson et al. (2020)

No n x n matrix is formed. All right-hand sides of one call go through the same kernel rows, which are float32 where
the noise permits it: that halves the time. The gradients are then compared with those in float64 at random rows. If
rounding has changed them by more than a small part of the limit, they are computed in float64 and the iteration
continues from there; if that does not help, everything is solved for again in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import PosteriorError
from ...linalg.blocks import BLOCK_BYTES, row_blocks
from ...linalg.kernel_columns import kernel_rows
from ...linalg.randomness import generator
from ...memory import machine_memory
from ...posteriors import CholeskySolver, Posterior, RowsPosterior, UnsolvedPosterior, exact_gp_posterior
from ...problem import Dataset, Problem, joined_rows, take
from .block import BlockSizes
from .gradient_correlation import gradient_entries
from .right_hand_sides import Columns, Limit, sizes_for, solve_together, target_limit, variance_limit
from .system import SolverState, System

SOLUTION_BYTES = 0.6e9  # of the solutions and gradients of right-hand sides that are solved for together
PATH_TOLERANCE = 0.01  # noise standard deviations by which the targets of a sample path are changed, at most
ROUNDING = 0.2  # of the limit of a gradient, by which float32 may change it: v'(change) is far below |v| |change|
LEAST_MIXED = 100.0 * torch.finfo(torch.float32).eps  # of tolerance s2 / prior variance, for float32 kernel rows
REFINEMENTS = 2  # by gradients in float64, before everything is solved for in float64
CHECKED_ROWS = 256  # at which gradients are compared with those in float64
PASSES = 100.0  # over the rows; many more than are needed unless rounding prevents a solution


class JointSolver:
    """Applies A^-1 to many right-hand sides at once, by greedy blocks of rows.

    Parameters
    ----------
    problem, theta : Problem, Tensor [p]
        Training rows, and the kernel with the log-hyperparameters of A.
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
        self.problem, self.theta, self.cache, self.tolerance, self.seed = problem, theta, cache, tolerance, seed
        self.sizes: BlockSizes | None = None  # instead of those that suit n and the memory
        self._systems: dict[bool, System] = {}

    @property
    def system(self) -> System:
        """A in the precision of the data."""
        return self._system(mixed=False)

    @property
    def mixed(self) -> bool:
        """Whether float32 kernel rows are tried first: not where their rounding is near the tolerance."""
        least = LEAST_MIXED * self.system.prior_variance
        return self.theta.dtype == torch.float64 and self.tolerance * self.system.s2 > least

    @property
    def description(self) -> dict[str, float]:
        """What a file says of this solver; `load_posterior` makes it again."""
        return {"cache": self.cache, "tolerance": self.tolerance, "seed": self.seed}

    def __getstate__(self) -> dict[str, Any]:
        """A copy computes its coarse rows again."""
        return {**self.__dict__, "_systems": {}}

    def columns(self, right: Callable[[], Float[Tensor, "n t"]], limit: Limit) -> Columns:
        """Solve for right-hand sides until each is within its limit.

        Parameters
        ----------
        right : callable
            Returns the right-hand sides, in memory that may be overwritten.
        limit : callable
            See `Columns`.

        Raises
        ------
        PosteriorError
            If rounding or the conditioning of A prevents it.
        """
        if self.mixed:
            rows = torch.randperm(self.system.n, generator=generator(self.seed, "rounding"))[:CHECKED_ROWS]
            R = right()
            rows = rows.to(R.device)
            checked = R[rows]
            columns = Columns(R, limit, dtype=torch.float32)
            del R  # its memory is needed by the rows of blocks
            self._descend(columns, mixed=True)
            for refinement in range(1 + REFINEMENTS):
                if len(columns.active):
                    break
                if self._rounding(columns, rows, checked) <= ROUNDING:
                    return columns
                if refinement < REFINEMENTS:
                    columns = self._refined(columns, right(), limit)
        columns = Columns(right(), limit)
        self._descend(columns, mixed=False)
        if len(columns.active):
            excess, count = float((columns.norms / columns.limits).max()), len(columns.stored()[2])
            raise PosteriorError(
                f"{len(columns.active)} of {count} right-hand sides of K + s2 I [n={self.system.n}] are not "
                f"solved after {PASSES:g} passes over the rows: a residual is {excess:.2g} times its limit. Raise "
                'band_tolerance or the noise, use dtype float64, or take bands="rows".'
            )
        return columns

    def solve(self, B: Float[Tensor, "n t"]) -> Float[Tensor, "n t"]:
        """Solutions A^-1 B, exact for right-hand sides that differ by 0.01 noise standard deviations per row."""
        limit = target_limit(self.system.n, self.system.s2, PATH_TOLERANCE)
        return self.columns(B.clone, limit).result()[0]

    def explained(self, B: Float[Tensor, "n t"]) -> Float[Tensor, " t"]:
        """Lower bounds of b'A^-1 b for the columns of B, within tolerance times the noise variance."""
        prior = torch.full_like(B[0], -torch.inf)  # no variance besides the noise
        return -self.columns(B.clone, variance_limit(prior, self.system.s2, self.tolerance)).stored()[2]

    def _system(self, mixed: bool) -> System:
        """A, made at the first use; its cache and coarse rows are kept."""
        if mixed not in self._systems:
            self._systems[mixed] = System(self.problem, self.theta, self.cache, mixed)
        return self._systems[mixed]

    def _descend(self, columns: Columns, mixed: bool) -> None:
        """Solve for all columns, until they are finished or after PASSES."""
        system = self._system(mixed)
        sizes = self.sizes or sizes_for(system.n, self.seed, system.columns.theta.element_size())
        for _ in solve_together(system, [columns], sizes, PASSES):
            pass

    def _refined(self, columns: Columns, R: Float[Tensor, "n t"], limit: Limit) -> Columns:
        """Continue with float32 rows from these solutions, after their gradients in float64: n^2 / 2 kernel entries.

        Steps are smaller than the solutions were, and rounding with them.
        """
        V, system = columns.stored()[0].to(R.dtype), self._system(mixed=True)
        AV = system.exact.product(V).add_(V, alpha=system.s2)
        refined = Columns(R, limit, start=(V, AV), dtype=torch.float32)
        self._descend(refined, mixed=True)
        return refined

    def _rounding(self, columns: Columns, rows: Tensor, R: Float[Tensor, "c t"]) -> float:
        """Largest estimated difference of a gradient from that in float64, relative to its limit, from some rows.

        c n kernel entries and 2 c n t flops.
        """
        V, G, values = columns.stored()
        X, s2 = self.problem.train.X, self.system.s2
        chosen, change = take(X, rows), G[rows].to(R.dtype) + R - s2 * V[rows].to(R.dtype)  # [c, t]
        for part in row_blocks(len(V), R.element_size() * (len(rows) + V.shape[1]), R):
            change -= kernel_rows(self.problem.kernel, self.theta, chosen, X[part]) @ V[part].to(R.dtype)
        limits = columns.limit(torch.arange(len(values), device=V.device), values)
        return float((change.norm(dim=0) * (len(V) / len(rows)) ** 0.5 / limits).max())


class JointPosterior(RowsPosterior):
    """The exact GP of many rows; see `RowsPosterior` for the parameters. The solver is a `JointSolver`."""

    solver: JointSolver

    @property
    def row_numbers(self) -> int:
        per_row = 2.5 if self.solver.mixed else 4.0  # numbers per right-hand side: itself, its solution and gradient
        return -int(-per_row * len(self.S) * BLOCK_BYTES // SOLUTION_BYTES)  # so that a block fits into SOLUTION_BYTES

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        prior = self.kernel.diag(self.theta, X)  # [b]
        if not prior.requires_grad and not (isinstance(X, Tensor) and X.requires_grad):
            columns = self.solver.columns(lambda: self.kernel(self.theta, self.S, X), self._limit(prior))
            return self.block_mean(X), prior + columns.stored()[2]
        K = self.kernel(self.theta, self.S, X)  # [n, b]
        V, _, values = self.solver.columns(K.detach().clone, self._limit(prior.detach())).result()
        var = prior + values - 2.0 * ((K - K.detach()) * V).sum(0)  # the derivative of 2 f in k is -2 v
        return self.block_mean(X), var

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
        grown = JointSolver(problem, self.theta, solver.cache, solver.tolerance, solver.seed)
        return self.changed(X=rows.X, alpha=alpha, S=rows.X, solver=grown)

    def _solved(self, X: Any) -> tuple[Tensor, Tensor, Tensor]:
        """k(S, X) [n, t], solutions V for them, and A V; PosteriorError if this machine has no memory for them."""
        need, memory = 4.0 * self.alpha.element_size() * len(self.S) * len(X), machine_memory()
        if self.alpha.is_cpu and need > memory:
            raise PosteriorError(
                f"A covariance needs a solution with K + s2 I [n={len(self.S):,}] for each of {len(X):,} rows at once, "
                f"which take {need / 1e9:.3g} GB, and this machine has {memory / 1e9:.3g} GB of memory: give fewer "
                "rows at a time, or draw functions with paths(size, seed)."
            )
        K, prior = self.kernel(self.theta, self.S, X), self.kernel.diag(self.theta, X)
        k = K.detach()
        V, G, _ = self.solver.columns(k.clone, self._limit(prior.detach())).result()
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


FACTOR_ROWS = 5000  # up to this many rows, the factor of the whole matrix takes about a second and 0.2 GB
FACTOR_BYTES = 1e9  # a factor up to this size needs a sixth of the operations of iterations: 11 180 rows in float64
ROWS_UNSOLVED = 2000  # that variances use before a solver has converged, if all rows are asked for
VARIANCES = "K + s2 I of the predictive variance"


def exact_posterior(
    problem: Problem,
    state: SolverState,
    rows: int,
    seed: int,
    *,
    tolerance: float = 0.01,
    cache: float = 0.0,
    solved: bool = True,
) -> Posterior:
    """Predictive distribution of f at the alpha of this state.

    Parameters
    ----------
    problem : Problem
        Training rows and kernel.
    state : SolverState
        Its theta and alpha are used.
    rows : int
        How many rows the variances use; 0 means all. With fewer than all, they are upper bounds.
    seed : int
        Of the choice of rows.
    tolerance : float, default 0.01
        Largest relative error of a variance of y, if it is found by iterations.
    cache : float, default 0
        Bytes of kernel rows that are kept, or of a factor of the whole matrix.
    solved : bool, default True
        Whether alpha is the solution.

    Returns
    -------
    Posterior
        If alpha is not the solution, variances contain the square of the estimated error of the mean, and use at most
        2000 rows.

    Notes
    -----
    A mean takes one kernel entry per test point and training row with nonzero alpha (in the first steps most are zero).
    The estimated error takes as many per row that the variances use. With all rows, the variances come from a Cholesky
    factor if it takes at most 1 GB or fits into the memory of the cache, and otherwise from iterations.
    """
    kernel, theta, train, n = problem.kernel, state.theta, problem.train, len(problem.train)
    nonzero = state.alpha.nonzero()[:, 0]
    mean_rows = (train.X, state.alpha) if len(nonzero) == n else (train.rows(nonzero).X, state.alpha[nonzero])
    if solved and not rows and train.y.element_size() * n * n > max(FACTOR_BYTES, cache):
        solver = JointSolver(problem, theta, cache, tolerance, seed)
        return JointPosterior(kernel, theta, mean_rows, train.X, solver)
    count = rows if solved else rows or ROWS_UNSOLVED
    chosen = variance_rows(problem, count, seed)
    S = train.X if len(chosen) == n else take(train.X, chosen)
    factor = CholeskySolver(kernel, theta, S, VARIANCES)
    if solved:
        return RowsPosterior(kernel, theta, mean_rows, S, factor)
    residual = -gradient_entries(problem, theta, state.alpha[None], chosen)  # [1, s]
    weights = factor.solve(residual.T)[:, 0]  # [s]
    return UnsolvedPosterior(kernel, theta, mean_rows, S, factor, weights)


def posterior_of_subset(problem: Problem, theta: Tensor, rows: Tensor, count: int = 0) -> Posterior:
    """The exact GP of these rows [s] alone; variances use the first `count` of them, 0 means all. s^3 / 3 flops."""
    kernel, posterior = problem.kernel, exact_gp_posterior(problem.kernel, theta, problem.train.rows(rows))
    if not count:
        return posterior
    S = take(posterior.X, torch.arange(count, device=rows.device))
    return RowsPosterior(kernel, theta, (posterior.X, posterior.alpha), S, CholeskySolver(kernel, theta, S, VARIANCES))


def variance_rows(problem: Problem, count: int, seed: int) -> Tensor:
    """Indices of `count` random training rows; all rows in their order if `count` is 0 or not less than n."""
    n = len(problem.train)
    rows = torch.randperm(n, generator=generator(seed, "variance"))[:count] if 0 < count < n else torch.arange(n)
    return rows.to(problem.train.y.device)
