"""The posterior of regression on finitely many features: f(x) = phi(x)'V b with b ~ N(mean, C).

    mean = psi(x)'b,   cov = psi(x)' C psi(z),   psi = V'phi               a path is psi(x)'b for one draw of b: exact

The orthonormal columns of V may be fewer than the features, for example where rows are. What V leaves out of a feature
vector, (I - V V') phi, is 0 at the training rows, so that its weights keep their prior N(0, unseen I):

    cov gains unseen (phi(x)'phi(z) - psi(x)'psi(z))

Features of a grid vanish outside it, where the rows tell nothing and the prior variance that the features leave out is
added. Paths add it by a function h of the prior that is scaled to this variance at each point, so that their variances
are right there; their correlations are those of the kernel rather than those of what the features leave out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from ..errors import PosteriorError
from ..linalg.deferred_reads import is_traced
from ..problem import Kernel
from .base import Posterior
from .sample_paths import prior_paths
from .saved.feature_parts import grid_choice, input_count, read_features, write_features
from .saved.parts import TRIALS, Parts, trial_rows
from .weights import NormalWeights, PrecisionFactor, normal_columns, read_weights, updated, without_rows


@runtime_checkable
class FeatureMap(Protocol):
    """p features of a row."""

    def __len__(self) -> int:
        """Number p of features."""

    def __call__(self, X: Any) -> Tensor:
        """Features [p, b] of one block of rows."""


@dataclass(frozen=True, eq=False)
class OutsideGrid:
    """What features of a grid leave out of the prior, for the rows outside the grid."""

    kernel: Kernel
    theta: Tensor  # [P]
    mask: Callable[[Tensor], Tensor]  # inputs [b, d] -> bool [b], the rows outside the grid


UNLIKE = 0.01  # how far a product of the columns of a V that was read may be from that of orthonormal ones
Regression = TypeVar("Regression", bound="FeaturePosterior")


class FeaturePosterior(Posterior):
    """Regression on p features.

    Parameters
    ----------
    features : FeatureMap
        phi.
    weights : NormalWeights
        The distribution of the r weights.
    noise_variance : float
        Noise variance of an observation.
    V : Tensor [p, r], optional
        Combines the features: psi = V'phi, with V'V = I. By default psi = phi.
    unseen : float
        Prior variance of the weights of what V leaves out.
    outside : OutsideGrid, optional
        The prior variance to add outside a grid.
    """

    kind: ClassVar[str] = "features"

    def __init__(
        self,
        features: FeatureMap,
        weights: NormalWeights,
        noise_variance: float,
        V: Tensor | None = None,
        outside: OutsideGrid | None = None,
        unseen: float = 0.0,
    ) -> None:
        super().__init__(weights.mean, noise_variance)
        self.features, self.weights, self.V, self.outside, self.unseen = features, weights, V, outside, unseen

    @property
    def row_numbers(self) -> int:
        return 4 * len(self.features)

    def block_mean(self, X: Any) -> Tensor:
        return self.weights.mean @ self._combined(self.features(X))

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        Phi = self.features(X)  # [p, b]
        Psi = self._combined(Phi)  # [r, b]
        var = self.weights.half(Psi).square().sum(0)
        if self.V is not None and self.unseen:
            var = var + self.unseen * (Phi.square().sum(0) - Psi.square().sum(0)).clamp_min(0.0)
        return self.weights.mean @ Psi, var if self.outside is None else var + self._left_out(X, Phi)

    def joint(self, X: Any, Z: Any) -> Tensor:
        left, right = self.features(X), self.features(Z)  # [p, b], [p, c]
        left_psi, right_psi = self._combined(left), self._combined(right)  # [r, b], [r, c]
        K = self.weights.half(left_psi).T @ self.weights.half(right_psi)
        if self.V is not None and self.unseen:
            K = K + self.unseen * (left.T @ right - left_psi.T @ right_psi)
        if self.outside is None:
            return K
        both_outside = torch.outer(self.outside.mask(X).to(K), self.outside.mask(Z).to(K))
        if not bool(both_outside.any()):
            return K
        return K + both_outside * (self.outside.kernel(self.outside.theta, X, Z) - left.T @ right)

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        b = self._of_features(self.weights.draw(size, draw), draw)  # [p, size]
        if self.outside is None:
            return lambda X: b.T @ self.features(X)
        outside, prior = self.outside, prior_paths(self.outside.kernel, self.outside.theta, size, draw)

        def evaluate(X: Any) -> Tensor:
            Phi = self.features(X)  # [p, b]
            values = b.T @ Phi
            if not bool(outside.mask(X).any()):
                return values
            share = self._left_out(X, Phi) / outside.kernel.diag(outside.theta, X)  # [b] of the prior variance
            return values + prior(X) * share.sqrt()

        return evaluate

    def updated(self: Regression, X: Any, y: Tensor, V: Tensor) -> Regression:
        if not isinstance(self.weights, PrecisionFactor):
            return super().updated(X, y, V)
        Psi = self._combined(self.features(X))  # [r, b]
        weights = updated(self.weights, Psi, y.to(Psi), V.to(Psi))
        other = type(self)(self.features, weights, self.noise_variance, self.V, self.outside, self.unseen)
        other.of = self.of
        return other

    def without_rows(self: Regression) -> Regression:
        """The same features and hyperparameters before any row: the prior, to which rows can be added."""
        if not isinstance(self.weights, PrecisionFactor):
            raise PosteriorError(f"The rows of a {type(self).__name__} with weights of their own cannot be left out.")
        weights = without_rows(self.weights)
        other = type(self)(self.features, weights, self.noise_variance, self.V, self.outside, self.unseen)
        other.of = self.of
        return other

    def write(self, parts: Parts) -> None:
        if self.V is not None:
            parts.keep(V=self.V)
        parts.text |= {"combined": self.V is not None, "outside": self.outside is not None}
        parts.text |= {"unseen": self.unseen} if self.unseen else {}
        write_features(parts, self.features)
        self.weights.write(parts)

    @classmethod
    def read(cls, parts: Parts) -> FeaturePosterior:
        features = read_features(parts)
        V = parts.tensor("V", len(features), None) if parts.flag("combined") else None
        weights = read_weights(parts, len(features) if V is None else V.shape[1])
        grid = grid_choice(features) if parts.flag("outside") else None
        outside = None if grid is None else OutsideGrid(grid.grid.kernel, features.theta, grid.outside)
        return cls(features, weights, 0.0, V, outside, parts.number("unseen", 0.0) if "unseen" in parts else 0.0)

    def examples(self) -> Any:
        draw = torch.Generator().manual_seed(0)
        normal = torch.randn(TRIALS, input_count(self.features), generator=draw, dtype=torch.float64)
        return trial_rows(normal.to(self.like))

    def check(self) -> None:
        if self.V is not None and float((self.V.T @ self.V).diagonal().sub(1.0).abs().max()) > UNLIKE:
            raise PosteriorError("the columns of V are not orthonormal.")
        super().check()

    def _of_features(self, b: Tensor, draw: torch.Generator) -> Tensor:
        """Weights of phi [p, size] with these weights of psi [r, size], and a draw of what V leaves out."""
        if self.V is None:
            return b
        if not self.unseen:
            return self.V @ b
        rest = self.unseen**0.5 * normal_columns(b, len(self.V), b.shape[1], draw)  # [p, size]
        return self.V @ (b - self.V.T @ rest) + rest

    def _combined(self, Phi: Tensor) -> Tensor:
        return Phi if self.V is None else self.V.T @ Phi

    def _left_out(self, X: Tensor, Phi: Tensor) -> Tensor:
        """k(x, x) - phi(x)'phi(x) [b] for rows outside the grid, and 0 for all others."""
        outside = self.outside
        if outside is None:
            return Phi.new_zeros(Phi.shape[1])
        mask = outside.mask(X)
        if not is_traced() and not bool(mask.any()):
            return Phi.new_zeros(Phi.shape[1])
        missing = (outside.kernel.diag(outside.theta, X) - Phi.square().sum(0)).clamp_min(0.0)
        return torch.where(mask, missing, torch.zeros_like(missing))
