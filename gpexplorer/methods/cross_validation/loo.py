"""Leave-one-out in closed form: n folds for the cost of one inverse, which is still n^3.

    P = (K + s2 I)^-1 [n, n],   a = P y [n],   q = diag P [n]
    y_i - mean_i = a_i / q_i,   var_i = 1 / q_i                          Rasmussen and Williams (2006), eq 5.12
    squared error     F = sum a_i^2 / q_i^2                F_a = 2 a / q^2     F_q = -2 a^2 / q^3
    log probability   F = sum (a_i^2 / q_i - log q_i) / 2  F_a = a / q         F_q = -(a^2 / q^2 + 1 / q) / 2
    dF/dK = -a (P F_a)' - P diag(F_q) P                    one product for all hyperparameters; eq 5.13 has one each

Squared errors do not depend on the scale: multiplying every sd and the noise by c changes no mean. The c for which
the residuals have the variance that is predicted, mean(a_i^2 / q_i) = 1, is added to theta afterwards.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ...linalg.cholesky import cholesky
from ...objectives import noise_derivative, noise_variance
from ...problem import Channel, Cost, Dataset, Problem, channel, channels_of
from . import settings
from .learning import ExactLearning, LearningInfo, Objective, dense_cost

SQUARED, PROBABILITY = "squared error", "log probability"


class LeaveOneOut(ExactLearning):
    """The exact GP with the hyperparameters that predict every row best from all the others.

    References
    ----------
    Sundararajan and Keerthi (2001); Rasmussen and Williams (2006), section 5.4.2.
    """

    key: ClassVar[str] = "loo"
    title: ClassVar[str] = "Leave-one-out"
    paper: ClassVar[str] = "Sundararajan and Keerthi (2001). Predictive approaches for choosing hyperparameters. NC."
    equations: ClassVar[dict[str, str]] = {
        "criterion": r"\sum_i (y_i-\mu_{-i})^2 = \sum_i \big([C^{-1}y]_i / [C^{-1}]_{ii}\big)^2"
    }
    row_noise: ClassVar[tuple[str, ...]] = ("relative",)
    takes_priors: ClassVar[bool] = False
    no_priors_because: ClassVar[str] = "minimises errors of rows left out, which are no likelihood of the data"
    channels: ClassVar[tuple[Channel, ...]] = channels_of(
        LearningInfo, objective=channel("leave-one-out loss", monotone=True)
    )

    criterion: Any = param.Selector(
        default=SQUARED,
        objects=[SQUARED, PROBABILITY],
        doc="Minimise the squared error of the rows left out, or maximise their log probability, which depends on "
        "the variances too.",
    )
    calibrate = settings.calibrate()

    def objective(self, problem: Problem) -> Objective:
        def evaluate(theta: Tensor) -> tuple[float, float, Tensor]:
            return leave_one_out(problem.kernel, theta, problem.train, self.criterion)

        return Objective(evaluate, has_free_scale=self.calibrate and self.criterion == SQUARED)

    def cost(self, problem: Problem) -> Cost:
        return dense_cost(problem, flops=3.0 * len(problem.train) ** 3, matrices=5)


def leave_one_out(kernel: Any, theta: Tensor, train: Dataset, criterion: str) -> tuple[float, float, Tensor]:
    """Compute the loss, the log scale that the residuals imply, and the gradient in theta [p]; 3 n^3 flops."""
    s2 = noise_variance(theta)
    A = kernel(theta, train.X, train.X)  # [n, n]
    A.diagonal().add_(s2)
    P = torch.cholesky_inverse(cholesky(A, "K + s2 I").L)  # [n, n]
    a, q = P @ train.y, P.diagonal()
    if criterion == SQUARED:
        value, F_a, F_q = (a / q).square().sum(), 2.0 * a / q.square(), -2.0 * a.square() / q**3
    else:
        value, F_a, F_q = 0.5 * (a.square() / q - q.log()).sum(), a / q, -0.5 * (a.square() / q.square() + 1.0 / q)
    W = -(P * F_q) @ P  # [n, n] dF/dK
    W.addr_(a, P @ F_a, alpha=-1.0)
    gradient = kernel.theta_gradient(theta, train.X, train.X, W)
    gradient[-1] += noise_derivative(kernel, 2.0 * s2 * W.diagonal().sum())
    return float(value), 0.5 * math.log(float((a.square() / q).mean())), gradient
