"""SVGP by GPyTorch: inducing inputs and a variational normal, whose bound is a sum over rows (Hensman et al. 2013).

    log p(y) >= sum_i E_q log N(y_i | f_i, s2) - KL(q(u) || p(u)),    q(u) = N(L m, L S L'),  L L' = K_mm
    mean = a'm,   var = k(x, x) - a'a + a'S a,   a = L^-1 k_m(x)

It uses the network, the minibatches and the optimiser of the other methods of this family, and as many inducing inputs
as a minibatch has rows.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ...features.deep import views
from ...linalg.blocks import row_blocks
from ...linalg.cholesky import cholesky
from ...linalg.randomness import generator
from ...problem import Cost, Posterior, Prediction, Problem
from . import settings
from .costs import feature_flops, step_cost
from .exact_likelihood import exact_posterior
from .gpytorch_svgp import VariationalBound, covariance, variance
from .gradients import Parameters
from .learner import Learner
from .loop import Minibatches
from .model import Model
from .state import State

JITTER = {torch.float32: 1e-4, torch.float64: 1e-6}  # on K_mm, as in GPyTorch
OVERHEAD = 2.0  # GPyTorch's Python code between two operations takes as long as an operation


class SVGP(Minibatches):
    """Stochastic variational inference with inducing inputs, on the same features as the other methods.

    Notes
    -----
    A minibatch of b rows with D features costs 20 b^3 + 24 b^2 D flops and passes the network twice.
    """

    key: ClassVar[str] = "svgp"
    title: ClassVar[str] = "SVGP (GPyTorch)"
    paper: ClassVar[str] = "Hensman, Fusi and Lawrence (2013). Gaussian processes for big data. UAI."
    conjugate: ClassVar[bool] = False

    batch_size = settings.batch_size()

    def learner(self, model: Model, state: State) -> Learner:
        return SVGPLearner(self, model, state, self.batch_size)

    def posterior(self, problem: Problem, state: State) -> Posterior:
        model = Model(self, problem)
        if not state.batches:
            return exact_posterior(model, state.theta)
        learning_rows = Model(self, problem, self.validation).n
        Z, m, S = views(state.w, shapes(model, min(self.batch_size, learning_rows)))
        K_mm, like = covariance(model, state.theta, Z, Z), state.theta
        K_mm.diagonal().add_(JITTER[K_mm.dtype])
        L, S = cholesky(K_mm, "K_mm").L, S.tril()

        def predict(X: Any) -> Prediction:
            mean, var = like.new_empty(len(X)), like.new_empty(len(X))
            for rows in row_blocks(len(X), 8 * like.element_size() * (len(Z) + model.D)):
                X_block = X[rows].to(like)
                a = torch.linalg.solve_triangular(L, covariance(model, state.theta, Z, X_block), upper=False)  # [m, b]
                mean[rows] = a.T @ m
                residual = (variance(model, state.theta, X_block) - a.square().sum(0)).clamp_min(0.0)
                var[rows] = residual + (S.T @ a).square().sum(0)
            return Prediction(mean, var)

        return predict

    def cost(self, problem: Problem) -> Cost:
        model = Model(self, problem, self.validation)
        b = min(self.batch_size, model.n)
        inducing = 3.0 * b * feature_flops(model)  # the inducing inputs pass the network as well
        algebra = inducing + 20.0 * b**3 + 24.0 * b * b * model.D
        return step_cost(self, model, self.batch_size, algebra=algebra, matrices=0, calls=OVERHEAD * 190.0)


def shapes(model: Model, m: int) -> list[tuple[int, ...]]:
    """Return the shapes of inducing inputs, variational mean and factor, in their order in the vector w."""
    return [(m, model.problem.train.d), (m,), (m, m)]


class SVGPLearner(Learner):
    """One minibatch of SVGP."""

    closed = False  # GPyTorch computes the gradient by autograd

    def begin(self, state: State) -> Parameters:
        model, m = self.model, self.rows.size
        if state.batches:
            w, theta = state.w, state.theta
        else:
            theta = model.matched(state.theta)
            rows = torch.randperm(model.n, generator=generator(self.seed, "inducing"))[:m]
            w = torch.cat([model.rows(rows)[0].flatten(), theta.new_zeros(m), torch.eye(m).to(theta).flatten()])
        parameters = Parameters(model, w, theta)
        self.bound = VariationalBound(model, parameters.theta, views(parameters.w, shapes(model, m)))
        return parameters

    def gradient(self, index: Tensor, t: int) -> float:
        value, gradients = self.bound(*self.model.rows(index))
        torch.cat([gradient.flatten() for gradient in gradients], out=self.parameters.g)
        return value.item()
