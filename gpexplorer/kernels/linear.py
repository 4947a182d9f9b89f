"""The linear kernel: Bayesian linear regression with an intercept.

    k(x, z) = bias^2 + sum_q v_q^2 x_q z_q

Rasmussen and Williams (2006), section 2.1 and eq 4.28. The kernel depends on the origin of X, so it is not stationary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..problem import Dataset
from .base import Covariance, OneInput, Theta, constant, target_sd


class Linear(Covariance):
    """Linear kernel with one slope variance: theta = [log bias sd, log slope sd, log noise sd]."""

    key, title = "linear", "linear"
    formula = r"\sigma_b^2 + \sum_q v_q^2 x_q x_q'"
    ard: ClassVar[bool] = False  # one slope variance per input

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The standard deviation of the bias, then that of the slope, or of d slopes."""
        return ("bias sd", *([f"slope sd {i + 1}" for i in range(self.d)] if self.ard else ["slope sd"]))

    def __call__(self, theta: Theta, X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the rows of X and Z; 2 n m d flops."""
        return torch.exp(2.0 * theta[0]) + (X * torch.exp(2.0 * theta[1 : self.size])) @ Z.T

    def diag(self, theta: Theta, X: Tensor) -> Float[Tensor, " n"]:
        """Prior variance bias^2 + sum_q v_q^2 x_q^2 [n] of each row."""
        return torch.exp(2.0 * theta[0]) + (X.square() * torch.exp(2.0 * theta[1 : self.size])).sum(1)

    def random_features(self, theta: Theta, count: int, draw: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Random straight lines: bias and slopes are normal with the standard deviations of the kernel."""
        normal = torch.randn(1 + self.d, count, generator=draw, dtype=torch.float64)
        sds = theta[: self.size].double().cpu().exp()
        bias, slopes = sds[0] * normal[0], sds[1:, None] * normal[1:]  # [count], [d, count]
        return lambda X: torch.addmm(bias.to(X.device), X.double(), slopes.to(X.device))

    def terms(self, theta: Theta) -> list[list[OneInput]]:
        """The bias, and one product per input that is constant in all others."""

        def scaled(log_sd: Tensor, f: OneInput) -> OneInput:
            return lambda x, z: torch.exp(2.0 * log_sd) * f(x, z)

        slopes = theta[1 : self.size].expand(self.d)
        bias = [scaled(theta[0], constant), *[constant] * (self.d - 1)]
        by_slope = [
            [scaled(slopes[q], torch.outer) if r == q else constant for r in range(self.d)] for q in range(self.d)
        ]
        return [bias, *by_slope]

    def initial_values(self, train: Dataset) -> list[float]:
        """Slopes with which all inputs together explain the variance of the targets."""
        sd = target_sd(train)
        magnitudes = train.X.square().mean(0).sqrt().clamp_min(1e-6 * sd).tolist()
        slopes = [math.log(sd / (math.sqrt(self.d) * magnitude)) for magnitude in magnitudes]
        return [math.log(sd), *(slopes if self.ard else [sum(slopes) / len(slopes)])]


class LinearARD(Linear):
    """Linear kernel with one slope variance per input."""

    key, title, ard = "linear-ard", "linear, ARD", True
