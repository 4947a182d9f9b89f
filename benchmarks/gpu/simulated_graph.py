"""CUDA graphs on the simulated GPU: operations are recorded without effect, and repeated on the same memory.

As with a real graph, recording changes no value, a read or an upload inside it is an error, and a number of the host is
part of the graph: it does not change from one replay to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

NOT_PERMITTED = "CUDA error: operation not permitted when stream is capturing"


class Operation(NamedTuple):
    """One recorded operation on the numbers of the host, and what it returned."""

    func: Callable[..., Any]
    args: Any
    kwargs: dict[str, Any]
    out: tuple[Tensor, ...]


class SimulatedGraph:
    """The place of torch.cuda.CUDAGraph.

    Parameters
    ----------
    count_launch : callable
        Called at each replay.
    """

    active: SimulatedGraph | None = None  # the graph that is being recorded

    def __init__(self, count_launch: Callable[[], None]) -> None:
        self.operations: list[Operation] = []
        self._count_launch = count_launch
        self._saved: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._own: set[int] = set()  # memory that the graph has made

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what is done inside; afterwards all memory from before has its values from before."""
        SimulatedGraph.active = self
        try:
            yield
        finally:
            SimulatedGraph.active = None
            for memory, values in self._saved.values():
                memory.copy_(values)

    def before(self, tensors: list[Tensor]) -> None:
        """Save the values of what an operation may change."""
        for tensor in tensors:
            memory = tensor.untyped_storage()
            if memory.data_ptr() not in self._own and memory.data_ptr() not in self._saved:
                self._saved[memory.data_ptr()] = (memory, memory.clone())

    def after(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any], out: tuple[Tensor, ...]) -> None:
        """Record an operation; what it returned is written again by each replay."""
        self.operations.append(Operation(func, args, kwargs, out))
        pointers = {tensor.untyped_storage().data_ptr() for tensor in out}
        self._own |= pointers - self._saved.keys()

    def replay(self) -> None:
        """Repeat all operations on the same memory."""
        self._count_launch()
        with torch.inference_mode():
            for func, args, kwargs, out in self.operations:
                results = func(*args, **kwargs)
                for recorded, value in zip(out, tensors_of(results), strict=True):
                    if value.data_ptr() != recorded.data_ptr():
                        recorded.copy_(value)


@contextmanager
def simulated_capture(graph: SimulatedGraph, *_: Any, **__: Any) -> Iterator[None]:
    """The place of torch.cuda.graph."""
    with graph.recorded():
        yield


def refuse_in_graph() -> None:
    """Raise the error of CUDA if a graph is being recorded."""
    if SimulatedGraph.active is not None:
        raise RuntimeError(NOT_PERMITTED)


def tensors_of(value: Any) -> tuple[Tensor, ...]:
    """Return the tensors among the results of an operation."""
    parts = value if isinstance(value, (list, tuple)) else (value,)
    return tuple(part for part in parts if isinstance(part, Tensor))
