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
PANELS, TILE = 5, 8  # of a triangle of products; rows of a panel are a multiple, as a BLAS likes them

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
    """Add F F' to A on and below the diagonal, and somewhat above it: 6/5 b p^2 flops, where a product takes 2 b p^2.

    In panels that end on the diagonal. More of them compute less in vain, in products so thin that they take longer.
    """
    p = len(A)
    width = TILE * -(-p // (PANELS * TILE))
    for begin in range(0, p, width):
        end = min(begin + width, p)
        A[begin:end, :end].addmm_(F[begin:end], F[:end].T)


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
