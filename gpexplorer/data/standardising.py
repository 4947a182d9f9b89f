"""Standardising: x_scaled = (x - mean_train) / sd_train, one mean and sd a column, likewise y."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..problem import Dataset, Scale

_ROUNDING = 8.0  # in units of the last place: a spread below this is rounding, not variation


class Moments(NamedTuple):
    """What the scale of k columns follows from."""

    rows: int
    mean: Tensor  # [k]
    spread: Tensor  # [k] sum of squares about the mean
    largest: Tensor  # [k] magnitude

    def joined(self, other: Moments) -> Moments:
        """Of both sets of rows together; columns far from the origin keep their digits (Chan et al. 1983)."""
        rows = self.rows + other.rows
        apart, share = other.mean - self.mean, other.rows / rows
        spread = self.spread + other.spread + self.rows * share * apart.square()
        return Moments(rows, self.mean + share * apart, spread, torch.maximum(self.largest, other.largest))

    @property
    def sd(self) -> Tensor:
        """Population standard deviations [k]; 1 where a column is constant to rounding."""
        sd = (self.spread / self.rows).sqrt()
        constant = sd <= _ROUNDING * torch.finfo(sd.dtype).eps * self.largest
        return torch.where(constant, torch.ones_like(sd), sd)


def moments(columns: Tensor) -> Moments:
    """Of these rows [n, k]; two passes over them."""
    mean = columns.mean(0)
    largest = columns.abs().amax(0) if columns.numel() else mean
    return Moments(len(columns), mean, (columns - mean).square().sum(0), largest)


def fit_scale(train: Dataset, inputs: bool = True) -> Scale:
    """Means and population standard deviations of these rows; sd 1 where a column is constant to rounding.

    Without `inputs` these keep their units, as counts and histograms must: their mean is set to 0, their sd to 1.
    """
    columns = train.X if isinstance(train.X, Tensor) else train.y.new_zeros(len(train), 0)
    target = moments(train.y[:, None])
    ends = float(target.mean[0]), float(target.sd[0])
    if not inputs:
        return Scale(columns.new_zeros(columns.shape[1]), columns.new_ones(columns.shape[1]), *ends)
    found = moments(columns)
    return Scale(found.mean, found.sd, *ends)


def scale(data: Dataset, by: Scale) -> Dataset:
    """The same rows in scaled units; inputs that are objects stay as they are."""
    X = (data.X - by.x_mean) / by.x_sd if isinstance(data.X, Tensor) else data.X
    return replace(data, X=X, y=(data.y - by.y_mean) / by.y_sd, scale=by)
