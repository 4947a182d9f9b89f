"""SVGP: inducing inputs and a variational normal, whose bound is a sum over rows; by GPyTorch (Hensman et al. 2013).

    log p(y) >= sum_i E_q log N(y_i | f_i, s2) - KL(q(u) || p(u)),    q(u) = N(L m, L S L'),  L L' = K_mm
    mean = a'm,   var = k(x, x) - a'a + a'S a,   a = L^-1 k_m(x)

The same network, minibatch and optimiser as the methods beside it; as many inducing inputs as a minibatch has rows.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...features.deep import views
from ...linalg.blocks import row_blocks
from ...linalg.cholesky import cholesky
from ...linalg.randomness import generator
from ...problem import Cost, Posterior, Prediction, Problem
from . import settings
from .costs import cost, forward
from .exact_likelihood import Exact, exact_posterior
from .gpytorch_svgp import Engine, covariance, variance
from .gradients import Point
from .learner import Learner
from .loop import Minibatches
from .model import Model
from .state import State

JITTER = {torch.float32: 1e-4, torch.float64: 1e-6}  # GPyTorch's, on K_mm

LAYERS = 2.0  # GPyTorch's Python between two operations takes as long as the operation


class SVGP(Minibatches):
    """Stochastic variational inference with inducing inputs, on the same features."""

    key: ClassVar[str] = "svgp"
    title: ClassVar[str] = "SVGP (GPyTorch)"
    paper: ClassVar[str] = "Hensman, Fusi and Lawrence (2013). Gaussian processes for big data. UAI."

    batch_size = settings.batch_size()

    def learner(self, model: Model, state: State) -> Learner:
        return _Learner(self, model, state)

    def posterior(self, problem: Problem, state: State) -> Posterior:
        model = Model(self, problem)
        if not state.batches:
            return exact_posterior(model, state.theta)
        learned = Model(self, problem, self.validation).n  # rows; there are no more inducing inputs than these
        Z, m, S = views(state.w, shapes(model, min(self.batch_size, learned)))
        K, like = covariance(model, state.theta, Z, Z), state.theta
        K.diagonal().add_(JITTER[K.dtype])
        L, S = cholesky(K, "K_mm").L, S.tril()

        def predict(X: Any) -> Prediction:
            mean, var = like.new_empty(len(X)), like.new_empty(len(X))
            for rows in row_blocks(len(X), 8 * like.element_size() * (len(Z) + model.D)):
                here = X[rows].to(like)
                a = torch.linalg.solve_triangular(L, covariance(model, state.theta, Z, here), upper=False)
                mean[rows] = a.T @ m
                unseen = (variance(model, state.theta, here) - a.square().sum(0)).clamp_min(0.0)
                var[rows] = unseen + (S.T @ a).square().sum(0)
            return Prediction(mean, var)

        return predict

    def cost(self, problem: Problem) -> Cost:
        model = Model(self, problem, self.validation)
        b = min(self.batch_size, model.n)
        inducing = 3.0 * b * forward(model)  # forward and back once more
        return cost(self, model, inducing + 20.0 * b**3 + 24.0 * b * b * model.D, matrices=0, calls=LAYERS * 190.0)


def shapes(model: Model, m: int) -> list[tuple[int, ...]]:
    """Inducing inputs, mean and factor, as they lie in w."""
    return [(m, model.problem.train.d), (m,), (m, m)]


class _Learner(Learner):
    closed = False

    def begin(self, state: State) -> Point:
        model, m = self.model, self.rows.size
        if state.batches:
            w, theta = state.w, state.theta
        else:
            theta = model.matched(state.theta)
            drawn = torch.randperm(model.n, generator=generator(self.method.seed, "inducing"))[:m]
            w = torch.cat([model.rows(drawn)[0].flatten(), theta.new_zeros(m), torch.eye(m).to(theta).flatten()])
        point = Point(model, w, theta)
        self.engine = Engine(model, point.theta, views(point.w, shapes(model, m)))
        return point

    def matrices(self) -> tuple[Tensor, ...]:
        return ()

    def gap(self, now: Exact) -> tuple[float, float]:
        return math.nan, math.nan

    def gradient(self, index: Tensor, t: int) -> float:
        value, slopes = self.engine.bound(*self.model.rows(index))
        torch.cat([slope.flatten() for slope in slopes], out=self.point.g)
        return value.item()
