"""Numbers and decisions that stay on a GPU, so that the host does not wait for them.

On a CPU a single number costs nothing to read, and Python's numbers save small operations. On a GPU each read empties
the queue of kernels. There `number` keeps the tensor, and `happens` returns False for a rare condition and records on
the device whether the condition held. The code that entered the context of RareCases reads this record at its end, and
repeats the work with reads if a case has happened.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Number = Any  # a Python number, or a tensor with one entry that lies on a GPU
WARM_UP = 3  # times that work is done before it is recorded: libraries of the GPU are set up by their first calls
MOST_WITH_READS = 64  # evaluations with reads at most, after rare cases that came one after the other
_log = logging.getLogger(__name__)


class RareCases:
    """Whether a case that was assumed not to happen has happened since the last reset.

    Parameters
    ----------
    like : Tensor
        A tensor on the device.
    """

    def __init__(self, like: Tensor) -> None:
        self.happened = torch.zeros((), dtype=torch.bool, device=like.device)

    def assumed_away(self) -> AbstractContextManager[None]:
        """Inside this context, `happens` records its condition here and returns False."""
        return _recorded_by(self)


@contextmanager
def _recorded_by(cases: RareCases | None) -> Iterator[None]:
    token = _cases.set(cases)
    try:
        yield
    finally:
        _cases.reset(token)


def with_reads() -> AbstractContextManager[None]:
    """Inside this context, `happens` reads its condition, also where rare cases are assumed away around it."""
    return _recorded_by(None)


def is_traced() -> bool:
    """Whether `torch.export` or another tracer records the operations, so that no decision may depend on numbers."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined]


_cases: ContextVar[RareCases | None] = ContextVar("rare cases", default=None)  # of the current thread


def happens(condition: Tensor) -> bool:
    """Whether a condition [] holds or an error code is not zero; inside `assumed_away` it is recorded, and False."""
    cases = _cases.get()
    if cases is None:
        return bool(condition)
    cases.happened.logical_or_(condition)
    return False


def _without_reads(work: Callable[[], T], like: Tensor) -> tuple[T, RareCases]:
    """Return the result of work if no rare case happens, and whether one has, on the device of a tensor."""
    cases = RareCases(like)
    with cases.assumed_away():
        return work(), cases


def repeat_if_rare(work: Callable[[], T], undo: Callable[[], None], like: Tensor) -> T:
    """Return the result of work; on a GPU without reads for rare cases, and again with them if one has happened.

    Parameters
    ----------
    work : callable
        It must not change what it depends on, unless `undo` takes that back.
    undo : callable
        Called before the work is repeated.
    like : Tensor
        A tensor on the device.
    """
    if like.is_cpu:
        return work()
    result, cases = _without_reads(work, like)
    if not bool(cases.happened):
        return result
    undo()
    return work()


def read_at_once(work: Callable[[], tuple[T, Tensor]], like: Tensor) -> tuple[T, Tensor]:
    """Return what work returns, with its numbers on the host: on a GPU by one read, which tells of rare cases too.

    Parameters
    ----------
    work : callable
        Returns anything, and numbers [k]. It is repeated with reads if a rare case has happened.
    like : Tensor
        A tensor on the device.
    """
    if like.is_cpu:
        return work()
    (result, numbers), cases = _without_reads(work, like)
    numbers = torch.cat([numbers, cases.happened.to(numbers)[None]]).cpu()
    if numbers[-1] == 0.0:
        return result, numbers[:-1]
    del result  # its memory serves the repetition
    result, numbers = work()
    return result, numbers.cpu()


def moved_together(parts: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Return several small tensors of one precision on a device, by one copy of them all if they are elsewhere."""
    if all(part.device == device for part in parts):
        return list(parts)
    pieces = torch.cat([part.flatten() for part in parts]).to(device).split([part.numel() for part in parts])
    return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]


def is_deferring() -> bool:
    """Whether rare cases are assumed away at present."""
    return _cases.get() is not None


def number(value: Tensor) -> Number:
    """Return a single value as a Python number if it is on a CPU, and as it is on a GPU."""
    return value.item() if value.is_cpu else value


def read_unless_deferred(value: Tensor) -> Number:
    """Return a single value as a Python number; on a GPU, while rare cases are assumed away, in float64 as Python's."""
    return value.double() if is_deferring() and not value.is_cpu else value.item()


def sqrt(x: Number) -> Number:
    """Return the square root of a number."""
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


def exp(x: Number) -> Number:
    """Return the exponential of a number."""
    return x.exp() if isinstance(x, Tensor) else math.exp(x)


def log(x: Number) -> Number:
    """Return the logarithm of a number."""
    return x.log() if isinstance(x, Tensor) else math.log(x)


def at_most(x: Number, bound: float) -> Number:
    """Return min(x, bound)."""
    return x.clamp_max(bound) if isinstance(x, Tensor) else min(x, bound)


def at_least(x: Number, bound: Number) -> Number:
    """Return max(x, bound)."""
    if isinstance(x, Tensor) and isinstance(bound, Tensor):
        return torch.maximum(x, bound.to(x.dtype))
    if isinstance(bound, Tensor):
        return bound.clamp_min(x)
    return x.clamp_min(bound) if isinstance(x, Tensor) else max(x, bound)


def add_product(out: Tensor, A: Tensor, B: Tensor, factor: Number) -> Tensor:
    """Add factor A B to `out` in place. 2 n k m flops."""
    if isinstance(factor, Tensor):
        return out.add_(torch.mm(A, B).mul_(factor))
    return out.addmm_(A, B, alpha=factor)


def sum_with_product(C: Tensor, A: Tensor, B: Tensor, beta: Number, alpha: Number) -> Tensor:
    """Return beta C + alpha A B. 2 n k m flops."""
    if isinstance(alpha, Tensor) or isinstance(beta, Tensor):
        return torch.mm(A, B).mul_(alpha).add_(C * beta)
    return torch.addmm(C, A, B, beta=beta, alpha=alpha)


def add_multiple(out: Tensor, A: Tensor, factor: Number) -> Tensor:
    """Add factor A to `out` in place."""
    return out.add_(A * factor) if isinstance(factor, Tensor) else out.add_(A, alpha=factor)


def plus_multiple(A: Tensor, B: Tensor, factor: Number) -> Tensor:
    """Return A + factor B."""
    return A + B * factor if isinstance(factor, Tensor) else torch.add(A, B, alpha=factor)


class RepeatedEvaluations:
    """A function of a point, evaluated again and again: on a GPU by one read each, and after a few times as a graph.

    Rare cases are assumed away, and the evaluation is repeated with reads if one has happened. A CUDA graph repeats the
    kernels of an evaluation, which the host starts with one call.

    Parameters
    ----------
    work : callable
        Takes a point [k], where it was given or on the device, and returns numbers and tensors. It changes nothing that
        it has not made.
    like : Tensor
        A tensor on the device.
    counter : object, optional
        `work` adds to its `entries`; a replay, which does not call `work`, adds as many.
    is_recordable : bool, default True
        Whether a graph may be recorded, which keeps the memory of one evaluation.
    kept : int, default 0
        The last so many tensors stay on the device.

    Notes
    -----
    After two rare cases in succession the next evaluation has reads from the start, after three the next two, then
    four, and so on: a case that always happens costs hardly any evaluation twice.
    """

    def __init__(
        self,
        work: Callable[[Tensor], Sequence[Number]],
        like: Tensor,
        counter: Any = None,
        is_recordable: bool = True,
        kept: int = 0,
    ) -> None:
        self._work, self._like, self._counter, self._kept = work, like, counter, kept
        self._until_recorded = WARM_UP if is_recordable and like.is_cuda else -1
        self._graph: Any = None
        self._with_reads = self._after_next_case = 0  # evaluations with reads: that follow, and after another case

    def __call__(self, point: Tensor) -> list[Number]:
        """Return what the function returns at a point [k], with its tensors on the host except those kept."""
        if self._like.is_cpu:
            return list(self._work(point))
        if self._with_reads:
            self._with_reads -= 1
            return self._read(point)
        if self._until_recorded == 0:
            self._record(point)
        self._until_recorded -= 1
        parts, numbers = self._deferred(point) if self._graph is None else self._replayed(point)
        numbers = numbers.cpu()
        if numbers[-1] != 0.0:
            self._with_reads = self._after_next_case
            self._after_next_case = min(max(2 * self._after_next_case, 1), MOST_WITH_READS)
            return self._read(point)
        self._after_next_case = 0
        read, kept = self._separated(parts)
        pieces = iter(numbers.split([*(part.numel() for part in read if isinstance(part, Tensor)), 1]))
        on_host = [next(pieces).view(part.shape) if isinstance(part, Tensor) else part for part in read]
        return [*on_host, *(part.clone() for part in kept)]  # the next replay overwrites them

    def _separated(self, parts: Sequence[Number]) -> tuple[Sequence[Number], Sequence[Tensor]]:
        """What is read, and what stays on the device."""
        return parts[: len(parts) - self._kept], parts[len(parts) - self._kept :]

    def _read(self, point: Tensor) -> list[Number]:
        """Evaluate with reads where rare cases are decided."""
        with with_reads():
            read, kept = self._separated(self._work(point))
        return [*(part.cpu() if isinstance(part, Tensor) else part for part in read), *kept]

    def _deferred(self, point: Tensor) -> tuple[Sequence[Number], Tensor]:
        """What the function returns, and all of its tensors as one, of which the last entry tells of rare cases."""
        parts, cases = _without_reads(lambda: self._work(point), self._like)
        tensors = [part.flatten() for part in self._separated(parts)[0] if isinstance(part, Tensor)]
        return parts, torch.cat([*tensors, cases.happened.to(tensors[0])[None]])

    def _record(self, point: Tensor) -> None:
        self._point, before = point.to(self._like.device, copy=True), getattr(self._counter, "entries", 0)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may work on the GPU
                self._recorded = self._deferred(self._point)
            self._graph = graph
        except RuntimeError as error:
            _log.warning("An evaluation cannot be recorded as a CUDA graph (%s): it is launched piece by piece.", error)
        if self._counter is not None:
            self._entries, self._counter.entries = self._counter.entries - before, before

    def _replayed(self, point: Tensor) -> tuple[Sequence[Number], Tensor]:
        self._point.copy_(point)
        self._graph.replay()
        if self._counter is not None:
            self._counter.add(self._entries)
        return self._recorded


class RecordedMinibatch:
    """A minibatch as a CUDA graph: the GPU repeats a recorded sequence of kernels that the host starts with one call.

    A minibatch with 128 features is about 60 kernels of a few microseconds each. What changes from one to the next lies
    in tensors that the recorded kernels read.

    Parameters
    ----------
    work : callable
        Takes the indices of the rows, the number of earlier minibatches [] and the learning rate []. It changes tensors
        in place, and must neither read a value nor send one to the GPU. It is called once, and nothing is computed.
    indices : tuple of Tensor
        Indices of any minibatch [b], on the GPU.

    Raises
    ------
    RuntimeError
        If an operation cannot be recorded.
    """

    def __init__(self, work: Callable[[tuple[Tensor, ...], Tensor, Tensor], None], indices: tuple[Tensor, ...]) -> None:
        device = indices[0].device
        self.indices = tuple(index.clone() for index in indices)
        self.earlier, self.rate = (torch.zeros((), dtype=torch.float64, device=device) for _ in range(2))
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):  # other threads may work on the GPU
            work(self.indices, self.earlier, self.rate)

    def replay(self, indices: tuple[Tensor, ...], earlier: int, rate: float) -> None:
        """Take a minibatch with these rows: five launches, and no read."""
        for recorded, index in zip(self.indices, indices, strict=True):
            recorded.copy_(index)
        self.earlier.fill_(float(earlier))
        self.rate.fill_(rate)
        self.graph.replay()
