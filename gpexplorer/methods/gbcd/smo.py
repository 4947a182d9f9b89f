"""Sequential minimal optimisation: the two rows that violate optimality most, exactly, again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import param
import torch

from ...problem import Channel, Cost, Posterior, Problem
from ..base import Method, Steps
from . import settings
from .answers import exact_posterior
from .costs import LOOKS, PAIR, cost
from .solving import CHANNELS, solve
from .solving import Info as Report
from .solving import State as At
from .system import Move, System, solved


class SMO(Method):
    """The exact GP, solved by pairs of maximal violation."""

    key: ClassVar[str] = "smo"
    title: ClassVar[str] = "SMO, maximal violating pair"
    family: ClassVar[str] = "gbcd"
    paper: ClassVar[str] = "Keerthi and Shevade (2003). SMO for least squares SVM formulations. Neural Comput."
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {"pairs": r"i = \arg\max g,\quad j = \arg\min g"}
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    pairs = param.Integer(50, bounds=(1, None), softbounds=(1, 500), doc="Pairs in one step, of two kernel rows each.")
    learn = settings.learn()
    subset = settings.subset()
    evaluations = settings.evaluations()
    tolerance = settings.tolerance()
    max_iterations = settings.max_iterations()
    cache = settings.cache()
    mixed = settings.mixed()
    refresh = settings.refresh()
    variance_rows = settings.variance_rows()

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        return solve(self, problem, resume, self._pairs)

    def _pairs(self, system: System, state: At) -> Iterator[Move]:
        alpha, g = state.alpha.clone(), system.gradient(state.alpha)
        while True:
            active = torch.zeros(self.pairs, 2, dtype=torch.int64, device=g.device)
            for k in range(self.pairs):
                rows = torch.unique(torch.stack([g.argmax(), g.argmin()]))
                step, g = solved(system, rows, g)
                alpha[rows] += step
                active[k] = rows[[0, -1]]
            yield Move(alpha, g, active=torch.unique(active))

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return exact_posterior(problem, state, self.variance_rows, self.seed)

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        found = cost(problem, self.cache, entries=2.0 * n * self.pairs, flops=4.0 * n * self.pairs, columns=2)
        looks = LOOKS * problem.train.y.element_size() * n * self.pairs
        return found.plus(bytes=looks, calls=PAIR * self.pairs)
