"""Cholesky of the whole matrix: one step, n^3 / 3 flops and n^2 numbers, to beat or to lose to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from ...linalg.cholesky import cholesky
from ...problem import Channel, Cost, Problem
from .costs import ENTRY, cost, filling
from .loop import ONE_STEP, State
from .solver import Solver
from .system import Move, System


class CholeskyGP(Solver):
    """The exact GP, solved at once by its Cholesky factor."""

    key: ClassVar[str] = "cholesky"
    title: ClassVar[str] = "Cholesky"
    paper: ClassVar[str] = "Rasmussen and Williams (2006). Gaussian processes for machine learning, alg. 2.1."
    channels: ClassVar[tuple[Channel, ...]] = ONE_STEP

    def moves(self, system: System, state: State) -> Iterator[Move]:
        if state.position:
            return
        A = system.rows(torch.arange(system.n, device=system.y.device))
        L = cholesky(A, "K + s2 I").L
        alpha = torch.cholesky_solve(system.y[:, None], L)[:, 0]
        yield Move(alpha, A @ alpha - system.y)

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        d, s = problem.train.d, problem.train.y.element_size()
        found = cost(problem, self.cache, entries=1.0 * n * n, flops=n**3 / 3.0, columns=2 * n)
        return found.plus((ENTRY + 2.0 * d) * n * n, 2.0 * s * n * n, filling(s * n * n))
