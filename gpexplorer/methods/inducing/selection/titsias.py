"""Titsias' greedy selection: of k random candidates, the one that decreases the exact objective most.

    j = argmax over k candidates of (dE_D + dE_C + dE_V) / 2                     eqs 14-16 of Cao et al. 2013

A candidate costs 4 n m flops, so that k = 512 is slow, while k = 16 looks at a small part of the data (Titsias 2009;
Cao et al. 2013, section 1.1). With k = 0 every row that is left is a candidate.

Apart because it is a published criterion with formulas of its own, one of several ways to choose the first points.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from ....linalg.randomness import generator
from ....problem import Cost, Outcome, Problem
from ...setting_kinds import count
from .. import settings
from .loop import RowRule, RowSelection, SelectionState, choosing_cost
from .streamed_gp import GrowingModel, StreamedGP


class Titsias(RowSelection):
    """Points added one at a time, each the best of k random candidates by the exact objective.

    Parameters
    ----------
    num_candidates : int
        k.
    again : bool
        Whether points are chosen again after each learning phase.
    num_inducing, objective, learn, optimiser, evaluations, max_epochs, tolerance, seed : int or str or bool or float
        Settings of all methods that choose rows one after another.

    Notes
    -----
    4 n m k flops per point.

    References
    ----------
    Titsias (2009). Variational learning of inducing variables in sparse Gaussian processes. AISTATS. Section 3.1.
    """

    key: ClassVar[str] = "titsias"
    title: ClassVar[str] = "Titsias' greedy selection"
    paper: ClassVar[str] = "Titsias (2009). Variational learning of inducing variables in sparse GPs. AISTATS."
    equations: ClassVar[dict[str, str]] = {
        "num_inducing": r"\hat K = K_{nm} K_{mm}^{-1} K_{mn}",
        "num_candidates": r"i_{k+1} = \arg\max_{j\in J}\tfrac12(\Delta E_D + \Delta E_C + \Delta E_V)_j",
    }

    num_candidates = count(
        16,
        (0, 512),
        doc="Candidates evaluated exactly for each point; 0 evaluates every row that is left, at n^2 m.",
    )
    again = settings.again()

    def rule(self, problem: Problem, theta: Tensor) -> RowRule:
        return BestCandidate(self.num_candidates, self.seed)

    def ending(self, problem: Problem, state: SelectionState, objective: float) -> Outcome | None:
        """Return the outcome of the last epoch, and say that its set is the best of few random ones."""
        outcome = super().ending(problem, state, objective)
        if outcome is None or not self.again or not 0 < self.num_candidates < len(problem.train):
            return outcome
        note = (
            f"Each point was the best of {self.num_candidates} random candidates; others may lower it further: "
            "num_candidates = 0 tries all rows."
        )
        return replace(outcome, message=f"{outcome.message} {note}")

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        return choosing_cost(problem, self.num_points(n), self.num_candidates or n)


class BestCandidate(RowRule):
    """Takes the best of `count` random candidates, or of all rows if `count` is 0."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed

    def choose(self, model: GrowingModel, epoch: int) -> int:
        pool = torch.nonzero(model.is_eligible)[:, 0]
        if 0 < self.count < len(pool):
            order = torch.randperm(len(pool), generator=generator(self.seed, "candidates", epoch, len(model.rows)))
            pool = pool[order[: self.count].to(pool.device)]
        return self._best(model, pool)

    def choose_several(self, model: StreamedGP, epoch: int) -> list[int]:
        """Draw candidates without asking which of all rows are eligible, which would take a pass."""
        n, k = len(model.train), len(model.rows)
        if not 0 < self.count < n - k:
            return [self.choose(model, epoch)]
        order = torch.randperm(n - k, generator=generator(self.seed, "candidates", epoch, k)).to(model.rows.device)
        pool = model.rows[:0]
        for part in order.split(max(4096, self.count)):
            eligible = model.eligible_among(_other_rows(model.rows, part))
            pool = torch.cat([pool, eligible])[: self.count]
            if len(pool) == self.count:
                break
        return [self._best(model, pool)]

    @staticmethod
    def _best(model: GrowingModel, pool: Tensor) -> int:
        """Return the candidate with the largest reduction; -1 if there is none."""
        if len(pool) == 0:
            return -1
        reduction = model.reductions(pool)  # [k]
        best = int(reduction.argmax())
        return int(pool[best]) if float(reduction[best]) > -torch.inf else -1


def _other_rows(chosen: Tensor, index: Tensor) -> Tensor:
    """Return the rows that stand at these places among all rows that are not chosen."""
    rows = index.clone()
    for row in chosen.sort().values:
        rows += rows >= row
    return rows
