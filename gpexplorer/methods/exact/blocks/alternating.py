"""Alternating projections: a fixed partition into blocks whose factors are computed once.

    k = argmax |g_Bk|,   alpha_Bk -= A_BB^-1 g_Bk,   g -= A_:Bk A_BB^-1 g_Bk

Wu, Wenger, Jones, Pleiss and Gardner (2024), algorithm 1. Solving for a block projects the error orthogonally, in the
norm of A, onto what that block cannot change. The paper keeps the factors of all blocks, n b numbers; here factors are
kept while a memory budget lasts, and the others are computed again. The option `conjugate`, which combines a step with
the previous ones, is not in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from ....linalg.cholesky import cholesky
from ....linalg.randomness import generator
from ....problem import Cost, Problem
from ...setting_kinds import amount
from .. import settings
from ..block import combine_steps
from ..reliability import Point
from ..solver import Solver
from ..system import Iteration, SolverState, System, iteration_cost, updated_gradient


class AlternatingProjections(Solver):
    """The exact GP, solved by blocks of a fixed random partition; the block with the largest gradient is next.

    References
    ----------
    Wu, Wenger, Jones, Pleiss and Gardner (2024). Large-scale Gaussian processes via alternating projection. AISTATS,
    algorithm 1.
    """

    key: ClassVar[str] = "alternating-projections"
    title: ClassVar[str] = "Alternating projections"
    paper: ClassVar[str] = "Wu et al. (2024). Large-scale Gaussian processes via alternating projection. AISTATS."
    equations: ClassVar[dict[str, str]] = {
        "block": r"k = \arg\max_k \|g_{B_k}\|,\quad A_{B_kB_k}\,t = -g_{B_k}",
        "factors": r"A_{B_kB_k} = L_k L_k^\top\ \text{once}",
    }

    block = settings.block()
    factors = amount(
        0.5,
        (0.0, 4.0),
        doc="Gigabytes for the factors of blocks, n block numbers in all. Factors that do not fit are computed again; "
        "0 keeps none.",
    )
    conjugate = settings.conjugate(0)
    mixed = settings.mixed()
    refresh = settings.refresh()

    def iterations(self, system: System, state: SolverState) -> Iterator[Iteration]:
        """One block per iteration. The partition and its factors depend on theta alone and survive a refresh."""
        current, memory, iteration = Point(state.alpha, system.gradient(state.alpha)), state.memory, state.position
        blocks = system.once("partition", lambda: self._partition(system))
        factors = system.once("factors", lambda: Factors(self.factors * settings.GIGABYTE))
        while True:
            number = int(torch.stack([current.gradient[rows].norm() for rows in blocks]).argmax())
            rows, g = blocks[number], current.gradient
            A_B = system.rows_in_workspace(rows)  # [b, n]
            step = torch.cholesky_solve(-g[rows][:, None], factors(number, A_B, rows, g.dtype))[:, 0]

            after = Point(current.alpha.index_add(0, rows, step), updated_gradient(g, A_B, step))
            current, memory = combine_steps(current, after, memory, self.conjugate, iteration)
            iteration += 1
            yield Iteration(current.alpha, current.gradient, memory, rows)

    def _partition(self, system: System) -> tuple[Tensor, ...]:
        """All rows in random order, cut into blocks."""
        order = torch.randperm(system.n, generator=generator(self.seed, "partition")).to(system.y.device)
        return tuple(order.split(settings.rows_per_block(self.block, system.n)))

    def cost(self, problem: Problem) -> Cost:
        """Cost of an iteration whose block was solved for before."""
        n, s = len(problem.train), problem.train.y.element_size()
        b = settings.rows_per_block(self.block, n)
        kept = min(self.factors * settings.GIGABYTE, 1.0 * s * n * b)
        factor = b**3 / 3.0 * (1.0 - kept / (s * n * b))
        total = iteration_cost(
            problem,
            self.cache,
            entries=1.0 * n * b,
            flops=factor + 2.0 * n * b + 2.0 * b * b,
            columns=b + 2 * self.conjugate,
        )
        return total.plus(**{"factors of blocks": kept})


class Factors:
    """Cholesky factors of the blocks A_BB of a partition, kept while they fit.

    Parameters
    ----------
    budget : float
        Most bytes of factors that are kept.
    """

    def __init__(self, budget: float) -> None:
        self.room, self.kept = budget, dict[int, Tensor]()

    def __call__(self, place: int, A_B: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Factor L [b, b] of block number `place`, from its rows A_B [b, n] if it is not kept; b^3 / 3 flops then."""
        if place in self.kept:
            return self.kept[place]
        L = cholesky(A_B.index_select(1, rows).to(dtype), "A_BB [block of the partition]").L
        if L.nbytes <= self.room:
            self.kept[place] = L
            self.room -= L.nbytes
        return L
