"""Random rows as inducing points: the baseline that any choice has to beat."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from ...problem import Channel, Cost, Posterior, Problem
from ..base import Method, Steps
from . import settings
from .growth import Growing
from .sets import CHANNELS, Chooser, choose_and_learn, choosing_cost, plan, random_order, set_posterior
from .sets import Info as Report
from .sets import State as At


class Random(Method):
    """Rows drawn at random, passing over those already explained; then hyperparameters on the same objective."""

    key: ClassVar[str] = "random"
    title: ClassVar[str] = "Random rows"
    family: ClassVar[str] = "cholqr"
    paper: ClassVar[str] = "Cao et al. (2013). Efficient optimization for sparse Gaussian process regression. NIPS."
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {"num_inducing": r"\hat K = K_{nm} K_{mm}^{-1} K_{mn}"}
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    num_inducing = settings.num_inducing()
    objective = settings.objective()
    learn = settings.learn()
    optimiser = settings.optimiser()
    evaluations = settings.evaluations()
    max_epochs = settings.max_epochs()
    tolerance = settings.tolerance()

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        return choose_and_learn(problem, resume, plan(self), lambda task, _: in_order(random_order(task, self.seed)))

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return set_posterior(problem, state)

    def cost(self, problem: Problem) -> Cost:
        return choosing_cost(problem, self.num_inducing, 0)


def in_order(order: Tensor) -> Chooser:
    """The rule that takes rows in this order, passing over those that the rows before them explain."""

    def choose(model: Growing, _: int) -> int:
        left = order[model.eligible[order]]
        return int(left[0]) if len(left) else -1

    return choose
