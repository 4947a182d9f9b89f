"""Learned features at fixed parameters, as features of a regression and as a kernel.

    linear      phi = e^m z(x),                      k = phi(x)'phi(x')
    gaussian    phi = random Fourier features of z,  k = e^2m exp(-|z(x) - z(x')|^2 / (2 l^2))

z is a network, a torch module, or the inputs with one scale per input. theta = [its parameters, (log l), m, log noise].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

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
        z = x if Z is X else self._scaled(theta, Z)
        if self.linear:
            return x @ z.T
        squared_distance = x.square().sum(1)[:, None] + z.square().sum(1) - 2.0 * x @ z.T  # [n, m]
        return (2.0 * theta[-2] - 0.5 * squared_distance.clamp_min(0.0)).exp()

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
