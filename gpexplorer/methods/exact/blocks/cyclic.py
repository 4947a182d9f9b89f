"""Block descent in a fixed order: Gauss-Seidel by blocks, the paper's BCDC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from ....problem import Cost, Problem
from .. import settings
from ..costs import cost
from ..loop import State
from ..solver import Solver
from ..system import Move, System, solved


class CyclicDescent(Solver):
    """The exact GP, solved by blocks of rows taken in turn."""

    key: ClassVar[str] = "bcd-cyclic"
    title: ClassVar[str] = "Cyclic block descent"
    paper: ClassVar[str] = "Bo and Sminchisescu (2008). Greedy block coordinate descent for large scale GPs. UAI."
    equations: ClassVar[dict[str, str]] = {"block": r"A_{BB}\,t = -g_B"}

    block = settings.block()
    mixed = settings.mixed()
    refresh = settings.refresh()

    def moves(self, system: System, state: State) -> Iterator[Move]:
        alpha, g, b = state.alpha.clone(), system.gradient(state.alpha), min(self.block, system.n)
        turns = -(-system.n // b)
        position = state.position
        while True:
            begin = (position % turns) * b
            rows = torch.arange(begin, min(begin + b, system.n), device=g.device)
            step, g = solved(system, rows, g)
            alpha[rows] += step
            position += 1
            yield Move(alpha, g, active=rows)

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        b = min(self.block, n)
        return cost(problem, self.cache, entries=1.0 * n * b, flops=b**3 / 3.0 + 2.0 * n * b, columns=b)
