"""Cholesky of the whole matrix: one step, n^3 / 3 flops and n^2 numbers, to beat or to lose to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from ...linalg.cholesky import cholesky
from ...problem import Channel, Cost, Posterior, Problem
from ..base import Method, Steps
from . import settings
from .answers import exact_posterior
from .costs import ENTRY, cost, filling
from .solving import ONE_STEP, solve
from .solving import Info as Report
from .solving import State as At
from .system import Move, System


class CholeskyGP(Method):
    """The exact GP, solved at once by its Cholesky factor."""

    key: ClassVar[str] = "cholesky"
    title: ClassVar[str] = "Cholesky"
    family: ClassVar[str] = "gbcd"
    paper: ClassVar[str] = "Rasmussen and Williams (2006). Gaussian processes for machine learning, alg. 2.1."
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {}
    channels: ClassVar[tuple[Channel, ...]] = ONE_STEP

    learn = settings.learn()
    subset = settings.subset()
    evaluations = settings.evaluations()
    tolerance = settings.tolerance()
    max_iterations = settings.max_iterations()
    cache = settings.cache()
    mixed, refresh = False, 0  # a direct method has no gradient that drifts
    variance_rows = settings.variance_rows()

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        return solve(self, problem, resume, self._factor)

    def _factor(self, system: System, state: At) -> Iterator[Move]:
        if state.position:
            return
        A = system.rows(torch.arange(system.n, device=system.y.device))
        L = cholesky(A, "K + s2 I").L
        alpha = torch.cholesky_solve(system.y[:, None], L)[:, 0]
        yield Move(alpha, A @ alpha - system.y)

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return exact_posterior(problem, state, self.variance_rows, self.seed)

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        d, s = problem.train.d, problem.train.y.element_size()
        found = cost(problem, self.cache, entries=1.0 * n * n, flops=n**3 / 3.0, columns=2 * n)
        return found.plus((ENTRY + 2.0 * d) * n * n, 2.0 * s * n * n, filling(s * n * n))
