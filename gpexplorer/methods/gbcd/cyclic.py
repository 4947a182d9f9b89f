"""Block descent in a fixed order: Gauss-Seidel by blocks, the paper's BCDC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from ...problem import Channel, Cost, Posterior, Problem
from ..base import Method, Steps
from . import settings
from .answers import exact_posterior
from .costs import cost
from .solving import CHANNELS, solve
from .solving import Info as Report
from .solving import State as At
from .system import Move, System, solved


class CyclicDescent(Method):
    """The exact GP, solved by blocks of rows taken in turn."""

    key: ClassVar[str] = "bcd-cyclic"
    title: ClassVar[str] = "Cyclic block descent"
    family: ClassVar[str] = "gbcd"
    paper: ClassVar[str] = "Bo and Sminchisescu (2008). Greedy block coordinate descent for large scale GPs. UAI."
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {"block": r"A_{BB}\,t = -g_B"}
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    block = settings.block()
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
        return solve(self, problem, resume, self._blocks)

    def _blocks(self, system: System, state: At) -> Iterator[Move]:
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

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return exact_posterior(problem, state, self.variance_rows, self.seed)

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        b = min(self.block, n)
        return cost(problem, self.cache, entries=1.0 * n * b, flops=b**3 / 3.0 + 2.0 * n * b, columns=b)
