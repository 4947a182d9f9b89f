"""Gradient descent on the exact likelihood of the same features: the benchmark for the minibatch methods.

One move takes two passes over the rows: the first computes Phi'Phi and w, the second the gradient. It counts as one
epoch.
"""

from __future__ import annotations

from typing import ClassVar

import param
from torch import Tensor

from ...problem import Cost, Problem
from . import settings
from .costs import factorisation_flops, feature_flops, step_cost
from .exact_likelihood import ExactLikelihood, exact_gradient, exact_likelihood
from .gradients import Parameters
from .learner import Learner
from .loop import Minibatches
from .model import Model
from .state import State


class FullBatch(Minibatches):
    """Maximum likelihood of a finite-dimensional kernel by its exact gradient on all rows.

    Notes
    -----
    A move costs 4 n D^2 + D^3 flops and two passes of all rows through the network.
    """

    key: ClassVar[str] = "full-batch"
    title: ClassVar[str] = "Full batch"

    minibatches = param.Integer(
        1, bounds=(1, None), precedence=-1, doc="Without effect, since a minibatch of all rows is an epoch."
    )
    rate = settings.rate(1e-2)

    def learner(self, model: Model, state: State) -> Learner:
        return FullBatchLearner(self, model, state)

    def stationary_matrices(self, model: Model, exact: ExactLikelihood) -> tuple[Tensor, ...]:
        """Return no matrices: the method keeps none between minibatches."""
        return ()

    def cost(self, problem: Problem) -> Cost:
        model = Model(self, problem, self.validation)
        algebra = model.n * (4.0 * model.D**2 + feature_flops(model)) + factorisation_flops(model.D)
        return step_cost(self, model, 0, algebra=algebra, matrices=4, calls=90.0)


class FullBatchLearner(Learner):
    """One move by the exact gradient."""

    defers_reads = False

    def begin(self, state: State) -> Parameters:
        theta = state.theta if state.batches else self.model.matched(state.theta)
        return Parameters(self.model, state.w, theta)

    def gradient(self, index: Tensor, t: int) -> float:
        model, parameters = self.model, self.parameters
        exact = exact_likelihood(model, parameters.theta)
        parameters.w.copy_(exact.w)  # its gradient is zero there, so the optimiser's averages do not move w
        parameters.g[model.D :].copy_(exact_gradient(model, parameters.theta, exact) / model.n)
        return 2.0 * exact.value / model.n
