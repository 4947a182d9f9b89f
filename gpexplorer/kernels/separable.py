"""Kernels that are products over inputs, as a grid needs them: product Matern, and ANOVA kernels.

    product Matern   sd^2 prod_q m(|x_q - z_q| / l_q)                       m a Matern correlation of one input
    ANOVA            sd^2 prod_q (1 + w k_q(x_q, z_q)) / (1 + w)            k_q = m, or the squared exponential

A Matern kernel of the distance in d inputs is no product; the product of Matern kernels of one input each is another
kernel of the same smoothness. The product of an ANOVA kernel contains every k_q alone, every pair k_q k_r, and so on: a
function is a constant, plus one function per input, plus interactions, whose share grows with w.

References: Rasmussen and Williams (2006), section 4.2; Stitson et al. (1997), "Support vector regression with ANOVA
decomposition kernels"; Duvenaud, Nickisch and Rasmussen (2011), "Additive Gaussian processes".
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ..linalg.blocks import row_blocks
from ..linalg.denormals import exponential
from ..problem import Dataset
from .base import Covariance, Theta, input_sds, target_sd

GRADIENT_BYTES = 2**23  # of the correlations and derivatives that are kept until the product of a block is known


class Separable(Covariance):
    """Base class: theta = [log sd, log lengthscales (d of them), log noise sd].

    A subclass defines `correlation` and its `scale_derivative`.
    """

    stationary = True

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The standard deviation, then one lengthscale per input."""
        return ("sd", *(f"lengthscale {q + 1}" for q in range(self.d)))

    @abstractmethod
    def correlation(self, r: Tensor) -> Tensor:
        """Correlation in one input at the distance r, in lengthscales."""

    @abstractmethod
    def scale_derivative(self, r: Tensor) -> Tensor:
        """-r d log m / dr, the derivative of log m with respect to the log-lengthscale, as a new tensor."""

    def distance(self, theta: Tensor, q: int, x: Float[Tensor, " n"], z: Float[Tensor, " m"]) -> Float[Tensor, "n m"]:
        """|x - z| in lengthscales of input q."""
        return (x[:, None] - z[None, :]).abs() * torch.exp(-theta[1 + q])

    def factor(self, theta: Tensor, q: int, x: Float[Tensor, " n"], z: Float[Tensor, " m"]) -> Float[Tensor, "n m"]:
        """The factor of input q; the variance is not in it."""
        return self.correlation(self.distance(theta, q, x, z))

    def __call__(self, theta: Theta, X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the rows of X and Z; n m d correlations."""
        K = torch.exp(2.0 * theta[0]) * self.factor(theta, 0, X[:, 0], Z[:, 0])
        for q in range(1, self.d):
            K = K * self.factor(theta, q, X[:, q], Z[:, q])
        return K

    def diag(self, theta: Theta, X: Tensor) -> Float[Tensor, " n"]:
        """The variance sd^2, n times."""
        return torch.exp(2.0 * theta[0]).expand(X.shape[0]).clone()

    def theta_gradient(self, theta: Theta, X: Tensor, Z: Tensor, G: Tensor) -> Theta:
        """Gradient [p] of sum_ij G_ij k_ij in closed form; n m d correlations.

        With P = G * K, the derivative in a parameter of the factor f_q is sum_ij P_ij d log f_q / d parameter, so that
        no product over the other inputs is needed.
        """
        total = torch.zeros_like(theta)
        row_bytes = 2 * (self.d + 1) * G.element_size() * max(len(Z), 1)
        for rows in row_blocks(len(X), row_bytes, G, GRADIENT_BYTES):
            P, derivatives = torch.exp(2.0 * theta[0]) * G[rows], list[tuple[int, Tensor]]()
            for q in range(self.d):
                factor, of_factor = self.factor_and_derivatives(theta, q, self.distance(theta, q, X[rows, q], Z[:, q]))
                P.mul_(factor)  # [block, m]
                derivatives += of_factor
            total[0] += 2.0 * P.sum()
            for place, derivative in derivatives:
                total[place] += torch.dot(P.flatten(), derivative.flatten())
        return total

    def factor_and_derivatives(self, theta: Tensor, q: int, r: Tensor) -> tuple[Tensor, list[tuple[int, Tensor]]]:
        """The factor of input q at distances r [n, m], and the derivatives of its logarithm by their place in theta."""
        return self.correlation(r), [(1 + q, self.scale_derivative(r))]

    def initial_values(self, train: Dataset) -> list[float]:
        """The standard deviation of the targets, and sqrt(d) times that of each input."""
        return [math.log(target_sd(train)), *(math.log(math.sqrt(self.d) * sd) for sd in input_sds(train))]

    def by_input(self, theta: Theta) -> list[Callable[[Tensor, Tensor], Tensor]]:
        """One kernel per input; the first carries the variance."""

        def factor(q: int) -> Callable[[Tensor, Tensor], Tensor]:
            variance = torch.exp(2.0 * theta[0]) if q == 0 else 1.0
            return lambda x, z: variance * self.factor(theta, q, x, z)

        return [factor(q) for q in range(self.d)]


class ProductMatern12(Separable):
    """Product of Matern-1/2 kernels of one input each: continuous, nowhere differentiable."""

    key, title = "matern12-product", "Matérn 1/2, product over inputs"
    formula = r"\sigma_f^2 \prod_q e^{-r_q},\quad r_q = |x_q-x_q'|/\ell_q"

    def correlation(self, r: Tensor) -> Tensor:
        return exponential(-r)

    def scale_derivative(self, r: Tensor) -> Tensor:
        return r.clone()


class ProductMatern32(Separable):
    """Product of Matern-3/2 kernels of one input each: once differentiable."""

    key, title = "matern32-product", "Matérn 3/2, product over inputs"
    formula = r"\sigma_f^2 \prod_q (1+\sqrt3 r_q) e^{-\sqrt3 r_q},\quad r_q = |x_q-x_q'|/\ell_q"

    def correlation(self, r: Tensor) -> Tensor:
        a = math.sqrt(3.0) * r
        return (1.0 + a) * exponential(-a)

    def scale_derivative(self, r: Tensor) -> Tensor:
        a = math.sqrt(3.0) * r
        return a.square() / (1.0 + a)


class ProductMatern52(Separable):
    """Product of Matern-5/2 kernels of one input each: twice differentiable."""

    key, title = "matern52-product", "Matérn 5/2, product over inputs"
    formula = r"\sigma_f^2 \prod_q (1+\sqrt5 r_q+\tfrac53 r_q^2) e^{-\sqrt5 r_q},\quad r_q = |x_q-x_q'|/\ell_q"

    def correlation(self, r: Tensor) -> Tensor:
        a = math.sqrt(5.0) * r
        return (1.0 + a + a.square() / 3.0) * exponential(-a)

    def scale_derivative(self, r: Tensor) -> Tensor:
        a = math.sqrt(5.0) * r
        return a * (a + a.square()) / (3.0 + 3.0 * a + a.square())


class Anova(Separable):
    """ANOVA kernel of squared exponentials: theta = [log sd, log lengthscales, log interaction w, log noise sd]."""

    key, title = "anova", "ANOVA, squared exponential"
    formula = r"\sigma_f^2 \prod_q \frac{1 + w\,k_q(x_q,x_q')}{1+w},\quad k_q = e^{-(x_q-x_q')^2/2\ell_q^2}"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of a separable kernel, then the weight of the interactions."""
        return (*super().parameter_names, "interaction")

    def correlation(self, r: Tensor) -> Tensor:
        return exponential(-0.5 * r.square())

    def scale_derivative(self, r: Tensor) -> Tensor:
        return r.square()

    def factor(self, theta: Tensor, q: int, x: Float[Tensor, " n"], z: Float[Tensor, " m"]) -> Float[Tensor, "n m"]:
        """The factor (1 + w k_q) / (1 + w) of input q."""
        w = theta[1 + self.d].exp()
        return (1.0 + w * super().factor(theta, q, x, z)) / (1.0 + w)

    def factor_and_derivatives(self, theta: Tensor, q: int, r: Tensor) -> tuple[Tensor, list[tuple[int, Tensor]]]:
        """The factor f and, with s = w k_q / (1 + w k_q), its derivatives.

        d log f / d log l = s d log k_q / d log l,   d log f / d log w = s - w / (1 + w)
        """
        w = theta[1 + self.d].exp()
        weighted = self.correlation(r).mul_(w)
        factor = (1.0 + weighted).div_(1.0 + w)
        share = weighted.div_(factor).div_(1.0 + w)
        by_scale = self.scale_derivative(r).mul_(share)
        return factor, [(1 + q, by_scale), (1 + self.d, share.sub_(w / (1.0 + w)))]

    def initial_values(self, train: Dataset) -> list[float]:
        """The standard deviation of the targets, that of each input, and w = 1."""
        return [math.log(target_sd(train)), *map(math.log, input_sds(train)), 0.0]


class AnovaMatern52(Anova):
    """ANOVA kernel of Matern-5/2 kernels."""

    key, title = "anova-matern52", "ANOVA, Matérn 5/2"
    formula = (
        r"\sigma_f^2 \prod_q \frac{1 + w\,k_q(x_q,x_q')}{1+w},\quad "
        r"k_q = (1+\sqrt5 r_q+\tfrac53 r_q^2) e^{-\sqrt5 r_q}"
    )
    correlation = ProductMatern52.correlation
    scale_derivative = ProductMatern52.scale_derivative
