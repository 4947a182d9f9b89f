"""Stochastic dual descent: small steps on random minibatches of coordinates, with momentum and averaging.

    draw I,  d_I = beta (n / b) g_I(x + rho v)        g of the dual, so the noise vanishes together with the gradient
    v <- rho v - d,   x <- x + v,   mean <- r x + (1 - r) mean
    beta = rate / ((n / b) lambda_1(A_SS))            S as many random rows: the largest step that a minibatch allows
    where |A x - y| > 3 |y|, looked at every 10 iterations:  x, v, mean <- 0,  beta <- beta / 2

Lin, Padhy, Antoran, Tripp, Terenin, Szepesvari, Hernandez-Lobato and Janz (2024), algorithm 1. In the paper beta is
given by hand. The rows S may be less alike than those of another minibatch, as where some rows are duplicates, and
steps are then too long; the last line ends this. The gradients of x, v and the mean are updated with the kernel columns
of I, which are computed in any case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from ....linalg.preconditioners import largest_eigenvalue
from ....linalg.randomness import generator
from ....problem import Channel, Cost, Problem
from ...setting_kinds import positive, share
from .. import settings
from ..solver import Solver
from ..system import CHANNELS_NOT_MONOTONE, Iteration, SolverState, System, iteration_cost, updated_gradient

LARGEST_GROWTH = 3.0  # of the gradient of x, relative to that at x = 0: beyond, the descent diverges
CHECKED = 10  # iterations from one look at this gradient to the next, since the host waits for its norm


class StochasticDual(Solver):
    """The exact GP, approached by small steps on random coordinates of the dual problem.

    Notes
    -----
    The objective of the averaged iterate may rise for a few steps, because of the momentum.

    References
    ----------
    Lin et al. (2024). Stochastic gradient descent for Gaussian processes done right. ICLR, algorithm 1.
    """

    key: ClassVar[str] = "sdd"
    title: ClassVar[str] = "Stochastic dual descent"
    paper: ClassVar[str] = "Lin et al. (2024). Stochastic gradient descent for Gaussian processes done right. ICLR."
    equations: ClassVar[dict[str, str]] = {
        "rate": r"d_I = \beta\,\tfrac{n}{b}\,g_I(x+\rho v),\quad \beta = \text{rate}/\lambda_1",
        "momentum": r"v \leftarrow \rho v - d,\quad x \leftarrow x + v",
        "averaging": r"\bar x \leftarrow r x + (1-r)\bar x",
    }
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS_NOT_MONOTONE

    block = settings.block()
    rate = positive(
        0.5,
        (0.05, 1.0),
        doc="Step size as a share of the largest that a minibatch allows. Where it diverges, it is halved, and the "
        "descent begins again.",
    )
    momentum = share(
        0.9, inclusive=(True, False), doc="Share of the velocity that is kept from one iteration to the next."
    )
    averaging = share(
        0.05,
        inclusive=(False, True),
        doc="Weight of the newest iterate in the average that is returned. 1 returns the newest iterate.",
    )
    mixed = settings.mixed()
    refresh = settings.refresh()

    def iterations(self, system: System, state: SolverState) -> Iterator[Iteration]:
        """One minibatch per iteration; columns of `points` are the mean, x and v, those of `products` A times them."""
        b, step_size = self._step_size(system)
        zero = torch.zeros_like(state.alpha)
        x_and_v = state.memory[:2] if len(state.memory) > 1 else (zero, zero)
        points = torch.stack([state.alpha, *x_and_v], 1)  # [n, 3]
        halvings = state.memory[-1] if len(state.memory) in (1, 3) else points.new_zeros(())  # of beta
        step_size *= 0.5 ** float(halvings)
        products, iteration = system.gradient(points).add_(system.y[:, None]), state.position
        r, rho = self.averaging, self.momentum
        lookahead = points.new_tensor([0.0, 1.0, rho])  # weights of x + rho v
        mixture = points.new_tensor([[1.0 - r, 0.0, 0.0], [r, 1.0, 0.0], [r * rho, rho, rho]])  # before d is subtracted
        shares = points.new_tensor([r, 1.0, 1.0])  # of d that the mean, x and v lose
        while True:
            order = torch.randperm(system.n, generator=generator(self.seed, "minibatch", iteration))
            rows = order[:b].to(points.device)
            A_I = system.rows_in_workspace(rows)  # [b, n]
            d = step_size * ((products[rows] @ lookahead) - system.y[rows])

            products = (products @ mixture).sub_(torch.outer(updated_gradient(zero, A_I, d), shares))
            points = points @ mixture
            points[rows] -= torch.outer(d, shares)
            iteration += 1
            if iteration % CHECKED == 0 and self._diverges(products[:, 1], system.y):
                points, products = torch.zeros_like(points), torch.zeros_like(products)
                halvings, step_size = halvings + 1.0, 0.5 * step_size
            yield Iteration(points[:, 0], products[:, 0] - system.y, (points[:, 1], points[:, 2], halvings), rows)

    @staticmethod
    def _diverges(A_x: Tensor, y: Tensor) -> bool:
        return not bool((A_x - y).norm() <= LARGEST_GROWTH * y.norm())

    def kept_memory(self, memory: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return memory[2:]  # how often beta was halved

    def _step_size(self, system: System) -> tuple[int, float]:
        """Number of rows in a minibatch, and beta n / b, the step size in their coordinates."""
        b = settings.rows_per_block(self.block, system.n)
        random = generator(self.seed, "pace")
        rows = torch.randperm(system.n, generator=random)[:b].to(system.y.device)
        start = torch.randn(b, generator=random, dtype=torch.float64).to(system.y)
        A_SS = system.rows_in_workspace(rows).index_select(1, rows).to(start.dtype)  # [b, b]
        largest = largest_eigenvalue(A_SS, lambda x: x, start, turns=20)
        return b, self.rate / largest

    def cost(self, problem: Problem) -> Cost:
        """Cost of one minibatch: its kernel columns, and three updated products."""
        n = len(problem.train)
        b = settings.rows_per_block(self.block, n)
        return iteration_cost(problem, self.cache, entries=1.0 * n * b, flops=2.0 * n * b + 40.0 * n, columns=b + 8)
