"""Greedy block coordinate descent: exact GP regression without its matrix, a chosen block at a time.

    repeat: choose B greedily by the fall that row i alone would bring, e_i^2 / (2 A_ii)                eq 10
            solve A_BB t = -g_B, then a_B += t and g += A_:B t                                         steps 3, 4

Published, one row joins B at a time, the best of 60 drawn at random, and e is computed for them alone (`chunk=1,
pool=60, coarse=0`). Here several may join before e is computed again, for all rows: nothing but the columns of B is
needed, and they are needed anyway. Coarse rows, solved for along with every block, take away what is smooth in the
gradient, which blocks of a few rows are slow to see. The last steps, gone along once more, make up for what a block
undoes of those before it (`conjugate`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import param
import torch
from torch import Tensor

from ...linalg.randomness import generator
from ...problem import Cost, Problem
from . import settings
from .block import Block, Coarse
from .costs import CONJUGATED, JOINING, cost
from .krylov.conjugate import Point, conjugated
from .loop import State
from .solver import Solver
from .system import Move, System


class GBCD(Solver):
    """The exact GP, solved by blocks of rows chosen for what they bring."""

    key: ClassVar[str] = "gbcd"
    title: ClassVar[str] = "Greedy block coordinate descent"
    paper: ClassVar[str] = "Bo and Sminchisescu (2008). Greedy block coordinate descent for large scale GPs. UAI."
    equations: ClassVar[dict[str, str]] = {
        "block": r"\min_{t}\ \tfrac12 t^\top A_{BB}\,t + g_B^\top t,\quad |B| = b",
        "coarse": r"\min_{t,t_C} f(\alpha + e_B t + e_C t_C)",
        "conjugate": r"\min_c f(\alpha + P c),\quad P = [t, p_1, p_2]",
        "chunk": r"s = \arg\max_i\ e_i^2 / 2A_{ii},\quad e = g + A_{:B}\,t",
    }

    block = settings.block()
    chunk = param.Integer(
        50,
        bounds=(1, None),
        softbounds=(1, 100),
        doc="Rows that join before their gains are computed anew; 1 is published.",
    )
    pool = param.Integer(
        0,
        bounds=(0, None),
        softbounds=(0, 600),
        doc="Candidates drawn for each row that joins, 60 published; 0 is all rows.",
    )
    coarse = param.Integer(
        500,
        bounds=(0, None),
        softbounds=(0, 2000),
        doc="Rows solved for along with every block, n numbers each: they carry what is smooth. Drawn by the variance "
        "that those before them leave; 0 is published.",
    )
    conjugate = settings.conjugate(2)
    mixed = settings.mixed()
    refresh = settings.refresh()

    def moves(self, system: System, state: State) -> Iterator[Move]:
        """Iterations from alpha on; the gradient is the only thing carried, and is exact when taken up again."""
        at, memory, iteration = Point(state.alpha, system.gradient(state.alpha)), state.memory, state.position
        if "coarse" not in system.made:
            system.made["coarse"] = Coarse(system, min(self.coarse, system.n // 2), self.seed)
        coarse = system.made["coarse"]
        space = coarse.W.new_empty(min(self.block, system.n - len(coarse.rows)), system.n)
        while True:
            block = Block(system, at.gradient, coarse, space)
            gains = torch.cat(list(self._joined(system, block, iteration)))
            reach = block.reach()
            moved = at.alpha.index_add(0, torch.cat([coarse.rows, block.rows]), block.step(reach))
            to = Point(moved, block.gradient(reach))
            at, memory = conjugated(at, to, memory, self.conjugate, iteration)
            iteration += 1
            yield Move(at.alpha, at.gradient, memory, block.rows, gains)

    def _joined(self, system: System, block: Block, iteration: int) -> Iterator[Tensor]:
        """Fill the block; what each row that joins would bring alone, as it joins. n b (b + 2 m) / chunk flops."""
        b, taken = len(block.A), torch.zeros_like(block.g, dtype=torch.bool)
        taken[block.coarse.rows] = True
        while len(block.rows) < b:
            take = min(self.chunk, b - len(block.rows))
            seen = self._drawn(taken, take, (iteration, len(block.rows)))
            e = block.g if seen is None else block.g[seen]
            if len(block.rows) or not block.settled:
                e = block.gradient(block.reach(), seen)
            gain = 0.5 * e.square() / (system.diag if seen is None else system.diag[seen])
            best = gain.masked_fill(taken if seen is None else taken[seen], -torch.inf).topk(take)
            new = best.indices if seen is None else seen[best.indices]
            taken[new] = True
            block.join(new)
            yield best.values

    def _drawn(self, taken: Tensor, take: int, place: tuple[int, int]) -> Tensor | None:
        """Candidates, drawn at random where there is a pool; None is all rows, and is where too few are free."""
        count = self.pool * take
        if not self.pool or count >= len(taken):
            return None
        drawn = torch.randperm(len(taken), generator=generator(self.seed, "pool", *place))[:count].to(taken.device)
        return drawn if int((~taken[drawn]).sum()) >= take else None

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        m = min(self.coarse, n // 2)
        b, rounds = min(self.block, n - m), -(-min(self.block, n - m) // self.chunk)
        seen = min(n, self.pool * self.chunk) if self.pool else n
        looks = (rounds - 1) * seen  # the first rows to join are seen in the gradient as it is
        flops = looks * (b + 2.0 * m) + 2.0 * n * (b + m) + b**3 / 3.0 + 1.0 * m * b * b
        flops += rounds * (2.0 * m * b + 1.0 * b * b) + 1.0 * m * m
        found = cost(problem, self.cache, entries=n * b, flops=flops, columns=b + m + 2 * self.conjugate)
        read = problem.train.y.element_size() * (looks * (0.5 * b + m) + n * (b + m))
        return found.plus(bytes=read, calls=CONJUGATED + JOINING * rounds)
