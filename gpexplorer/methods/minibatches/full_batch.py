"""The exact gradient of the likelihood on the same features: what the minibatches are measured against.

One move takes two passes over the rows: Phi'Phi and w, then the gradient. It counts as an epoch.
"""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor

from ...problem import Cost, Problem
from . import settings
from .costs import cost, factored, forward
from .exact_likelihood import Exact, exact, exact_gradient
from .gradients import Point
from .learner import Learner
from .loop import Minibatches
from .model import Model
from .state import State


class FullBatch(Minibatches):
    """Maximum likelihood of a finite kernel by its exact gradient, all rows at a time."""

    key: ClassVar[str] = "full-batch"
    title: ClassVar[str] = "Full batch"

    minibatches = settings.minibatches(1)
    rate = settings.rate(1e-2)

    def learner(self, model: Model, state: State) -> Learner:
        return _Learner(self, model, state)

    def cost(self, problem: Problem) -> Cost:
        model = Model(self, problem, self.validation)
        passes = model.n * (4.0 * model.D**2 + forward(model)) + factored(model.D)
        return cost(self, model, passes, matrices=4, calls=90.0)


class _Learner(Learner):
    def begin(self, state: State) -> Point:
        theta = state.theta if state.batches else self.model.matched(state.theta)
        return Point(self.model, state.w, theta)

    def matrices(self) -> tuple[Tensor, ...]:
        return ()

    def gap(self, now: Exact) -> tuple[float, float]:
        return math.nan, math.nan

    def gradient(self, index: Tensor, t: int) -> float:
        model, point = self.model, self.point
        now = exact(model, point.theta)
        point.w.copy_(now.w)  # the gradient in w is zero there, so that no average of it moves w
        point.g[model.D :].copy_(exact_gradient(model, point.theta, now) / model.n)
        return 2.0 * now.value / model.n
