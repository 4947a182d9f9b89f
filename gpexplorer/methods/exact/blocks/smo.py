"""Sequential minimal optimisation: the two rows that violate optimality most, exactly, again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import param
import torch

from ....problem import Cost, Problem
from .. import settings
from ..costs import LOOKS, PAIR, cost
from ..loop import State
from ..solver import Solver
from ..system import Move, System, solved


class SMO(Solver):
    """The exact GP, solved by pairs of maximal violation."""

    key: ClassVar[str] = "smo"
    title: ClassVar[str] = "SMO, maximal violating pair"
    paper: ClassVar[str] = "Keerthi and Shevade (2003). SMO for least squares SVM formulations. Neural Comput."
    equations: ClassVar[dict[str, str]] = {"pairs": r"i = \arg\max g,\quad j = \arg\min g"}

    pairs = param.Integer(50, bounds=(1, None), softbounds=(1, 500), doc="Pairs in one step, of two kernel rows each.")
    mixed = settings.mixed()
    refresh = settings.refresh()

    def moves(self, system: System, state: State) -> Iterator[Move]:
        alpha, g = state.alpha.clone(), system.gradient(state.alpha)
        while True:
            active = torch.zeros(self.pairs, 2, dtype=torch.int64, device=g.device)
            for k in range(self.pairs):
                rows = torch.unique(torch.stack([g.argmax(), g.argmin()]))
                step, g = solved(system, rows, g)
                alpha[rows] += step
                active[k] = rows[[0, -1]]
            yield Move(alpha, g, active=torch.unique(active))

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        found = cost(problem, self.cache, entries=2.0 * n * self.pairs, flops=4.0 * n * self.pairs, columns=2)
        looks = LOOKS * problem.train.y.element_size() * n * self.pairs
        return found.plus(bytes=looks, calls=PAIR * self.pairs)
