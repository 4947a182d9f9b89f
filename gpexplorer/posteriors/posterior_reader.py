"""Reading the files of `posterior_writer`: nothing in them is trusted, and every contradiction is a sentence."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .. import kernels
from ..errors import GPExplorerError, PosteriorError
from ..features.basis_choices import ChosenFeatures, Fourier, Interpolated, Leading
from ..features.deep import ACTIVATIONS, Network, Scaled
from ..features.grid_eigenfunctions import Grid
from ..features.learned import LearnedFeatures, LearnedKernel
from ..features.random_fourier import KINDS, RandomFourier
from ..kernels.row_scaled import RowScaled
from ..mixed_rows import Columns, MixedRows
from ..problem import Dataset, Scale
from ..target_transforms import transform_from
from .average import AveragePosterior
from .base import Posterior
from .exact import CholeskySolver, RowsPosterior, UnsolvedPosterior
from .features import FeaturePosterior, OutsideGrid
from .in_units import InUnits, in_units_of
from .inducing import InducingPosterior
from .posterior_writer import FORMAT, VERSION, WITH_TRANSFORM, Description
from .simple import PriorPosterior
from .unit_rows import UnitRowsPosterior
from .weights import CovarianceRoot, DiagonalAndDirection, PrecisionFactor

DTYPES = {"float32": torch.float32, "float64": torch.float64}
UNTRUSTED = (GPExplorerError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
MAX_MODELS = 100  # of an average in a file
MAX_AXIS = 2000  # grid points per axis of a file: their eigendecomposition takes seconds


ByBlocks = Callable[[RowsPosterior, Mapping[str, float]], Posterior]


def load_posterior(path: str | os.PathLike[str], device: str = "cpu", by_blocks: ByBlocks | None = None) -> Any:
    """Read a posterior from a file that `Posterior.save` wrote.

    Parameters
    ----------
    path : str or path
    device : str, default "cpu"
        Where it computes.
    by_blocks : callable, optional
        Makes the posterior of an exact GP whose matrix is never formed; `gpexplorer.load_posterior` gives it. Without
        it, variances come from a Cholesky factor of all rows.

    Returns
    -------
    Posterior
        With the units, the columns and the noise of the model that was saved.

    Raises
    ------
    PosteriorError
        If the file is not such a file, comes from a later version, or contradicts itself.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), "pt", device=device) as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except (SafetensorError, OSError) as error:
        raise PosteriorError(f"{path} cannot be read as a safetensors file: {error}.") from None
    if header.get("format") != FORMAT:
        raise PosteriorError(f"{path} holds tensors, but no posterior of gpexplorer; write one with posterior.save.")
    if header.get("version") not in (str(VERSION), str(WITH_TRANSFORM)):
        raise PosteriorError(
            f"{path} has version {str(header.get('version'))[:20]!r} of the format, which this gpexplorer cannot read; "
            "install a newer one, or save the posterior again."
        )
    try:
        posterior = _Reader(tensors, by_blocks).posterior(json.loads(header.get("posterior", "")))
        _try_out(posterior)
    except PosteriorError as error:
        raise PosteriorError(f"{path} cannot be read as a posterior: {error}") from None
    except UNTRUSTED as error:
        raise PosteriorError(f"{path} contradicts itself ({error}); save the posterior again.") from None
    return posterior


def _try_out(posterior: Posterior) -> None:
    """Predict one row, so that numbers that do not fit together are found now."""
    if isinstance(posterior, AveragePosterior):
        for part in posterior.parts:
            _try_out(part)
        return
    inner = posterior.inner if isinstance(posterior, InUnits) else posterior
    inner = inner.inner if isinstance(inner, UnitRowsPosterior) else inner
    if isinstance(inner, FeaturePosterior):
        d = _width(inner.features)
        row: Any = inner.like.new_zeros(1, d)
    elif isinstance(inner, PriorPosterior):
        return
    else:
        row = (inner.X if isinstance(inner, RowsPosterior) else inner.Z)[:1]  # type: ignore[attr-defined]
    if not bool(inner.mean(row).isfinite().all()):
        raise PosteriorError("a prediction of it is not a finite number.")


def _width(features: Any) -> int:
    """Number of inputs of a feature map."""
    if isinstance(features, LearnedFeatures):
        learned: Any = features.map
        return learned.sizes[0] if isinstance(learned, Network) else learned.d
    choice = features.choice
    return choice.waves.Omega.shape[1] if isinstance(choice, Fourier) else len(choice.grid.axes)


class _Reader:
    """Makes the parts of a posterior from a description and tensors, neither of which is trusted."""

    def __init__(self, tensors: dict[str, Tensor], by_blocks: ByBlocks | None = None) -> None:
        self.by_blocks = by_blocks
        for name, tensor in tensors.items():
            if tensor.dtype not in (torch.float32, torch.float64, torch.int64):
                raise PosteriorError(f"tensor {name[:20]!r} has type {tensor.dtype}.")
            if not bool(tensor.isfinite().all()):
                raise PosteriorError(f"tensor {name[:20]!r} has numbers that are not finite.")
        self.tensors = tensors

    def posterior(self, description: Any) -> Any:
        """Make a posterior of the kind that the description names."""
        readers: dict[str, Callable[[Description], Posterior]] = {
            "units": self.units, "inducing": self.inducing, "rows": self.rows_posterior, "features": self.features,
            "prior": self.prior, "unit rows": self.unit_rows, "average": self.average,
        }  # fmt: skip
        kind = _one_of(description, "kind", tuple(readers))
        posterior = readers[kind](description)
        return posterior.asked_for(_one_of(description, "of", ("f", "y")), _number(description, "noise_variance", 0.0))

    def average(self, description: Description) -> Posterior:
        """The average of several models, none of which is an average."""
        parts, weights = description.get("parts"), description.get("weights")
        if not isinstance(parts, list) or not isinstance(weights, list) or not 0 < len(parts) <= MAX_MODELS:
            raise PosteriorError(f"it is an average of no models, or of more than {MAX_MODELS}.")
        models = []
        for k, part in enumerate(parts):
            _one_of(part, "kind", ("units",))
            own = {name.removeprefix(f"{k}/"): part for name, part in self.tensors.items() if name.startswith(f"{k}/")}
            models.append(_Reader(own, self.by_blocks).posterior(part))
        named = {str(k): weight for k, weight in enumerate(weights)}
        return AveragePosterior(models, [_number(named, name) for name in named])

    def units(self, description: Description) -> Posterior:
        """The posterior in the units of the file."""
        columns = _part(description, "columns")
        inner = _part(description, "inner")
        _one_of(inner, "kind", ("inducing", "rows", "features", "prior", "unit rows"))  # refuses units within units
        return in_units_of(self.posterior(inner), self.columns(columns))

    def unit_rows(self, description: Description) -> Posterior:
        """The posterior of f from that of a function of (x, d)."""
        inner = _part(description, "inner")
        _one_of(inner, "kind", ("inducing", "rows", "features", "prior"))
        return UnitRowsPosterior(self.posterior(inner))

    def columns(self, description: Description) -> Dataset:
        """A data set without rows, which says how inputs are read."""
        dtype, d = DTYPES[_one_of(description, "dtype", tuple(DTYPES))], _whole(description, "d")
        names, scale = _texts(description, "names"), None
        device = next(iter(self.tensors.values())).device
        numeric, empty = _flag(description, "numeric"), torch.zeros(0, dtype=dtype, device=device)
        q = d - _whole(description, "texts") if "texts" in description else d if numeric else None
        if q is not None and (q < 0 or (names and len(names) != d)):
            raise PosteriorError(f"it names {len(names)} columns and needs {d}, {d - q} of them of text.")
        if _flag(description, "scaled"):
            mean, sd = (self.tensor(name, q) for name in ("x_mean", "x_sd"))
            if not bool((sd > 0.0).all()):
                raise PosteriorError("a standard deviation of its inputs is not positive.")
            transform = transform_from(description["transform"]) if "transform" in description else None
            scale = Scale(mean, sd, _number(description, "y_mean"), _number(description, "y_sd", 0.0), transform)
        X: Any = empty.reshape(0, 1).expand(0, d) if numeric else []
        if not numeric and q is not None:
            X = MixedRows(empty.reshape(0, 1).expand(0, q), ((),) * (d - q))
        return Dataset(X, empty, tuple(names), str(description.get("target", "y")), scale)

    def inducing(self, description: Description) -> Posterior:
        """A sparse GP."""
        Z = self.inputs(description, "Z")
        m = len(Z)
        kernel, theta = self.kernel(description, Z)
        posterior = InducingPosterior(kernel, theta, Z, self.factor("L_mm", m), self.weights(description, m))
        posterior.row_noise = _flag(description, "row_noise")
        return posterior

    def rows_posterior(self, description: Description) -> Posterior:
        """A GP of training rows, whose Cholesky factor is computed when a variance is asked for."""
        X = self.inputs(description, "X")
        S = X if _flag(description, "same") else self.inputs(description, "S")
        kernel, theta = self.kernel(description, X)
        noise = self.tensor("row_noise", len(S)) if "row_noise" in self.tensors else None
        if noise is not None and not bool((noise > 0.0).all()):
            raise PosteriorError("a noise variance of its rows is not positive.")
        mean_rows = (X, self.tensor("alpha", len(X)))
        solver = CholeskySolver(kernel, theta, S, noise=noise)
        if _flag(description, "solved"):
            posterior = RowsPosterior(kernel, theta, mean_rows, S, solver)
            if "by_blocks" not in description or self.by_blocks is None or S is not X:
                return posterior
            part = _part(description, "by_blocks")
            numbers = {
                name: _number(part, name, low) for name, low in (("cache", 0.0), ("tolerance", 1e-12), ("seed", 0))
            }
            return self.by_blocks(posterior, numbers)
        return UnsolvedPosterior(kernel, theta, mean_rows, S, solver, self.tensor("error_weights", len(S)))

    def prior(self, description: Description) -> Posterior:
        """The prior of a kernel."""
        text = _part(description, "kernel")
        theta = self.tensor("theta", None)
        return PriorPosterior(self.named_kernel(text, len(self.tensors.get("x_mean", theta)), theta), theta)

    def features(self, description: Description) -> Posterior:
        """Regression on features."""
        kind, theta = (
            _one_of(description, "features", ("learned", "fourier", "grid", "interpolated")),
            self.tensor("theta"),
        )
        if kind == "learned":
            linear = _flag(description, "linear")
            waves = None if linear else self.waves(description)
            phi: Any = LearnedFeatures(self.learned_map(description, linear), waves, theta)
        elif kind == "fourier":
            phi = ChosenFeatures(Fourier(self.waves(description)), theta)
        else:
            phi = ChosenFeatures(self.grid(description, kind, theta), theta)
        V = self.tensor("V", len(phi), None) if _flag(description, "combined") else None
        weights = self.weights(description, len(phi) if V is None else V.shape[1])
        outside = None
        if _flag(description, "outside"):
            choice = phi.choice if isinstance(phi, ChosenFeatures) else None
            if isinstance(choice, Leading):
                outside = OutsideGrid(choice.grid.kernel, theta, choice.outside)
        unseen = _number(description, "unseen", 0.0) if "unseen" in description else 0.0
        return FeaturePosterior(phi, weights, 0.0, V, outside, unseen)

    def grid(self, description: Description, kind: str, theta: Tensor) -> Leading:
        """Eigenfunctions of a grid."""
        index, text = self.tensor("index", None, None, whole=True), _part(description, "kernel")
        kernel = self.named_kernel(text, index.shape[1], theta)
        d: int = kernel.d
        if index.shape[1] not in (d, d + 1):  # with the product as the last entry, if the kernel is a sum of products
            raise PosteriorError(f"its functions have {index.shape[1]} indices each and its kernel {d} inputs.")
        axes = [self.tensor(f"axis {q}", None) for q in range(d)]
        if any(not 1 <= len(axis) <= MAX_AXIS for axis in axes) or int(index.min()) < 0:
            raise PosteriorError(f"its grid needs 1 to {MAX_AXIS} points per axis.")
        grid = Grid.__new__(Grid)  # the axes are given, not placed on rows
        grid.kernel, grid.spacing, grid.axes = kernel, "given", axes
        return (Interpolated if kind == "interpolated" else Leading)(grid, index)

    def waves(self, description: Description) -> RandomFourier:
        """Random Fourier features with given frequencies."""
        waves = RandomFourier.__new__(RandomFourier)  # the frequencies are given, not drawn
        waves.kind = _one_of(description, "waves", KINDS)
        waves.Omega = self.tensor("Omega", None, None)
        waves.c = self.tensor("phases", len(waves.Omega))
        waves.width = len(waves.Omega) * (1 if waves.kind == "plain" else 2)
        return waves

    def weights(self, description: Description, r: int) -> PrecisionFactor | CovarianceRoot | DiagonalAndDirection:
        """The distribution of r weights."""
        kind, mean = _one_of(description, "weights", ("precision", "root", "diagonal")), self.tensor("weights", r)
        if kind == "precision":
            return PrecisionFactor(mean, self.factor("L", r), _number(description, "s2", 0.0))
        if kind == "root":
            return CovarianceRoot(mean, self.tensor("S_root", r, None))
        diagonal, direction = self.tensor("diagonal", r), self.tensor("direction", r)
        if bool((diagonal < 0.0).any()):
            raise PosteriorError("a variance of its weights is negative.")
        return DiagonalAndDirection(mean, diagonal, direction)

    def kernel(self, description: Description, rows: Any) -> tuple[Any, Tensor]:
        """The kernel for these rows, and its theta."""
        text, theta = _part(description, "kernel"), self.tensor("theta")
        if "map" in text:
            linear = _flag(text, "linear")
            return LearnedKernel(self.learned_map(text, linear), linear), theta
        d = rows.d if isinstance(rows, MixedRows) else rows.shape[1] if isinstance(rows, Tensor) else 1
        return self.named_kernel(text, d, theta), theta

    def learned_map(self, description: Description, linear: bool) -> Network | Scaled:
        """A learned feature map, whose parameters are in theta."""
        map, theta = _read_map(description), self.tensor("theta")
        if map.size + (2 if linear else 3) != len(theta):
            raise PosteriorError(f"its feature map has {map.size} parameters, which is not what theta holds.")
        return map

    def named_kernel(self, description: Description, d: int, theta: Tensor) -> Any:
        """The kernel with this text for d inputs."""
        if _whole(description, "d") > max(d, len(theta)):
            raise PosteriorError(f"its kernel has {description['d']} inputs and its rows {d}.")
        if not isinstance(description.get("text"), str):
            raise PosteriorError("its kernel is not named by text.")
        columns = None
        if "columns" in description:
            of_columns = _part(description, "columns")
            columns = Columns(tuple(_texts(of_columns, "numbers")), tuple(_texts(of_columns, "texts")))
        kernel = kernels.make(description["text"], description["d"], columns)
        kernel = RowScaled(kernel) if "row_scaled" in description and _flag(description, "row_scaled") else kernel
        if len(kernel.names) != len(theta):
            raise PosteriorError(f"kernel {kernel.key} has {len(kernel.names)} hyperparameters and theta {len(theta)}.")
        return kernel

    def inputs(self, description: Description, name: str) -> Any:
        """Inputs: a tensor, texts, or both."""
        if (key := f"{name} columns of text") in description:
            columns = (
                {str(k): column for k, column in enumerate(description[key])}
                if isinstance(description[key], list)
                else {}
            )
            texts = tuple(tuple(_texts(columns, k)) for k in columns)
            numbers = self.tensor(name, None, None)
            if not texts or any(len(column) != len(numbers) for column in texts):
                raise PosteriorError(f"{name} does not have one text per row in each column.")
            return MixedRows(numbers, texts)
        if name in self.tensors:
            return self.tensor(name, None, None)
        return _texts(description, f"{name} texts")

    def factor(self, name: str, size: int) -> Tensor:
        """A lower triangular matrix with a positive diagonal."""
        L = self.tensor(name, size, size)
        if not bool((L.diagonal() > 0.0).all()):
            raise PosteriorError(f"{name} is not a Cholesky factor.")
        return L

    def tensor(self, name: str, *shape: int | None, whole: bool = False) -> Tensor:
        """The tensor with this name and shape; None stands for any length."""
        if name not in self.tensors:
            raise PosteriorError(f"tensor {name!r} is missing.")
        tensor, required = self.tensors[name], shape or (None,)
        fits = tensor.ndim == len(required) and all(w in (None, s) for w, s in zip(required, tensor.shape, strict=True))
        if not fits or (tensor.dtype == torch.int64) != whole:
            raise PosteriorError(f"tensor {name!r} is {tensor.dtype} {list(tensor.shape)}, which does not fit.")
        return tensor


def _read_map(description: Description) -> Network | Scaled:
    """A learned feature map without its parameters."""
    description = _part(description, "map")
    if "sizes" not in description:
        return Scaled(_whole(description, "d"), _flag(description, "constant"))
    sizes = description["sizes"]
    if not isinstance(sizes, list) or len(sizes) < 2 or not all(type(s) is int and 0 < s < 2**31 for s in sizes):
        raise PosteriorError("the sizes of its network are not positive whole numbers.")
    return Network(sizes, _one_of(description, "activation", tuple(ACTIVATIONS)))


def _part(description: Any, name: str) -> Description:
    part = description.get(name) if isinstance(description, dict) else None
    if not isinstance(part, dict):
        raise PosteriorError(f"its description has no {name}.")
    return part


def _one_of(description: Any, name: str, choices: tuple[str, ...]) -> Any:
    value = description.get(name) if isinstance(description, dict) else None
    if not isinstance(value, str) or value not in choices:
        raise PosteriorError(f"its {name} is {str(value)[:20]!r}, not one of {', '.join(choices)}.")
    return value


def _number(description: Description, name: str, low: float = -math.inf) -> float:
    value = description.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < low:
        raise PosteriorError(f"its {name} is {str(value)[:20]!r}, not a number that fits.")
    return float(value)


def _whole(description: Description, name: str) -> int:
    value = description.get(name)
    if type(value) is not int or not 0 < value < 2**31:
        raise PosteriorError(f"its {name} is {str(value)[:20]!r}, not a positive whole number.")
    return value


def _flag(description: Description, name: str) -> bool:
    value = description.get(name)
    if not isinstance(value, bool):
        raise PosteriorError(f"its {name} is {str(value)[:20]!r}, neither true nor false.")
    return value


def _texts(description: Description, name: str) -> list[str]:
    value = description.get(name)
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise PosteriorError(f"its {name} are not a list of texts.")
    return value
