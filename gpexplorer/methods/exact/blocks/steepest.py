"""Block descent on the rows with the largest gradients: the paper's BCDG, greedy once an iteration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ....problem import Cost, Problem
from .. import settings
from ..costs import cost
from ..loop import State
from ..solver import Solver
from ..system import Move, System, solved


class GradientDescent(Solver):
    """The exact GP, solved by blocks of the rows whose gradients are largest."""

    key: ClassVar[str] = "bcd-gradient"
    title: ClassVar[str] = "Gradient block descent"
    paper: ClassVar[str] = "Bo and Sminchisescu (2008). Greedy block coordinate descent for large scale GPs. UAI."
    equations: ClassVar[dict[str, str]] = {"block": r"B = \text{the } b \text{ largest } |g_i|"}

    block = settings.block()
    mixed = settings.mixed()
    refresh = settings.refresh()

    def moves(self, system: System, state: State) -> Iterator[Move]:
        alpha, g = state.alpha.clone(), system.gradient(state.alpha)
        while True:
            rows = g.abs().topk(min(self.block, system.n)).indices
            step, g = solved(system, rows, g)
            alpha[rows] += step
            yield Move(alpha, g, active=rows)

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        b = min(self.block, n)
        return cost(problem, self.cache, entries=1.0 * n * b, flops=b**3 / 3.0 + 2.0 * n * b, columns=b)
