"""Normal distributions of r weights b, by three kinds of factors of their covariance C.

    PrecisionFactor       C = s2 A^-1,  A = L L'                       regression on features or inducing inputs
    CovarianceRoot        C = S S'                                     a variational normal
    DiagonalAndDirection  C = diag(a) + g g'                           coefficients of orthogonal functions

For features Phi [r, t], `half(Phi)' half(Phi)` is Phi'C Phi, and `half` never forms C.

New rows with noise variances V_i give the same as a fit to old and new rows together, at the cost of the new ones
(`linalg.gaussian.with_rows`). Phi are the whitened kernel columns l of inducing inputs, or features of a regression.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import PosteriorError
from ..linalg.gaussian import with_rows
from .saved.parts import LARGEST, Parts


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

    def write(self, parts: Parts) -> None:
        """Add the distribution to a file; `read_weights` reads it."""


@dataclass(frozen=True, eq=False)
class PrecisionFactor:
    """Mean b [r] and the Cholesky factor L [r, r] of A, where the covariance is s2 A^-1. r^2 flops per row."""

    kind: ClassVar[str] = "precision"

    mean: Tensor
    L: Tensor
    s2: float

    def half(self, Phi: Float[Tensor, "r t"]) -> Float[Tensor, "r t"]:
        return math.sqrt(self.s2) * torch.linalg.solve_triangular(self.L, Phi, upper=False)

    def draw(self, size: int, source: torch.Generator) -> Float[Tensor, "r size"]:
        normal = normal_columns(self.mean, len(self.mean), size, source)
        return self.mean[:, None] + math.sqrt(self.s2) * torch.linalg.solve_triangular(self.L.T, normal, upper=True)

    def write(self, parts: Parts) -> None:
        parts.keep(weights=self.mean, L=self.L)
        parts.text |= {"weights": self.kind, "s2": self.s2}

    @classmethod
    def from_parts(cls, parts: Parts, r: int) -> PrecisionFactor:
        return cls(parts.tensor("weights", r), parts.factor("L", r), parts.number("s2", 1.0 / LARGEST))


@dataclass(frozen=True, eq=False)
class CovarianceRoot:
    """Mean b [r] and a root S [r, k] of the covariance."""

    kind: ClassVar[str] = "root"

    mean: Tensor
    S: Tensor

    def half(self, Phi: Float[Tensor, "r t"]) -> Float[Tensor, "k t"]:
        return self.S.T @ Phi

    def draw(self, size: int, source: torch.Generator) -> Float[Tensor, "r size"]:
        return self.mean[:, None] + self.S @ normal_columns(self.mean, self.S.shape[1], size, source)

    def write(self, parts: Parts) -> None:
        parts.keep(weights=self.mean, S_root=self.S)
        parts.text["weights"] = self.kind

    @classmethod
    def from_parts(cls, parts: Parts, r: int) -> CovarianceRoot:
        return cls(parts.tensor("weights", r), parts.tensor("S_root", r, None))


@dataclass(frozen=True, eq=False)
class DiagonalAndDirection:
    """Mean [r], and the covariance diag(diagonal) + direction direction'. O(r) flops per row."""

    kind: ClassVar[str] = "diagonal"

    mean: Tensor
    diagonal: Tensor
    direction: Tensor

    def half(self, Phi: Float[Tensor, "r t"]) -> Float[Tensor, "k t"]:
        return torch.cat([self.diagonal.sqrt()[:, None] * Phi, (self.direction @ Phi)[None]])

    def draw(self, size: int, source: torch.Generator) -> Float[Tensor, "r size"]:
        normal = normal_columns(self.mean, len(self.mean) + 1, size, source)
        by_diagonal = self.diagonal.sqrt()[:, None] * normal[:-1]
        return self.mean[:, None] + by_diagonal + torch.outer(self.direction, normal[-1])

    def write(self, parts: Parts) -> None:
        parts.keep(weights=self.mean, diagonal=self.diagonal, direction=self.direction)
        parts.text["weights"] = self.kind

    @classmethod
    def from_parts(cls, parts: Parts, r: int) -> DiagonalAndDirection:
        diagonal = parts.tensor("diagonal", r)
        if bool((diagonal < 0.0).any()):
            raise PosteriorError("a variance of its weights is negative.")
        return cls(parts.tensor("weights", r), diagonal, parts.tensor("direction", r))


def read_weights(parts: Parts, r: int) -> Any:
    """The distribution of r weights that a file holds."""
    classes = {own.kind: own for own in (PrecisionFactor, CovarianceRoot, DiagonalAndDirection)}
    return classes[parts.one_of("weights", tuple(classes))].from_parts(parts, r)


def normal_columns(like: Tensor, rows: int, size: int, source: torch.Generator) -> Tensor:
    """Draw standard normal numbers [rows, size] on the device and in the precision of `like`."""
    return torch.randn(rows, size, generator=source, dtype=torch.float64).to(like)


def without_rows(weights: PrecisionFactor) -> PrecisionFactor:
    """The distribution of the same weights before any row: A = s2 I, so that they are standard normal."""
    eye = torch.eye(len(weights.mean)).to(weights.L)
    return PrecisionFactor(torch.zeros_like(weights.mean), weights.s2**0.5 * eye, weights.s2)


def updated(weights: PrecisionFactor, Phi: Tensor, y: Tensor, V: Tensor) -> PrecisionFactor:
    """Add rows to a distribution of weights.

    Parameters
    ----------
    weights : PrecisionFactor
        Mean A^-1 c [r] and the Cholesky factor of A [r, r].
    Phi : Tensor [r, b]
        One column per new row.
    y : Tensor [b]
        Targets.
    V : Tensor [b]
        Noise variance of each new row.

    Returns
    -------
    PrecisionFactor

    Notes
    -----
    2 r^2 (b + r) flops per block of about r rows.
    """
    L, mean = with_rows(weights.L, weights.mean, Phi, y, weights.s2 / V)
    return PrecisionFactor(mean, L, weights.s2)
