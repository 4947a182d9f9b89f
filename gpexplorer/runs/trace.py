"""What a run has seen: one frozen record a step, kept in order, read from any thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, overload

import pandas as pd
import torch
from torch import Tensor

from ..errors import RecordError
from ..problem import Channel, Step


class Spent(NamedTuple):
    """What the run has used so far, beside time."""

    entries: int = 0  # kernel entries computed


class Record(NamedTuple):
    """One step, stamped: `seconds` and `cost` count from the start of the run and hold the method's work alone."""

    index: int  # type: ignore[assignment]  # not tuple.index, which nobody asks of a record
    seconds: float
    cost: Spent
    step: Step
    scores: Mapping[str, float] | None = None


class Trace(Sequence[Record]):
    """The records of one run. Only its run appends; a reader sees whole records, and slices are copies.

    A tensor equal to the one in the record before is kept once, so that states which change little cost little.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records: list[Record] = []
        for record in records:
            self.append(record)

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> list[Record]: ...
    def __getitem__(self, at: int | slice) -> Record | list[Record]:
        try:
            return self._records[at]
        except (IndexError, TypeError):
            count = len(self._records)
            has = f"it has {count}, from 0 to {count - 1}" if count else "it has none yet: advance it first"
            raise RecordError(f"The run has no record {at!r}; {has}.") from None

    def __len__(self) -> int:
        return len(self._records)

    def append(self, record: Record) -> Record:
        """Keep this record; returns it as kept."""
        if self._records:
            record = record._replace(step=_shared(self._records[-1].step, record.step))
        self._records.append(record)
        return record

    def score(self, at: int, scores: Mapping[str, float]) -> None:
        """Attach the scores of one record."""
        self._records[at] = self._records[at]._replace(scores=dict(scores))

    def series(self, name: str) -> list[float]:
        """One number a record: "index", "seconds", "entries", or a field of its info (nan where it has none)."""
        return [_number(record, name) for record in self._records[:]]

    def table(self, channels: Sequence[Channel]) -> pd.DataFrame:
        """One row a record: index, seconds, entries, the channels, and the scores where there are any."""
        records = self._records[:]
        names = ["index", "seconds", "entries", *(channel.name for channel in channels)]
        frame = pd.DataFrame({name: [_number(record, name) for record in records] for name in names})
        frame = frame.astype({"index": int, "entries": int})
        scored = pd.DataFrame([dict(record.scores or {}) for record in records], index=frame.index)
        return frame.join(scored)

    @property
    def memory(self) -> int:
        """Bytes held by the tensors of all records, shared ones counted once."""
        stores = [part.untyped_storage() for record in self._records[:] for part in tensors(record.step)]
        return sum({store.data_ptr(): store.nbytes() for store in stores}.values())


def tensors(value: Any) -> Iterable[Tensor]:
    """Every tensor in a nest of tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from tensors(part)


def _number(record: Record, name: str) -> float:
    if name == "entries":
        return record.cost.entries
    if name in ("index", "seconds"):
        return float(getattr(record, name))
    return float(getattr(record.step.info, name, float("nan")))


def _shared(before: Any, now: Any) -> Any:
    """`now`, with the tensors of `before` in place of equal ones."""
    if isinstance(now, Tensor):
        return before if isinstance(before, Tensor) and _same(before, now) else now
    if isinstance(now, tuple) and type(now) is type(before) and len(now) == len(before):
        parts = [_shared(*pair) for pair in zip(before, now, strict=True)]
        if all(part is was for part, was in zip(parts, now, strict=True)):
            return now
        return type(now)(*parts) if hasattr(now, "_fields") else type(now)(parts)
    return now


def _same(a: Tensor, b: Tensor) -> bool:
    return (a.dtype, a.device, a.shape) == (b.dtype, b.device, b.shape) and torch.equal(a, b)
