"""The informative vector machine: the next point is the one whose noisy observation would tell most.

    j = argmax 1/2 log(1 + z_j / s2),   z = diag(K - K_I (K_II + s2 I)^-1 K_I')
    u = (k_j - U u_j) / sqrt(z_j + s2),   z <- z - u^2

Lawrence, Seeger and Herbrich (2003). With one noise for all rows the entropy falls most where the variance z is
largest; unlike greedy conditional variance, a chosen row is seen through its noise. Hyperparameters are learned on the
family's objective, as in Cao et al. (2013), section 4.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ....objectives import noise_variance
from ....problem import Cost, Problem
from .. import settings
from .greedy import Choosing
from .greedy_variance import largest
from .growing_gp import Growing
from .loop import Chooser, choosing_cost, entry_flops

NOISY = 35.0  # calls: the noisy factor grows too


class IVM(Choosing):
    """The row whose noisy observation lowers the entropy of the posterior most, one after another."""

    key: ClassVar[str] = "ivm"
    title: ClassVar[str] = "Informative vector machine"
    paper: ClassVar[str] = "Lawrence, Seeger & Herbrich (2003). The informative vector machine. NIPS."
    equations: ClassVar[dict[str, str]] = {
        "num_inducing": r"i_{k+1} = \arg\max_j \tfrac12\log\left(1 + \zeta_j/\sigma^2\right)"
    }

    again = settings.again()

    def rule(self, problem: Problem, theta: Tensor) -> Chooser:
        return Informative(problem, theta, min(self.num_inducing, len(problem.train)), self.seed)

    def cost(self, problem: Problem) -> Cost:
        one, n, s = choosing_cost(problem, self.num_inducing, 0), len(problem.train), problem.train.y.element_size()
        m = min(self.num_inducing, n)
        return one.plus(
            n * (m + entry_flops(problem)), s * n * (0.5 * m + 12.0), NOISY, **{"noisy factor U": 1.0 * s * n * m}
        )


class Informative:
    """The rule of largest variance given noisy observations of the rows so far. Memory n m numbers."""

    def __init__(self, problem: Problem, theta: Tensor, most: int, seed: int) -> None:
        self.problem, self.theta, self.seed = problem, theta, seed
        self.s2, self.seen = noise_variance(theta), 0
        self.z = problem.kernel.diag(theta, problem.train.X)  # [n]
        self.Ut = problem.train.y.new_zeros(most, len(problem.train))  # [m, n]

    def __call__(self, model: Growing, epoch: int) -> int:
        """The next row; observes those that the model gained since the last call."""
        for row in model.rows[self.seen :].tolist():
            self._observe(row)
        if not bool(model.eligible.any()):
            return -1
        return largest(self.z.where(model.eligible, 0.0), self.seed, epoch, self.seen)

    def _observe(self, row: int) -> None:
        """One rank-one update: a kernel column and one read of U."""
        train, k = self.problem.train, self.seen
        X = train.rows(torch.tensor([row], device=self.z.device)).X
        column = self.problem.kernel(self.theta, X, train.X)[0] - self.Ut[:k, row] @ self.Ut[:k]
        u = column / (self.z[row] + self.s2).sqrt()
        self.Ut[k] = u
        self.z.addcmul_(u, u, value=-1.0).clamp_min_(0.0)
        self.seen += 1
