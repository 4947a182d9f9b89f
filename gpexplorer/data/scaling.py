"""Standardising: x_scaled = (x - mean_train) / sd_train, one mean and sd a column, likewise y."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..problem import Dataset, Scale

_ROUNDING = 8.0  # in units of the last place: a spread below this is rounding, not variation


def fit_scale(train: Dataset) -> Scale:
    """Means and population standard deviations of these rows; sd 1 where a column is constant to rounding."""
    columns = train.X if isinstance(train.X, Tensor) else train.y.new_zeros(len(train), 0)
    x_mean, x_sd = _moments(columns)  # [d]
    y_mean, y_sd = _moments(train.y[:, None])
    return Scale(x_mean, x_sd, float(y_mean[0]), float(y_sd[0]))


def scale(data: Dataset, by: Scale) -> Dataset:
    """The same rows in scaled units; inputs that are objects stay as they are."""
    X = (data.X - by.x_mean) / by.x_sd if isinstance(data.X, Tensor) else data.X
    return replace(data, X=X, y=(data.y - by.y_mean) / by.y_sd, scale=by)


def _moments(columns: Tensor) -> tuple[Tensor, Tensor]:
    mean = columns.mean(0)
    sd = (columns - mean).square().mean(0).sqrt()  # two passes: columns far from the origin keep their digits
    largest = columns.abs().amax(0) if columns.numel() else sd
    constant = sd <= _ROUNDING * torch.finfo(columns.dtype).eps * largest
    return mean, torch.where(constant, torch.ones_like(sd), sd)
