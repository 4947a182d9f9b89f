"""Direct solution by the Cholesky factor of the whole matrix: the baseline that iterative solvers are compared with.

    A = K + s2 I = L L',   alpha = L'^-1 L^-1 y                    Rasmussen and Williams (2006), algorithm 2.1

One step, n^3 / 3 flops and n^2 numbers of memory. The posterior of the solution uses the same factor, so that its
variances and samples need no second one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ...linalg.blocks import BLOCK_BYTES
from ...linalg.kernel_columns import kernel_rows, large_blocks
from ...posteriors import CholeskySolver, Posterior, RowsPosterior
from ...problem import Channel, Cost, Problem
from .solver import Solver
from .system import CHANNELS_NOT_MONOTONE, FLOPS_PER_ENTRY, Iteration, SolverState, System, fill_calls, iteration_cost


class CholeskyGP(Solver):
    """The exact GP, solved in one step by the Cholesky factor of K + s2 I.

    Notes
    -----
    The factor is computed in the memory of its matrix: n^2 numbers, 0.8 GB at n = 10000 in float64. If variances use
    all rows (`bands`), the first posterior of the solution takes it over.

    References
    ----------
    Rasmussen and Williams (2006). Gaussian processes for machine learning, algorithm 2.1.
    """

    key: ClassVar[str] = "cholesky"
    title: ClassVar[str] = "Cholesky"
    paper: ClassVar[str] = "Rasmussen and Williams (2006). Gaussian processes for machine learning, alg. 2.1."
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS_NOT_MONOTONE

    max_iterations = param.Integer(
        2000, bounds=(1, None), precedence=-1, doc="Without effect, since one iteration solves the system."
    )

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._solver: CholeskySolver | None = None  # of the last solution

    def iterations(self, system: System, state: SolverState) -> Iterator[Iteration]:
        """One iteration, which solves the system; none if it is solved already."""
        if state.position:
            return
        kernel, theta, X = system.columns.kernel, system.columns.theta, system.columns.X
        solver = CholeskySolver(kernel, theta, X)
        alpha = solver.solve(system.y[:, None])[:, 0]
        if self._has_exact_bands(system.n):
            self._solver = solver
        gradient = self._gradient(system, alpha)
        system.carry_gradient(alpha, gradient)  # it is exact, and need not be computed again before the run stops
        yield Iteration(alpha, gradient)

    def _gradient(self, system: System, alpha: Tensor) -> Tensor:
        """A alpha - y [n] in float64, by blocks of rows that are not kept. n^2 kernel entries."""
        kernel, theta, X = system.exact.kernel, system.exact.theta, system.exact.X
        gradient, coefficients = system.s2 * alpha - system.y, alpha.to(theta.dtype)
        for rows in large_blocks(system.n, theta.element_size() * system.n, theta):
            gradient[rows] += (kernel_rows(kernel, theta, X[rows], X) @ coefficients).to(alpha.dtype)
        return gradient

    def posterior(self, problem: Problem, state: SolverState) -> Posterior:
        """Predictive mean and variance of f at this state; see `exact_posterior`."""
        posterior, solver = super().posterior(problem, state), self._solver
        if solver is None or type(posterior) is not RowsPosterior or posterior.S is not solver.S:
            return posterior
        if torch.equal(posterior.theta, solver.theta):
            posterior.solver, self._solver = solver, None
        return posterior

    def cost(self, problem: Problem) -> Cost:
        """Cost of the matrix, its factor, and the solution."""
        n = len(problem.train)
        d, s = problem.train.d, problem.train.y.element_size()
        total = iteration_cost(problem, self.cache, entries=1.0 * n * n, flops=n**3 / 3.0, columns=n)
        blocks = {"rows being computed": min(1.0 * s * n * n, 1.0 * BLOCK_BYTES)}  # of the gradient, which keeps none
        total = replace(total, arrays={**total.arrays, **blocks})
        return total.plus((FLOPS_PER_ENTRY + 2.0 * d) * n * n, 2.0 * s * n * n, fill_calls(s * n * n))
