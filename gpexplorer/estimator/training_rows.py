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
from ..errors import DataError
from ..problem import Dataset
from .given_kernels import Units

Floats = NDArray[np.float64]


def all_for_training(X: Any, y: Floats, names: tuple[str, ...]) -> Split:
    """A split with all rows for training and none for testing. Its key is a hash of the content."""
    texts = isinstance(X, list)
    if max(0.0 if texts else np.abs(X).max(), np.abs(y).max()) > LARGEST:
        raise DataError(f"X or y holds numbers beyond {LARGEST:g}, whose square no 64-bit number holds: rescale them.")
    rows = "\0".join(X).encode() if texts else np.ascontiguousarray(X).tobytes()
    content = hashlib.sha256(rows + np.ascontiguousarray(y).tobytes()).hexdigest()[:16]
    names = names or (("object",) if texts else tuple(f"x{i}" for i in range(X.shape[1])))
    train = Dataset(X if texts else torch.tensor(X), torch.tensor(y), names)
    return Split(train, train.rows(torch.arange(0)), "arrays", key=f"arrays-{content}")


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
