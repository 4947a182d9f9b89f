"""Greedy conditional variance: the next inducing point is the row that the points so far explain least.

    j = argmax D,   D = diag(K - Khat)

This is pivoted Cholesky. The targets are never looked at (Fine and Scheinberg 2001; Burt, Rasmussen and van der Wilk
2020, whose bounds make it the usual choice today).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ....linalg.randomness import generator
from ....problem import Problem
from .. import settings
from .greedy import Choosing
from .growing_gp import Growing
from .loop import Chooser

TIE = 1e-9  # variances this close, relatively, are equal


class GreedyVariance(Choosing):
    """The row with the largest conditional variance, one after another; ties are broken at random."""

    key: ClassVar[str] = "greedy-variance"
    title: ClassVar[str] = "Greedy conditional variance"
    paper: ClassVar[str] = "Burt, Rasmussen & van der Wilk (2020). Convergence of sparse variational inference. JMLR."
    equations: ClassVar[dict[str, str]] = {
        "num_inducing": r"i_{k+1} = \arg\max_j \left[k(x_j,x_j) - \hat K_{jj}\right]"
    }

    again = settings.again()

    def rule(self, problem: Problem, theta: Tensor) -> Chooser:
        return largest_variance(self.seed)


def largest_variance(seed: int) -> Chooser:
    """The rule that takes the row of largest conditional variance."""

    def choose(model: Growing, epoch: int) -> int:
        if not bool(model.eligible.any()):
            return -1
        return largest(model.D.where(model.eligible, 0.0), seed, epoch, len(model.rows))

    return choose


def largest(values: Tensor, seed: int, *place: int) -> int:
    """Where the largest of these values [n] is; one of them at random where several are equal to rounding."""
    top = float(values.max())
    tied = torch.nonzero(values >= top - TIE * abs(top))[:, 0]
    if len(tied) == 1:
        return int(tied[0])
    return int(tied[int(torch.randint(len(tied), (1,), generator=generator(seed, "ties", *place)))])
