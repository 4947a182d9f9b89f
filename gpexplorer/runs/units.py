"""Between the units of the file and the scaled space in which methods work."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..errors import DataError
from ..problem import Dataset, Posterior, Prediction

BLOCK = 8192  # rows predicted at once: a [BLOCK, m] cross-covariance is what a prediction holds in memory

Of = Literal["f", "y"]


def inputs(X: Any, train: Dataset) -> Any:
    """X in the units of the file -> inputs as the method knows them: scaled, on its device, in its precision.

    X is a tensor or array [t, d], a frame with the training columns, or a sequence of objects, which stays as it is.
    """
    if not isinstance(train.X, Tensor):
        return X
    if isinstance(X, pd.DataFrame) and set(train.names) <= set(X.columns):
        X = X[list(train.names)]
    if not isinstance(X, Tensor):
        X = torch.from_numpy(np.array(X, dtype=np.float64))  # a copy: frames lend memory that torch must not share
    X = X.to(train.X.device, torch.float64)
    if X.ndim != 2 or X.shape[1] != train.d:
        raise DataError(f"Inputs have shape {list(X.shape)}; the training data need [rows, {train.d}].")
    if train.scale is not None:
        X = (X - train.scale.x_mean.to(X)) / train.scale.x_sd.to(X)
    return X.to(train.X.dtype)


def targets(y: Tensor, train: Dataset) -> Tensor:
    """Scaled targets -> the units of the file."""
    return y if train.scale is None else y * train.scale.y_sd + train.scale.y_mean


def in_units(posterior: Posterior, train: Dataset, noise_var: float = 0.0) -> Posterior:
    """The same distribution of scaled inputs, answering in the units of the file, a block of rows at a time.

    `noise_var`, in the scaled space, is added to the variance: zero for f, the noise for y.
    """
    sd = 1.0 if train.scale is None else train.scale.y_sd

    def predict(X: Any) -> Prediction:
        blocks = [posterior(X[i : i + BLOCK]) for i in range(0, max(len(X), 1), BLOCK)]
        mean, var = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        return Prediction(targets(mean, train), (var + noise_var) * sd**2)

    return predict
