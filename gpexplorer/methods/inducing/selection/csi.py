"""CSI kernel ridge: a low-rank kernel by Cholesky with side information, its hyperparameters by grid search.

Each step tries one point of the grid: the factor's pivots are chosen on four fifths of the rows, ridge regression on
the factor's columns is judged on the last fifth, and at the end the best setting is fitted to all rows. There is no
likelihood to follow, which is what makes it slow (Bach and Jordan 2005; Cao et al. 2013, figure 3c).
"""

from __future__ import annotations

import math
from itertools import product
from typing import ClassVar, NamedTuple

import param
import torch
from torch import Tensor

from ....linalg.randomness import generator
from ....objectives import nystrom
from ....posteriors import nystrom_posterior
from ....problem import Channel, Cost, Outcome, Posterior, Prediction, Problem, Step, channel
from ...base import Method, Steps
from .. import settings
from .csi_lookahead import Lookahead
from .greedy_variance import largest
from .loop import entry_flops

HELD_OUT = 0.2  # share of the rows that judge
A_POINT, AHEAD = 125.0, 45.0  # calls: a point joins and the look-ahead follows; a row is looked ahead at


class Trial(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    tried: int  # points of the grid
    inducing: Tensor  # [m] rows of the best trial
    theta: Tensor  # [p] of the best trial
    error: float  # its SMSE on the rows held out


class Tried(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str  # "start" | "grid" | "fit"
    objective: float
    tried: float = math.nan
    scale: float = math.nan
    noise: float = math.nan


class CSI(Method):
    """Kernel ridge regression on a partial Cholesky factor that looks at the targets, tuned by validation."""

    key: ClassVar[str] = "csi"
    title: ClassVar[str] = "CSI kernel ridge"
    family: ClassVar[str] = "inducing"
    paper: ClassVar[str] = "Bach & Jordan (2005). Predictive low-rank decomposition for kernel methods. ICML."
    State: ClassVar[type] = Trial
    Info: ClassVar[type] = Tried
    equations: ClassVar[dict[str, str]] = {
        "weight": r"J(L) = \kappa\,\frac{\min_w |y-Lw|^2}{|y|^2} + (1-\kappa)\,"
        r"\frac{\operatorname{tr}(K-LL^\top)}{\operatorname{tr}K}",
        "num_inducing": r"K \approx LL^\top,\quad L \in \mathbb{R}^{n\times m}",
    }
    channels: ClassVar[tuple[Channel, ...]] = (
        channel("objective", "validation SMSE, the best so far", monotone=True),
        channel("tried", "validation SMSE of this trial"),
        channel("scale", "lengthscales, times their start", log=True),
        channel("noise", "noise sd, times its start", log=True),
    )

    num_inducing = settings.num_inducing()
    num_ahead = param.Integer(
        40, bounds=(1, None), softbounds=(5, 100), doc="Look-ahead pivots: more see the gains better, at their square."
    )
    weight = param.Number(
        0.99, bounds=(0.0, 1.0), doc="Weight of the targets in choosing pivots; 0 looks at the inputs alone."
    )
    grid_size = param.Integer(
        5, bounds=(1, 99), softbounds=(1, 9), doc="Values tried for the noise, and as many for the lengthscales."
    )
    grid_factor = param.Number(
        2.0, bounds=(1.0, 1e6), inclusive_bounds=(False, True), softbounds=(1.2, 4.0), doc="Ratio of neighbours."
    )

    def steps(self, problem: Problem, resume: Trial | None = None) -> Steps:
        state = resume
        if state is None:
            none = torch.zeros(0, dtype=torch.int64, device=problem.train.y.device)
            state = Trial(0, 0, none, problem.theta.clone(), math.inf)
            yield Step(state, Tried("start", math.nan))
        grid = self._grid(problem)

        for scale, noise in grid[state.tried :]:
            theta = self._moved(problem, scale, noise)
            rows, error = self._judged(problem, theta)
            state = state._replace(step=state.step + 1, tried=state.tried + 1)
            if error < state.error:
                state = state._replace(inducing=rows, theta=theta, error=error)
            yield Step(state, Tried("grid", state.error, error, scale, noise))

        if state.step == len(grid):
            every = torch.arange(len(problem.train), device=problem.train.y.device)
            state = state._replace(step=state.step + 1, inducing=self._chosen(problem, state.theta, every))
            yield Step(state, Tried("fit", state.error))
        message = (
            f"All {len(grid)} settings are tried; the best, with SMSE {state.error:.4g} on held-out rows, is fitted."
        )
        return Outcome("converged", message)

    def _grid(self, problem: Problem) -> list[tuple[float, float]]:
        """Factors of the lengthscales (where the kernel has any) and of the noise, the middle being the start."""
        values = [self.grid_factor ** (k - self.grid_size // 2) for k in range(self.grid_size)]
        return list(product(values if _lengthscales(problem) else [1.0], values))

    def _moved(self, problem: Problem, scale: float, noise: float) -> Tensor:
        theta = problem.theta.clone()
        theta[_lengthscales(problem)] += math.log(scale)
        theta[-1] += math.log(noise)
        return theta

    def _judged(self, problem: Problem, theta: Tensor) -> tuple[Tensor, float]:
        """Rows chosen on the fitting part, and the SMSE of their ridge regression on the part held out."""
        n, train = len(problem.train), problem.train
        order = torch.randperm(n, generator=generator(self.seed, "held out")).to(train.y.device)
        held = max(1, round(HELD_OUT * n))
        test, fitting = order[:held], order[held:]
        rows = self._chosen(problem, theta, fitting)
        predict = self._ridge(problem, theta, rows, fitting)
        y = train.y[test]
        spread = float((y - train.y[fitting].mean()).square().mean())
        return rows, float((y - predict(train.rows(test).X).mean).square().mean()) / max(spread, 1e-300)

    def _chosen(self, problem: Problem, theta: Tensor, among: Tensor) -> Tensor:
        """Up to m rows, by looking ahead."""
        m = min(self.num_inducing, len(among))
        factor = Lookahead(problem.kernel, theta, problem.train.rows(among), m, self.num_ahead)
        while len(factor.rows) < m:
            gains = factor.gains(self.weight)
            if float(gains.max()) == -math.inf:
                break
            factor.add(largest(gains, self.seed, len(factor.rows)))
        return among[factor.rows]

    def _ridge(self, problem: Problem, theta: Tensor, rows: Tensor, on: Tensor) -> Posterior:
        """Ridge regression on the factor's columns: the mean of projected process, its noise the ridge."""
        Z = problem.train.rows(rows).X
        return nystrom_posterior(problem.kernel, theta, Z, nystrom(problem.kernel, theta, problem.train.rows(on), Z))

    def posterior(self, problem: Problem, state: Trial) -> Posterior:
        if len(state.inducing) == 0:
            y = problem.train.y
            return lambda X: Prediction(y.new_zeros(len(X)), problem.kernel.diag(state.theta, X))
        every = torch.arange(len(problem.train), device=problem.train.y.device)
        return self._ridge(problem, state.theta, state.inducing, every)

    def cost(self, problem: Problem) -> Cost:
        n, s = (1.0 - HELD_OUT) * len(problem.train), problem.train.y.element_size()
        m, a = min(self.num_inducing, int(n)), min(self.num_ahead, int(n))
        a_point = n * a * (1.0 * m + 12.0 * a) + 4.0 * n * m + 2.0 * n * entry_flops(problem)
        arrays = {"factors L and Q": 2.0 * s * n * m, "look-ahead W": 3.0 * s * n * a}
        calls = A_POINT * m + AHEAD * a
        return Cost(m * a_point + 2.0 * n * m * m, 8.0 * s * n * (m + a) * m, arrays, calls)


def _lengthscales(problem: Problem) -> list[int]:
    """Where theta holds lengthscales."""
    return [i for i, name in enumerate(problem.kernel.names) if "lengthscale" in name]
