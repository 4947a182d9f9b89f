"""Conjugate gradients on the whole system: every iteration reads, or computes, the whole kernel matrix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...linalg.krylov import Iterate, cg, from_residual
from ...problem import Channel, Cost, Posterior, Problem
from ..base import Method, Steps
from . import settings
from .answers import exact_posterior
from .costs import cost
from .solving import CHANNELS, solve
from .solving import Info as Report
from .solving import State as At
from .system import Move, System


class ConjugateGradients(Method):
    """The exact GP, solved by conjugate gradients."""

    key: ClassVar[str] = "cg"
    title: ClassVar[str] = "Conjugate gradients"
    family: ClassVar[str] = "gbcd"
    paper: ClassVar[str] = (
        "Hestenes and Stiefel (1952). Methods of conjugate gradients for linear systems. J. Res. NBS."
    )
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {}
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

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
        return solve(self, problem, resume, self._iterations)

    def _iterations(self, system: System, state: At) -> Iterator[Move]:
        """r = -g; p and r'r are kept to go on from."""
        fresh = not state.memory
        first = (
            from_residual(state.alpha, -system.gradient(state.alpha)) if fresh else Iterate(state.alpha, *state.memory)
        )
        for at in cg(system.product, first):
            yield Move(at.x, -at.r, (at.r, at.p, at.rz))

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return exact_posterior(problem, state, self.variance_rows, self.seed)

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        return cost(problem, self.cache, entries=1.0 * n * n, flops=2.0 * n * n, columns=0)
