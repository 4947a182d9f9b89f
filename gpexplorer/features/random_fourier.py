"""Random Fourier features of the Gaussian kernel with independent, paired or orthogonal frequencies.

k(z, z') = v exp(-|z - z'|^2 / (2 l^2)) = E phi(z)'phi(z'),     T = Z Omega' / l,  Omega rows ~ N(0, I)

plain        phi = sqrt(2 v / D) cos(T + c), c uniform in [0, 2 pi)       Rahimi and Recht (2007), algorithm 1
paired       phi = sqrt(2 v / D) [cos T, sin T], D / 2 frequencies        smaller variance: phi'phi = v exactly
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
    """The phases of a minibatch and its features."""

    T: Tensor  # [b, m] phases without the offset c
    Phi: Tensor  # [b, D]


class RandomFourier:
    """A map from inputs [b, d] to D random Fourier features.

    Its two hyperparameters are the log lengthscale and the log magnitude sqrt(v).

    Parameters
    ----------
    d : int
        Number of inputs.
    num_features : int
        Number of features D; an odd number is rounded up except for kind "plain".
    kind : str
        "orthogonal", "paired" or "plain".
    seed : int
        Seed of the frequencies.
    """

    size = 2

    def __init__(self, d: int, num_features: int, kind: str, seed: int) -> None:
        self.kind, self.width = kind, num_features if kind == "plain" else 2 * math.ceil(num_features / 2)
        draw, m = generator(seed, "frequencies"), self.width if kind == "plain" else self.width // 2
        self.Omega = orthogonal(m, d, draw) if kind == "orthogonal" else normal(m, d, draw)  # [m, d]
        self.c = 2.0 * math.pi * torch.rand(m, generator=draw, dtype=torch.float64)  # [m] offsets of kind "plain"

    def to(self, like: Tensor) -> RandomFourier:
        """Move the frequencies to the device and precision of `like`, and return this object."""
        self.Omega, self.c = self.Omega.to(like), self.c.to(like)
        return self

    def __call__(self, logs: Float[Tensor, "2"], Z: Float[Tensor, "b d"]) -> Float[Tensor, "b D"]:
        """Return Phi [b, D], differentiable with respect to both arguments. 2 b m d flops."""
        return self.waves(logs, Z).Phi

    def waves(self, logs: Float[Tensor, "2"], Z: Float[Tensor, "b d"]) -> Waves:
        """Return Phi together with the phases, which its gradient needs."""
        T = (Z @ self.Omega.T) * (-logs[0]).exp()
        parts = [torch.cos(T + self.c)] if self.kind == "plain" else [T.cos(), T.sin()]
        return Waves(T, torch.cat(parts, 1) * (math.sqrt(2.0 / self.width) * logs[1].exp()))

    def pullback(self, logs: Float[Tensor, "2"], waves: Waves, G: Float[Tensor, "b D"], into: Tensor) -> Tensor:
        """Return the gradient with respect to Z [b, d], given the gradient G with respect to Phi. 2 b m d flops.

        The gradient with respect to `logs` is written into `into` [2].
        """
        if self.kind == "plain":
            phase_gradient = -G * torch.sin(waves.T + self.c) * (math.sqrt(2.0 / self.width) * logs[1].exp())
        else:
            m = self.width // 2
            phase_gradient = G[:, m:] * waves.Phi[:, :m] - G[:, :m] * waves.Phi[:, m:]  # [b, m] d/dT
        into[0] = -torch.vdot(phase_gradient.flatten(), waves.T.flatten())
        into[1] = torch.sum(G * waves.Phi)
        return (phase_gradient @ self.Omega) * (-logs[0]).exp()


def normal(m: int, d: int, draw: torch.Generator) -> Float[Tensor, "m d"]:
    """Draw m independent frequencies [m, d]."""
    return torch.randn(m, d, generator=draw, dtype=torch.float64)


def orthogonal(m: int, d: int, draw: torch.Generator) -> Float[Tensor, "m d"]:
    """Draw m frequencies [m, d], orthogonal in blocks of d, with the lengths of independent ones. m d^2 flops."""
    drawn, lengths = torch.randn(2, math.ceil(m / d), d, d, generator=draw, dtype=torch.float64)
    Q, R = torch.linalg.qr(drawn)  # all blocks in one call, because there may be very many
    signs = R.diagonal(dim1=1, dim2=2).sign()[:, None, :]
    return (Q * signs * lengths.norm(dim=2)[:, :, None]).flatten(0, 1)[:m]
