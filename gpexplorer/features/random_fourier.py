"""Random Fourier features of the Gaussian kernel, drawn plainly, orthogonally, or in pairs.

k(z, z') = v exp(-|z - z'|^2 / (2 l^2)) = E phi(z)'phi(z'),     T = Z Omega' / l,  Omega rows ~ N(0, I)

plain        phi = sqrt(2 v / D) cos(T + c), c uniform in [0, 2 pi)       Rahimi and Recht (2007), algorithm 1
paired       phi = sqrt(2 v / D) [cos T, sin T], D / 2 frequencies        of smaller variance: phi'phi = v exactly
orthogonal   paired, with Omega's rows orthogonal in blocks of d          Yu et al. (2016)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..linalg.randomness import generator

KINDS = ("orthogonal", "paired", "plain")


class Waves(NamedTuple):
    """Phases of a minibatch and the features they give."""

    T: Tensor  # [b, m] phases, without c
    Phi: Tensor  # [b, D]


class RandomFourier:
    """D features of inputs [b, d]; their two hyperparameters are (log lengthscale, log magnitude sqrt(v))."""

    size = 2

    def __init__(self, d: int, num_features: int, kind: str, seed: int) -> None:
        self.kind, self.width = kind, num_features if kind == "plain" else 2 * math.ceil(num_features / 2)
        draw, m = generator(seed, "frequencies"), self.width if kind == "plain" else self.width // 2
        self.Omega = orthogonal(m, d, draw) if kind == "orthogonal" else normal(m, d, draw)  # [m, d]
        self.c = 2.0 * math.pi * torch.rand(m, generator=draw, dtype=torch.float64)  # [m], of the plain kind

    def to(self, like: Tensor) -> RandomFourier:
        """The same frequencies on this tensor's device, in its precision."""
        self.Omega, self.c = self.Omega.to(like), self.c.to(like)
        return self

    def __call__(self, logs: Float[Tensor, "2"], Z: Float[Tensor, "b d"]) -> Float[Tensor, "b D"]:
        """Phi; differentiable in both arguments. 2 b m d flops."""
        return self.waves(logs, Z).Phi

    def waves(self, logs: Float[Tensor, "2"], Z: Float[Tensor, "b d"]) -> Waves:
        """Phi, with what its gradient needs."""
        T = (Z @ self.Omega.T) * (-logs[0]).exp()
        parts = [torch.cos(T + self.c)] if self.kind == "plain" else [T.cos(), T.sin()]
        return Waves(T, torch.cat(parts, 1) * (math.sqrt(2.0 / self.width) * logs[1].exp()))

    def pullback(self, logs: Float[Tensor, "2"], at: Waves, G: Float[Tensor, "b D"], into: Tensor) -> Tensor:
        """d/dZ [b, d], given d/dPhi; d/dlogs is written into `into` [2]. 2 b m d flops."""
        if self.kind == "plain":
            slope = -G * torch.sin(at.T + self.c) * (math.sqrt(2.0 / self.width) * logs[1].exp())
        else:
            m = self.width // 2
            slope = G[:, m:] * at.Phi[:, :m] - G[:, :m] * at.Phi[:, m:]  # [b, m] d/dT
        into[0] = -torch.vdot(slope.flatten(), at.T.flatten())
        into[1] = torch.sum(G * at.Phi)
        return (slope @ self.Omega) * (-logs[0]).exp()


def normal(m: int, d: int, draw: torch.Generator) -> Float[Tensor, "m d"]:
    """Frequencies, independent."""
    return torch.randn(m, d, generator=draw, dtype=torch.float64)


def orthogonal(m: int, d: int, draw: torch.Generator) -> Float[Tensor, "m d"]:
    """Frequencies orthogonal in blocks of d, each as long as an independent one would be. m d^2 flops."""
    drawn, lengths = torch.randn(2, math.ceil(m / d), d, d, generator=draw, dtype=torch.float64)
    Q, R = torch.linalg.qr(drawn)  # all blocks at once: a wide enough one has a million
    signs = R.diagonal(dim1=1, dim2=2).sign()[:, None, :]
    return (Q * signs * lengths.norm(dim=2)[:, :, None]).flatten(0, 1)[:m]
