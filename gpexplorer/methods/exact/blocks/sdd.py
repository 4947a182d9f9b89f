"""Stochastic dual descent: a random minibatch of coordinates, one small step, momentum, and an average for an answer.

    draw I,  d_I = beta (n / b) g_I(x + rho v)        g of the dual, so the noise dies out with the gradient
    v <- rho v - d,   x <- x + v,   mean <- r x + (1 - r) mean
    beta = rate / ((n / b) lambda_1(A_SS))            S as many random rows: the largest step that a minibatch bears

Lin, Padhy, Antoran, Tripp, Terenin, Szepesvari, Hernandez-Lobato and Janz (2024). They give beta by hand. The gradients
of x, v and the mean are carried with the columns of I, which are computed in any case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import param
import torch

from ....linalg.preconditioners import largest_eigenvalue
from ....linalg.randomness import generator
from ....problem import Channel, Cost, Problem
from .. import settings
from ..costs import cost
from ..loop import RESTLESS, State
from ..solver import Solver
from ..system import Move, System, moved


class StochasticDual(Solver):
    """The exact GP, approached by small steps on random coordinates."""

    key: ClassVar[str] = "sdd"
    title: ClassVar[str] = "Stochastic dual descent"
    paper: ClassVar[str] = "Lin et al. (2024). Stochastic gradient descent for Gaussian processes done right. ICLR."
    equations: ClassVar[dict[str, str]] = {
        "rate": r"d_I = \beta\,\tfrac{n}{b}\,g_I(x+\rho v),\quad \beta = \text{rate}/\lambda_1",
        "momentum": r"v \leftarrow \rho v - d,\quad x \leftarrow x + v",
        "averaging": r"\bar x \leftarrow r x + (1-r)\bar x",
    }
    channels: ClassVar[tuple[Channel, ...]] = RESTLESS

    block = settings.block()
    rate = param.Number(
        0.5,
        bounds=(0.0, None),
        inclusive_bounds=(False, True),
        softbounds=(0.05, 1.0),
        doc="Step size as a share of the largest that a minibatch bears; too large a share diverges.",
    )
    momentum = param.Number(0.9, bounds=(0.0, 1.0), inclusive_bounds=(True, False), doc="What is kept of the velocity.")
    averaging = param.Number(
        0.05,
        bounds=(0.0, 1.0),
        inclusive_bounds=(False, True),
        doc="Weight of the newest point in the average that is the answer; 1 answers with the newest point.",
    )
    mixed = settings.mixed()
    refresh = settings.refresh()

    def moves(self, system: System, state: State) -> Iterator[Move]:
        """Columns of `at` are the mean, x and v; those of `Aat` what A makes of them."""
        b, beta = self._pace(system)
        zero = torch.zeros_like(state.alpha)
        at = torch.stack([state.alpha, *(state.memory or (zero, zero))], 1)  # [n, 3]
        Aat, iteration = system.gradient(at).add_(system.y[:, None]), state.position
        r, rho = self.averaging, self.momentum
        ahead = at.new_tensor([0.0, 1.0, rho])  # x + rho v
        mixture = at.new_tensor([[1.0 - r, 0.0, 0.0], [r, 1.0, 0.0], [r * rho, rho, rho]])  # before d is taken off
        taken = at.new_tensor([r, 1.0, 1.0])
        while True:
            order = torch.randperm(system.n, generator=generator(self.seed, "minibatch", iteration))
            rows = order[:b].to(at.device)
            A_I = system.lent(rows)  # [b, n]
            d = beta * ((Aat[rows] @ ahead) - system.y[rows])

            Aat = (Aat @ mixture).sub_(torch.outer(moved(zero, A_I, d), taken))
            at = at @ mixture
            at[rows] -= torch.outer(d, taken)
            iteration += 1
            yield Move(at[:, 0], Aat[:, 0] - system.y, (at[:, 1], at[:, 2]), rows)

    def _pace(self, system: System) -> tuple[int, float]:
        """Rows of a minibatch, and beta n / b: the step in those coordinates."""
        b = min(self.block, system.n)
        random = generator(self.seed, "pace")
        rows = torch.randperm(system.n, generator=random)[:b].to(system.y.device)
        start = torch.randn(b, generator=random, dtype=torch.float64).to(system.y)
        A_SS = system.lent(rows).index_select(1, rows).to(start.dtype)
        largest = largest_eigenvalue(A_SS, lambda x: x, start, turns=20)
        return b, self.rate / largest

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        b = min(self.block, n)
        return cost(problem, self.cache, entries=1.0 * n * b, flops=2.0 * n * b + 40.0 * n, columns=b + 8)
