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
from ..features.basis_choices import ChosenFeatures, Fourier, Interpolated, Leading
from ..features.grid_eigenfunctions import Grid
from ..features.learned import LearnedFeatures
from ..features.random_fourier import KINDS, RandomFourier
from ..linalg.deferred_reads import is_traced
from ..problem import Kernel
from .base import Posterior
from .sample_paths import prior_paths
from .saved.kernel_parts import described_map, read_kernel, read_map, write_kernel
from .saved.parts import TRIALS, Parts, trial_rows
from .weights import NormalWeights, PrecisionFactor, normal_columns, read_weights, updated, without_rows

UNLIKE = 0.01  # how far a product of columns that were read may be from that of orthonormal ones
Regression = TypeVar("Regression", bound="FeaturePosterior")
MAX_AXIS = 2000  # grid points per axis of a file: their eigendecomposition takes seconds
NAMES = ("learned", "fourier", "grid", "interpolated")


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

    def _contents(self) -> str:
        return f"{len(self.features):,} features"

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
        return self.weights.mean @ Psi, var if self.outside is None else var + _left_out(self.outside, X, Phi)

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

    @property
    def path_numbers(self) -> int:
        return len(self.weights.mean)

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
            share = _left_out(outside, X, Phi) / outside.kernel.diag(outside.theta, X)  # [b] of the prior variance
            return values + prior(X) * share.sqrt()

        return evaluate

    def updated(self: Regression, X: Any, y: Tensor, V: Tensor) -> Regression:
        if not isinstance(self.weights, PrecisionFactor):
            return super().updated(X, y, V)
        Psi = self._combined(self.features(X))  # [r, b]
        return self.changed(weights=updated(self.weights, Psi, y.to(Psi), V.to(Psi)))

    def without_rows(self: Regression) -> Regression:
        """The same features and hyperparameters before any row: the prior, to which rows can be added."""
        if not isinstance(self.weights, PrecisionFactor):
            raise PosteriorError(f"The rows of a {type(self).__name__} with weights of their own cannot be left out.")
        return self.changed(weights=without_rows(self.weights))

    def write(self, parts: Parts) -> None:
        if self.V is not None:
            parts.keep(V=self.V)
        parts.text |= {"combined": self.V is not None, "outside": self.outside is not None}
        parts.text |= {"unseen": self.unseen} if self.unseen else {}
        write_features(parts, self.features)
        self.weights.write(parts)

    @classmethod
    def from_parts(cls, parts: Parts) -> FeaturePosterior:
        features = read_features(parts)
        V = parts.tensor("V", len(features), None) if parts.flag("combined") else None
        weights = read_weights(parts, len(features) if V is None else V.shape[1])
        grid, outside = getattr(features, "choice", None), None
        if parts.flag("outside") and isinstance(grid, Leading):
            outside = OutsideGrid(grid.grid.kernel, features.theta, grid.outside)
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


def _left_out(outside: OutsideGrid, X: Tensor, Phi: Tensor) -> Tensor:
    """k(x, x) - phi(x)'phi(x) [b] for rows outside the grid, and 0 for all others."""
    mask = outside.mask(X)
    if not is_traced() and not bool(mask.any()):
        return Phi.new_zeros(Phi.shape[1])
    missing = (outside.kernel.diag(outside.theta, X) - Phi.square().sum(0)).clamp_min(0.0)
    return torch.where(mask, missing, torch.zeros_like(missing))


def write_features(parts: Parts, features: Any) -> None:
    """Write a feature map, which is a choice of basis functions or was learned."""
    if not isinstance(features, LearnedFeatures | ChosenFeatures):
        raise PosteriorError(f"Features of type {type(features).__name__} cannot be saved.")
    parts.keep(theta=features.theta)
    if isinstance(features, LearnedFeatures):
        linear = features.waves is None
        parts.text |= {"features": "learned", "map": described_map(features.map), "linear": linear}
        waves = features.waves
    elif isinstance(choice := features.choice, Leading):
        parts.text["features"] = "interpolated" if isinstance(choice, Interpolated) else "grid"
        write_kernel(parts, choice.grid.kernel, features.theta)
        parts.keep(index=choice.index, **{f"axis {q}": axis for q, axis in enumerate(choice.grid.axes)})
        for t, pairs in enumerate(choice.grid.kept[1] if choice.grid.kept else []):
            for q, (values, vectors) in enumerate(pairs):
                parts.keep(**{f"eigenvalues {t} {q}": values, f"eigenvectors {t} {q}": vectors})
        waves = None
    elif isinstance(choice, Fourier):
        parts.text["features"], waves = "fourier", choice.waves
    else:
        raise PosteriorError(f"Basis functions of type {type(choice).__name__} cannot be saved.")
    if waves is not None:
        parts.text["waves"] = waves.kind
        parts.keep(Omega=waves.Omega, phases=waves.c)


def read_features(parts: Parts) -> LearnedFeatures | ChosenFeatures:
    """The feature map."""
    name, theta = parts.one_of("features", NAMES), parts.tensor("theta")
    if name == "learned":
        linear = parts.flag("linear")
        map = read_map(parts, len(theta), linear)
        return LearnedFeatures(map, None if linear else _read_waves(parts), theta)
    if name == "fourier":
        return ChosenFeatures(Fourier(_read_waves(parts)), theta)
    return ChosenFeatures(_read_grid(parts, Interpolated if name == "interpolated" else Leading, theta), theta)


def _read_grid(parts: Parts, choice: type[Leading], theta: Tensor) -> Leading:
    """Eigenfunctions of a grid."""
    index: Tensor = parts.tensor("index", None, None, whole=True)
    kernel, _ = read_kernel(parts, index.shape[1])
    if index.shape[1] not in (kernel.d, kernel.d + 1):  # with the product as last entry, for a sum of products
        raise PosteriorError(f"its functions have {index.shape[1]} indices each and its kernel {kernel.d} inputs.")
    axes = [parts.tensor(f"axis {q}") for q in range(kernel.d)]
    if any(not 1 <= len(axis) <= MAX_AXIS for axis in axes) or int(index.min()) < 0:
        raise PosteriorError(f"its grid needs 1 to {MAX_AXIS:,} points per axis.")
    if any(bool((axis.diff() < 0.0).any()) for axis in axes):
        raise PosteriorError("the points of an axis of its grid do not ascend.")
    grid = Grid.given(kernel, axes)
    if "eigenvalues 0 0" not in parts:  # a file of an older program: this machine's library made the same vectors
        return choice(grid, index)
    terms = range(len(grid.terms(theta)))
    pairs = [
        [
            _read_pair(parts, f"{t} {q}", k(U, U))
            for q, (k, U) in enumerate(zip(grid.terms(theta)[t], axes, strict=True))
        ]
        for t in terms
    ]
    return choice(grid.keeping(theta, pairs), index)


def _read_pair(parts: Parts, place: str, K: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues [k] and orthonormal eigenvectors [mbar, k] of one axis, whose covariances are K [mbar, mbar]."""
    values = parts.positive(f"eigenvalues {place}", None)
    vectors = parts.tensor(f"eigenvectors {place}", len(K), len(values))
    eye = torch.eye(len(values)).to(vectors)
    if len(values) == 0 or not torch.allclose(vectors.T @ vectors, eye, atol=UNLIKE):
        raise PosteriorError(f"the eigenvectors {place} of its grid are not orthonormal.")
    if not torch.allclose(K @ vectors, vectors * values, rtol=0.0, atol=UNLIKE * float(K.diagonal().max()) * len(K)):
        raise PosteriorError(f"the eigenvectors {place} of its grid are not those of its kernel.")
    return values, vectors


def _read_waves(parts: Parts) -> RandomFourier:
    """Random Fourier features with given frequencies."""
    waves = RandomFourier.__new__(RandomFourier)  # the frequencies are given, not drawn
    waves.kind, waves.Omega = parts.one_of("waves", KINDS), parts.tensor("Omega", None, None)
    waves.c = parts.tensor("phases", len(waves.Omega))
    waves.width = len(waves.Omega) * (1 if waves.kind == "plain" else 2)
    return waves


def input_count(features: Any) -> int:
    """Number of inputs of a feature map that files can hold."""
    if isinstance(features, LearnedFeatures):
        learned: Any = features.map
        return learned.sizes[0] if hasattr(learned, "sizes") else learned.d
    choice: Any = features.choice
    return choice.waves.Omega.shape[1] if isinstance(choice, Fourier) else len(choice.grid.axes)
