"""Functions drawn from a prior or from a posterior, which can be evaluated at any rows.

A function of the prior is a weighted sum of random features of the kernel:

    h(x) = sum_i g_i phi_i(x) / sqrt(D),   g ~ N(0, I),   E phi_i(x) phi_i(z) = k(x, z)       Rahimi and Recht (2007)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import PosteriorError, SettingError, quoted, whole_number
from ..linalg.blocks import row_blocks
from ..memory import machine_memory
from ..problem import Kernel
from .weights import normal_columns

FEATURES = 4096  # random features of a prior path: its covariance errs by about 1.5 % of the prior variance
MOST_SAMPLES = 2**31 - 1
GROUP, MAX_GROUPS = 32, 8  # paths that share random features, at least; more groups make averages over paths better


class Paths:
    """Functions drawn from a posterior: inputs [t, d] -> values of f [size, t].

    Parameters
    ----------
    rows : callable
        Converts inputs to those that `evaluate` takes.
    evaluate : callable
        Takes one block of rows and gives values [size, b].
    size : int
        Number of functions.
    like : Tensor
        Device and precision.
    row_numbers : int
        How many numbers one row of a block takes in memory.
    """

    def __init__(
        self, rows: Callable[[Any], Any], evaluate: Callable[[Any], Tensor], size: int, like: Tensor, row_numbers: int
    ) -> None:
        self.rows, self.evaluate, self.size = rows, evaluate, size
        self.like, self.row_numbers = like, row_numbers

    def __call__(self, X: Any) -> Tensor:
        """Values [size, t] at these inputs, which autograd can differentiate."""
        X = self.rows(X)
        blocks = row_blocks(len(X), self.like.element_size() * self.row_numbers, self.like)
        parts = [self.evaluate(X[rows]) for rows in blocks]
        return torch.cat(parts, 1) if parts else self.like.new_zeros(self.size, 0)


def prior_paths(kernel: Kernel, theta: Tensor, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
    """Draw `size` functions from the prior of a kernel.

    Parameters
    ----------
    kernel : Kernel
        A kernel with `random_features`.
    theta : Tensor [p]
        Log-hyperparameters.
    size : int
        Number of functions.
    draw : torch.Generator
        Where the random numbers come from.

    Returns
    -------
    callable
        Takes any number of inputs [t, d] and gives values [size, t]. 4096 cosines per row and group, and 8192 flops per
        value.

    Raises
    ------
    PosteriorError
        If the kernel has no random features.
    """
    parts = torch.arange(size).chunk(min(MAX_GROUPS, math.ceil(size / GROUP)))
    groups = [_group(kernel, theta.detach(), len(part), draw) for part in parts]

    def evaluate(X: Any) -> Tensor:
        values = theta.new_empty(size, len(X))
        for rows in row_blocks(len(X), theta.element_size() * (2 * FEATURES + size), theta):
            values[:, rows] = torch.cat([group(X[rows]) for group in groups])
        return values

    return evaluate


def _group(kernel: Kernel, theta: Tensor, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
    """Draw functions that share their random features."""
    make = getattr(kernel, "random_features", None)
    features = make(theta, FEATURES, draw) if make else None
    if features is None:
        raise PosteriorError(
            f"Kernel {kernel.key!r} has no random features, so no function can be drawn that is defined everywhere; "
            "draw joint values at given rows with sample(X, size, seed)."
        )
    G = normal_columns(theta, FEATURES, size, draw) / math.sqrt(FEATURES)  # [D, size]
    return lambda X: (features(X).to(G) @ G).T


def checked_size(size: int, numbers: int = 0) -> int:
    """A number of samples, each of which takes so many numbers; SettingError if it is none, or memory is too small."""
    if (whole := whole_number(size)) is None or not 1 <= whole <= MOST_SAMPLES:
        raise SettingError(f"size is {quoted(size)}; give the number of samples, from 1 to {MOST_SAMPLES:,}.")
    need, memory = 8.0 * numbers * whole, machine_memory()
    if need > memory:
        most = max(int(memory / (8 * numbers)), 1)
        raise SettingError(
            f"size is {whole:,}: so many samples take at least {need / 1e9:.3g} GB, and this machine has "
            f"{memory / 1e9:.3g} GB of memory. Give a size of at most {most:,} at a time."
        )
    return whole


def checked_seed(seed: int) -> int:
    """A seed; SettingError if it is no whole number."""
    if (whole := whole_number(seed)) is None:
        raise SettingError(f"seed is {quoted(seed)}; give a whole number, so that the samples can be drawn again.")
    return whole
