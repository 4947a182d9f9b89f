"""Rows in memory as an estimator takes them: arrays or texts, all for training."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..data import Split
from ..data.standardising import moments
from ..data.table_checks import LARGEST
from ..data.units import targets
from ..errors import DataError, PosteriorError, SettingError
from ..kernels.row_scaled import RowScaled
from ..problem import Dataset, RowNoise
from ..runs import Run
from .given_kernels import Units

Floats = NDArray[np.float64]


def all_for_training(X: Any, y: Floats, names: tuple[str, ...], noise: RowNoise | None = None) -> Split:
    """A split with all rows for training and none for testing. Its key is a hash of the content."""
    texts = isinstance(X, list)
    if max(0.0 if texts else np.abs(X).max(), np.abs(y).max()) > LARGEST:
        raise DataError(f"X or y holds numbers beyond {LARGEST:g}, whose square no 64-bit number holds: rescale them.")
    rows = "\0".join(X).encode() if texts else np.ascontiguousarray(X).tobytes()
    of_noise = b"" if noise is None else noise.ratio.numpy().tobytes() + str(noise.common).encode()
    content = hashlib.sha256(rows + np.ascontiguousarray(y).tobytes() + of_noise).hexdigest()[:16]
    names = names or (("object",) if texts else tuple(f"x{i}" for i in range(X.shape[1])))
    train = Dataset(X if texts else torch.tensor(X), torch.tensor(y), names, noise=noise)
    return Split(train, train.rows(torch.arange(0)), "arrays", key=f"arrays-{content}")


def kept_rows(X: Any, y: Floats, sample_weight: Any, noise: Any) -> tuple[Any, Floats, RowNoise | None]:
    """The rows with a weight above 0, and their noise.

    Raises
    ------
    SettingError
        If both weights and noise are given, or one has the wrong length, or a number that cannot be.
    """
    if sample_weight is None and noise is None:
        return X, y, None
    if sample_weight is not None and noise is not None:
        raise SettingError("Give sample_weight or noise, not both: a weight w stands for a noise variance of s2 / w.")
    name, given = ("noise", noise) if sample_weight is None else ("sample_weight", sample_weight)
    try:
        numbers = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        numbers = np.full(0, np.nan)
    numbers = np.full(len(y), numbers) if numbers.ndim == 0 else numbers
    positive = numbers > 0.0 if noise is not None else numbers >= 0.0
    if numbers.shape != (len(y),) or not (positive & np.isfinite(numbers)).all():
        raise SettingError(
            f"{name} has shape {list(numbers.shape)}; give one {_NEEDED[name]} for each of {len(y)} rows."
        )
    if noise is not None:
        common = float(numbers.mean())
        return X, y, RowNoise(torch.tensor(numbers / common), common)
    kept = np.flatnonzero(numbers)
    if len(kept) < 2:
        raise SettingError(
            f"sample_weight has {len(kept)} weights above zero; give 2 rows or more a weight above zero."
        )
    X = [X[i] for i in kept] if isinstance(X, list) else X[kept]
    if (numbers[kept] == numbers[kept[0]]).all():
        return X, y[kept], None  # equal weights change nothing but the meaning of the noise
    return X, y[kept], RowNoise(torch.tensor(1.0 / numbers[kept]))


_NEEDED = {"noise": "positive variance, in the units of y squared,", "sample_weight": "finite number of 0 or more"}


def units_of(train: Dataset) -> Units:
    """The standard deviations by which rows are scaled."""
    y_sd = float(moments(train.y[:, None]).sd[0])
    if not isinstance(train.X, torch.Tensor):
        return Units(np.ones(1), y_sd)
    return Units(moments(train.X).sd.numpy(), y_sd)


def is_texts(X: Any) -> bool:
    """Whether X holds one text per row."""
    flat = isinstance(X, (list, tuple)) or getattr(X, "ndim", 0) == 1
    return flat and len(X) > 0 and all(isinstance(text, str) for text in X)


def rows_of(run: Run) -> tuple[Any, Floats]:
    """The training rows of a run, in the units of the data; PosteriorError if they have noise of their own."""
    if isinstance(run.problem.kernel, RowScaled):
        raise PosteriorError("A fit with noise per row cannot be repeated with more rows here; call fit with all rows.")
    train = run.problem.train
    y = targets(train.y.double(), train).cpu().numpy()
    if not isinstance(train.X, torch.Tensor) or train.scale is None:
        return (list(train.X) if not isinstance(train.X, torch.Tensor) else train.X.double().cpu().numpy()), y
    return (train.X.double() * train.scale.x_sd + train.scale.x_mean).cpu().numpy(), y
