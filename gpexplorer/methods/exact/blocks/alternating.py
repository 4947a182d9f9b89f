"""Alternating projections: a fixed partition into blocks whose factors are made once, the worst block solved next.

    k = argmax |g_Bk|,   a_B -= A_BB^-1 g_B,   g -= A_:B A_BB^-1 g_B        Wu, Wenger, Jones, Pleiss, Gardner, alg. 1

Solving for a block projects the error onto what that block cannot see, orthogonally in the norm of A. They keep every
factor, n b numbers; here those met first are kept while a budget lasts, and the others are made again. They do
not go along earlier steps once more (`conjugate`), which makes up for what a block undoes of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import param
import torch
from torch import Tensor

from ....linalg.cholesky import cholesky
from ....linalg.randomness import generator
from ....problem import Cost, Problem
from .. import settings
from ..costs import cost
from ..krylov.conjugate import Point, conjugated
from ..loop import GIGABYTE, State
from ..solver import Solver
from ..system import Move, System, moved


class AlternatingProjections(Solver):
    """The exact GP, solved by the blocks of a fixed partition, that of the largest gradient next."""

    key: ClassVar[str] = "alternating-projections"
    title: ClassVar[str] = "Alternating projections"
    paper: ClassVar[str] = "Wu et al. (2024). Large-scale Gaussian processes via alternating projection. AISTATS."
    equations: ClassVar[dict[str, str]] = {
        "block": r"k = \arg\max_k \|g_{B_k}\|,\quad A_{B_kB_k}\,t = -g_{B_k}",
        "factors": r"A_{B_kB_k} = L_k L_k^\top\ \text{once}",
    }

    block = settings.block()
    factors = param.Number(
        0.5,
        bounds=(0.0, None),
        softbounds=(0.0, 4.0),
        doc="Gigabytes for factors of blocks, n block numbers in all; beyond it they are made again, 0 keeps none.",
    )
    conjugate = settings.conjugate(0)
    mixed = settings.mixed()
    refresh = settings.refresh()

    def moves(self, system: System, state: State) -> Iterator[Move]:
        """The partition and its factors outlive a refresh: they depend on theta alone."""
        at, memory, turn = Point(state.alpha, system.gradient(state.alpha)), state.memory, state.position
        if "blocks" not in system.made:
            order = torch.randperm(system.n, generator=generator(self.seed, "partition")).to(system.y.device)
            system.made |= {"blocks": order.split(self.block), "factors": Factors(self.factors * GIGABYTE)}
        blocks, factors = system.made["blocks"], system.made["factors"]
        while True:
            worst = int(torch.stack([at.gradient[rows].norm() for rows in blocks]).argmax())
            rows, g = blocks[worst], at.gradient
            A_B = system.lent(rows)  # [b, n]
            step = torch.cholesky_solve(-g[rows][:, None], factors(worst, A_B, rows, g.dtype))[:, 0]

            to = Point(at.alpha.index_add(0, rows, step), moved(g, A_B, step))
            at, memory = conjugated(at, to, memory, self.conjugate, turn)
            turn += 1
            yield Move(at.alpha, at.gradient, memory, rows)

    def cost(self, problem: Problem) -> Cost:
        """Of a step whose block is met again."""
        n, s = len(problem.train), problem.train.y.element_size()
        b = min(self.block, n)
        kept = min(self.factors * GIGABYTE, 1.0 * s * n * b)
        made = b**3 / 3.0 * (1.0 - kept / (s * n * b))
        found = cost(
            problem,
            self.cache,
            entries=1.0 * n * b,
            flops=made + 2.0 * n * b + 2.0 * b * b,
            columns=b + 2 * self.conjugate,
        )
        return found.plus(**{"factors of blocks": kept})


class Factors:
    """Cholesky factors of A_BB by the place of B in a partition: b^3 / 3 flops each, at most `budget` bytes kept."""

    def __init__(self, budget: float) -> None:
        self.left, self.kept = budget, dict[int, Tensor]()

    def __call__(self, place: int, A_B: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """L [b, b] in `dtype`, from the rows A_B [b, n] of the block where it is not kept."""
        if place in self.kept:
            return self.kept[place]
        L = cholesky(A_B.index_select(1, rows).to(dtype), "A_BB [block of the partition]").L
        if L.nbytes <= self.left:
            self.kept[place] = L
            self.left -= L.nbytes
        return L
