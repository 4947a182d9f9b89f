"""Conjugate gradients on the whole system: every iteration reads, or computes, the whole kernel matrix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ....linalg.conjugate_gradients import Iterate, cg, from_residual
from ....problem import Cost, Problem
from .. import settings
from ..costs import cost
from ..loop import State
from ..solver import Solver
from ..system import Move, System


class ConjugateGradients(Solver):
    """The exact GP, solved by conjugate gradients."""

    key: ClassVar[str] = "cg"
    title: ClassVar[str] = "Conjugate gradients"
    paper: ClassVar[str] = (
        "Hestenes and Stiefel (1952). Methods of conjugate gradients for linear systems. J. Res. NBS."
    )

    mixed = settings.mixed()
    refresh = settings.refresh()

    def moves(self, system: System, state: State) -> Iterator[Move]:
        """r = -g; p and r'r are kept to go on from."""
        fresh = not state.memory
        first = (
            from_residual(state.alpha, -system.gradient(state.alpha)) if fresh else Iterate(state.alpha, *state.memory)
        )
        for at in cg(system.product, first):
            yield Move(at.x, -at.r, (at.r, at.p, at.rz))

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        return cost(problem, self.cache, entries=1.0 * n * n, flops=2.0 * n * n, columns=0)
