"""What rivals that choose rows one at a time share: points first, then hyperparameters on the same objective."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from ....problem import Channel, Cost, Posterior, Problem
from ...base import Method, Steps
from .. import settings
from .loop import CHANNELS, Chooser, choose_and_learn, choosing_cost, plan, set_posterior
from .loop import Info as Report
from .loop import State as At


class Choosing(Method):
    """Settings and steps; a subclass says which row comes next, and whether learning is followed by choosing anew."""

    family: ClassVar[str] = "inducing"
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    num_inducing = settings.num_inducing()
    objective = settings.objective()
    learn = settings.learn()
    optimiser = settings.optimiser()
    evaluations = settings.evaluations()
    max_epochs = settings.max_epochs()
    tolerance = settings.tolerance()

    @abstractmethod
    def rule(self, problem: Problem, theta: Tensor) -> Chooser:
        """The rule of one round of choosing, under this theta."""

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        return choose_and_learn(problem, resume, plan(self), self.rule)

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return set_posterior(problem, state)

    def cost(self, problem: Problem) -> Cost:
        return choosing_cost(problem, self.num_inducing, 0)
