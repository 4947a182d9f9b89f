"""Normal distributions of r weights b, by three kinds of factors of their covariance C.

    PrecisionFactor       C = s2 A^-1,  A = L L'                       regression on features or inducing inputs
    CovarianceRoot        C = S S'                                     a variational normal
    DiagonalAndDirection  C = diag(a) + g g'                           coefficients of orthogonal functions

For features Phi [r, t], `half(Phi)' half(Phi)` is Phi'C Phi, and `half` never forms C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class NormalWeights(Protocol):
    """The distribution of r weights."""

    @property
    def mean(self) -> Tensor:
        """Their mean [r]."""

    def half(self, Phi: Float[Tensor, "r t"]) -> Float[Tensor, "k t"]:
        """A matrix H with H'H = Phi'C Phi."""

    def draw(self, size: int, source: torch.Generator) -> Float[Tensor, "r size"]:
        """Draw `size` vectors of weights, one per column."""


@dataclass(frozen=True, eq=False)
class PrecisionFactor:
    """Mean b [r] and the Cholesky factor L [r, r] of A, where the covariance is s2 A^-1. r^2 flops per row."""

    mean: Tensor
    L: Tensor
    s2: float

    def half(self, Phi: Float[Tensor, "r t"]) -> Float[Tensor, "r t"]:
        return math.sqrt(self.s2) * torch.linalg.solve_triangular(self.L, Phi, upper=False)

    def draw(self, size: int, source: torch.Generator) -> Float[Tensor, "r size"]:
        normal = normal_columns(self.mean, len(self.mean), size, source)
        return self.mean[:, None] + math.sqrt(self.s2) * torch.linalg.solve_triangular(self.L.T, normal, upper=True)


@dataclass(frozen=True, eq=False)
class CovarianceRoot:
    """Mean b [r] and a root S [r, k] of the covariance."""

    mean: Tensor
    S: Tensor

    def half(self, Phi: Float[Tensor, "r t"]) -> Float[Tensor, "k t"]:
        return self.S.T @ Phi

    def draw(self, size: int, source: torch.Generator) -> Float[Tensor, "r size"]:
        return self.mean[:, None] + self.S @ normal_columns(self.mean, self.S.shape[1], size, source)


@dataclass(frozen=True, eq=False)
class DiagonalAndDirection:
    """Mean [r], and the covariance diag(diagonal) + direction direction'. O(r) flops per row."""

    mean: Tensor
    diagonal: Tensor
    direction: Tensor

    def half(self, Phi: Float[Tensor, "r t"]) -> Float[Tensor, "k t"]:
        return torch.cat([self.diagonal.sqrt()[:, None] * Phi, (self.direction @ Phi)[None]])

    def draw(self, size: int, source: torch.Generator) -> Float[Tensor, "r size"]:
        normal = normal_columns(self.mean, len(self.mean) + 1, size, source)
        by_diagonal = self.diagonal.sqrt()[:, None] * normal[:-1]
        return self.mean[:, None] + by_diagonal + torch.outer(self.direction, normal[-1])


def normal_columns(like: Tensor, rows: int, size: int, source: torch.Generator) -> Tensor:
    """Draw standard normal numbers [rows, size] on the device and in the precision of `like`."""
    return torch.randn(rows, size, generator=source, dtype=torch.float64).to(like)
