"""Random blocks with a sketched inverse and momentum (ASkotch).

    draw B,  M = Khat_BB + rho I,  d = M^-1 g_B(z) / lambda_1(M^-1 A_BB)      Khat of rank r, rho = s2 + lambda_r(Khat)
    x <- z - d,   v <- beta v + (1 - beta) z - gamma d,   z <- a v + (1 - a) x
    beta = 1 - sqrt(mu / nu),  gamma = 1 / sqrt(mu nu),  a = 1 / (1 + gamma nu),   mu = s2 / k_ii,  nu = n / b

Rathore, Frangella, Yang, Derezinski and Udell (2025), ASkotch. They compute g_B(z) from the rows of B. Here those rows
update a carried gradient instead, at the same cost, because x, v and z change by multiples of one d. The objective is
therefore available at every step, and momentum is dropped for a step that would raise it: nu and mu are estimates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple

import param
import torch
from torch import Tensor

from ....linalg.cholesky import cholesky
from ....linalg.preconditioners import largest_eigenvalue, sketched_root, woodbury
from ....linalg.randomness import generator
from ....problem import Cost, Problem
from ...setting_kinds import count
from .. import settings
from ..solver import Solver
from ..system import CALLS_PER_SKETCH, Iteration, SolverState, System, iteration_cost, updated_gradient


class Momentum(NamedTuple):
    """Coefficients of the accelerated iteration."""

    beta: float
    gamma: float
    a: float  # 0 means no momentum: z = x, and v is not used


class SampledBlocks(Solver):
    """The exact GP, solved by random blocks of which a sketch is inverted, with momentum.

    References
    ----------
    Rathore, Frangella, Yang, Derezinski and Udell (2025). Have ASkotch: a neat solution for large-scale kernel ridge
    regression. JMLR.
    """

    key: ClassVar[str] = "block-nystrom"
    title: ClassVar[str] = "Sampled blocks, Nyström and momentum"
    paper: ClassVar[str] = "Rathore et al. (2025). Have ASkotch: a neat solution for large-scale KRR. JMLR."
    equations: ClassVar[dict[str, str]] = {
        "rank": r"d = (\hat K_{BB}+\rho I)^{-1} g_B / \lambda_1",
        "momentum": r"z = a v + (1-a) x,\quad v \leftarrow \beta v + (1-\beta) z - \gamma d",
    }

    block = settings.block()
    rank = count(
        100,
        (0, 500),
        doc="Rank of the sketch that replaces a block. 0 inverts the block itself, at block^3 / 3 flops.",
    )
    momentum = param.Boolean(True, doc="Accelerate with momentum: each step starts from an extrapolated point.")
    mixed = settings.mixed()
    refresh = settings.refresh()

    def iterations(self, system: System, state: SolverState) -> Iterator[Iteration]:
        """One random block per iteration; the columns of `points` are x and v, those of `gradients` belong to them."""
        b = settings.rows_per_block(self.block, system.n)
        beta, gamma, a = self._momentum(system, b)
        points = torch.stack([state.alpha, *(state.memory or (state.alpha,))], 1)  # [n, 2]
        gradients, zero = system.gradient(points), torch.zeros_like(state.alpha)
        value, iteration = system.value(points[:, 0], gradients[:, 0]), state.position
        while True:
            order = torch.randperm(system.n, generator=generator(self.seed, "block", iteration))
            rows = order[:b].to(points.device)
            A_B = system.rows_in_workspace(rows)  # [b, n]
            direction = self._direction(system, A_B.index_select(1, rows).to(points.dtype), iteration)

            for share in (a, 0.0):  # if the objective would rise, repeat from x itself, where it cannot
                weights = points.new_tensor([1.0 - share, share])
                z, g = points @ weights, gradients @ weights
                d = direction(g[rows])
                Ad = updated_gradient(zero, A_B, d)
                x = z.index_add(0, rows, d, alpha=-1.0)
                new_value = system.value(x, g - Ad)
                if new_value <= value:
                    break

            v, g_v = (beta * pair[:, 1] + (1.0 - beta) * middle for pair, middle in ((points, z), (gradients, g)))
            restarted = share != a
            points = torch.stack([x, x if restarted else v.index_add(0, rows, d, alpha=-gamma)], 1)
            gradients = torch.stack([g - Ad, g - Ad if restarted else g_v - gamma * Ad], 1)
            value, iteration = new_value, iteration + 1
            yield Iteration(points[:, 0], gradients[:, 0], (points[:, 1],), rows)

    def _momentum(self, system: System, b: int) -> Momentum:
        """beta, gamma and a from estimates of mu and nu."""
        if not self.momentum:
            return Momentum(1.0, 0.0, 0.0)
        nu = system.n / b
        mu = min(system.s2 / float(system.diag.mean()), 1.0 / nu)
        gamma = 1.0 / math.sqrt(mu * nu)
        return Momentum(1.0 - math.sqrt(mu / nu), gamma, 1.0 / (1.0 + gamma * nu))

    def _direction(self, system: System, A_BB: Tensor, iteration: int) -> Callable[[Tensor], Tensor]:
        """The map g_B -> d [b], by the block itself or by its sketch with the largest admissible step size."""
        b = len(A_BB)
        if not 0 < self.rank < b:
            L = cholesky(A_BB, "A_BB [block]").L
            return lambda g: torch.cholesky_solve(g[:, None], L)[:, 0]
        drawn = torch.randn(b, self.rank + 1, generator=generator(self.seed, "sketch", iteration), dtype=torch.float64)
        drawn = drawn.to(A_BB)
        K_BB = A_BB.clone()
        K_BB.diagonal().sub_(system.s2)
        root = sketched_root(K_BB, drawn[:, 1:])  # [b, r], Khat = root root'
        smallest = float(torch.linalg.eigvalsh(root.T @ root)[0])  # lambda_r
        apply = woodbury(root, system.s2 + max(smallest, 0.0))  # M^-1
        scale = max(largest_eigenvalue(A_BB, apply, drawn[:, 0]), 1.0)
        return lambda g: apply(g) / scale

    def cost(self, problem: Problem) -> Cost:
        """Cost of one block and its sketch."""
        n = len(problem.train)
        b = settings.rows_per_block(self.block, n)
        inverse = b**3 / 3.0 if not 0 < self.rank < b else 2.0 * b * b * (self.rank + 12.0) + 4.0 * b * self.rank**2
        flops = inverse + 2.0 * n * b + 12.0 * n
        total = iteration_cost(problem, self.cache, entries=1.0 * n * b, flops=flops, columns=b + 6)
        return total.plus(calls=CALLS_PER_SKETCH if 0 < self.rank < b else 0.0)
