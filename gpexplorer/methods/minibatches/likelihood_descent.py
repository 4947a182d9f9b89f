"""Gradient descent on the likelihood itself: on that of the minibatch alone (BSGD), or of all rows (full batch).

BSGD takes each minibatch as if there were no other rows:

    l(theta; S) = y_S' (K_SS + s2 I)^-1 y_S + log |K_SS + s2 I|                              section 4.2
    dl/dPhi_S / 2 = (A^-1 - a a') Phi_S,   A = Phi_S Phi_S' + s2 I,   a = A^-1 y_S           appendix A.3

The mean of this gradient over minibatches is not the gradient of l: with few rows the log determinant has too little
weight.

The full batch is the benchmark for the minibatch methods: the exact likelihood of the same features. One move takes two
passes over the rows: the first computes Phi'Phi and w, the second the gradient. It counts as one epoch.
"""

from __future__ import annotations

from typing import ClassVar

import param
import torch
from torch import Tensor

from ...linalg.cholesky import cholesky, factor
from ...linalg.deferred_reads import Number, happens, number
from ...problem import Cost, Problem
from . import settings
from .exact_likelihood import exact_gradient, exact_likelihood
from .gradients import Parameters
from .learner import Learner
from .loop import LikelihoodGradient
from .model import Model, factorisation_flops, feature_flops, step_cost
from .state import MinibatchState


class BSGD(LikelihoodGradient):
    """Biased stochastic gradient descent: each minibatch is treated as if it were all rows.

    Notes
    -----
    A minibatch of b rows with D features costs b^3 + 4 b^2 D flops and the network's forward and backward pass.
    """

    key: ClassVar[str] = "bsgd"
    title: ClassVar[str] = "BSGD"
    paper: ClassVar[str] = (
        "Chen, Zheng, Al Kontar and Raskutti (2020). Stochastic gradient descent in correlated settings. NeurIPS."
    )

    batch_size = settings.batch_size()

    def learner(self, model: Model, state: MinibatchState) -> Learner:
        return BSGDLearner(self, model, state, self.batch_size)

    def cost(self, problem: Problem) -> Cost:
        model, b = Model(self, problem, self.validation), min(self.batch_size, len(problem.train))
        algebra = factorisation_flops(b) + 4.0 * b * b * model.D
        return step_cost(self, model, self.batch_size, algebra=algebra, matrices=0, calls=41.0)


class LikelihoodLearner(Learner):
    """A learner that keeps its parameters between minibatches, and no matrices."""

    def begin(self, state: MinibatchState) -> Parameters:
        theta = state.theta if state.batches else self.model.matched(state.theta)
        return Parameters(self.model, state.w, theta)


class BSGDLearner(LikelihoodLearner):
    """One minibatch of BSGD."""

    def gradient(self, index: Tensor, t: int) -> Number:
        parameters = self.parameters
        X, y = self.model.rows(index)
        tape, b = self.model.features(parameters.parts, X), len(y)

        A = torch.mm(tape.Phi, tape.Phi.T)  # [b, b] K_SS
        A.diagonal().add_(parameters.s2())
        L, info = factor(A)
        if happens(info):
            L = cholesky(A, "K_SS + s2 I").L
        a = torch.cholesky_solve(y[:, None], L)[:, 0]  # [b]
        value = (number(torch.dot(y, a)) + 2.0 * number(L.diagonal().log().sum())) / b  # section 4.2

        W = torch.cholesky_inverse(L).addr_(a, a, alpha=-1.0)  # [b, b] A^-1 - a a'
        self.model.pullback(parameters.parts, tape, torch.mm(W, tape.Phi).mul_(1.0 / b), parameters.into)
        parameters.into[-1].fill_(parameters.s2() * number(W.trace()) / b)
        return value


class FullBatch(LikelihoodGradient):
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

    def learner(self, model: Model, state: MinibatchState) -> Learner:
        return FullBatchLearner(self, model, state)

    def cost(self, problem: Problem) -> Cost:
        model = Model(self, problem, self.validation)
        algebra = model.n * (4.0 * model.D**2 + feature_flops(model)) + factorisation_flops(model.D)
        return step_cost(self, model, 0, algebra=algebra, matrices=4, calls=90.0)


class FullBatchLearner(LikelihoodLearner):
    """One move by the exact gradient."""

    defers_reads = False

    def gradient(self, index: Tensor, t: int) -> float:
        model, parameters = self.model, self.parameters
        exact = exact_likelihood(model, parameters.theta)
        parameters.w.copy_(exact.w)  # its gradient is zero there, so the optimiser's averages do not move w
        parameters.g[model.D :].copy_(exact_gradient(model, parameters.theta, exact) / model.n)
        return 2.0 * exact.value / model.n
