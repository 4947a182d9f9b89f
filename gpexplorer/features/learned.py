"""Learned features at fixed parameters, as features of a regression and as a kernel.

    linear      phi = e^m z(x),                      k = phi(x)'phi(x')
    gaussian    phi = random Fourier features of z,  k = e^2m exp(-|z(x) - z(x')|^2 / (2 l^2))

z is a network, a torch module, or the inputs with one scale per input. theta = [its parameters, (log l), m, log noise].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..linalg.deferred_reads import Number, add_multiple, exp, number
from ..linalg.denormals import exponential
from ..linalg.randomness import cosines
from .deep import Network, Parts, Scaled, views
from .pretrained import Module
from .random_fourier import RandomFourier


class LearnedFeatures:
    """The features phi of a row at one theta.

    Parameters
    ----------
    map : Network, Scaled or Module
        z.
    waves : RandomFourier or None
        The random Fourier features, or None for the linear kernel.
    theta : Tensor [p]
    """

    def __init__(self, map: Network | Scaled | Module, waves: RandomFourier | None, theta: Tensor) -> None:
        self.map, self.waves, self.theta = map, waves, theta.detach()

    def __len__(self) -> int:
        return self.waves.width if self.waves else self.map.width

    def __call__(self, X: Tensor) -> Tensor:
        """Features [D, b] of one block of rows."""
        parts = learned_parts(self.map, self.waves is None, self.theta)
        z = self.map.layers(parts[:-2], X.to(self.theta))[-1]
        return (z * parts[-2][-1].exp()).T if self.waves is None else self.waves(parts[-2], z).T


class CovarianceTape(NamedTuple):
    """The covariance of the first rows of X with all of them, and the intermediate values that its gradient needs."""

    K: Tensor  # [m, n]
    z: Tensor  # [n, width] e^m z(x) for the linear kernel, z(x) / l for the Gaussian one
    H: list[Tensor]  # outputs of the layers
    scale: Tensor  # [1] e^m or 1 / l


class LearnedKernel:
    """The kernel of learned features; theta is an argument, as for every kernel.

    Parameters
    ----------
    map : Network, Scaled or Module
        z.
    linear : bool
        Whether the kernel is linear in z, and Gaussian otherwise.
    """

    key = "learned features"

    def __init__(self, map: Network | Scaled | Module, linear: bool) -> None:
        self.map, self.linear = map, linear

    @property
    def names(self) -> tuple[str, ...]:
        """One name per parameter; those of the feature map have numbers."""
        own = ("magnitude",) if self.linear else ("lengthscale", "magnitude")
        return (*(f"weight {i + 1}" for i in range(self.map.size)), *own, "noise")

    def start(self, train: Any) -> Tensor:
        """Initial theta: that of the feature map with seed 0, lengthscale and magnitude 1, noise 1."""
        own = self.map.start(0).to(train.y)
        return torch.cat([own, own.new_zeros(2 if self.linear else 3)])

    def __call__(self, theta: Tensor, X: Tensor, Z: Tensor) -> Tensor:
        """Covariance [n, m]; if Z is the same object as X, z is evaluated only once."""
        x = self._scaled(theta, X)
        return self._of_scaled(x, x if Z is X else self._scaled(theta, Z), theta[-2])

    def first_rows(self, parts: Parts, X: Tensor, m: int) -> CovarianceTape:
        """Return the covariance [m, n] of the first m rows with all rows; parts are views of theta."""
        H = self.map.layers(parts[:-2], X)
        scale = parts[-2].exp() if self.linear else (-parts[-2][:1]).exp()
        z = H[-1] * scale
        return CovarianceTape(self._of_scaled(z[:m], z, parts[-2][-1]), z, H, scale)

    def pullback(
        self, parts: Parts, tape: CovarianceTape, G: Tensor, variance: float, into: Parts, into_X: Tensor
    ) -> None:
        """Write the gradient with respect to all parameters except the noise, and to the first m rows.

        Parameters
        ----------
        parts : Parts
            The parameters at which `tape` was computed.
        tape : CovarianceTape
            Result of `first_rows`.
        G : Tensor [m, n]
            Gradient with respect to K, symmetric in the first m columns; it is overwritten.
        variance : float
            Gradient with respect to the prior variance of each of the other rows.
        into : Parts
            Views of the gradient vector, laid out like `parts`.
        into_X : Tensor [m, d]
            Memory for the gradient with respect to the first m rows.
        """
        z, m = tape.z, len(G)
        if not self.linear:
            G.mul_(tape.K)  # [m, n] gradient with respect to log K
            columns = G.sum(0)  # [n]
            into[-2][-1] = 2.0 * (columns.sum() + self.diag_sum(parts, tape, m) * variance)
            columns[:m].mul_(2.0).add_(G[:, m:].sum(1))
        G[:, :m].mul_(2.0)  # these rows are on both sides
        dz = torch.cat([torch.mm(G, z), torch.mm(G[:, m:].T, z[:m])])  # [n, width]
        if self.linear:
            add_multiple(dz[m:], z[m:], 2.0 * variance)
            into[-2].copy_(torch.dot(dz.flatten(), z.flatten()))
        else:
            dz.addcmul_(columns[:, None], z, value=-1.0)
            into[-2][:1].copy_(torch.dot(dz.flatten(), z.flatten()).neg_())
        self.map.pullback(parts[:-2], tape.H, dz.mul_(tape.scale), into[:-2], into_X)

    def diag_sum(self, parts: Parts, tape: CovarianceTape, m: int) -> Number:
        """Return the sum of the prior variances of the rows after the first m."""
        z = tape.z[m:]
        if self.linear:
            return number(torch.dot(z.flatten(), z.flatten()))
        return len(z) * exp(2.0 * number(parts[-2][-1]))

    def _of_scaled(self, x: Tensor, z: Tensor, log_magnitude: Tensor) -> Tensor:
        """Covariance [n, m] of scaled features."""
        if self.linear:
            return x @ z.T
        squared_distance = x.square().sum(1)[:, None] + z.square().sum(1) - 2.0 * x @ z.T  # [n, m]
        return exponential(2.0 * log_magnitude - 0.5 * squared_distance.clamp_min(0.0))

    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
        """Prior variance [n]."""
        if self.linear:
            return self._scaled(theta, X).square().sum(1)
        return (2.0 * theta[-2]).exp().expand(X.shape[0])

    def random_features(self, theta: Tensor, count: int, draw: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Random features as in `kernels.base.Covariance.random_features`."""
        Omega = torch.randn(count, self.map.width, generator=draw, dtype=torch.float64)
        if self.linear:
            return lambda X: self._scaled(theta, X).double() @ Omega.T.to(X.device)
        waves = cosines(Omega, math.exp(float(theta[-2])), draw)
        return lambda X: waves(self._scaled(theta, X))

    def _scaled(self, theta: Tensor, X: Tensor) -> Tensor:
        """e^m z(x) for the linear kernel, and z(x) / l for the Gaussian one [n, width]."""
        parts = learned_parts(self.map, self.linear, theta)
        z = self.map.layers(parts[:-2], X.to(theta))[-1]
        return z * (parts[-2][-1].exp() if self.linear else (-theta[-3]).exp())


def learned_parts(map: Network | Scaled | Module, linear: bool, theta: Tensor) -> Parts:
    """Views of theta: the parameters of the feature map, of the kernel, and the noise."""
    return views(theta, [*map.shapes, (1,) if linear else (2,), (1,)])
