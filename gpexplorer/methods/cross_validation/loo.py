"""Closed-form leave-one-out: n folds for the price of one inverse, still n^3.

P = (K + s2 I)^-1,  a = P y,  q = diag P
y_i - mean_i = a_i / q_i,  var_i = 1 / q_i                           Rasmussen and Williams (2006), eq 5.12
squared error     F = sum a_i^2 / q_i^2           F_a = 2 a / q^2     F_q = -2 a^2 / q^3
log probability   F = sum (a_i^2 / q_i - log q_i) / 2    F_a = a / q  F_q = -(a^2 / q^2 + 1 / q) / 2
dF/dK = -a (P F_a)' - P diag(F_q) P           one product for all hyperparameters, where eq 5.13 has one each

Squared errors know no scale: multiply every sd and the noise by c, and no mean moves. The c with which the residuals
have the variance they claim, mean(a_i^2 / q_i) = 1, is put into theta afterwards.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ...linalg.cholesky import cholesky
from ...objectives import noise_variance
from ...problem import Channel, Cost, Dataset, Posterior, Problem, channel
from ..base import Method, Steps
from . import settings
from .costs import dense_cost
from .exact_posterior import posterior
from .learning import Info as Report
from .learning import Objective, learn
from .learning import State as At

SQUARED, PROBABILITY = "squared error", "log probability"


class LeaveOneOut(Method):
    """The exact GP, hyperparameters that predict every row best from all others."""

    key: ClassVar[str] = "loo"
    title: ClassVar[str] = "Leave-one-out"
    family: ClassVar[str] = "cross_validation"
    paper: ClassVar[str] = "Sundararajan and Keerthi (2001). Predictive approaches for choosing hyperparameters. NC."
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {
        "criterion": r"\sum_i (y_i-\mu_{-i})^2 = \sum_i \big([C^{-1}y]_i / [C^{-1}]_{ii}\big)^2"
    }
    channels: ClassVar[tuple[Channel, ...]] = (
        channel("objective", "leave-one-out loss", monotone=True),
        channel("slope", "largest slope", log=True),
        channel("scale", "log scale of all sds"),
    )

    criterion: Any = param.Selector(
        default=SQUARED,
        objects=[SQUARED, PROBABILITY],
        doc="Lower the squared error of the left-out rows, or raise their log probability, which minds variances too.",
    )
    calibrate = settings.calibrate()
    optimiser = settings.optimiser()
    evaluations = settings.evaluations()
    tolerance = settings.slope_tolerance()
    restarts = settings.restarts()
    refit = settings.refit()
    memory = settings.memory()

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        def at(theta: Tensor) -> tuple[float, float, Tensor]:
            return left_out(problem.kernel, theta, problem.train, self.criterion)

        free = self.calibrate and self.criterion == SQUARED
        return learn(self, problem, resume, Objective(at, free))

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return posterior(problem, state.theta, self.refit, self.memory)

    def cost(self, problem: Problem) -> Cost:
        return dense_cost(problem, flops=3.0 * len(problem.train) ** 3, matrices=5)


def left_out(kernel: Any, theta: Tensor, train: Dataset, criterion: str) -> tuple[float, float, Tensor]:
    """The loss, the log scale that fits its residuals, and the gradient in theta [p]. 3 n^3 flops."""
    s2 = noise_variance(theta)
    A = kernel(theta, train.X, train.X)
    A.diagonal().add_(s2)
    P = torch.cholesky_inverse(cholesky(A, "K + s2 I").L)  # [n, n]
    a, q = P @ train.y, P.diagonal()
    if criterion == SQUARED:
        value, F_a, F_q = (a / q).square().sum(), 2.0 * a / q.square(), -2.0 * a.square() / q**3
    else:
        value, F_a, F_q = 0.5 * (a.square() / q - q.log()).sum(), a / q, -0.5 * (a.square() / q.square() + 1.0 / q)
    W = -(P * F_q) @ P
    W.addr_(a, P @ F_a, alpha=-1.0)
    gradient = kernel.theta_gradient(theta, train.X, train.X, W)
    gradient[-1] += 2.0 * s2 * W.diagonal().sum()
    return float(value), 0.5 * math.log(float((a.square() / q).mean())), gradient
