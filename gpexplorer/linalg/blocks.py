"""Rows in blocks: slices whose temporaries fit into the cache, and sums over rows, strip by strip.

A function maps each strip of rows to its contribution, and the contributions are added, on this process or on the
workers of a cluster. The builtin `map` computes one strip at a time and holds no other. A strip of a tensor that maps a
file is read when it is computed, so rows that do not fit into memory can be used. Before each block, a person who waits
no longer ends the computation (`interruption`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .interruption import go_on

BLOCK_BYTES = 24 * 2**20  # new buffers above about 32 MB cost page faults
GPU_BYTES = 256 * 2**20  # on an H100 a pass over it takes .2 ms, as long as 40 launches
GPU_SHARE = 128  # on a smaller card this part of its memory, since a block has up to eight temporaries
STRIP_ROWS = 2**14
PANELS = 5  # panels of rows into which the lower half of a Gram matrix is divided
LEAST_PANELS = 192  # functions: with fewer, products of panels take as long as the whole one
TILE = 8  # the number of rows of a panel is a multiple of this, for which a BLAS is fastest
Sums = tuple[Tensor, ...]
Map = Callable[[Callable[..., Sums], Iterable[Any]], Iterable[Sums]]


def row_blocks(n: int, row_bytes: int, like: Tensor, block_bytes: int = BLOCK_BYTES) -> Iterator[slice]:
    """Cut n rows into slices.

    Parameters
    ----------
    n : int
        Number of rows.
    row_bytes : int
        Bytes of temporaries that one row takes.
    like : Tensor
        A tensor on the device. On a GPU a block is so large that the work takes longer than its launches.
    block_bytes : int, default BLOCK_BYTES
        Most bytes of a block on a CPU; a block has at least one row.

    Yields
    ------
    slice
        Consecutive slices that cover 0 to n.

    Examples
    --------
    >>> list(row_blocks(5, row_bytes=8, like=torch.zeros(1), block_bytes=16))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    if not like.is_cpu:
        is_cuda = like.device.type == "cuda"  # other devices do not say how much memory they have
        most = torch.cuda.get_device_properties(like.device).total_memory // GPU_SHARE if is_cuda else GPU_BYTES
        block_bytes = max(block_bytes, min(GPU_BYTES, most))
    size = max(1, int(block_bytes // max(row_bytes, 1)))
    for begin in range(0, n, size):
        go_on()
        yield slice(begin, min(begin + size, n))


def sum_over_rows(
    part: Callable[[tuple[Tensor, ...]], Sums], arrays: Sequence[Tensor], apply: Map = map, rows: int = STRIP_ROWS
) -> Sums:
    """Add up the contributions of all strips of rows.

    Parameters
    ----------
    part : callable
        Maps a tuple of strips, one per array, to a tuple of tensors whose shapes do not depend on the strip.
    arrays : sequence of Tensor [n, ...]
        Arrays with the same number of rows, at least one.
    apply : callable, default map
        Computes the contributions, in their order, as the builtin `map` does.
    rows : int, default STRIP_ROWS
        Rows of a strip.

    Returns
    -------
    tuple of Tensor
        The sums, always added in the order of the strips.
    """
    n = len(arrays[0])
    strips = (tuple(array[begin : begin + rows] for array in arrays) for begin in range(0, n, rows))
    total: Sums = ()
    for contribution in apply(part, strips):
        go_on()
        if not total:
            total = tuple(contribution)
            continue
        for accumulator, term in zip(total, contribution, strict=True):
            accumulator.add_(term)
    return total


def add_gram_(
    A: Float[Tensor, "p p"], F: Float[Tensor, "p b"], G: Float[Tensor, "p b"] | None = None, alpha: float = 1.0
) -> None:
    """Add alpha F G', which is symmetric, to A in place, where it is faster to its lower triangle only.

    G is F by default, or F with weights of its columns; `symmetric_from_lower` gives the whole matrix.

    Notes
    -----
    6/5 b p^2 flops, where a whole product takes 2 b p^2. The rows are cut into PANELS panels, each of which ends at the
    diagonal, so some entries above the diagonal are added to as well. With more panels fewer of these would be computed
    in vain, but their products would be so thin that they take longer. A whole product is as fast for few functions,
    and on a GPU, where panels are launches.
    """
    p, G = len(A), F if G is None else G
    width = TILE * -(-p // (PANELS * TILE)) if _is_halved(A) else max(p, 1)
    for begin in range(0, p, width):
        end = min(begin + width, p)
        A[begin:end, :end].addmm_(F[begin:end], G[:end].T, alpha=alpha)


def symmetric_from_lower(A: Float[Tensor, "p p"]) -> Float[Tensor, "p p"]:
    """Return the symmetric matrix to which `add_gram_` has added: A itself, if it has added to all of it."""
    return A.tril() + A.tril(-1).T if _is_halved(A) else A


def _is_halved(A: Tensor) -> bool:
    """Whether products are added to the lower triangle of such a matrix only."""
    return A.is_cpu and len(A) >= LEAST_PANELS


def mirrored_(A: Float[Tensor, "p p"]) -> Float[Tensor, "p p"]:
    """Copy what is above the diagonal to below it, in place and by blocks, and return A."""
    for rows in row_blocks(len(A), 2 * A.element_size() * len(A), A):
        own = A[rows, rows]
        A[rows, rows] = own.triu() + own.triu(1).T
        A[rows.stop :, rows] = A[rows, rows.stop :].T
    return A


def sum_of_squares(y: Float[Tensor, " n"]) -> float:
    """Return y'y, added in float64 for any precision of y. Only one strip of y is copied at a time."""
    return float(sum(torch.dot(strip, strip) for strip in map(Tensor.double, y.split(STRIP_ROWS))))
