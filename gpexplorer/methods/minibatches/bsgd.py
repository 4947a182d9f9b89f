"""BSGD: steepest descent on the likelihood of the minibatch alone, as if there were no other rows.

    l(theta; S) = y_S' (K_SS + s2 I)^-1 y_S + log |K_SS + s2 I|                              section 4.2
    dl/dPhi_S / 2 = (A^-1 - a a') Phi_S,   A = Phi_S Phi_S' + s2 I,   a = A^-1 y_S           appendix A.3

Its mean over minibatches is not the gradient of l: with few rows the log determinant weighs too little.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from ...linalg.cholesky import cholesky
from ...problem import Cost, Problem
from . import settings
from .costs import cost, factored
from .exact_likelihood import Exact
from .gradients import Point
from .learner import Learner
from .loop import Minibatches
from .model import Model
from .state import State


class BSGD(Minibatches):
    """Biased stochastic gradients: each minibatch is taken for the whole."""

    key: ClassVar[str] = "bsgd"
    title: ClassVar[str] = "BSGD"
    paper: ClassVar[str] = (
        "Chen, Zheng, Al Kontar and Raskutti (2020). Stochastic gradient descent in correlated settings. NeurIPS."
    )

    batch_size = settings.batch_size()

    def learner(self, model: Model, state: State) -> Learner:
        return _Learner(self, model, state)

    def cost(self, problem: Problem) -> Cost:
        model, b = Model(self, problem, self.validation), min(self.batch_size, len(problem.train))
        return cost(self, model, factored(b) + 4.0 * b * b * model.D, matrices=0, calls=41.0)


class _Learner(Learner):
    def begin(self, state: State) -> Point:
        theta = state.theta if state.batches else self.model.matched(state.theta)
        return Point(self.model, state.w, theta)

    def matrices(self) -> tuple[Tensor, ...]:
        return ()

    def gap(self, now: Exact) -> tuple[float, float]:
        return math.nan, math.nan

    def gradient(self, index: Tensor, t: int) -> float:
        point = self.point
        X, y = self.model.rows(index)
        at, b = self.model.features(point.parts, X), len(y)

        A = torch.mm(at.Phi, at.Phi.T)
        A.diagonal().add_(point.s2())
        L, info = torch.linalg.cholesky_ex(A)
        if int(info):
            L = cholesky(A, "K_SS + s2 I").L
        a = torch.cholesky_solve(y[:, None], L)[:, 0]  # [b]
        value = (torch.dot(y, a).item() + 2.0 * L.diagonal().log().sum().item()) / b

        W = torch.cholesky_inverse(L).addr_(a, a, alpha=-1.0)  # [b, b]
        self.model.pullback(point.parts, at, torch.mm(W, at.Phi).mul_(1.0 / b), point.into)
        point.into[-1].fill_(point.s2() * W.trace().item() / b)
        return value
