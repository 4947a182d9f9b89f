"""Rows in blocks, so that a loop over n rows holds the temporaries of one block only."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK_BYTES = 24 * 2**20  # new buffers above about 32 MB cost page faults
GPU_BYTES = 256 * 2**20  # on an H100 a pass over it takes .2 ms, as long as 40 launches
GPU_SHARE = 128  # on a smaller card this part of its memory, since a block has up to eight temporaries


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
        memory = torch.cuda.get_device_properties(like.device).total_memory
        block_bytes = max(block_bytes, min(GPU_BYTES, memory // GPU_SHARE))
    size = max(1, int(block_bytes // max(row_bytes, 1)))
    for begin in range(0, n, size):
        yield slice(begin, min(begin + size, n))
