"""Buffers for large matrices that are used again, because pages that already exist cost no page fault."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor


class Workspace:
    """A pool of buffers, each of which belongs to one owner at a time and returns when the owner is deleted.

    Parameters
    ----------
    budget : float
        Bytes that one matrix may take; the pool stores this number for its users and does not enforce it.

    Notes
    -----
    A pickled copy contains no buffers, so that it can be sent to another process. A buffer that a CUDA graph has
    recorded is kept, because each replay writes to it.
    """

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self._free: list[Tensor] = []
        self._in_graphs: list[Tensor] = []

    def matrix(self, owner: Any, rows: int, columns: int, like: Tensor) -> Tensor:
        """Return an uninitialised matrix [rows, columns] that `owner` alone uses for as long as it exists.

        Parameters
        ----------
        owner : object
            When it is deleted, the buffer of the matrix is free for others.
        rows, columns : int
            Shape of the matrix.
        like : Tensor
            Gives precision and device.
        """
        size, kind = rows * columns, (like.dtype, like.device)
        fitting = [free for free in self._free if free.numel() >= size and (free.dtype, free.device) == kind]
        buffer = min(fitting, key=Tensor.numel, default=None)
        if buffer is None:
            self._free.clear()  # these are too small, or of another precision or device
            buffer = like.new_empty(size)
        else:
            self._free = [free for free in self._free if free is not buffer]
        if like.is_cuda and torch.cuda.is_current_stream_capturing():
            self._in_graphs.append(buffer)
        weakref.finalize(owner, self._return, buffer)
        return buffer[:size].view(rows, columns)

    def _return(self, buffer: Tensor) -> None:
        self._free.append(buffer)

    def __reduce__(self) -> tuple[type[Workspace], tuple[float]]:
        return Workspace, (self.budget,)
