"""Rows in blocks, so that a reduction over n rows holds only one block of its temporaries."""

from __future__ import annotations

from collections.abc import Iterator

BLOCK_BYTES = 24 * 2**20  # fresh buffers above about 32 MB are paid for in page faults


def row_blocks(n: int, row_bytes: int, block_bytes: int = BLOCK_BYTES) -> Iterator[slice]:
    """Slices that cover 0..n, each at most `block_bytes` when a row takes `row_bytes`."""
    size = max(1, int(block_bytes // max(row_bytes, 1)))
    for begin in range(0, n, size):
        yield slice(begin, min(begin + size, n))
