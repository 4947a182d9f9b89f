"""Columns of a kernel matrix that is never formed: kept while a memory budget lasts, computed again beyond it.

A product K V uses the rows S that are kept, and the triangle of the other rows M:

    (K V)_S = K_S: V,   (K V)_M = K_SM' V_S + K_MM V_M,   K_MM in strips above its diagonal, each used on both sides

Rows and strips can be computed by other workers, which receive inputs, vectors and row numbers. Sums are always added
in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..problem import Kernel, rows_like, take
from .blocks import BLOCK_BYTES, row_blocks

STRIP = 256  # rows of a strip
MIN_ROWS = 32  # with fewer rows per block, reading the inputs would cost more than computing the entries
FILL_BYTES = 16 * 2**20  # kernels write rows of this length in pieces of their own; short rows take twice as long
FILL_COLUMNS = 2**14  # at most: of a longer tile with few rows, the scaled inputs alone would not fit into the cache
TILE_BYTES = 4 * 2**20  # a tile of a strip is still in the cache when it is read for the other side
Map = Callable[..., Iterable[Any]]


def kernel_rows(kernel: Kernel, theta: Tensor, X: Any, Z: Any) -> Tensor:
    """k(X, Z) [c, n], computed in tiles that fit into the processor's cache."""
    return fill_rows(kernel, theta, X, Z, theta.new_empty(len(X), len(Z)))


def fill_rows(kernel: Kernel, theta: Tensor, X: Any, Z: Any, out: Tensor) -> Tensor:
    """Write k(X, Z) [c, n] into `out`, in tiles of FILL_BYTES, and return `out`."""
    for part in _tiles(len(X), len(Z), out):
        fill_tile(kernel, theta, X, Z[part], out[:, part])
    return out


def _tiles(rows: int, n: int, like: Tensor) -> Iterator[slice]:
    """Slices of n columns whose tiles of so many rows have FILL_BYTES, or what suits the device of `like`."""
    column_bytes = like.element_size() * max(rows, 1)
    return row_blocks(n, column_bytes, like, min(FILL_BYTES, FILL_COLUMNS * column_bytes))


def fill_tile(kernel: Kernel, theta: Tensor, X: Any, Z: Any, tile: Tensor) -> Tensor:
    """Write k(X, Z) into `tile`, in place if the kernel has a `fill` method, which saves a write and a read."""
    fill = getattr(kernel, "fill", None)
    if fill is None:
        return tile.copy_(kernel(theta, X, Z))
    fill(theta, X, Z, tile)
    return tile


def large_blocks(count: int, row_bytes: int, like: Tensor) -> Iterator[slice]:
    """Slices that cover 0..count, each of at most BLOCK_BYTES or MIN_ROWS rows, whichever is more."""
    return row_blocks(count, row_bytes, like, max(BLOCK_BYTES, MIN_ROWS * row_bytes))


def strip_product(kernel: Kernel, theta: Tensor, X: Any, begin: int, V: Tensor) -> tuple[Tensor, Tensor]:
    """Contribution to k(X, X) V of one strip of rows, from the diagonal to the right, and of its mirror image.

    Parameters
    ----------
    kernel, theta, X : Kernel, Tensor, object
        Kernel, its log-hyperparameters [p], and all inputs [n, d].
    begin : int
        First row of the strip; the strip ends after STRIP rows, or at row n.
    V : Tensor [n] or [n, k]
        What the matrix is multiplied with.

    Returns
    -------
    own : Tensor [s] or [s, k]
        What to add to the rows of the strip.
    later : Tensor [n - begin - s] or [n - begin - s, k]
        What to add to the rows behind the strip.

    Notes
    -----
    s (n - begin) kernel entries, each used twice.
    """
    end = min(begin + STRIP, len(X))
    rows = X[begin:end]
    own, later = kernel(theta, rows, X[begin:end]) @ V[begin:end], V.new_empty(len(X) - end, *V.shape[1:])
    parts = [*row_blocks(len(X) - end, V.element_size() * STRIP, V, TILE_BYTES)]
    workspace = V.new_empty(end - begin, parts[0].stop if parts else 0)
    for part in parts:
        columns = slice(end + part.start, end + part.stop)
        K = fill_tile(kernel, theta, rows, X[columns], workspace[:, : part.stop - part.start])  # [s, tile]
        own += K @ V[columns]
        later[part] = K.T @ V[begin:end]
    return own, later


class KernelColumns:
    """Rows of the symmetric kernel matrix K [n, n] of one data set, with a cache that is filled once.

    Parameters
    ----------
    theta : Tensor [p]
        Log-hyperparameters.
    X : Tensor [n, d] or sequence
        Inputs.
    budget : float
        Most bytes of rows that are kept. Besides them, one block of rows is held.
    dtype : torch.dtype, optional
        Precision in which entries are computed and kept; that of theta if omitted. float32 halves time and memory.
    apply : callable, default map
        How rows and strips are computed, for example on the workers of a cluster. With anything but `map`, a product
        keeps no rows.
    """

    def __init__(
        self, kernel: Kernel, theta: Tensor, X: Any, budget: float, dtype: torch.dtype | None = None, apply: Map = map
    ) -> None:
        self.kernel, self.theta, self.n = kernel, theta.to(dtype or theta.dtype), len(X)
        self.X = rows_like(X, self.theta)
        self.apply = apply
        room = int(budget // (self.theta.element_size() * max(self.n, 1)))
        self._kept = self.theta.new_empty(min(room, self.n), self.n)
        self._numbers = torch.arange(self.n, device=theta.device)
        self._slot = torch.full_like(self._numbers, -1)  # place in _kept, -1 if absent
        self._used = 0

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """K[rows] [c, n], in `out` if it is given; rows that are not kept are computed, and kept if there is room."""
        if out is None:
            out = self.theta.new_empty(len(rows), self.n)
        slots = self._slot[rows]
        missing, cached = self._split(slots)
        if self.apply is map and not len(cached):
            self._keep(rows, fill_rows(self.kernel, self.theta, take(self.X, rows), self.X, out))
            return out
        if self.apply is map and self._used + len(missing) <= len(self._kept):
            if len(missing):
                self._compute_and_keep(rows[missing])
                slots = self._slot[rows]
            return torch.index_select(self._kept, 0, slots, out=out)
        if self.apply is map:
            self._copy_and_compute(rows, missing, cached, out)
            return out
        blocks = [*large_blocks(len(missing), self.theta.element_size() * self.n, self.theta)]
        inputs = [take(self.X, rows[missing[block]]) for block in blocks]
        computed = self._mapped(kernel_rows, inputs, [self.X] * len(blocks))
        for block, K in zip(blocks, computed, strict=True):  # K [c', n]
            places = missing[block]
            self._keep(rows[places], K)
            out[places if len(cached) else block] = K
        if len(cached):
            out[cached] = self._kept[slots[cached]]
        return out

    def _copy_and_compute(self, rows: Tensor, missing: Tensor, cached: Tensor, out: Tensor) -> None:
        """Write K[rows] into `out` where some rows are kept, in tiles: a new buffer as large as `out` costs more."""
        X, slots = take(self.X, rows[missing]), self._slot[rows[cached]]
        parts = [*_tiles(len(rows), self.n, out)]
        workspace = out.new_empty(len(missing), parts[0].stop)
        for part in parts:
            computed = fill_tile(self.kernel, self.theta, X, self.X[part], workspace[:, : part.stop - part.start])
            out[:, part].index_copy_(0, missing, computed)
            out[:, part].index_copy_(0, cached, self._kept[:, part].index_select(0, slots))
        room = len(self._kept) - self._used
        if room:
            self._keep(rows[missing[:room]], out[missing[:room]])

    def forget(self) -> None:
        """Keep no rows from before."""
        self._slot.fill_(-1)
        self._used = 0

    def _split(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Positions of the rows that are not kept, and of those that are; at most one read of a GPU."""
        if self._used in (0, self.n):
            every = self._numbers[: len(slots)]
            return (every, every[:0]) if self._used == 0 else (every[:0], every)
        if slots.is_cpu:
            return torch.nonzero(slots < 0)[:, 0], torch.nonzero(slots >= 0)[:, 0]
        order, count = torch.argsort(slots, stable=True), int((slots < 0).sum())  # those that are not kept come first
        return order[:count], order[count:]

    def product(self, V: Tensor) -> Tensor:
        """K V for V [n] or [n, k]; n^2 / 2 kernel entries, fewer by those of the rows that are kept."""
        W, out = V.to(self.theta.dtype), torch.zeros_like(V)
        if self.apply is map:
            self._fill()
        kept, missing = (torch.nonzero(mask)[:, 0] for mask in (self._slot >= 0, self._slot < 0))
        if len(kept):
            K_S, slots = self._kept[: self._used], self._slot[kept]
            out[kept] = (K_S @ W)[slots].to(V.dtype)
        if len(missing):
            out[missing] = self._triangle(missing, W[missing], V.dtype)
        if len(kept) and len(missing):
            W_S = torch.empty_like(W[kept])  # in the order in which the rows are kept
            W_S[slots] = W[kept]
            out[missing] += (K_S.T @ W_S)[missing]
        return out

    def _triangle(self, missing: Tensor, W: Tensor, dtype: torch.dtype) -> Tensor:
        """K_MM W for the rows M that are not kept, added up in `dtype`."""
        X, out = take(self.X, missing), torch.zeros_like(W, dtype=dtype)
        begins = range(0, len(missing), STRIP)
        strips = self._mapped(strip_product, [X] * len(begins), begins, [W] * len(begins))
        for begin, (own, later) in zip(begins, strips, strict=True):
            out[begin : begin + len(own)] += own
            out[begin + len(own) :] += later
        return out

    def _mapped(self, function: Callable[..., Any], *arguments: Sequence[Any]) -> Iterable[Any]:
        """Results of function(kernel, theta, ...) for each set of arguments, in their order."""
        count = len(arguments[0])
        return self.apply(function, [self.kernel] * count, [self.theta] * count, *arguments)

    def _fill(self) -> None:
        """Compute rows until the cache is full."""
        missing = torch.nonzero(self._slot < 0)[: len(self._kept) - self._used, 0]
        for block in large_blocks(len(missing), self.theta.element_size() * self.n, self.theta):
            self._compute_and_keep(missing[block])

    def _compute_and_keep(self, rows: Tensor) -> None:
        """Compute K[rows] in the memory of the cache, which must have room for them."""
        end = self._used + len(rows)
        fill_rows(self.kernel, self.theta, take(self.X, rows), self.X, self._kept[self._used : end])
        self._slot[rows] = self._numbers[self._used : end]
        self._used = end

    def _keep(self, rows: Tensor, K: Tensor) -> None:
        """Copy K = K[rows] into the cache, as many rows as there is room for."""
        room = min(len(rows), len(self._kept) - self._used)
        if room > 0:
            self._kept[self._used : self._used + room] = K[:room]
            self._slot[rows[:room]] = self._numbers[self._used : self._used + room]
            self._used += room
