"""Block descent with simple rules for the next block: the dense baselines of Bo and Sminchisescu (2008).

A_BB t = -g_B,   alpha_B += t,   g += A_:B t             `solve_block`, the same for all three; they differ in B

CyclicDescent      blocks of consecutive rows in turn (Gauss-Seidel by blocks, the paper's BCDC)
GradientDescent    the rows with the largest |g_i| (the paper's BCDG, eq 4)
SMO                the two rows with the largest and the smallest g_i, many times per step
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from ....problem import Cost, Problem
from ...setting_kinds import count
from .. import settings
from ..solver import Solver
from ..system import CALLS_PER_PAIR, VECTORS_PER_PAIR, Iteration, SolverState, System, iteration_cost, solve_block


class OneBlock(Solver):
    """Base class of solvers that solve for one block per iteration; a subclass chooses its rows."""

    paper: ClassVar[str] = "Bo and Sminchisescu (2008). Greedy block coordinate descent for large scale GPs. UAI."

    block = settings.block()
    mixed = settings.mixed()
    refresh = settings.refresh()

    @abstractmethod
    def next_rows(self, gradient: Tensor, position: int) -> Tensor:
        """The rows [b] of a block, given the gradient [n] and the number of blocks before."""

    def iterations(self, system: System, state: SolverState) -> Iterator[Iteration]:
        """One block per iteration."""
        alpha, g, position = state.alpha.clone(), system.gradient(state.alpha), state.position
        while True:
            rows = self.next_rows(g, position)
            step, g = solve_block(system, rows, g)
            alpha[rows] += step
            position += 1
            yield Iteration(alpha, g, active=rows)

    def cost(self, problem: Problem) -> Cost:
        """Cost of one block: n b kernel entries, its factor, and the update of the gradient."""
        n = len(problem.train)
        b = settings.rows_per_block(self.block, n)
        return iteration_cost(problem, self.cache, entries=1.0 * n * b, flops=b**3 / 3.0 + 2.0 * n * b, columns=b)


class CyclicDescent(OneBlock):
    """The exact GP, solved by blocks of consecutive rows that are taken in turn.

    Notes
    -----
    With one row per block this is the Gauss-Seidel method. Small blocks take many rounds where the kernel is smooth.
    """

    key: ClassVar[str] = "bcd-cyclic"
    title: ClassVar[str] = "Cyclic block descent"
    equations: ClassVar[dict[str, str]] = {"block": r"A_{BB}\,t = -g_B"}

    def next_rows(self, gradient: Tensor, position: int) -> Tensor:
        """After the last block follows the first."""
        n = len(gradient)
        b = settings.rows_per_block(self.block, n)
        begin = (position % -(-n // b)) * b
        return torch.arange(begin, min(begin + b, n), device=gradient.device)


class GradientDescent(OneBlock):
    """The exact GP, solved by blocks of the rows whose gradient entries are largest.

    Notes
    -----
    The rows of a block are chosen at once. Rows close to each other have similar gradients, so that such a block
    contains much of the same information several times (section 2.3 of the paper).
    """

    key: ClassVar[str] = "bcd-gradient"
    title: ClassVar[str] = "Gradient block descent"
    equations: ClassVar[dict[str, str]] = {"block": r"B = \text{the } b \text{ largest } |g_i|"}

    def next_rows(self, gradient: Tensor, position: int) -> Tensor:
        """The b largest entries (eq 4)."""
        return gradient.abs().topk(settings.rows_per_block(self.block, len(gradient))).indices


class SMO(Solver):
    """Sequential minimal optimisation: the exact GP, solved by pairs of rows that violate optimality most.

    Notes
    -----
    An iteration here is `pairs` pairs, so that a step is not too short to be shown.

    References
    ----------
    Keerthi and Shevade (2003). SMO algorithm for least-squares SVM formulations. Neural Computation 15.
    """

    key: ClassVar[str] = "smo"
    title: ClassVar[str] = "SMO, maximal violating pair"
    paper: ClassVar[str] = "Keerthi and Shevade (2003). SMO for least squares SVM formulations. Neural Comput."
    equations: ClassVar[dict[str, str]] = {"pairs": r"i = \arg\max g,\quad j = \arg\min g"}

    pairs = count(50, (1, 500), doc="Number of pairs per step; each pair takes two kernel rows.")
    mixed = settings.mixed()
    refresh = settings.refresh()

    def iterations(self, system: System, state: SolverState) -> Iterator[Iteration]:
        """`pairs` exact solutions for two rows each."""
        alpha, g = state.alpha.clone(), system.gradient(state.alpha)
        while True:
            active = torch.zeros(self.pairs, 2, dtype=torch.int64, device=g.device)
            for k in range(self.pairs):
                rows = torch.unique(torch.stack([g.argmax(), g.argmin()]))  # a single row if both are the same
                step, g = solve_block(system, rows, g)
                alpha[rows] += step
                active[k] = rows[[0, -1]]
            yield Iteration(alpha, g, active=torch.unique(active))

    def cost(self, problem: Problem) -> Cost:
        """Cost of `pairs` pairs: two kernel rows each, and several reads of the gradient."""
        n = len(problem.train)
        total = iteration_cost(problem, self.cache, entries=2.0 * n * self.pairs, flops=4.0 * n * self.pairs, columns=2)
        traffic = VECTORS_PER_PAIR * problem.train.y.element_size() * n * self.pairs
        return total.plus(bytes=traffic, calls=CALLS_PER_PAIR * self.pairs)
