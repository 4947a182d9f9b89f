"""Periodic kernels, products over inputs.

    periodic          sd^2 exp(-2 sum_q sin^2(pi (x_q - z_q) / period) / l^2)
    locally periodic  periodic times exp(-r^2 / (2 w^2)): repeats that drift apart over a width w

MacKay (1998); LP is eq 20 of Xu et al. (2019). By cos 2a = 1 - 2 sin^2 a, the sum over inputs is one matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ..problem import Dataset
from .base import input_sds, target_sd
from .distances import halves, squared
from .exponential import Exponential

ROWS = 4096  # rows looked at for a first guess of the period


class Periodic(Exponential):
    """theta = [log sd, log lengthscale, log period, log noise sd]; inputs share period and lengthscale."""

    key, title = "periodic", "periodic"
    formula = r"\sigma_f^2 \exp\left(-\tfrac{2}{\ell^2}\sum_q \sin^2 \tfrac{\pi (x_q-x_q')}{p}\right)"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """sd, lengthscale (of the sine), period (in the input's units)."""
        return ("sd", "lengthscale", "period")

    def __call__(self, theta: Float[Tensor, " p"], X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m]; 4 n m d flops and n m exponentials."""
        return torch.exp(2.0 * theta[0] - sines(X, Z, theta[2].exp()) * torch.exp(-2.0 * theta[1]))

    def diag(self, theta: Float[Tensor, " p"], X: Tensor) -> Float[Tensor, " n"]:
        """The variance, n times."""
        return torch.exp(2.0 * theta[0]).expand(len(X)).clone()

    def features(self, theta: Tensor, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        """log k = 2 log sd - S / l^2, S = d - cos a'cos b - sin a'sin b."""
        weight, wave, centre = torch.exp(-2.0 * theta[1]), 2.0 * math.pi * torch.exp(-theta[2]), Z.mean(0)
        a, b = wave * (X - centre), wave * (Z - centre)
        top = (2.0 * theta[0] - self.d * weight).expand(len(X), 1)
        A, B = [weight * a.cos(), weight * a.sin(), top], [b.cos(), b.sin(), Z.new_ones(len(Z), 1)]
        return torch.cat(A, 1), torch.cat(B, 1)

    def initial_values(self, train: Dataset) -> list[float]:
        """The period is the strongest in a periodogram of the first input (d = 1), else its sd."""
        period = dominant_period(train) if self.d == 1 else 2.0 * input_sds(train)[0]
        return [math.log(target_sd(train)), 0.0, math.log(period)]

    def by_input(self, theta: Float[Tensor, " p"]) -> list[Callable[[Tensor, Tensor], Tensor]]:
        """One periodic kernel an input; the variance goes to the first."""

        def one(q: int) -> Callable[[Tensor, Tensor], Tensor]:
            log_variance = 2.0 * theta[0] if q == 0 else 0.0 * theta[0]
            return lambda x, z: torch.exp(
                log_variance - sines(x[:, None], z[:, None], theta[2].exp()) * torch.exp(-2.0 * theta[1])
            )

        return [one(q) for q in range(self.d)]


class LocallyPeriodic(Periodic):
    """theta = [log sd, log lengthscale, log period, log width, log noise sd]."""

    key, title = "lp", "locally periodic"
    formula = r"\sigma_f^2 \exp\left(-\tfrac{2}{\ell^2}\sum_q\sin^2\tfrac{\pi(x_q-x_q')}{p} - \tfrac{r^2}{2w^2}\right)"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Those of a periodic kernel, then the width over which repeats drift apart."""
        return (*super().parameter_names, "width")

    def __call__(self, theta: Float[Tensor, " p"], X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m]."""
        return super().__call__(theta, X, Z) * torch.exp(-0.5 * squared(X, Z, theta[3].exp()))

    def features(self, theta: Tensor, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Those of a periodic kernel beside those of the distance."""
        both = zip(super().features(theta, X, Z), halves(X, Z, theta[3].exp(), -0.5, 0.0), strict=True)
        A, B = (torch.cat(sides, 1) for sides in both)
        return A, B

    def initial_values(self, train: Dataset) -> list[float]:
        """The width starts at sqrt(d) times twice the inputs' sd."""
        width = 2.0 * math.sqrt(self.d) * sum(input_sds(train)) / self.d
        return [*super().initial_values(train), math.log(width)]

    def by_input(self, theta: Float[Tensor, " p"]) -> list[Callable[[Tensor, Tensor], Tensor]]:
        """One locally periodic kernel an input."""

        def one(part: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
            return lambda x, z: part(x, z) * torch.exp(-0.5 * squared(x[:, None], z[:, None], theta[3].exp()))

        return [one(part) for part in super().by_input(theta)]


def sines(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], period: Tensor) -> Float[Tensor, "n m"]:
    """2 sum_q sin^2(pi (x_q - z_q) / period) [n, m]."""
    if X.shape[1] == 1:
        return 2.0 * torch.sin((math.pi / period) * (X - Z.T)).square()
    centre = Z.mean(0)
    a, b = (2.0 * math.pi / period) * (X - centre), (2.0 * math.pi / period) * (Z - centre)
    return (X.shape[1] - a.cos() @ b.cos().T - a.sin() @ b.sin().T).clamp_min(0.0)


def dominant_period(train: Dataset) -> float:
    """The period of the largest Lomb-Scargle-like power among 2 to n/4 waves over the range of a 1-D input."""
    stride = max(1, len(train) // ROWS)
    x, y = train.X[::stride, 0], train.y[::stride] - train.y.mean()
    span = float(x.max() - x.min())
    if len(x) < 8 or span == 0.0:
        return span or 1.0
    waves = torch.arange(2, max(3, min(256, len(x) // 4) + 1)).to(x)
    phase = (2.0 * math.pi / span) * torch.outer(waves, x - x.min())
    power = (phase.cos() @ y).square() + (phase.sin() @ y).square()
    return span / float(waves[int(power.argmax())])
