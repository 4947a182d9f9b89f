"""Learned feature maps, and their features at fixed parameters for a regression and as a kernel.

A map z is a fully connected network, a torch module, or the inputs with one scale per input:

    H_0 = X,   H_l = act(H_{l-1} W_l' + b_l),   z = H_L       parameters W_l [out, in], b_l [out], one flat vector alpha

The parameters are one vector, so that an optimiser needs only a few operations. Gradients are in closed form, so that a
minibatch costs little more than its matrix products. Autograd through the same functions gives the same gradients.

    linear      phi = e^m z(x),                      k = phi(x)'phi(x')
    gaussian    phi = random Fourier features of z,  k = e^2m exp(-|z(x) - z(x')|^2 / (2 l^2))

theta = [parameters of z, (log l), m, log noise].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear, softplus

from ..linalg.randomness import cosines, generator
from .pretrained import Module
from .random_fourier import RandomFourier

Parts = list[Tensor]  # views of the flat vector, one per parameter tensor


class Activation(NamedTuple):
    """An activation function, applied in place where possible, and its derivative as a function of its value."""

    value: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]
    gain: float  # factor of the initial weights that keeps the variance of the outputs


ACTIVATIONS = {
    "relu": Activation(torch.relu_, torch.sign, math.sqrt(2.0)),
    "tanh": Activation(torch.tanh_, lambda H: 1.0 - H.square(), 5.0 / 3.0),
    "softplus": Activation(softplus, lambda H: -torch.expm1(-H), math.sqrt(2.0)),
}


def views(flat: Float[Tensor, " p"], shapes: Sequence[tuple[int, ...]]) -> Parts:
    """Return views of a flat vector with these shapes, without copies."""
    sizes = [math.prod(shape) for shape in shapes]
    return [part.view(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)]


class Network:
    """A network of fully connected layers, each followed by the activation.

    Parameters
    ----------
    sizes : list of int
        Number of inputs, then the outputs of each layer.
    activation : str
        Key of `ACTIVATIONS`.
    """

    closed = True  # gradients are in closed form and do not need autograd

    def __init__(self, sizes: list[int], activation: str) -> None:
        self.sizes, self.activation = sizes, ACTIVATIONS[activation]
        self.width = sizes[-1]
        self.shapes = [shape for i, o in pairwise(sizes) for shape in ((o, i), (o,))]
        self.size = sum(math.prod(shape) for shape in self.shapes)

    def start(self, seed: int) -> Float[Tensor, " p"]:
        """Draw weights of variance gain^2 / inputs (He et al. 2015) and uniform biases up to 1 / sqrt(inputs)."""
        alpha, draw = torch.zeros(self.size, dtype=torch.float64), generator(seed, "network")
        parts = views(alpha, self.shapes)
        for W, bias in zip(parts[::2], parts[1::2], strict=True):
            root = 1.0 / math.sqrt(W.shape[1])
            W.normal_(0.0, self.activation.gain * root, generator=draw)
            bias.uniform_(-root, root, generator=draw)
        return alpha

    def layers(self, parts: Parts, X: Float[Tensor, "b d"]) -> list[Tensor]:
        """Return the outputs H_0, ..., H_L of all layers; the last one [b, width] are the features. 2 b size flops."""
        H = [X]
        for W, bias in zip(parts[::2], parts[1::2], strict=True):
            H.append(self.activation.value(linear(H[-1], W, bias)))
        return H

    def pullback(self, parts: Parts, H: list[Tensor], G: Float[Tensor, "b w"], into: Parts) -> None:
        """Write the gradient with respect to the parameters into `into`, given that of the features. 4 b size flops."""
        for k in range(len(H) - 1, 0, -1):
            G = self.activation.derivative(H[k]).mul_(G)
            torch.mm(G.T, H[k - 1], out=into[2 * k - 2])
            torch.sum(G, 0, out=into[2 * k - 1])
            if k > 1:
                G = G @ parts[2 * k - 2]


class Scaled:
    """The inputs with one scale per input, and optionally a constant: the features of Bayesian linear regression."""

    closed = True

    def __init__(self, d: int, constant: bool) -> None:
        self.d, self.constant = d, constant
        self.width = self.size = d + constant
        self.shapes = [(self.size,)]

    def start(self, seed: int) -> Float[Tensor, " p"]:
        """Return the initial log scales, which are zero for every seed."""
        return torch.zeros(self.size, dtype=torch.float64)

    def layers(self, parts: Parts, X: Float[Tensor, "b d"]) -> list[Tensor]:
        """Return the inputs with the constant, and the scaled inputs."""
        X = torch.cat([X, X.new_ones(len(X), 1)], 1) if self.constant else X
        return [X, X * parts[0].exp()]

    def pullback(self, parts: Parts, H: list[Tensor], G: Float[Tensor, "b w"], into: Parts) -> None:
        """Write the gradient with respect to the log scales into `into`."""
        torch.sum(G * H[-1], 0, out=into[0])


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
