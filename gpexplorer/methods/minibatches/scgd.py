"""SCGD: a running average of minibatch Gram matrices, and its inverse in place of the exact one.

    S <- (1 - b_t) S + b_t Phi'Phi / s            F = n S + s2 I with the current noise        section 3.2, line 2
    theta <- theta - a_t (n / s) sum_S grad [g_i + <F^-1, F_i>]                                section 3.2, line 1

    c <- (1 - b_t) c + b_t Phi'y / s,   w = n F^-1 c     if `head="solve"`

Differences from Shoham and Avron (2025):

* As in the paper, theta is moved by the F of the minibatches before, so that the gradient is exact within sampling at
  the given F. With `gram_update="before"`, F includes the current minibatch, as in Wang et al. (2017). The gradient is
  then biased: by 46 % of its norm at b = 16 and D = 128. Held-out errors of both orders are equal within sampling.
* The noise in F is known and not averaged.
* The paper moves the weights w by their gradient, as part of theta (`head="descend"`). But l depends on w only through
  F and Phi'y, so w can be solved for and does not have to be learned.

In float32, S and c have a relative error of about eps / b_t however many minibatches are taken: 3e-6 by default. That
is much less than the sampling error of the minibatches unless b_t < 1e-4, for which float64 should be used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...linalg.cholesky import inverse_and_logdet
from ...linalg.deferred_reads import Number, number
from ...problem import Cost, Problem
from ..setting_kinds import choice, share
from . import settings
from .exact_likelihood import ExactLikelihood, exact_likelihood
from .gradients import Parameters
from .learner import Learner
from .loop import ADDED_SETTINGS, LikelihoodGradient
from .model import Model, factorisation_flops, step_cost
from .state import MinibatchState


class SCGD(LikelihoodGradient):
    """Stochastic compositional gradient descent on the marginal likelihood.

    Notes
    -----
    A minibatch of b rows with D features costs D^3 + 4 b D^2 flops and the network's forward and backward pass.

    References
    ----------
    Shoham and Avron (2025), section 3.2.
    """

    key: ClassVar[str] = "scgd"
    added_settings: ClassVar[Mapping[str, Any]] = {**ADDED_SETTINGS, "gram_update": "before"}
    title: ClassVar[str] = "SCGD"
    equations: ClassVar[dict[str, str]] = {
        **LikelihoodGradient.equations,
        "averaging": r"\tilde F_{t+1} = (1-b_t)\,\tilde F_t + b_t\,\tfrac{n}{s}\textstyle\sum_{i\in S} F_i",
    }

    batch_size = settings.batch_size()
    averaging = share(
        0.02,
        inclusive=(False, True),
        doc="Weight b_0 of a new minibatch in the averages; 0.9 in the paper. 1 / b_0 minibatches should have D rows.",
    )
    averaging_decay = share(
        0.0, doc="Power p of the schedule b_t = b_0 (1 + t / epoch)^-p; convergence is proved for 1/2."
    )
    head = settings.head(
        "Weights w of the features: solved for with running averages, or moved by their gradient as in the paper."
    )
    gram_update: str = choice(
        ["after", "before"],
        doc="When a minibatch enters the averages: after its gradient was taken, as in the paper, or before (biased).",
    )
    refresh = settings.refresh()

    def learner(self, model: Model, state: MinibatchState) -> Learner:
        return SCGDLearner(self, model, state)

    def stationary_matrices(self, model: Model, exact: ExactLikelihood) -> tuple[Tensor, ...]:
        """Return the running averages at which the method would stay if theta did not move."""
        S, w = exact.gram / model.n, exact.w.double()
        return S.to(exact.w), (S @ w + (exact.s2 / model.n) * w).to(exact.w)  # Phi'y = F w

    def multiplier_norm(self, state: MinibatchState) -> float:
        """Return nan: SCGD has no multiplier."""
        return math.nan

    def cost(self, problem: Problem) -> Cost:
        model = Model(self, problem, self.validation)
        b = min(self.batch_size, model.n)
        algebra = factorisation_flops(model.D) + 4.0 * b * model.D**2
        return step_cost(self, model, self.batch_size, algebra=algebra, matrices=3, calls=46.0)


class SCGDLearner(Learner):
    """One minibatch of SCGD."""

    S: Tensor  # [D, D] running average of Phi'Phi / n
    c: Tensor  # [D] running average of Phi'y / n

    def __init__(self, method: SCGD, model: Model, state: MinibatchState) -> None:
        self.b_0, self.b_decay, self.solved = method.averaging, method.averaging_decay, method.head == "solve"
        self.update_first = method.gram_update == "before"
        self.refresh, self._stationary = method.refresh, method.stationary_matrices
        super().__init__(method, model, state, method.batch_size)

    def begin(self, state: MinibatchState) -> Parameters:
        if state.matrices:
            self.S, self.c = (matrix.clone() for matrix in state.matrices)
            return Parameters(self.model, state.w, state.theta)
        theta = self.model.matched(state.theta)
        exact = exact_likelihood(self.model, theta)
        self.S, self.c = self._stationary(self.model, exact)
        return Parameters(self.model, exact.w, theta)

    def matrices(self) -> tuple[Tensor, ...]:
        return self.S.clone(), self.c.clone()

    def moved(self) -> tuple[Tensor, ...]:
        return (*super().moved(), self.S, self.c)

    def constants(self, t: int) -> tuple[float, ...]:
        return (self.b_0 * (1.0 + t / self.rows.per_epoch) ** -self.b_decay,)

    def gap(self, exact: ExactLikelihood) -> tuple[float, float]:
        return float((self.S * self.model.n - exact.gram).norm() / exact.gram.norm()), math.nan

    def before(self, t: int) -> None:
        if self.refreshes(t):
            S, c = self._stationary(self.model, exact_likelihood(self.model, self.parameters.theta))
            self.S.copy_(S), self.c.copy_(c)

    def gradient(self, index: Tensor, t: int) -> Number:
        model, parameters = self.model, self.parameters
        X, y = model.rows(index)
        tape = model.features(parameters.parts, X)

        if self.update_first:
            self._update_averages(tape.Phi, y, t)
        F_inverse, logdet = running_inverse(self.S, model.n, parameters.s2())
        if self.solved:
            torch.addmv(parameters.w, F_inverse, self.c, beta=0.0, alpha=model.n, out=parameters.w)

        # Section 3.2, line 1: the gradient with this F; the optimiser then moves theta
        fit = parameters.write_gradient(tape, y, F_inverse, solved=self.solved)
        ridge = number(torch.dot(parameters.w, parameters.w)) + (model.n - model.D) * parameters.log_s2()

        if not self.update_first:
            self._update_averages(tape.Phi, y, t)
        return fit / len(y) + (ridge + logdet) / model.n

    def _update_averages(self, Phi: Tensor, y: Tensor, t: int) -> None:
        """Section 3.2, line 2: add the features [b, D] and targets [b] of minibatch t to the running averages."""
        (b_t,) = self.constants(t)
        self.S.addmm_(Phi.T, Phi, beta=1.0 - b_t, alpha=b_t / len(y))
        if self.solved:
            self.c.addmv_(Phi.T, y, beta=1.0 - b_t, alpha=b_t / len(y))


def running_inverse(S: Tensor, n: int, s2: Number) -> tuple[Tensor, Number]:
    """Return F^-1 and log |F| of F = n S + s2 I."""
    F = S * n
    F.diagonal().add_(s2)
    return inverse_and_logdet(F, "running Phi'Phi + s2 I")
