"""The kernel these methods learn: k(x, x') = phi(x)'phi(x') with D features, all of whose parameters are in theta.

    theta = [map, (log lengthscale), log magnitude m, log noise sd],   s2 = exp(2 theta_last)
    linear      phi = e^m z(x)                       z: a network, or the inputs, each with its own scale
    gaussian    phi = random Fourier features of z(x), D of them

The problem's own kernel is asked once, for the prior variance to begin with; its theta gives the first noise.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import SettingError
from ...features.deep import Network, Parts, Scaled, views
from ...features.pretrained import Module, Pretrained
from ...features.random_fourier import RandomFourier, Waves
from ...linalg.randomness import generator
from ...problem import Problem

ROWS = 500  # whose prior variance the start is matched on


class Tape(NamedTuple):
    """Features of some rows, with what their gradient needs."""

    Phi: Tensor  # [b, D]
    H: list[Tensor]  # outputs of the layers
    scale: Tensor  # [1] e^m
    waves: Waves | None


class Model:
    """phi, the layout of theta, and the rows to learn from: `held` out of n are set aside for validation.

    Raises SettingError where the inputs are no numbers.
    """

    def __init__(self, method: Any, problem: Problem, validation: float = 0.0) -> None:
        train = problem.train
        if not isinstance(train.X, Tensor):
            raise SettingError(f"{method.title} needs columns of numbers, but these inputs are objects.")
        self.problem, self.seed, self.n, self.like = problem, method.seed, len(train), train.y
        self.kept: Tensor | None = None
        self.held = torch.zeros(0, dtype=torch.int64)
        if held := min(math.ceil(validation * self.n), self.n - 1):
            order = torch.randperm(self.n, generator=generator(self.seed, "validation"))
            self.held, self.kept, self.n = order[:held], order[held:], self.n - held
        linear = method.kernel == "linear"
        self.map = _map(method, train.d, self.like)
        self.waves = None
        if not linear:
            waves = RandomFourier(self.map.width, method.num_features, method.frequencies, method.seed)
            self.waves = waves.to(train.y)
        self.D = self.waves.width if self.waves else self.map.width
        self.shapes = [*self.map.shapes, (1,) if linear else (2,), (1,)]
        self.size = sum(math.prod(shape) for shape in self.shapes)

    def start(self) -> Float[Tensor, " p"]:
        """Theta before any row was seen: lengthscale the size of z, magnitude one, the problem's noise."""
        theta = torch.zeros(self.size, dtype=torch.float64)
        theta[: self.map.size] = self.map.start(self.seed)
        if self.waves:
            theta[-3] = 0.5 * math.log(self.map.width)
        theta[-1] = float(self.problem.theta[-1])
        return theta.to(self.like)

    def matched(self, theta: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """The same theta with the prior variance of the problem's own kernel, on average over its first rows."""
        X = self.problem.train.X[:ROWS].to(self.like)
        ours = float(self.features(self.parts(theta), X).Phi.square().sum(1).mean())
        theirs = float(self.problem.kernel.diag(self.problem.theta, X).mean())
        theta = theta.clone()
        theta[-2] += 0.5 * math.log(theirs / ours) if ours > 0.0 else 0.0
        return theta

    def parts(self, theta: Float[Tensor, " p"]) -> Parts:
        """Views of theta: the map's, the kernel's, the noise."""
        return views(theta, self.shapes)

    def features(self, parts: Parts, X: Float[Tensor, "b d"]) -> Tape:
        """phi of these rows [b, D]."""
        H, scale = self.map.layers(parts[:-2], X), parts[-2][-1:].exp()
        if self.waves is None:
            return Tape(H[-1] * scale, H, scale, None)
        waves = self.waves.waves(parts[-2], H[-1])
        return Tape(waves.Phi, H, scale, waves)

    def pullback(self, parts: Parts, at: Tape, G: Float[Tensor, "b D"], into: Parts) -> None:
        """Write the gradient in all but the noise into `into`, given that in Phi; G is used up."""
        if self.waves is None or at.waves is None:
            into[-2].copy_(torch.dot(G.flatten(), at.Phi.flatten()))
            G.mul_(at.scale)
        else:
            G = self.waves.pullback(parts[-2], at.waves, G, into[-2])
        self.map.pullback(parts[:-2], at.H, G, into[:-2])

    def rows(self, index: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Inputs [b, d] and targets [b] of rows 0..n to learn from, where theta lives: X may be a file."""
        return self._taken(index if self.kept is None else self.kept[index])

    def validation(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the rows set aside."""
        return self._taken(self.held)

    def _taken(self, index: slice | Tensor) -> tuple[Tensor, Tensor]:
        train = self.problem.train
        return sent(train.X, index, self.like.device, self.like.dtype), taken(train.y, index)


def _map(method: Any, d: int, like: Tensor) -> Network | Scaled | Module:
    """What makes z of x: `method.features` where it was given any, else as the settings say."""
    given = method.features
    if given is None:
        sizes, constant = [d, *[method.width] * method.layers], method.kernel == "linear"
        return Network(sizes, method.activation) if method.layers else Scaled(d, constant)
    if isinstance(given, torch.nn.Module):
        return Module(given, d, like)
    if not isinstance(given, Pretrained):
        wanted = "a torch module, or what features.pretrained.load gives"
        raise SettingError(f"{method.title}'s features are a {type(given).__name__}; give {wanted}.")
    if given.sizes[0] != d:
        raise SettingError(f"The weights are of a network for {given.sizes[0]} inputs, but there are {d}.")
    return given


def taken(X: Tensor, index: slice | Tensor) -> Tensor:
    """These rows, where X lives."""
    return X[index] if isinstance(index, slice) else X.index_select(0, index.to(X.device))


def sent(X: Tensor, index: slice | Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Rows of X, which may be a file, on a device: to a GPU by page-locked memory, without waiting for it."""
    here = taken(X, index)
    if device.type == "cuda" and X.device.type == "cpu":
        return here.pin_memory().to(device, non_blocking=True).to(dtype)
    return here.to(device, dtype)
