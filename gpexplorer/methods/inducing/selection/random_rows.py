"""Random rows as inducing points: the baseline that any choice has to beat."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from ....problem import Problem
from .greedy import Choosing
from .growing_gp import Growing
from .loop import Chooser, random_order


class Random(Choosing):
    """Rows drawn at random, passing over those already explained; then hyperparameters on the same objective."""

    key: ClassVar[str] = "random"
    title: ClassVar[str] = "Random rows"
    paper: ClassVar[str] = "Cao et al. (2013). Efficient optimization for sparse Gaussian process regression. NIPS."
    equations: ClassVar[dict[str, str]] = {"num_inducing": r"\hat K = K_{nm} K_{mm}^{-1} K_{mn}"}

    def rule(self, problem: Problem, theta: Tensor) -> Chooser:
        return in_order(random_order(problem, self.seed))


def in_order(order: Tensor) -> Chooser:
    """The rule that takes rows in this order, passing over those that the rows before them explain."""

    def choose(model: Growing, _: int) -> int:
        left = order[model.eligible[order]]
        return int(left[0]) if len(left) else -1

    return choose
