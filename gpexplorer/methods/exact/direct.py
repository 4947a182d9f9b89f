"""Direct solution by the Cholesky factor of the whole matrix: the baseline that iterative solvers are compared with.

    A = K + s2 I = L L',   alpha = L'^-1 L^-1 y                    Rasmussen and Williams (2006), algorithm 2.1

One step, n^3 / 3 flops and 2 n^2 numbers of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import param
import torch

from ...linalg.cholesky import cholesky
from ...problem import Channel, Cost, Problem
from .costs import FLOPS_PER_ENTRY, fill_calls, iteration_cost
from .solver import Solver
from .state import CHANNELS_NOT_MONOTONE, State
from .system import Iteration, System


class CholeskyGP(Solver):
    """The exact GP, solved in one step by the Cholesky factor of K + s2 I.

    Notes
    -----
    The matrix and its factor are held at once: 2 n^2 numbers, 1.6 GB at n = 10000 in float64.

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

    def iterations(self, system: System, state: State) -> Iterator[Iteration]:
        """One iteration, which solves the system; none if it is solved already."""
        if state.position:
            return
        A = system.rows(torch.arange(system.n, device=system.y.device))  # [n, n]
        L = cholesky(A, "K + s2 I").L
        alpha = torch.cholesky_solve(system.y[:, None], L)[:, 0]
        yield Iteration(alpha, A @ alpha - system.y)

    def cost(self, problem: Problem) -> Cost:
        """Cost of the matrix, its factor, and the solution."""
        n = len(problem.train)
        d, s = problem.train.d, problem.train.y.element_size()
        total = iteration_cost(problem, self.cache, entries=1.0 * n * n, flops=n**3 / 3.0, columns=2 * n)
        return total.plus((FLOPS_PER_ENTRY + 2.0 * d) * n * n, 2.0 * s * n * n, fill_calls(s * n * n))
