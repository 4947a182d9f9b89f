"""Feature maps as parts of a file.

Apart because it knows every feature map by its name, of which `FeaturePosterior` knows none.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import PosteriorError
from ...features.basis_choices import ChosenFeatures, Fourier, Interpolated, Leading
from ...features.grid_eigenfunctions import Grid
from ...features.learned import LearnedFeatures
from ...features.random_fourier import KINDS, RandomFourier
from .kernel_parts import described_map, read_kernel, read_map, write_kernel
from .parts import Parts

MAX_AXIS = 2000  # grid points per axis of a file: their eigendecomposition takes seconds
UNLIKE = 0.01  # how far a product of eigenvectors may be from that of orthonormal ones
NAMES = ("learned", "fourier", "grid", "interpolated")


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
        _write_grid(parts, choice)
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


def _write_grid(parts: Parts, choice: Leading) -> None:
    """Write the axes of a grid, their eigenvalues and eigenvectors, and the indices of its functions."""
    parts.keep(index=choice.index, **{f"axis {q}": axis for q, axis in enumerate(choice.grid.axes)})
    for t, pairs in enumerate(choice.grid.kept[1] if choice.grid.kept else []):
        for q, (values, vectors) in enumerate(pairs):
            parts.keep(**{f"eigenvalues {t} {q}": values, f"eigenvectors {t} {q}": vectors})


def _read_grid(parts: Parts, choice: type[Leading], theta: Tensor) -> Leading:
    """Eigenfunctions of a grid."""
    index: Tensor = parts.tensor("index", None, None, whole=True)
    kernel, _ = read_kernel(parts, index.shape[1])
    if index.shape[1] not in (kernel.d, kernel.d + 1):  # with the product as last entry, for a sum of products
        raise PosteriorError(f"its functions have {index.shape[1]} indices each and its kernel {kernel.d} inputs.")
    axes = [parts.tensor(f"axis {q}") for q in range(kernel.d)]
    if any(not 1 <= len(axis) <= MAX_AXIS for axis in axes) or int(index.min()) < 0:
        raise PosteriorError(f"its grid needs 1 to {MAX_AXIS} points per axis.")
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


def grid_choice(features: Any) -> Leading | None:
    """The eigenfunctions of a grid, if the features are such."""
    choice = getattr(features, "choice", None)
    return choice if isinstance(choice, Leading) else None


def input_count(features: Any) -> int:
    """Number of inputs of a feature map that files can hold."""
    if isinstance(features, LearnedFeatures):
        learned: Any = features.map
        return learned.sizes[0] if hasattr(learned, "sizes") else learned.d
    choice: Any = features.choice
    return choice.waves.Omega.shape[1] if isinstance(choice, Fourier) else len(choice.grid.axes)
