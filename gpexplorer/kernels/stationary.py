"""Stationary kernels: k(x, z) = sd^2 profile(r^2), where r is the distance in units of the lengthscales.

    SE           exp(-r^2 / 2)                                      eq 4.9
    Matern-1/2   exp(-r)                                            eq 4.18
    Matern-3/2   (1 + sqrt(3) r) exp(-sqrt(3) r)                    eq 4.17
    Matern-5/2   (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)        eq 4.17
    RQ           (1 + r^2 / (2 alpha))^-alpha                       eq 4.19

Equations of Rasmussen and Williams (2006), chapter 4. Each kernel exists with one lengthscale for all inputs and with
one lengthscale per input ("-ard", automatic relevance determination).

Of some kernels, the logarithm is an inner product of features, log k(x, z) = a(x)'b(z): SE, periodic, and their
products.

With feature matrices A [n, t] and B [m, t], the covariance matrix is K = exp(A B'), one matrix product and an
exponential. The derivative of u'K z needs no other n x m matrix than K:

    d(u'K z) = sum_ij u_i K_ij z_j d(a_i'b_j) = sum_i u_i da_i'(K [z b])_i + sum_j z_j db_j'(K'[u a])_j

Among these products are the periodic and the locally periodic kernels:

    periodic (P)            sd^2 exp(-2 sum_q sin^2(pi (x_q - z_q) / period) / l^2)
    locally periodic (LP)   P exp(-r^2 / (2 w^2)), so that repetitions lose their correlation over the width w

P is MacKay's (1998), eq 47, multiplied over inputs; LP is eq 20 of Xu et al. (2019). Because 2 sin^2 a = 1 - cos 2a
and cos(a - b) = cos a cos b + sin a sin b, the sum over inputs is one matrix product. It errs by eps / l^2, as squared
distances do between rows that are 1 / l lengthscales from the centre (`distances.py`): where that is far, each sine is
computed from its difference.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..linalg.blocks import row_blocks
from ..linalg.deferred_reads import Number, happens, is_traced
from ..linalg.denormals import exponential
from ..linalg.randomness import cosines
from ..linalg.seasons import periods, season, seasons
from ..problem import Dataset
from .base import Covariance, Sides, Theta, input_sds, target_sd
from .distances import (
    FAR,
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


class Exponential(Covariance):
    """Base class of kernels with log k(x, z) = a(x)'b(z); theta[0] is the log standard deviation."""

    @abstractmethod
    def features(self, theta: Tensor, X: Tensor, Z: Tensor) -> tuple[Float[Tensor, "n t"], Float[Tensor, "m t"]] | None:
        """Features a(X) [n, t] and b(Z) [m, t], differentiable with respect to theta.

        None if their product would lose digits; the covariances and their gradient are then computed without it.
        """

    def fill(self, theta: Theta, X: Tensor, Z: Tensor, out: Float[Tensor, "n m"]) -> None:
        """Write the covariance into `out`, by row blocks that stay in the cache: 2 n m t flops, n m exponentials."""
        features = self.features(theta, X, Z)
        row_bytes = X.element_size() * max(len(Z), 1)
        blocks = row_blocks(len(X), row_bytes, out, max(FILL_BYTES, FILL_ROWS * row_bytes))
        if features is None:
            for rows in blocks:
                super().fill(theta, X[rows], Z, out[rows])
            return
        A, B = features[0], features[1].T.contiguous()  # B [t, m]
        for rows in blocks:
            exponential(torch.mm(A[rows], B, out=out[rows]).clamp_max_(2.0 * theta[0]))

    def theta_gradient_from_matrix(self, theta: Theta, X: Tensor, Z: Tensor, sides: Sides, K: Tensor) -> Theta | None:
        """Gradient [p] of u'K z from K [n, m] alone, by the formula of the module docstring; summed over k columns.

        4 n m t k flops, and autograd only through the features, O((n + m) t). K may contain further factors. None if
        there are no features for these inputs.
        """
        with torch.inference_mode(False), torch.enable_grad():
            leaf = theta.detach().clone().requires_grad_(True)
            features = self.features(leaf, X, Z)
        if features is None:
            return None
        A, B = (part.detach() for part in features)
        u, z = ((side if side.ndim > 1 else side[:, None])[..., None] for side in sides)  # [n, k, 1], [m, k, 1]
        zB, uA = (z * B[:, None]).flatten(1), (u * A[:, None]).flatten(1)  # [m, k t], [n, k t]
        # products with few rows are faster than products with few columns
        weights_A = (u * (zB.T @ K.T).T.unflatten(1, (u.shape[1], -1))).sum(1)  # [n, t]
        weights_B = (z * (uA.T @ K).T.unflatten(1, (u.shape[1], -1))).sum(1)  # [m, t]

        parts = [pair for pair in zip(features, (weights_A, weights_B), strict=True) if pair[0].requires_grad]
        if not parts:
            return torch.zeros_like(theta)
        outputs, weights = zip(*parts, strict=True)
        (gradient,) = torch.autograd.grad(outputs, leaf, weights)
        return gradient

    def theta_gradient_bilinear(self, theta: Theta, X: Tensor, Z: Tensor, sides: Sides) -> Theta:
        """Gradient [p] of u'k(theta, X, Z) z, summed over k columns; covariances are computed in blocks of rows."""
        (u, z), total = sides, torch.zeros_like(theta)
        for rows in row_blocks(len(X), X.element_size() * max(len(Z), 1), X):
            K = X.new_empty(rows.stop - rows.start, len(Z))  # [block, m]
            self.fill(theta, X[rows], Z, K)
            gradient = self.theta_gradient_from_matrix(theta, X[rows], Z, (u[rows], z), K)
            total += super().theta_gradient_bilinear(theta, X[rows], Z, (u[rows], z)) if gradient is None else gradient
        return total


def _chi2(count: int, freedom: int, draw: torch.Generator) -> Tensor:
    """Draws [count, 1] of the chi-squared distribution."""
    return torch.randn(count, freedom, generator=draw, dtype=torch.float64).square().sum(1, keepdim=True)


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
    def profile(self, theta: Tensor, r2: Tensor, farthest: float = math.inf) -> Tensor:
        """Correlation at squared distance r2, which is at most `farthest`."""

    @abstractmethod
    def profile_derivative(self, theta: Tensor, r2: Tensor) -> Tensor:
        """-2 d profile / d r2; at r2 = 0 it is finite, or 0 where the derivative is infinite."""

    def affine_map(self, theta: Tensor) -> tuple[float, float | Tensor]:
        """Factor and shift that `covariances_` expects to be applied to r2. Folding them into r2 saves a pass."""
        return 1.0, 0.0

    def covariances_(self, theta: Tensor, r2_mapped: Tensor, rounding: Number, farthest: float) -> None:
        """Overwrite squared distances, after `affine_map`, with covariances.

        r2 errs by at most `rounding` and is at most `farthest`.
        """
        r2 = zero_below(r2_mapped, rounding)
        torch.mul(self.profile(theta, r2, farthest), torch.exp(2.0 * theta[0]), out=r2_mapped)

    def __call__(self, theta: Theta, X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m]. 2 n m d flops and n m profiles; in place, by row blocks, if no gradient is needed."""
        lengthscale = theta[self._scales].exp()
        differentiable = torch.is_grad_enabled() and (theta.requires_grad or X.requires_grad or Z.requires_grad)
        is_recorded = differentiable or is_traced()
        if X is Z or is_recorded:
            correlations = self.profile(theta, squared_distances(X, Z, lengthscale))
            return (torch.mul if is_recorded else Tensor.mul_)(correlations, torch.exp(2.0 * theta[0]))
        out = X.new_empty(len(X), len(Z))
        self.fill(theta, X, Z, out)
        return out

    def fill(self, theta: Theta, X: Tensor, Z: Tensor, out: Float[Tensor, "n m"]) -> None:
        """Write the covariance into `out`, by row blocks that stay in the cache."""
        row_bytes = X.element_size() * max(len(Z), 1)
        write, *limits = affine_distances(X, Z, theta[self._scales].exp(), *self.affine_map(theta))
        for rows in row_blocks(len(X), row_bytes, out, max(FILL_BYTES, FILL_ROWS * row_bytes)):
            self.covariances_(theta, write(rows, out[rows]), *limits)

    def diag(self, theta: Theta, X: Tensor) -> Float[Tensor, " n"]:
        """The variance sd^2, n times."""
        return torch.exp(2.0 * theta[0]).expand(X.shape[0]).clone()

    def frequencies(self, theta: Tensor, count: int, draw: torch.Generator) -> Tensor:
        """Draw from the spectral density: normal, or Student's t (Rasmussen and Williams, eq 4.15)."""
        return self._scaled_frequencies(theta, _chi2(count, self.freedom, draw) if self.freedom else None, count, draw)

    def _scaled_frequencies(self, theta: Tensor, chi2: Tensor | None, count: int, draw: torch.Generator) -> Tensor:
        normal = torch.randn(count, self.d, generator=draw, dtype=torch.float64)
        spread = 1.0 if chi2 is None else (self.freedom / chi2).sqrt()
        return normal * (-theta[self._scales]).exp() * spread

    def random_features(self, theta: Theta, count: int, draw: torch.Generator) -> Callable[[Tensor], Tensor] | None:
        """As `Covariance.random_features`; of Student's t, half of the frequencies are those of a longer tail.

        Between rows almost without noise a function varies by the tail alone, in which few of 4096 frequencies would
        lie. Frequencies are drawn from (t of v degrees of freedom + Cauchy) / 2, and weighted by the ratio of the
        densities, which is that of chi2, because both are normal for given chi2 (importance sampling).
        """
        if self.freedom <= 1:
            return super().random_features(theta, count, draw)
        theta, v = theta.double().cpu(), self.freedom
        chi2 = torch.where(torch.arange(count)[:, None] % 2 == 0, _chi2(count, v, draw), _chi2(count, 1, draw))
        log_ratio = 0.5 * (1 - v) * (0.5 * chi2).log() + math.lgamma(0.5 * v) - math.lgamma(0.5)  # Cauchy over t
        weights = torch.sigmoid(-log_ratio[:, 0])
        weights /= weights[: (count + 1) // 2].mean()  # those of `cosines`: the variance at every row is exact
        Omega = self._scaled_frequencies(theta, chi2, count, draw)
        return cosines(Omega, theta[0].exp() * weights.sqrt(), draw)

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
        total[0].addcmul_(g.sum(), torch.exp(2.0 * theta[0]), value=2.0)
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

    def covariances_(self, theta: Tensor, r2_mapped: Tensor, rounding: Number, farthest: float) -> None:
        """The exponential of the logarithm, which rounding must not raise above the variance."""
        exponential(r2_mapped.clamp_max_(2.0 * theta[0]), -0.5 * farthest)

    def profile(self, theta: Tensor, r2: Tensor, farthest: float = math.inf) -> Tensor:
        return exponential(-0.5 * r2, -0.5 * farthest)

    def profile_derivative(self, theta: Tensor, r2: Tensor) -> Tensor:
        return exponential(-0.5 * r2)

    def features(self, theta: Tensor, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor] | None:
        """Factors of log k = 2 log sd - r2 / 2, or None if an input is too wide for them."""
        return distance_factors(X, Z, theta[self._scales].exp(), -0.5, 2.0 * theta[0])

    def by_input(self, theta: Theta) -> list[Callable[[Tensor, Tensor], Tensor]]:
        """One SE kernel per input; the first carries the variance."""
        variance, scales = torch.exp(2.0 * theta[0]), theta[self._scales].exp().expand(self.d)

        def factor(q: int) -> Callable[[Tensor, Tensor], Tensor]:
            return lambda x, z: (
                (variance if q == 0 else 1.0) * exponential(-0.5 * ((x[:, None] - z[None, :]) / scales[q]).square())
            )

        return [factor(q) for q in range(self.d)]


class Matern12(Stationary):
    """Matern-1/2, the exponential kernel: continuous, nowhere differentiable."""

    key, title = "matern12", "Matérn 1/2"
    formula = r"\sigma_f^2 e^{-r}"
    freedom = 1

    def profile(self, theta: Tensor, r2: Tensor, farthest: float = math.inf) -> Tensor:
        return exponential(-safe_sqrt(r2), -math.sqrt(farthest))

    def profile_derivative(self, theta: Tensor, r2: Tensor) -> Tensor:
        r = safe_sqrt(r2)
        return torch.where(r > 0.0, exponential(-r) / r.clamp_min(1e-300 if r.dtype == torch.float64 else 1e-30), 0.0)


class Matern32(Stationary):
    """Matern-3/2: once differentiable."""

    key, title = "matern32", "Matérn 3/2"
    formula = r"\sigma_f^2 (1+\sqrt3 r) e^{-\sqrt3 r}"
    freedom = 3

    def profile(self, theta: Tensor, r2: Tensor, farthest: float = math.inf) -> Tensor:
        r = math.sqrt(3.0) * safe_sqrt(r2)
        return (1.0 + r) * exponential(-r, -math.sqrt(3.0 * farthest))

    def profile_derivative(self, theta: Tensor, r2: Tensor) -> Tensor:
        return 3.0 * exponential(-math.sqrt(3.0) * safe_sqrt(r2))


class Matern52(Stationary):
    """Matern-5/2: twice differentiable."""

    key, title = "matern52", "Matérn 5/2"
    formula = r"\sigma_f^2 (1+\sqrt5 r+\tfrac53 r^2) e^{-\sqrt5 r}"
    freedom = 5

    def profile(self, theta: Tensor, r2: Tensor, farthest: float = math.inf) -> Tensor:
        r = math.sqrt(5.0) * safe_sqrt(r2)
        return (1.0 + r + (5.0 / 3.0) * r2) * exponential(-r, -math.sqrt(5.0 * farthest))

    def profile_derivative(self, theta: Tensor, r2: Tensor) -> Tensor:
        r = math.sqrt(5.0) * safe_sqrt(r2)
        return (5.0 / 3.0) * (1.0 + r) * exponential(-r)


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

    def profile(self, theta: Tensor, r2: Tensor, farthest: float = math.inf) -> Tensor:
        alpha = theta[self.size - 1].exp()
        return exponential(-alpha * torch.log1p(r2 / (2.0 * alpha)))

    def profile_derivative(self, theta: Tensor, r2: Tensor) -> Tensor:
        alpha = theta[self.size - 1].exp()
        return exponential(-(alpha + 1.0) * torch.log1p(r2 / (2.0 * alpha)))

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


PERIOD_ROWS = 4096  # rows, some of those of longer series, whose waves are compared one by one for the initial period


class Periodic(Exponential):
    """Periodic kernel: theta = [log sd, log lengthscale, log period, log noise sd].

    All inputs share the period (in the units of the input) and the lengthscale (of the sine, without unit).
    """

    key, title, stationary = "periodic", "periodic", True
    formula = r"\sigma_f^2 \exp\left(-\tfrac{2}{\ell^2}\sum_q \sin^2 \tfrac{\pi (x_q-x_q')}{p}\right)"
    parameter_names: tuple[str, ...] = ("sd", "lengthscale", "period")

    def __call__(self, theta: Theta, X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the rows of X and Z; 4 n m d flops or n m d sines, and n m exponentials."""
        weight = torch.exp(-2.0 * theta[1])
        sines = squared_sines(X, Z, theta[2].exp(), from_products=not is_traced() and not _is_far(weight))
        return exponential(2.0 * theta[0] - sines * weight)

    def diag(self, theta: Theta, X: Tensor) -> Float[Tensor, " n"]:
        """The variance sd^2, n times."""
        return torch.exp(2.0 * theta[0]).expand(X.shape[0]).clone()

    def features(self, theta: Tensor, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor] | None:
        """Factors of log k = 2 log sd - S / l^2, S = d - sum_q (cos a_q cos b_q + sin a_q sin b_q).

        None if 1 / l is far, so that their product would lose digits.
        """
        weight, frequency, centre = torch.exp(-2.0 * theta[1]), 2.0 * math.pi * torch.exp(-theta[2]), Z.mean(0)
        if _is_far(weight):
            return None
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
        """One such kernel per input; the first carries the variance."""
        without_variance = torch.cat([torch.zeros_like(theta[:1]), theta[1:]])

        def factor(own: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
            return lambda x, z: self(own, x[:, None], z[:, None])

        return [factor(theta), *[factor(without_variance)] * (self.d - 1)]


class LocallyPeriodic(Periodic):
    """Locally periodic kernel: theta = [log sd, log lengthscale, log period, log width, log noise sd]."""

    key, title = "lp", "locally periodic"
    formula = r"\sigma_f^2 \exp\left(-\tfrac{2}{\ell^2}\sum_q\sin^2\tfrac{\pi(x_q-x_q')}{p} - \tfrac{r^2}{2w^2}\right)"
    parameter_names = (*Periodic.parameter_names, "width")  # over which repetitions lose their correlation

    def __call__(self, theta: Theta, X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the rows of X and Z."""
        return super().__call__(theta, X, Z) * exponential(-0.5 * squared_distances(X, Z, theta[3].exp()))

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


def squared_sines(
    X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], period: Tensor, from_products: bool = True
) -> Float[Tensor, "n m"]:
    """Return 2 sum_q sin^2(pi (x_q - z_q) / period) for every pair of rows; never negative.

    Those of several inputs may come from products, which are fast and err by eps d.
    """
    if X.shape[1] == 1 or not from_products:
        sines = [torch.sin((math.pi / period) * (X[:, q, None] - Z[:, q])).square() for q in range(X.shape[1])]
        return 2.0 * reduce(torch.add, sines)
    centre = Z.mean(0)
    a, b = (2.0 * math.pi / period) * (X - centre), (2.0 * math.pi / period) * (Z - centre)
    return (X.shape[1] - a.cos() @ b.cos().T - a.sin() @ b.sin().T).clamp_min(0.0)


def _is_far(weight: Tensor) -> bool:
    """Whether products of sines that are multiplied by a weight lose digits."""
    return happens(weight.detach() > FAR.get(weight.dtype, FAR[torch.float32]) ** 2)


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
