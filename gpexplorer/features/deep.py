"""Learned feature maps: a fully connected network, or the inputs themselves, each with its own scale.

    H_0 = X,   H_l = act(H_{l-1} W_l' + b_l)          parameters W_l [out, in], b_l [out], one flat vector alpha

The parameters are one vector, so that an optimiser needs only a few operations. Gradients are in closed form, so that a
minibatch costs little more than its matrix products. Autograd through the same functions gives the same gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear, softplus

from ..linalg.randomness import generator

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

    def pullback(
        self, parts: Parts, H: list[Tensor], G: Float[Tensor, "b w"], into: Parts, into_X: Tensor | None = None
    ) -> None:
        """Write the gradient with respect to the parameters into `into`, given that of the features. 4 b size flops.

        The gradient with respect to the first rows of X is written into `into_X`, as many as it has.
        """
        for k in range(len(H) - 1, 0, -1):
            G = self.activation.derivative(H[k]).mul_(G)
            torch.mm(G.T, H[k - 1], out=into[2 * k - 2])
            torch.sum(G, 0, out=into[2 * k - 1])
            if k > 1:
                G = G @ parts[2 * k - 2]
            elif into_X is not None:
                torch.mm(G[: len(into_X)], parts[0], out=into_X)


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

    def pullback(
        self, parts: Parts, H: list[Tensor], G: Float[Tensor, "b w"], into: Parts, into_X: Tensor | None = None
    ) -> None:
        """Write the gradient with respect to the log scales, and to the first rows of X, as `Network` does."""
        torch.sum(G * H[-1], 0, out=into[0])
        if into_X is not None:
            torch.mul(G[: len(into_X), : self.d], parts[0][: self.d].exp(), out=into_X)
