"""Periodic and locally periodic kernels.

    periodic (P)            sd^2 exp(-2 sum_q sin^2(pi (x_q - z_q) / period) / l^2)
    locally periodic (LP)   P exp(-r^2 / (2 w^2)), so that repetitions lose their correlation over the width w

P is MacKay's (1998), eq 47, multiplied over inputs; LP is eq 20 of Xu et al. (2019). Because 2 sin^2 a = 1 - cos 2a
and cos(a - b) = cos a cos b + sin a sin b, the sum over inputs is one matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..linalg.seasons import periods, season, seasons
from ..problem import Dataset
from .base import Theta, input_sds, target_sd
from .distances import distance_factors, squared_distances
from .exponential import Exponential

PERIOD_ROWS = 4096  # rows, some of those of longer series, whose waves are compared one by one for the initial period


class Periodic(Exponential):
    """Periodic kernel: theta = [log sd, log lengthscale, log period, log noise sd].

    All inputs share the period (in the units of the input) and the lengthscale (of the sine, without unit).
    """

    key, title, stationary = "periodic", "periodic", True
    formula = r"\sigma_f^2 \exp\left(-\tfrac{2}{\ell^2}\sum_q \sin^2 \tfrac{\pi (x_q-x_q')}{p}\right)"
    parameter_names: tuple[str, ...] = ("sd", "lengthscale", "period")

    def __call__(self, theta: Theta, X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the rows of X and Z; 4 n m d flops and n m exponentials."""
        return torch.exp(2.0 * theta[0] - squared_sines(X, Z, theta[2].exp()) * torch.exp(-2.0 * theta[1]))

    def diag(self, theta: Theta, X: Tensor) -> Float[Tensor, " n"]:
        """The variance sd^2, n times."""
        return torch.exp(2.0 * theta[0]).expand(X.shape[0]).clone()

    def features(self, theta: Tensor, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor] | None:
        """Factors of log k = 2 log sd - S / l^2, S = d - sum_q (cos a_q cos b_q + sin a_q sin b_q)."""
        weight, frequency, centre = torch.exp(-2.0 * theta[1]), 2.0 * math.pi * torch.exp(-theta[2]), Z.mean(0)
        a, b = frequency * (X - centre), frequency * (Z - centre)
        constant = (2.0 * theta[0] - self.d * weight).expand(len(X), 1)
        A, B = [weight * a.cos(), weight * a.sin(), constant], [b.cos(), b.sin(), Z.new_ones(len(Z), 1)]
        return torch.cat(A, 1), torch.cat(B, 1)  # [n, 2 d + 1], [m, 2 d + 1]

    def initial_values(self, train: Dataset) -> list[float]:
        """The period comes from a periodogram if d = 1; otherwise it is twice the sd of the first input."""
        period = dominant_period(train) if self.d == 1 else 2.0 * input_sds(train)[0]
        return [math.log(target_sd(train)), 0.0, math.log(period)]

    def frequencies(self, theta: Tensor, count: int, draw: torch.Generator) -> Tensor:
        """Multiples of 2 pi / period, by Fourier's series exp(cos(a) / l^2) = sum_k I_k(1 / l^2) cos(k a).

        I_k(2 u) exp(-2 u) is the probability that two Poisson numbers with mean u differ by k.
        """
        rate = (0.5 * torch.exp(-2.0 * theta[1])).expand(2, count, self.d).contiguous()
        first, second = torch.poisson(rate, generator=draw)
        return 2.0 * math.pi * torch.exp(-theta[2]) * (first - second)

    def by_input(self, theta: Theta) -> list[Callable[[Tensor, Tensor], Tensor]]:
        """One periodic kernel per input; the first carries the variance."""

        def factor(q: int) -> Callable[[Tensor, Tensor], Tensor]:
            log_variance = 2.0 * theta[0] if q == 0 else 0.0 * theta[0]
            return lambda x, z: torch.exp(
                log_variance - squared_sines(x[:, None], z[:, None], theta[2].exp()) * torch.exp(-2.0 * theta[1])
            )

        return [factor(q) for q in range(self.d)]


class LocallyPeriodic(Periodic):
    """Locally periodic kernel: theta = [log sd, log lengthscale, log period, log width, log noise sd]."""

    key, title = "lp", "locally periodic"
    formula = r"\sigma_f^2 \exp\left(-\tfrac{2}{\ell^2}\sum_q\sin^2\tfrac{\pi(x_q-x_q')}{p} - \tfrac{r^2}{2w^2}\right)"
    parameter_names = (*Periodic.parameter_names, "width")  # over which repetitions lose their correlation

    def __call__(self, theta: Theta, X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the rows of X and Z."""
        return super().__call__(theta, X, Z) * torch.exp(-0.5 * squared_distances(X, Z, theta[3].exp()))

    def features(self, theta: Tensor, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor] | None:
        """Features of the periodic kernel beside those of -r^2 / (2 w^2), or None if an input is too wide for them."""
        periodic, factors = super().features(theta, X, Z), distance_factors(X, Z, theta[3].exp(), -0.5, 0.0)
        if periodic is None or factors is None:
            return None
        A, B = (torch.cat(sides, 1) for sides in zip(periodic, factors, strict=True))
        return A, B

    def initial_values(self, train: Dataset) -> list[float]:
        """The width starts at 2 sqrt(d) times the mean standard deviation of the inputs."""
        width = 2.0 * math.sqrt(self.d) * sum(input_sds(train)) / self.d
        return [*super().initial_values(train), math.log(width)]

    def frequencies(self, theta: Tensor, count: int, draw: torch.Generator) -> Tensor:
        """The frequencies of a product are sums of those of its factors."""
        normal = torch.randn(count, self.d, generator=draw, dtype=torch.float64)
        return super().frequencies(theta, count, draw) + normal * torch.exp(-theta[3])

    def by_input(self, theta: Theta) -> list[Callable[[Tensor, Tensor], Tensor]]:
        """One locally periodic kernel per input; the first carries the variance."""

        def factor(part: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
            return lambda x, z: part(x, z) * torch.exp(-0.5 * squared_distances(x[:, None], z[:, None], theta[3].exp()))

        return [factor(part) for part in super().by_input(theta)]


def squared_sines(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], period: Tensor) -> Float[Tensor, "n m"]:
    """Return 2 sum_q sin^2(pi (x_q - z_q) / period) for every pair of rows; never negative."""
    if X.shape[1] == 1:
        return 2.0 * torch.sin((math.pi / period) * (X - Z.T)).square()
    centre = Z.mean(0)
    a, b = (2.0 * math.pi / period) * (X - centre), (2.0 * math.pi / period) * (Z - centre)
    return (X.shape[1] - a.cos() @ b.cos().T - a.sin() @ b.sin().T).clamp_min(0.0)


def with_several_periods(values: list[float], names: Sequence[str], train: Dataset) -> list[float]:
    """Initial values of a kernel whose periodic parts begin at different seasons of a target over one input."""
    entries = [i for i, name in enumerate(names) if name.rpartition(": ")[2] == "period"]
    if len(entries) < 2 or train.d != 1:
        return values
    x, y = train.X[:, 0].double().cpu().numpy(), train.y.double().cpu().numpy()
    logs = dict(zip(entries, map(math.log, periods(x, y, len(entries))), strict=False))
    return [logs.get(i, value) for i, value in enumerate(values)]


def dominant_period(train: Dataset) -> float:
    """Estimate the period of y over a one-dimensional input.

    It is that of the strongest season that stands out of the periodogram, if there is one. Otherwise it is found by
    least squares near the wave with the largest power among those with 2 to min(256, n / 4) periods over the range of
    x, from at most PERIOD_ROWS rows. The range itself is returned if there are fewer than 8 rows, and 1 if the range
    is 0.
    """
    x, y = train.X[:, 0].double().cpu().numpy(), train.y.double().cpu().numpy()
    stride = max(1, len(train) // PERIOD_ROWS)
    span = float(np.ptp(x))
    if len(x) < 8 or span == 0.0:
        return span or 1.0
    if found := seasons(x, y, count=1):
        return found[0].period
    x, y = x[::stride], y[::stride] - y.mean()
    waves = np.arange(2, max(3, min(256, len(x) // 4) + 1))  # [w] periods over the range
    phase = (2.0 * math.pi / span) * np.outer(waves, x - x.min())  # [w, n]
    power = np.square(np.cos(phase) @ y) + np.square(np.sin(phase) @ y)  # [w]
    return season(x, y, float(waves[int(power.argmax())]) / span).period
