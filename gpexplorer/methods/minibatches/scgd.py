"""SCGD: the Gram matrix as a running average over minibatches, and its inverse in the place of the exact one.

    S <- (1 - b_t) S + b_t Phi'Phi / s            F = n S + s2 I with the noise of now         section 3.2, line 2
    theta <- theta - a_t (n / s) sum_S grad [g_i + <F^-1, F_i>]                                section 3.2, line 1

    c <- (1 - b_t) c + b_t Phi'y / s,   w = n F^-1 c     where `head="solve"`

The paper moves theta by the F of the minibatch before; here F takes in its own minibatch first, as in Wang et al.
(2017), so that b_t = 1 with all rows is steepest descent on l itself. The noise in F is not averaged: it is known.

In single precision S and c lose some eps / b_t of their size, however many minibatches there are: 3e-6 by default. That
is far below what drawing the rows costs, unless b_t < 1e-4, where float64 is for.

The paper moves the weights w by their gradient, as part of theta (`head="descend"`). But l is as much a function of F
and Phi'y alone, so that w can be solved for, which saves it from being learned.
"""

from __future__ import annotations

import math
from typing import ClassVar

import param
import torch
from torch import Tensor

from ...problem import Cost, Problem
from . import settings
from .costs import cost, factored
from .exact_likelihood import Exact, exact
from .gradients import Point
from .learner import Learner
from .loop import Minibatches
from .model import Model
from .positive_definite import inverted
from .state import State


class SCGD(Minibatches):
    """Stochastic compositional gradient descent on the marginal likelihood."""

    key: ClassVar[str] = "scgd"
    title: ClassVar[str] = "SCGD"
    equations: ClassVar[dict[str, str]] = {
        **Minibatches.equations,
        "averaging": r"\tilde F_{t+1} = (1-b_t)\,\tilde F_t + b_t\,\tfrac{n}{s}\textstyle\sum_{i\in S} F_i",
    }

    batch_size = settings.batch_size()
    averaging = param.Number(
        0.02,
        bounds=(0.0, 1.0),
        inclusive_bounds=(False, True),
        doc="Weight b_0 of a new minibatch in the averages: 0.9 in the paper; 1 / b_0 of them should exceed D rows.",
    )
    averaging_decay = param.Number(
        0.0, bounds=(0.0, 1.0), doc="Power p of the schedule b_t = b_0 (1 + t / epoch)^-p; 1/2 is proved to converge."
    )
    head: str = param.Selector(  # type: ignore[assignment]
        default="solve",
        objects=["solve", "descend"],
        doc="Weights w of the features: solved for by running averages, or moved by their gradient as in the paper.",
    )
    refresh = settings.refresh()

    def learner(self, model: Model, state: State) -> Learner:
        return _Learner(self, model, state)

    def cost(self, problem: Problem) -> Cost:
        model = Model(self, problem, self.validation)
        b = min(self.batch_size, model.n)
        return cost(self, model, factored(model.D) + 4.0 * b * model.D**2, matrices=3, calls=46.0)


class _Learner(Learner):
    S: Tensor  # [D, D] running Phi'Phi / n
    c: Tensor  # [D] running Phi'y / n

    def begin(self, state: State) -> Point:
        method = self.method
        self.b_0, self.b_decay, self.solved = method.averaging, method.averaging_decay, method.head == "solve"
        self.refresh = method.refresh
        if state.matrices:
            self.S, self.c = (part.clone() for part in state.matrices)
            return Point(self.model, state.w, state.theta)
        theta = self.model.matched(state.theta)
        now = exact(self.model, theta)
        self.S, self.c = self._exactly(now)
        return Point(self.model, now.w, theta)

    def _exactly(self, now: Exact) -> tuple[Tensor, Tensor]:
        """Both averages as one pass over all rows finds them: Phi'y = F w there."""
        S, w = now.gram / self.model.n, now.w.double()
        return S.to(now.w), (S @ w + (now.s2 / self.model.n) * w).to(now.w)

    def matrices(self) -> tuple[Tensor, ...]:
        return self.S.clone(), self.c.clone()

    def gap(self, now: Exact) -> tuple[float, float]:
        return float((self.S * self.model.n - now.gram).norm() / now.gram.norm()), math.nan

    def before(self, t: int) -> None:
        if self.refresh and t and t % self.refresh == 0:
            S, c = self._exactly(exact(self.model, self.point.theta))
            self.S.copy_(S), self.c.copy_(c)

    def gradient(self, index: Tensor, t: int) -> float:
        model, point = self.model, self.point
        X, y = model.rows(index)
        at = model.features(point.parts, X)

        b_t = self.b_0 * (1.0 + t / self.rows.per_epoch) ** -self.b_decay
        self.S.addmm_(at.Phi.T, at.Phi, beta=1.0 - b_t, alpha=b_t / len(y))
        M, logdet = inverse(self.S, model.n, point.s2())

        if self.solved:
            self.c.addmv_(at.Phi.T, y, beta=1.0 - b_t, alpha=b_t / len(y))
            torch.addmv(point.w, M, self.c, beta=0.0, alpha=model.n, out=point.w)
        fit = point.gradient(at, y, M, solved=self.solved)
        ridge = torch.dot(point.w, point.w).item() + (model.n - model.D) * point.log_s2()
        return fit / len(y) + (ridge + logdet) / model.n


def inverse(S: Tensor, n: int, s2: float) -> tuple[Tensor, float]:
    """F^-1 and log |F| of F = n S + s2 I."""
    F = S * n
    F.diagonal().add_(s2)
    return inverted(F, "running Phi'Phi + s2 I")
