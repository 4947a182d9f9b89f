"""Functions drawn from a posterior, which can be evaluated at any rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..linalg.blocks import row_blocks


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
        self,
        rows: Callable[[Any], Any],
        evaluate: Callable[[Any], Tensor],
        size: int,
        like: Tensor,
        row_numbers: int,
    ) -> None:
        self.rows, self.evaluate, self.size = rows, evaluate, size
        self.like, self.row_numbers = like, row_numbers

    def __call__(self, X: Any) -> Tensor:
        """Values [size, t] at these inputs, which autograd can differentiate."""
        X = self.rows(X)
        blocks = row_blocks(len(X), self.like.element_size() * self.row_numbers)
        parts = [self.evaluate(X[rows]) for rows in blocks]
        return torch.cat(parts, 1) if parts else self.like.new_zeros(self.size, 0)
