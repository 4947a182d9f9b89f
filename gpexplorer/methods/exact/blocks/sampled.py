"""Sampled blocks behind a sketch, with momentum: a greedy choice costs time, and chance costs none.

    draw B,  M = Khat_BB + rho I,  d = M^-1 g_B(z) / lambda_1(M^-1 A_BB)      Khat of rank r, rho = s2 + lambda_r(Khat)
    x <- z - d,   v <- beta v + (1 - beta) z - gamma d,   z <- a v + (1 - a) x
    beta = 1 - sqrt(mu / nu),  gamma = 1 / sqrt(mu nu),  a = 1 / (1 + gamma nu),   mu = s2 / k_ii,  nu = n / b

Rathore, Frangella, Yang, Derezinski and Udell (2025), ASkotch. They compute g_B(z) from the rows of B; here those rows
move a carried gradient instead, at the same cost, since x, v and z differ from what they were by multiples of one d.
With it the objective is known, and momentum is dropped where it would rise: nu and mu are guesses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import ClassVar

import param
import torch
from torch import Tensor

from ....linalg.cholesky import cholesky
from ....linalg.preconditioners import largest_eigenvalue, sketched_root, woodbury
from ....linalg.randomness import generator
from ....problem import Cost, Problem
from .. import settings
from ..costs import SKETCH, cost
from ..loop import State
from ..solver import Solver
from ..system import Move, System, moved


class SampledBlocks(Solver):
    """The exact GP, solved by random blocks of which only a sketch is inverted, with momentum."""

    key: ClassVar[str] = "block-nystrom"
    title: ClassVar[str] = "Sampled blocks, Nyström and momentum"
    paper: ClassVar[str] = "Rathore et al. (2025). Have ASkotch: a neat solution for large-scale KRR. JMLR."
    equations: ClassVar[dict[str, str]] = {
        "rank": r"d = (\hat K_{BB}+\rho I)^{-1} g_B / \lambda_1",
        "momentum": r"z = a v + (1-a) x,\quad v \leftarrow \beta v + (1-\beta) z - \gamma d",
    }

    block = settings.block()
    rank = param.Integer(
        100,
        bounds=(0, None),
        softbounds=(0, 500),
        doc="Rank of the sketch that stands for a block; 0 inverts the block itself, at block^3 / 3 flops.",
    )
    momentum = param.Boolean(True, doc="Accelerate: the answer is moved on from a point ahead of it.")
    mixed = settings.mixed()
    refresh = settings.refresh()

    def moves(self, system: System, state: State) -> Iterator[Move]:
        """Columns of `at` are x and v, those of `slope` their gradients; z is a mixture of the two."""
        b, beta, gamma, a = self._pace(system)
        at = torch.stack([state.alpha, *(state.memory or (state.alpha,))], 1)  # [n, 2]
        slope, zero = system.gradient(at), torch.zeros_like(state.alpha)
        value, iteration = system.value(at[:, 0], slope[:, 0]), state.position
        while True:
            order = torch.randperm(system.n, generator=generator(self.seed, "block", iteration))
            rows = order[:b].to(at.device)
            A_B = system.lent(rows)  # [b, n]
            direction = self._direction(system, A_B.index_select(1, rows).to(at.dtype), iteration)

            for ahead in (a, 0.0):  # a rise is not taken: once more from x itself, where it cannot rise
                mix = at.new_tensor([1.0 - ahead, ahead])
                z, g = at @ mix, slope @ mix
                d = direction(g[rows])
                Ad = moved(zero, A_B, d)
                x = z.index_add(0, rows, d, alpha=-1.0)
                now = system.value(x, g - Ad)
                if now <= value:
                    break

            v, g_v = (beta * ends[:, 1] + (1.0 - beta) * mid for ends, mid in ((at, z), (slope, g)))
            rested = ahead != a
            at = torch.stack([x, x if rested else v.index_add(0, rows, d, alpha=-gamma)], 1)
            slope = torch.stack([g - Ad, g - Ad if rested else g_v - gamma * Ad], 1)
            value, iteration = now, iteration + 1
            yield Move(at[:, 0], slope[:, 0], (at[:, 1],), rows)

    def _pace(self, system: System) -> tuple[int, float, float, float]:
        """Rows of a block; beta, gamma and a. Without momentum z is x: a is 0 and v is not used."""
        b = min(self.block, system.n)
        if not self.momentum:
            return b, 1.0, 0.0, 0.0
        nu = system.n / b
        mu = min(system.s2 / float(system.diag.mean()), 1.0 / nu)
        gamma = 1.0 / math.sqrt(mu * nu)
        return b, 1.0 - math.sqrt(mu / nu), gamma, 1.0 / (1.0 + gamma * nu)

    def _direction(self, system: System, A_BB: Tensor, iteration: int) -> Callable[[Tensor], Tensor]:
        """From g_B to d [b], by the block itself or by its sketch, with a step that the block bears."""
        b = len(A_BB)
        if not 0 < self.rank < b:
            L = cholesky(A_BB, "A_BB [block]").L
            return lambda g: torch.cholesky_solve(g[:, None], L)[:, 0]
        drawn = torch.randn(b, self.rank + 1, generator=generator(self.seed, "sketch", iteration), dtype=torch.float64)
        drawn = drawn.to(A_BB)
        K_BB = A_BB.clone()
        K_BB.diagonal().sub_(system.s2)
        root = sketched_root(K_BB, drawn[:, 1:])
        least = float(torch.linalg.eigvalsh(root.T @ root)[0])
        apply = woodbury(root, system.s2 + max(least, 0.0))
        pace = max(largest_eigenvalue(A_BB, apply, drawn[:, 0]), 1.0)
        return lambda g: apply(g) / pace

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        b = min(self.block, n)
        inverted = b**3 / 3.0 if not 0 < self.rank < b else 2.0 * b * b * (self.rank + 12.0) + 4.0 * b * self.rank**2
        found = cost(problem, self.cache, entries=1.0 * n * b, flops=inverted + 2.0 * n * b + 12.0 * n, columns=b + 6)
        return found.plus(calls=SKETCH if 0 < self.rank < b else 0.0)
