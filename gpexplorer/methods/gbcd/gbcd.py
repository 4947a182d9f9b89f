"""Greedy block coordinate descent: exact GP regression without its matrix, a chosen block at a time.

    repeat: choose B greedily by the fall that row i alone would bring, e_i^2 / (2 A_ii)                eq 10
            solve A_BB t = -g_B, then a_B += t and g += A_:B t                                         steps 3, 4

Published, one row joins B at a time, the best of 60 drawn at random, and e is kept up to date for them alone. Here
several may join before e is brought up to date, for all rows: nothing but the columns of B is needed, and they are
needed anyway. `chunk=1, pool=60` is the published rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import param
import torch
from torch import Tensor

from ...linalg.cholesky import cholesky
from ...linalg.randomness import generator
from ...problem import Channel, Cost, Posterior, Problem
from ..base import Method, Steps
from . import settings
from .answers import exact_posterior
from .costs import cost
from .solving import CHANNELS, solve
from .solving import Info as Report
from .solving import State as At
from .system import Move, System


class GBCD(Method):
    """The exact GP, solved by blocks of rows chosen for what they bring."""

    key: ClassVar[str] = "gbcd"
    title: ClassVar[str] = "Greedy block coordinate descent"
    family: ClassVar[str] = "gbcd"
    paper: ClassVar[str] = "Bo and Sminchisescu (2008). Greedy block coordinate descent for large scale GPs. UAI."
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {
        "block": r"\min_{t}\ \tfrac12 t^\top A_{BB}\,t + g_B^\top t,\quad |B| = b",
        "chunk": r"s = \arg\max_i\ e_i^2 / 2A_{ii},\quad e = g + A_{:B}\,t",
    }
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    block = settings.block()
    chunk = param.Integer(
        25,
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
    learn = settings.learn()
    subset = settings.subset()
    evaluations = settings.evaluations()
    tolerance = settings.tolerance()
    max_iterations = settings.max_iterations()
    cache = settings.cache()
    variance_rows = settings.variance_rows()

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        return solve(self, problem, resume, self._blocks)

    def _blocks(self, system: System, state: At) -> Iterator[Move]:
        """Iterations from alpha on; the gradient is the only thing carried, and is exact when taken up again."""
        alpha, iteration = state.alpha.clone(), state.position
        g = system.gradient(alpha) if bool(alpha.any()) else -system.y
        while True:
            rows, step, g = self._choose(system, g, iteration)
            alpha[rows] += step
            iteration += 1
            yield Move(alpha, g, active=rows)

    def _choose(self, system: System, g: Tensor, iteration: int) -> tuple[Tensor, Tensor, Tensor]:
        """The block [b], its exact step [b], and the gradient after it [n]. n b kernel entries, n b^2 / chunk flops."""
        b = min(self.block, system.n)
        A = system.y.new_empty(b, system.n)  # A[rows]
        rows, taken, e = torch.zeros(0, dtype=torch.int64, device=g.device), torch.zeros_like(g, dtype=torch.bool), g
        step = g[:0]
        while len(rows) < b:
            take = min(self.chunk, b - len(rows))
            gain = self._seen(e.square() / system.diag, take, (iteration, len(rows)))
            new = gain.masked_fill(taken, -torch.inf).topk(take).indices
            A[len(rows) : len(rows) + take] = system.rows(new)
            rows, taken[new] = torch.cat([rows, new]), True
            A_B = A[: len(rows)]
            L = cholesky(A_B[:, rows], "A_BB [block]").L
            step = torch.cholesky_solve(-g[rows][:, None], L)[:, 0]
            e = torch.addmv(g, A_B.T, step)
        return rows, step, e

    def _seen(self, gain: Tensor, take: int, place: tuple[int, int]) -> Tensor:
        """The gains of the candidates drawn; all others below them, to be taken only where too few were drawn."""
        if not self.pool or self.pool * take >= len(gain):
            return gain
        drawn = torch.randperm(len(gain), generator=generator(self.seed, "pool", *place))[: self.pool * take]
        hidden = torch.full_like(gain, -1.0)
        hidden[drawn.to(gain.device)] = gain[drawn.to(gain.device)]
        return hidden

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return exact_posterior(problem, state, self.variance_rows, self.seed)

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        b = min(self.block, n)
        flops = 1.0 * n * b * b / min(self.chunk, b) + b**4 / (12.0 * min(self.chunk, b)) + 2.0 * n * b
        return cost(problem, self.cache, entries=n * b, flops=flops, columns=b)
