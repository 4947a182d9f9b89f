"""How far the log-hyperparameters may move in the first step of a descent: a period not out of its maximum."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...problem import Dataset, MixedRows
from ..row_scaled import unscaled_kernel, unscaled_rows


def period_entries(kernel: Any) -> list[int]:
    """The entries of theta that are periods."""
    return [i for i, name in enumerate(unscaled_kernel(kernel).names) if name.rpartition(": ")[2] == "period"]


def descent_units(kernel: Any, theta: Float[Tensor, " p"], train: Dataset) -> Float[Tensor, " p"] | None:
    """Return 1 for every log-hyperparameter, less for a period that rows repeat often; None if there is no period.

    The likelihood of a period has a maximum per lobe of the periodogram. In this unit of a log period, the phase of its
    wave changes by a radian over one standard deviation of the input.
    """
    if not (entries := period_entries(kernel)):
        return None
    rows = train if unscaled_kernel(kernel) is kernel else unscaled_rows(train)
    X = rows.X.numbers if isinstance(rows.X, MixedRows) else rows.X
    if not isinstance(X, Tensor) or not X.shape[1]:
        return None
    sd = max(float(column.double().std(correction=0)) for column in X.T)
    units = torch.ones(len(theta), dtype=torch.float64, device=theta.device)
    if sd > 0.0:
        units[entries] = (theta[entries].double().exp() / (2.0 * math.pi * sd)).clamp_max(1.0)
    return units
