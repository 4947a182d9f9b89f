"""Titsias' greedy selection: of k random candidates, the one that lowers the objective most, exactly evaluated.

A candidate costs 4 n m flops, so k = 512 is slow and k = 16 sees little of the data (Titsias 2009; Cao et al. 2013,
section 1.1). k = 0 tries every row that is left.
"""

from __future__ import annotations

from typing import ClassVar

import param
import torch
from torch import Tensor

from ....linalg.randomness import generator
from ....problem import Cost, Problem
from .. import settings
from .greedy import Choosing
from .growing_gp import Growing
from .loop import Chooser, choosing_cost


class Titsias(Choosing):
    """Points added one at a time, each the best of k random candidates by the exact objective."""

    key: ClassVar[str] = "titsias"
    title: ClassVar[str] = "Titsias' greedy selection"
    paper: ClassVar[str] = "Titsias (2009). Variational learning of inducing variables in sparse GPs. AISTATS."
    equations: ClassVar[dict[str, str]] = {
        "num_inducing": r"\hat K = K_{nm} K_{mm}^{-1} K_{mn}",
        "num_candidates": r"i_{k+1} = \arg\max_{j\in J}\tfrac12(\Delta E_D + \Delta E_C + \Delta E_V)_j",
    }

    num_candidates = param.Integer(
        16,
        bounds=(0, None),
        softbounds=(0, 512),
        doc="Candidates tried exactly for each point; 0 tries every row that is left, at n^2 m.",
    )
    again = settings.again()

    def rule(self, problem: Problem, theta: Tensor) -> Chooser:
        return best_candidate(self.num_candidates, self.seed)

    def cost(self, problem: Problem) -> Cost:
        return choosing_cost(problem, self.num_inducing, self.num_candidates or len(problem.train))


def best_candidate(count: int, seed: int) -> Chooser:
    """The rule that takes the best of `count` random candidates, or of all where `count` is 0."""

    def choose(model: Growing, epoch: int) -> int:
        pool = torch.nonzero(model.eligible)[:, 0]
        if len(pool) == 0:
            return -1
        if 0 < count < len(pool):
            order = torch.randperm(len(pool), generator=generator(seed, "candidates", epoch, len(model.rows)))
            pool = pool[order[:count].to(pool.device)]
        falls = model.reductions(pool)
        best = int(falls.argmax())
        return int(pool[best]) if float(falls[best]) > -torch.inf else -1

    return choose
