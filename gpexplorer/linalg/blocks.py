"""Rows in blocks, so that a loop over n rows holds the temporaries of one block only."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

BLOCK_BYTES = 24 * 2**20  # new buffers above about 32 MB cost page faults
GPU_BYTES = 64 * 2**20  # some passes over it take a GPU about 100 microseconds, as long as 20 launches


def cached_bytes(like: Tensor, cache: int) -> int:
    """Return the bytes of a block that is read again soon.

    On a CPU it should stay in the cache. On a GPU it should be so large that the work takes longer than its launches.

    Parameters
    ----------
    like : Tensor
        A tensor on the device.
    cache : int
        Bytes on a CPU.
    """
    return cache if like.is_cpu else max(cache, GPU_BYTES)


def row_blocks(n: int, row_bytes: int, block_bytes: int = BLOCK_BYTES) -> Iterator[slice]:
    """Cut n rows into slices.

    Parameters
    ----------
    n : int
        Number of rows.
    row_bytes : int
        Bytes of temporaries that one row takes.
    block_bytes : int, default BLOCK_BYTES
        Most bytes of a block; a block has at least one row.

    Yields
    ------
    slice
        Consecutive slices that cover 0 to n.

    Examples
    --------
    >>> list(row_blocks(5, row_bytes=8, block_bytes=16))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = max(1, int(block_bytes // max(row_bytes, 1)))
    for begin in range(0, n, size):
        yield slice(begin, min(begin + size, n))
