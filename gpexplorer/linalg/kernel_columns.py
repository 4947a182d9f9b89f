"""Columns of a kernel matrix that is never formed: kept while a memory budget lasts, computed again beyond it.

Products can be worked on elsewhere, rows by rows: only inputs and vectors travel, and the sums are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ..problem import Kernel, take
from .blocks import row_blocks

Map = Callable[..., Iterable[Any]]


def rows_times(kernel: Kernel, theta: Tensor, X: Any, Z: Any, V: Tensor) -> Tensor:
    """k(X, Z) V."""
    return kernel(theta, X, Z) @ V


class KernelColumns:
    """K [n, n] of one data set, by rows (K is symmetric). Memory: at most `budget` bytes kept, and one block.

    Entries are computed and kept in `dtype`, that of theta where none is given: float32 halves both costs.
    """

    def __init__(self, kernel: Kernel, theta: Tensor, X: Any, budget: float, dtype: torch.dtype | None = None) -> None:
        self.kernel, self.theta, self.n = kernel, theta.to(dtype or theta.dtype), len(X)
        self.X = X.to(self.theta.dtype) if isinstance(X, Tensor) else X
        self.apply: Map = map  # how pieces of a product are done: on a cluster nothing is kept of them
        room = int(budget // (self.theta.element_size() * max(self.n, 1)))
        self._kept = self.theta.new_empty(min(room, self.n), self.n)
        self._slot = torch.full((self.n,), -1, dtype=torch.int64, device=theta.device)
        self._used = 0

    def __call__(self, rows: Tensor) -> Tensor:
        """K[rows] [c, n], the caller's own; computes only what is not kept, and keeps it while there is room."""
        slots = self._slot[rows]
        missing = torch.nonzero(slots < 0)[:, 0]
        if not len(missing):
            return self._kept[slots]
        fresh = self.kernel(self.theta, take(self.X, rows[missing]), self.X)  # [c', n]
        self._keep(rows[missing], fresh)
        if len(missing) == len(rows):
            return fresh
        out = fresh.new_empty(len(rows), self.n)
        held = torch.nonzero(slots >= 0)[:, 0]
        out[missing], out[held] = fresh, self._kept[slots[held]]
        return out

    def product(self, V: Tensor) -> Tensor:
        """K V for V [n] or [n, k]: the rows that are not kept, block by block, then those that are where they lie."""
        W = V.to(self.theta.dtype)
        out, missing = torch.empty_like(W), torch.nonzero(self._slot < 0)[:, 0]
        blocks = [missing[block] for block in row_blocks(len(missing), self.theta.element_size() * self.n)]
        if self.apply is map:
            found: Iterable[Tensor] = (self(block) @ W for block in blocks)
        else:
            kernels, thetas, whole, vectors = ([one] * len(blocks) for one in (self.kernel, self.theta, self.X, W))
            found = self.apply(rows_times, kernels, thetas, [take(self.X, block) for block in blocks], whole, vectors)
        for block, part in zip(blocks, found, strict=True):
            out[block] = part
        kept = torch.nonzero(self._slot >= 0)[:, 0]
        out[kept] = (self._kept[: self._used] @ W)[self._slot[kept]]
        return out.to(V.dtype)

    def _keep(self, rows: Tensor, fresh: Tensor) -> None:
        room = min(len(rows), len(self._kept) - self._used)
        if room > 0:
            self._kept[self._used : self._used + room] = fresh[:room]
            self._slot[rows[:room]] = torch.arange(self._used, self._used + room, device=rows.device)
            self._used += room
