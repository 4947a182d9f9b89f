"""A sum over rows of what a function makes of each strip of them, wherever the strips are worked on.

The map is the builtin one, which takes a strip at a time and holds no other, or a cluster's. A strip of a tensor that
maps a file is read when it is worked on: rows that do not fit into memory stream through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

STRIP_ROWS = 2**14
LEAF = 128  # rows of the squares on the diagonal that are computed whole

Sums = tuple[Tensor, ...]
Map = Callable[[Callable[..., Sums], Iterable[Any]], Iterable[Sums]]


def sum_over_rows(
    part: Callable[[tuple[Tensor, ...]], Sums], arrays: Sequence[Tensor], apply: Map = map, rows: int = STRIP_ROWS
) -> Sums:
    """Sum of part((array[strip], ...)) over strips of at most `rows`, added in their order. At least one row."""
    n = len(arrays[0])
    strips = (tuple(array[begin : begin + rows] for array in arrays) for begin in range(0, n, rows))
    total: Sums = ()
    for found in apply(part, strips):
        if not total:
            total = tuple(found)
            continue
        for into, term in zip(total, found, strict=True):
            into.add_(term)
    return total


def add_gram_(A: Float[Tensor, "p p"], F: Float[Tensor, "p b"]) -> None:
    """Add F F' to the lower triangle of A: b p^2 flops and a little, half of a full product.

    Halved until a square is small, so that all but a few flops are in products as large as there are: panels of equal
    width, the other way to leave half out, are thinner, and half as much again is computed in vain.
    """
    half = len(A) // 2
    if len(A) <= LEAF:
        A.addmm_(F, F.T)
        return
    add_gram_(A[:half, :half], F[:half])
    A[half:, :half].addmm_(F[half:], F[:half].T)
    add_gram_(A[half:, half:], F[half:])


def mirrored(A: Float[Tensor, "p p"]) -> Float[Tensor, "p p"]:
    """The symmetric matrix whose lower triangle this is."""
    return A.tril() + A.tril(-1).T


def sum_of_squares(y: Float[Tensor, " n"]) -> float:
    """y'y, in float64 whatever y is, without a copy of it at once."""
    (total,) = sum_over_rows(_square, (y,))
    return float(total)


def _square(strip: tuple[Tensor, ...]) -> Sums:
    y = strip[0].double()
    return (torch.dot(y, y),)
