"""Stationary kernels: a variance times a profile of the scaled distance r.

    SE           exp(-r^2 / 2)
    Matern-1/2   exp(-r)
    Matern-3/2   (1 + sqrt(3) r) exp(-sqrt(3) r)
    Matern-5/2   (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)
    RQ           (1 + r^2 / (2 alpha))^-alpha

Rasmussen and Williams (2006), chapter 4. Each exists with one lengthscale, or one an input ("-ard").
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..linalg.blocks import row_blocks
from ..problem import Dataset
from .base import Covariance, input_sds, target_sd
from .distances import affine, halves, root, squared
from .exponential import FILL_BYTES, FILL_ROWS, Exponential


class Stationary(Covariance):
    """theta = [log sd, log lengthscales ..., extra ..., log noise sd]."""

    ard: ClassVar[bool] = False

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """sd, then one lengthscale or d of them."""
        return ("sd", *([f"lengthscale {i + 1}" for i in range(self.d)] if self.ard else ["lengthscale"]))

    @property
    def _scales(self) -> slice:
        return slice(1, 1 + (self.d if self.ard else 1))

    @abstractmethod
    def profile(self, theta: Tensor, r2: Tensor) -> Tensor:
        """The correlation at squared distance r2."""

    @abstractmethod
    def slope(self, theta: Tensor, r2: Tensor) -> Tensor:
        """-2 d profile / d r2, finite or 0 at r2 = 0."""

    def bend(self, theta: Tensor) -> tuple[float, float | Tensor]:
        """Factor and shift of r2 in what `fill_` is given, so that they cost no pass."""
        return 1.0, 0.0

    def fill_(self, theta: Tensor, bent: Tensor) -> None:
        """Make covariances, in place, of squared distances that were bent."""
        torch.mul(self.profile(theta, bent.clamp_min_(0.0)), torch.exp(2.0 * theta[0]), out=bent)

    def __call__(self, theta: Float[Tensor, " p"], X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m]; 2 n m d flops and n m profiles, in place by row blocks where no gradient is asked for."""
        lengthscale = theta[self._scales].exp()
        if X is Z or (torch.is_grad_enabled() and (theta.requires_grad or X.requires_grad or Z.requires_grad)):
            return torch.exp(2.0 * theta[0]) * self.profile(theta, squared(X, Z, lengthscale))
        out = X.new_empty(len(X), len(Z))
        self.fill(theta, X, Z, out)
        return out

    def fill(self, theta: Float[Tensor, " p"], X: Tensor, Z: Tensor, out: Float[Tensor, "n m"]) -> None:
        """By row blocks that stay in cache."""
        a_row = X.element_size() * max(len(Z), 1)
        bent = affine(X, Z, theta[self._scales].exp(), *self.bend(theta))
        for rows in row_blocks(len(X), a_row, max(FILL_BYTES, FILL_ROWS * a_row)):
            self.fill_(theta, bent(rows, out[rows]))

    def diag(self, theta: Float[Tensor, " p"], X: Tensor) -> Float[Tensor, " n"]:
        """The variance, n times."""
        return torch.exp(2.0 * theta[0]).expand(len(X)).clone()

    def initial_values(self, train: Dataset) -> list[float]:
        """The target's sd, and sqrt(d) times each input's."""
        scales = [math.log(math.sqrt(self.d) * sd) for sd in input_sds(train)]
        return [math.log(target_sd(train)), *(scales if self.ard else [sum(scales) / len(scales)])]

    def theta_gradient(self, theta: Float[Tensor, " p"], X: Tensor, Z: Tensor, G: Tensor) -> Float[Tensor, " p"]:
        """Closed form of the base's gradient: with W = G * k's slope, one product W Z gives every lengthscale.

        d k / d log l_q = sd^2 slope(r2) (x_q - z_q)^2 / l_q^2.
        """
        total, variance = torch.zeros_like(theta), torch.exp(2.0 * theta[0])
        lengthscale, centre = theta[self._scales].exp(), Z.mean(0)
        B = (Z - centre) / lengthscale
        for rows in row_blocks(len(X), 4 * G.element_size() * max(len(Z), 1)):
            r2, A = squared(X[rows], Z, lengthscale), (X[rows] - centre) / lengthscale
            total[0] += 2.0 * variance * (G[rows] * self.profile(theta, r2)).sum()
            W = self.slope(theta, r2).mul_(G[rows]).mul_(variance)  # [block, m]
            moved = A.square().T @ W.sum(1) + B.square().T @ W.sum(0) - 2.0 * (A * (W @ B)).sum(0)  # [d]
            total[self._scales] += moved if self.ard else moved.sum()
            self.contract_extra(theta, r2, G[rows], total)
        return total

    def contract_extra(self, theta: Tensor, r2: Tensor, G: Tensor, total: Tensor) -> None:
        """Add the gradient in hyperparameters beyond sd and lengthscales, where there are any."""


class SE(Stationary, Exponential):
    """Squared exponential: infinitely smooth."""

    key, title = "se", "squared exponential"
    formula = r"\sigma_f^2 \exp\left(-\tfrac12 \sum_q (x_q-x_q')^2/\ell_q^2\right)"

    def bend(self, theta: Tensor) -> tuple[float, Tensor]:
        """Up to the logarithm of the covariance."""
        return -0.5, 2.0 * theta[0]

    def fill_(self, theta: Tensor, bent: Tensor) -> None:
        bent.clamp_max_(2.0 * theta[0]).exp_()

    def profile(self, theta: Tensor, r2: Tensor) -> Tensor:
        return torch.exp(-0.5 * r2)

    def slope(self, theta: Tensor, r2: Tensor) -> Tensor:
        return torch.exp(-0.5 * r2)

    def features(self, theta: Tensor, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        """log k = 2 log sd - r2 / 2."""
        return halves(X, Z, theta[self._scales].exp(), -0.5, 2.0 * theta[0])

    def by_input(self, theta: Float[Tensor, " p"]) -> list[Callable[[Tensor, Tensor], Tensor]]:
        """One SE an input; the variance goes to the first."""
        variance, scales = torch.exp(2.0 * theta[0]), theta[self._scales].exp().expand(self.d)

        def one(q: int) -> Callable[[Tensor, Tensor], Tensor]:
            return lambda x, z: (
                (variance if q == 0 else 1.0) * torch.exp(-0.5 * ((x[:, None] - z[None, :]) / scales[q]).square())
            )

        return [one(q) for q in range(self.d)]


class Matern12(Stationary):
    """Matern-1/2, the exponential kernel: continuous, nowhere differentiable."""

    key, title = "matern12", "Matérn 1/2"
    formula = r"\sigma_f^2 e^{-r}"

    def profile(self, theta: Tensor, r2: Tensor) -> Tensor:
        return torch.exp(-root(r2))

    def slope(self, theta: Tensor, r2: Tensor) -> Tensor:
        r = root(r2)
        return torch.where(r > 0.0, torch.exp(-r) / r.clamp_min(1e-300 if r.dtype == torch.float64 else 1e-30), 0.0)


class Matern32(Stationary):
    """Matern-3/2: once differentiable."""

    key, title = "matern32", "Matérn 3/2"
    formula = r"\sigma_f^2 (1+\sqrt3 r) e^{-\sqrt3 r}"

    def profile(self, theta: Tensor, r2: Tensor) -> Tensor:
        r = math.sqrt(3.0) * root(r2)
        return (1.0 + r) * torch.exp(-r)

    def slope(self, theta: Tensor, r2: Tensor) -> Tensor:
        return 3.0 * torch.exp(-math.sqrt(3.0) * root(r2))


class Matern52(Stationary):
    """Matern-5/2: twice differentiable."""

    key, title = "matern52", "Matérn 5/2"
    formula = r"\sigma_f^2 (1+\sqrt5 r+\tfrac53 r^2) e^{-\sqrt5 r}"

    def profile(self, theta: Tensor, r2: Tensor) -> Tensor:
        r = math.sqrt(5.0) * root(r2)
        return (1.0 + r + (5.0 / 3.0) * r2) * torch.exp(-r)

    def slope(self, theta: Tensor, r2: Tensor) -> Tensor:
        r = math.sqrt(5.0) * root(r2)
        return (5.0 / 3.0) * (1.0 + r) * torch.exp(-r)


class RationalQuadratic(Stationary):
    """Rational quadratic: a scale mixture of SE kernels with shape alpha."""

    key, title = "rq", "rational quadratic"
    formula = r"\sigma_f^2 \left(1+\tfrac{r^2}{2\alpha}\right)^{-\alpha}"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Those of a stationary kernel, then alpha."""
        return (*super().parameter_names, "alpha")

    def initial_values(self, train: Dataset) -> list[float]:
        """alpha starts at 1."""
        return [*super().initial_values(train), 0.0]

    def profile(self, theta: Tensor, r2: Tensor) -> Tensor:
        alpha = theta[self.size - 1].exp()
        return torch.exp(-alpha * torch.log1p(r2 / (2.0 * alpha)))

    def slope(self, theta: Tensor, r2: Tensor) -> Tensor:
        alpha = theta[self.size - 1].exp()
        return torch.exp(-(alpha + 1.0) * torch.log1p(r2 / (2.0 * alpha)))

    def contract_extra(self, theta: Tensor, r2: Tensor, G: Tensor, total: Tensor) -> None:
        """d profile / d log alpha = profile * (r2 / (2 (1 + r2 / 2 alpha)) - alpha log(1 + r2 / 2 alpha))."""
        alpha = theta[self.size - 1].exp()
        ratio = r2 / (2.0 * alpha)
        change = self.profile(theta, r2) * (alpha * ratio / (1.0 + ratio) - alpha * torch.log1p(ratio))
        total[self.size - 1] += torch.exp(2.0 * theta[0]) * (change * G).sum()


def _with_ard(base: type[Stationary]) -> type[Stationary]:
    """The same kernel with one lengthscale an input."""
    fields = {"key": f"{base.key}-ard", "title": f"{base.title}, ARD", "ard": True, "__module__": __name__}
    return type(f"{base.__name__}ARD", (base,), {**fields, "__doc__": f"{base.__doc__} One lengthscale an input."})


SEARD, Matern12ARD, Matern32ARD, Matern52ARD, RationalQuadraticARD = map(
    _with_ard, (SE, Matern12, Matern32, Matern52, RationalQuadratic)
)
