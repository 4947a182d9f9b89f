"""Learned feature maps: a fully connected network, or the inputs themselves, each with its own scale.

    H_0 = X,   H_l = act(H_{l-1} W_l' + b_l)          parameters W_l [out, in], b_l [out], one flat vector alpha

Parameters are one vector, so that an optimiser is a few operations; gradients are written out, so that a minibatch
costs its matrix products and little else. Plain operations throughout: autograd gives the same.
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

Parts = list[Tensor]  # views of the flat vector, one a parameter


class Activation(NamedTuple):
    """A function, in the place of its argument where it can be, and its slope as a function of its value."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    gain: float  # of the start: keeps the size of what goes through


ACTIVATIONS = {
    "relu": Activation(torch.relu_, torch.sign, math.sqrt(2.0)),
    "tanh": Activation(torch.tanh_, lambda H: 1.0 - H.square(), 5.0 / 3.0),
    "softplus": Activation(softplus, lambda H: -torch.expm1(-H), math.sqrt(2.0)),
}


def views(flat: Float[Tensor, " p"], shapes: Sequence[tuple[int, ...]]) -> Parts:
    """The vector cut into tensors of these shapes, none copied."""
    sizes = [math.prod(shape) for shape in shapes]
    return [part.view(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)]


class Network:
    """Fully connected layers, each followed by the activation."""

    closed = True  # gradients are written out: nothing is left for autograd

    def __init__(self, sizes: list[int], activation: str) -> None:
        self.sizes, self.activation = sizes, ACTIVATIONS[activation]
        self.width = sizes[-1]
        self.shapes = [shape for i, o in pairwise(sizes) for shape in ((o, i), (o,))]
        self.size = sum(math.prod(shape) for shape in self.shapes)

    def start(self, seed: int) -> Float[Tensor, " p"]:
        """Weights of variance gain^2 / in (He et al. 2015), biases uniform within 1 / sqrt(in)."""
        alpha, draw = torch.zeros(self.size, dtype=torch.float64), generator(seed, "network")
        parts = views(alpha, self.shapes)
        for W, bias in zip(parts[::2], parts[1::2], strict=True):
            root = 1.0 / math.sqrt(W.shape[1])
            W.normal_(0.0, self.activation.gain * root, generator=draw)
            bias.uniform_(-root, root, generator=draw)
        return alpha

    def layers(self, parts: Parts, X: Float[Tensor, "b d"]) -> list[Tensor]:
        """H_0, ..., H_L; the last [b, width] is the answer. 2 b (size) flops."""
        H = [X]
        for W, bias in zip(parts[::2], parts[1::2], strict=True):
            H.append(self.activation.value(linear(H[-1], W, bias)))
        return H

    def pullback(self, parts: Parts, H: list[Tensor], G: Float[Tensor, "b w"], into: Parts) -> None:
        """Write the gradient in the parameters, given that in the answer, into `into`. 4 b (size) flops."""
        for k in range(len(H) - 1, 0, -1):
            G = self.activation.slope(H[k]).mul_(G)
            torch.mm(G.T, H[k - 1], out=into[2 * k - 2])
            torch.sum(G, 0, out=into[2 * k - 1])
            if k > 1:
                G = G @ parts[2 * k - 2]


class Scaled:
    """The inputs themselves, each times its own scale, and a constant: the features of Bayesian linear regression."""

    closed = True

    def __init__(self, d: int, constant: bool) -> None:
        self.d, self.constant = d, constant
        self.width = self.size = d + constant
        self.shapes = [(self.size,)]

    def start(self, seed: int) -> Float[Tensor, " p"]:
        """All scales one, whatever the seed; log scales are the parameters."""
        return torch.zeros(self.size, dtype=torch.float64)

    def layers(self, parts: Parts, X: Float[Tensor, "b d"]) -> list[Tensor]:
        """The inputs, the constant among them, and the same scaled."""
        X = torch.cat([X, X.new_ones(len(X), 1)], 1) if self.constant else X
        return [X, X * parts[0].exp()]

    def pullback(self, parts: Parts, H: list[Tensor], G: Float[Tensor, "b w"], into: Parts) -> None:
        """Write the gradient in the log scales into `into`."""
        torch.sum(G * H[-1], 0, out=into[0])
