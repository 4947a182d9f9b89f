"""The linear kernel: Bayesian linear regression, and what a trend is made of.

k(x, z) = bias^2 + sum_q v_q^2 x_q z_q
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..problem import Dataset
from .base import Covariance, target_sd


class Linear(Covariance):
    """theta = [log bias sd, log slope sd, log noise sd]; the origin of X matters here, and only here."""

    key, title = "linear", "linear"
    formula = r"\sigma_b^2 + \sum_q v_q^2 x_q x_q'"
    ard: ClassVar[bool] = False

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """bias sd, then one slope sd or d of them."""
        return ("bias sd", *([f"slope sd {i + 1}" for i in range(self.d)] if self.ard else ["slope sd"]))

    def __call__(self, theta: Float[Tensor, " p"], X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m]; 2 n m d flops."""
        return torch.exp(2.0 * theta[0]) + (X * torch.exp(2.0 * theta[1 : self.size])) @ Z.T

    def diag(self, theta: Float[Tensor, " p"], X: Tensor) -> Float[Tensor, " n"]:
        """bias^2 + sum_q v_q^2 x_q^2 [n]."""
        return torch.exp(2.0 * theta[0]) + (X.square() * torch.exp(2.0 * theta[1 : self.size])).sum(1)

    def initial_values(self, train: Dataset) -> list[float]:
        """Slopes such that the inputs together explain the target's variance."""
        sd = target_sd(train)
        sizes = train.X.square().mean(0).sqrt().clamp_min(1e-6 * sd).tolist()
        slopes = [math.log(sd / (math.sqrt(self.d) * size)) for size in sizes]
        return [math.log(sd), *(slopes if self.ard else [sum(slopes) / len(slopes)])]


class LinearARD(Linear):
    """The linear kernel with a slope variance for each input."""

    key, title, ard = "linear-ard", "linear, ARD", True
