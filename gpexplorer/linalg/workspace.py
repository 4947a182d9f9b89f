"""Memory that one large matrix leaves to the next: pages that are there already cost no fault."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor


class Workspace:
    """At most about `budget` bytes a matrix, in buffers that go from owner to owner; a copy sent away is empty."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self._free: list[Tensor] = []

    def matrix(self, owner: Any, rows: int, columns: int, like: Tensor) -> Tensor:
        """Uninitialised [rows, columns], for `owner` alone: once it is gone, so is the matrix."""
        size, kind = rows * columns, (like.dtype, like.device)
        fitting = [one for one in self._free if one.numel() >= size and (one.dtype, one.device) == kind]
        buffer = min(fitting, key=Tensor.numel, default=None)
        if buffer is None:
            self._free.clear()  # too small, or of another kind
            buffer = like.new_empty(size)
        else:
            self._free = [one for one in self._free if one is not buffer]
        weakref.finalize(owner, self._free_again, buffer)
        return buffer[:size].view(rows, columns)

    def _free_again(self, buffer: Tensor) -> None:
        self._free.append(buffer)

    def __reduce__(self) -> tuple[type[Workspace], tuple[float]]:
        return Workspace, (self.budget,)
