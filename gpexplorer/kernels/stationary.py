"""Stationary kernels: k(x, z) = sd^2 profile(r^2), where r is the distance in units of the lengthscales.

    SE           exp(-r^2 / 2)                                      eq 4.9
    Matern-1/2   exp(-r)                                            eq 4.18
    Matern-3/2   (1 + sqrt(3) r) exp(-sqrt(3) r)                    eq 4.17
    Matern-5/2   (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)        eq 4.17
    RQ           (1 + r^2 / (2 alpha))^-alpha                       eq 4.19

Equations of Rasmussen and Williams (2006), chapter 4. Each kernel exists with one lengthscale for all inputs and with
one lengthscale per input ("-ard", automatic relevance determination).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..linalg.blocks import row_blocks
from ..linalg.deferred_reads import Number, is_traced
from ..problem import Dataset
from .base import Covariance, Theta, input_sds, target_sd
from .distances import (
    FILL_BYTES,
    FILL_ROWS,
    affine_distances,
    distance_factors,
    distances_of_scaled,
    safe_sqrt,
    scaled_rows,
    squared_distances,
    weighted_differences,
    zero_below,
)
from .exponential import Exponential


class Stationary(Covariance):
    """Base class of stationary kernels: theta = [log sd, log lengthscales ..., extra ..., log noise sd].

    A subclass defines `profile` and `profile_derivative`. Covariances and gradients are computed in blocks of rows.
    """

    stationary = True
    ard: ClassVar[bool] = False  # one lengthscale per input
    freedom: ClassVar[int] = 0  # degrees of freedom of Student's t in the spectral density; 0 if it is normal
    is_own_derivative: ClassVar[bool] = False  # whether `profile_derivative` is `profile`

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The standard deviation, then one lengthscale or d of them."""
        return ("sd", *([f"lengthscale {i + 1}" for i in range(self.d)] if self.ard else ["lengthscale"]))

    @property
    def _scales(self) -> slice:
        """Entries of theta that are log lengthscales."""
        return slice(1, 1 + (self.d if self.ard else 1))

    @abstractmethod
    def profile(self, theta: Tensor, r2: Tensor) -> Tensor:
        """Correlation at squared distance r2."""

    @abstractmethod
    def profile_derivative(self, theta: Tensor, r2: Tensor) -> Tensor:
        """-2 d profile / d r2; at r2 = 0 it is finite, or 0 where the derivative is infinite."""

    def affine_map(self, theta: Tensor) -> tuple[float, float | Tensor]:
        """Factor and shift that `covariances_` expects to be applied to r2. Folding them into r2 saves a pass."""
        return 1.0, 0.0

    def covariances_(self, theta: Tensor, r2_mapped: Tensor, rounding: Number) -> None:
        """Overwrite squared distances, after `affine_map`, with covariances; r2 errs by at most `rounding`."""
        r2 = zero_below(r2_mapped, rounding)
        torch.mul(self.profile(theta, r2), torch.exp(2.0 * theta[0]), out=r2_mapped)

    def __call__(self, theta: Theta, X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m]. 2 n m d flops and n m profiles; in place, by row blocks, if no gradient is needed."""
        lengthscale = theta[self._scales].exp()
        differentiable = torch.is_grad_enabled() and (theta.requires_grad or X.requires_grad or Z.requires_grad)
        if X is Z or differentiable or is_traced():
            return torch.exp(2.0 * theta[0]) * self.profile(theta, squared_distances(X, Z, lengthscale))
        out = X.new_empty(len(X), len(Z))
        self.fill(theta, X, Z, out)
        return out

    def fill(self, theta: Theta, X: Tensor, Z: Tensor, out: Float[Tensor, "n m"]) -> None:
        """Write the covariance into `out`, by row blocks that stay in the cache."""
        row_bytes = X.element_size() * max(len(Z), 1)
        write, rounding = affine_distances(X, Z, theta[self._scales].exp(), *self.affine_map(theta))
        for rows in row_blocks(len(X), row_bytes, out, max(FILL_BYTES, FILL_ROWS * row_bytes)):
            self.covariances_(theta, write(rows, out[rows]), rounding)

    def diag(self, theta: Theta, X: Tensor) -> Float[Tensor, " n"]:
        """The variance sd^2, n times."""
        return torch.exp(2.0 * theta[0]).expand(X.shape[0]).clone()

    def frequencies(self, theta: Tensor, count: int, draw: torch.Generator) -> Tensor:
        """Draw from the spectral density: normal, or Student's t (Rasmussen and Williams, eq 4.15)."""
        spread: float | Tensor = 1.0
        if self.freedom:
            chi2 = torch.randn(count, self.freedom, generator=draw, dtype=torch.float64).square().sum(1, keepdim=True)
            spread = (self.freedom / chi2).sqrt()
        normal = torch.randn(count, self.d, generator=draw, dtype=torch.float64)
        return normal * (-theta[self._scales]).exp() * spread

    def initial_values(self, train: Dataset) -> list[float]:
        """The standard deviation of the targets, and sqrt(d) times that of each input."""
        scales = [math.log(math.sqrt(self.d) * sd) for sd in input_sds(train)]
        return [math.log(target_sd(train)), *(scales if self.ard else [sum(scales) / len(scales)])]

    def theta_gradient(self, theta: Theta, X: Tensor, Z: Tensor, G: Tensor) -> Theta:
        """Gradient [p] of sum_ij G_ij k_ij in closed form.

        d k / d log sd = 2 k and d k / d log l_q = sd^2 profile_derivative(r2) (x_q - z_q)^2 / l_q^2. With
        W = G * sd^2 profile_derivative(r2), one product W Z gives the gradient in every lengthscale.
        """
        total, variance = torch.zeros_like(theta), torch.exp(2.0 * theta[0])
        lengthscale = theta[self._scales].exp()
        for rows in row_blocks(len(X), 4 * G.element_size() * max(len(Z), 1), G):
            X_block, G_block = X[rows], G[rows]
            scaled = scaled_rows(X_block, Z, lengthscale)
            r2 = distances_of_scaled(scaled, X_block, Z, lengthscale)  # [block, m]
            by_variance = self.profile(theta, r2).mul_(G_block)
            total[0] += 2.0 * by_variance.sum()
            W = by_variance if self.is_own_derivative else self.profile_derivative(theta, r2).mul_(G_block)
            by_scale, _ = weighted_differences(W, scaled, X_block, Z, lengthscale)  # [d]
            total[self._scales] += by_scale if self.ard else by_scale.sum()
            self.add_extra_gradient(theta, r2, G_block, total)
        return total.mul_(variance)

    def theta_gradient_diag(self, theta: Theta, X: Tensor, g: Float[Tensor, " n"]) -> Theta:
        """Gradient [p] of sum_i g_i sd^2, which is in the log sd alone."""
        total = torch.zeros_like(theta)
        total[0] = g.sum().mul_(torch.exp(2.0 * theta[0])).mul_(2.0)
        return total

    def add_extra_gradient(self, theta: Tensor, r2: Tensor, G: Tensor, total: Tensor) -> None:
        """Add the gradient in hyperparameters other than sd and lengthscales to `total` [p], all for sd = 1."""


class SE(Stationary, Exponential):
    """Squared exponential: infinitely smooth."""

    key, title = "se", "squared exponential"
    formula = r"\sigma_f^2 \exp\left(-\tfrac12 \sum_q (x_q-x_q')^2/\ell_q^2\right)"
    is_own_derivative = True

    def affine_map(self, theta: Tensor) -> tuple[float, Tensor]:
        """The map from r2 to the logarithm of the covariance."""
        return -0.5, 2.0 * theta[0]

    def covariances_(self, theta: Tensor, r2_mapped: Tensor, rounding: Number) -> None:
        """The exponential of the logarithm, which rounding must not raise above the variance."""
        r2_mapped.clamp_max_(2.0 * theta[0]).exp_()

    def profile(self, theta: Tensor, r2: Tensor) -> Tensor:
        return torch.exp(-0.5 * r2)

    def profile_derivative(self, theta: Tensor, r2: Tensor) -> Tensor:
        return torch.exp(-0.5 * r2)

    def features(self, theta: Tensor, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor] | None:
        """Factors of log k = 2 log sd - r2 / 2, or None if an input is too wide for them."""
        return distance_factors(X, Z, theta[self._scales].exp(), -0.5, 2.0 * theta[0])

    def by_input(self, theta: Theta) -> list[Callable[[Tensor, Tensor], Tensor]]:
        """One SE kernel per input; the first carries the variance."""
        variance, scales = torch.exp(2.0 * theta[0]), theta[self._scales].exp().expand(self.d)

        def factor(q: int) -> Callable[[Tensor, Tensor], Tensor]:
            return lambda x, z: (
                (variance if q == 0 else 1.0) * torch.exp(-0.5 * ((x[:, None] - z[None, :]) / scales[q]).square())
            )

        return [factor(q) for q in range(self.d)]


class Matern12(Stationary):
    """Matern-1/2, the exponential kernel: continuous, nowhere differentiable."""

    key, title = "matern12", "Matérn 1/2"
    formula = r"\sigma_f^2 e^{-r}"
    freedom = 1

    def profile(self, theta: Tensor, r2: Tensor) -> Tensor:
        return torch.exp(-safe_sqrt(r2))

    def profile_derivative(self, theta: Tensor, r2: Tensor) -> Tensor:
        r = safe_sqrt(r2)
        return torch.where(r > 0.0, torch.exp(-r) / r.clamp_min(1e-300 if r.dtype == torch.float64 else 1e-30), 0.0)


class Matern32(Stationary):
    """Matern-3/2: once differentiable."""

    key, title = "matern32", "Matérn 3/2"
    formula = r"\sigma_f^2 (1+\sqrt3 r) e^{-\sqrt3 r}"
    freedom = 3

    def profile(self, theta: Tensor, r2: Tensor) -> Tensor:
        r = math.sqrt(3.0) * safe_sqrt(r2)
        return (1.0 + r) * torch.exp(-r)

    def profile_derivative(self, theta: Tensor, r2: Tensor) -> Tensor:
        return 3.0 * torch.exp(-math.sqrt(3.0) * safe_sqrt(r2))


class Matern52(Stationary):
    """Matern-5/2: twice differentiable."""

    key, title = "matern52", "Matérn 5/2"
    formula = r"\sigma_f^2 (1+\sqrt5 r+\tfrac53 r^2) e^{-\sqrt5 r}"
    freedom = 5

    def profile(self, theta: Tensor, r2: Tensor) -> Tensor:
        r = math.sqrt(5.0) * safe_sqrt(r2)
        return (1.0 + r + (5.0 / 3.0) * r2) * torch.exp(-r)

    def profile_derivative(self, theta: Tensor, r2: Tensor) -> Tensor:
        r = math.sqrt(5.0) * safe_sqrt(r2)
        return (5.0 / 3.0) * (1.0 + r) * torch.exp(-r)


class RationalQuadratic(Stationary):
    """Rational quadratic: a scale mixture of SE kernels with shape alpha."""

    key, title = "rq", "rational quadratic"
    formula = r"\sigma_f^2 \left(1+\tfrac{r^2}{2\alpha}\right)^{-\alpha}"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of a stationary kernel, then alpha."""
        return (*super().parameter_names, "alpha")

    def initial_values(self, train: Dataset) -> list[float]:
        """The values of a stationary kernel, and alpha = 1."""
        return [*super().initial_values(train), 0.0]

    def frequencies(self, theta: Tensor, count: int, draw: torch.Generator) -> Tensor:
        """The kernel is a mixture of SE kernels whose inverse squared lengthscales follow Gamma(alpha, rate alpha)."""
        alpha = math.exp(float(theta[self.size - 1]))
        source = np.random.default_rng(int(torch.randint(2**62, (), generator=draw)))
        precision = torch.from_numpy(source.standard_gamma(alpha, count)) / alpha
        return super().frequencies(theta, count, draw) * precision.sqrt()[:, None]

    def profile(self, theta: Tensor, r2: Tensor) -> Tensor:
        alpha = theta[self.size - 1].exp()
        return torch.exp(-alpha * torch.log1p(r2 / (2.0 * alpha)))

    def profile_derivative(self, theta: Tensor, r2: Tensor) -> Tensor:
        alpha = theta[self.size - 1].exp()
        return torch.exp(-(alpha + 1.0) * torch.log1p(r2 / (2.0 * alpha)))

    def add_extra_gradient(self, theta: Tensor, r2: Tensor, G: Tensor, total: Tensor) -> None:
        """d profile / d log alpha = profile * (r2 / (2 (1 + r2 / 2 alpha)) - alpha log(1 + r2 / 2 alpha))."""
        alpha = theta[self.size - 1].exp()
        ratio = r2 / (2.0 * alpha)
        change = self.profile(theta, r2) * (alpha * ratio / (1.0 + ratio) - alpha * torch.log1p(ratio))
        total[self.size - 1] += (change * G).sum()


def _with_ard(base: type[Stationary]) -> type[Stationary]:
    """The same kernel with one lengthscale per input."""
    fields = {"key": f"{base.key}-ard", "title": f"{base.title}, ARD", "ard": True, "__module__": __name__}
    return type(f"{base.__name__}ARD", (base,), {**fields, "__doc__": f"{base.__doc__} One lengthscale per input."})


SEARD, Matern12ARD, Matern32ARD, Matern52ARD, RationalQuadraticARD = map(
    _with_ard, (SE, Matern12, Matern32, Matern52, RationalQuadratic)
)
