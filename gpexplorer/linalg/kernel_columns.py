"""Columns of a kernel matrix that is never formed: kept while a memory budget lasts, computed again beyond it.

K V from the rows S that are kept and the triangle of those, M, that are not:

    (K V)_S = K_S: V,   (K V)_M = K_SM' V_S + K_MM V_M,   K_MM by strips above its diagonal, each used on both sides

Rows and strips can be worked on elsewhere: inputs, vectors and the rows asked for travel; sums keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..problem import Kernel, take
from .blocks import BLOCK_BYTES, row_blocks

STRIP, LEAST, TILE_BYTES = (
    256,
    32,
    4 * 2**20,
)  # rows of a strip; a tile of it is still near when it is read for the other side
Map = Callable[..., Iterable[Any]]


def rows_of(kernel: Kernel, theta: Tensor, X: Any, Z: Any) -> Tensor:
    """k(X, Z) [c, n], by tiles that stay near while they are made."""
    return fill_rows(kernel, theta, X, Z, theta.new_empty(len(X), len(Z)))


def fill_rows(kernel: Kernel, theta: Tensor, X: Any, Z: Any, out: Tensor) -> Tensor:
    """The same in `out`."""
    for part in row_blocks(len(Z), out.element_size() * max(len(X), 1), TILE_BYTES):
        filled(kernel, theta, X, Z[part], out[:, part])
    return out


def filled(kernel: Kernel, theta: Tensor, X: Any, Z: Any, tile: Tensor) -> Tensor:
    """k(X, Z) in `tile`, at once where the kernel can: one of its own would be written and read once more."""
    fill = getattr(kernel, "fill", None)
    if fill is None:
        return tile.copy_(kernel(theta, X, Z))
    fill(theta, X, Z, tile)
    return tile


def few_rows(count: int, row_bytes: int) -> Iterator[slice]:
    """Slices that cover 0..count, of a block's bytes or of LEAST rows: fewer would cost more in inputs than entries."""
    return row_blocks(count, row_bytes, max(BLOCK_BYTES, LEAST * row_bytes))


def strip_times(kernel: Kernel, theta: Tensor, X: Any, begin: int, V: Tensor) -> tuple[Tensor, Tensor]:
    """What rows [begin, begin + s) of k(X, X), from the diagonal on, add to k(X, X) V: to those rows [s, k], to later.

    s (n - begin) kernel entries, each used for itself and for its mirror image.
    """
    end = min(begin + STRIP, len(X))
    rows = X[begin:end]
    own, later = kernel(theta, rows, X[begin:end]) @ V[begin:end], V.new_empty(len(X) - end, *V.shape[1:])
    parts = [*row_blocks(len(X) - end, V.element_size() * STRIP, TILE_BYTES)]
    tile = V.new_empty(end - begin, parts[0].stop if parts else 0)
    for part in parts:
        at = slice(end + part.start, end + part.stop)
        K = filled(kernel, theta, rows, X[at], tile[:, : part.stop - part.start])  # [s, tile]
        own += K @ V[at]
        later[part] = K.T @ V[begin:end]
    return own, later


class KernelColumns:
    """K [n, n] of one data set, by rows (K is symmetric). Memory: at most `budget` bytes kept, and one block.

    Entries are computed and kept in `dtype`, that of theta where none is given: float32 halves both costs.
    """

    def __init__(self, kernel: Kernel, theta: Tensor, X: Any, budget: float, dtype: torch.dtype | None = None) -> None:
        self.kernel, self.theta, self.n = kernel, theta.to(dtype or theta.dtype), len(X)
        self.X = X.to(self.theta.dtype) if isinstance(X, Tensor) else X
        self.apply: Map = map  # how rows and strips are done: of a product on a cluster no row is kept
        room = int(budget // (self.theta.element_size() * max(self.n, 1)))
        self._kept = self.theta.new_empty(min(room, self.n), self.n)
        self._slot = torch.full((self.n,), -1, dtype=torch.int64, device=theta.device)
        self._used = 0

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """K[rows] [c, n], in `out` or new; computes only what is not kept, and keeps it while there is room."""
        if out is None:
            out = self.theta.new_empty(len(rows), self.n)
        slots = self._slot[rows]
        missing, held = (torch.nonzero(mask)[:, 0] for mask in (slots < 0, slots >= 0))
        if self.apply is map and not len(held):
            self._keep(rows, fill_rows(self.kernel, self.theta, take(self.X, rows), self.X, out))
            return out
        blocks = [*few_rows(len(missing), self.theta.element_size() * self.n)]
        pieces = [take(self.X, rows[missing[block]]) for block in blocks]
        for block, fresh in zip(blocks, self._mapped(rows_of, pieces, [self.X] * len(blocks)), strict=True):
            at = missing[block]
            self._keep(rows[at], fresh)
            out[at if len(held) else block] = fresh  # [c', n]
        if len(held):
            out[held] = self._kept[slots[held]]
        return out

    def product(self, V: Tensor) -> Tensor:
        """K V for V [n] or [n, k]; n^2 / 2 kernel entries, fewer by as many rows as are kept."""
        W, out = V.to(self.theta.dtype), torch.zeros_like(V)
        if self.apply is map:
            self._fill()
        kept, missing = (torch.nonzero(mask)[:, 0] for mask in (self._slot >= 0, self._slot < 0))
        if len(kept):
            K, slots = self._kept[: self._used], self._slot[kept]
            out[kept] = (K @ W)[slots].to(V.dtype)
        if len(missing):
            out[missing] = self._triangle(missing, W[missing], V.dtype)
        if len(kept) and len(missing):
            mine = torch.empty_like(W[kept])
            mine[slots] = W[kept]
            out[missing] += (K.T @ mine)[missing]
        return out

    def _triangle(self, missing: Tensor, W: Tensor, dtype: torch.dtype) -> Tensor:
        """K_MM W, added up in `dtype`."""
        X, out = take(self.X, missing), torch.zeros_like(W, dtype=dtype)
        begins = range(0, len(missing), STRIP)
        found = self._mapped(strip_times, [X] * len(begins), begins, [W] * len(begins))
        for begin, (own, later) in zip(begins, found, strict=True):
            out[begin : begin + len(own)] += own
            out[begin + len(own) :] += later
        return out

    def _mapped(self, function: Callable[..., Any], *pieces: Sequence[Any]) -> Iterable[Any]:
        """What the function makes of each piece, in their order, wherever that is done."""
        count = len(pieces[0])
        return self.apply(function, [self.kernel] * count, [self.theta] * count, *pieces)

    def _fill(self) -> None:
        """Keep as many rows as there is room for."""
        missing = torch.nonzero(self._slot < 0)[: len(self._kept) - self._used, 0]
        for block in few_rows(len(missing), self.theta.element_size() * self.n):
            rows = missing[block]
            self._keep(rows, rows_of(self.kernel, self.theta, take(self.X, rows), self.X))

    def _keep(self, rows: Tensor, fresh: Tensor) -> None:
        room = min(len(rows), len(self._kept) - self._used)
        if room > 0:
            self._kept[self._used : self._used + room] = fresh[:room]
            self._slot[rows[:room]] = torch.arange(self._used, self._used + room, device=rows.device)
            self._used += room
