"""The records of a run: one frozen record per step, kept in order and readable from any thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import torch
from torch import Tensor

from ..errors import RecordError, SettingError, quoted
from ..problem import Channel, Step

if TYPE_CHECKING:
    import pandas as pd


class Spent(NamedTuple):
    """The work that a run has used so far, apart from its seconds."""

    entries: int = 0  # kernel entries computed, also those computed again where a run was continued from its records


class Record(NamedTuple):
    """One step with its number and its cost.

    Attributes
    ----------
    index : int
        The number of the record. Record 0 comes before any work.
    seconds : float
        Seconds of the method's own work, from the start of the run.
    cost : Spent
        Kernel entries that the method computed, from the start of the run.
    step : Step
        The state that the method can continue from, and the info that it reports.
    scores : mapping or None
        Scores on the test rows, if they were taken at this record.
    """

    index: int  # type: ignore[assignment]  # in place of tuple.index, which a record does not need
    seconds: float
    cost: Spent
    step: Step
    scores: Mapping[str, float] | None = None


class Trace(Sequence[Record]):
    """The records of one run. Only the run appends to it. A reader sees whole records, and slices are copies.

    A tensor that equals the one in the record before is kept once, so states that change little need little memory.

    Parameters
    ----------
    records : iterable of Record
        Records to begin with, such as those of a stored run.

    Attributes
    ----------
    why_none : str
        What an error says of a run without records: why it ended, or that it has not begun.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records: list[Record] = []
        self.why_none = "advance it first."
        for record in records:
            self.append(record)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        try:
            return self._records[index]
        except (IndexError, TypeError):
            raise self._no_record(index) from None

    def at(self, index: int) -> Record:
        """The record with this index, counted from the last one if it is below 0; RecordError if there is none.

        A slice, of which there may be several records, and True are no index.
        """
        if isinstance(index, (slice, bool)):
            raise self._no_record(index)
        return self[index]

    def _no_record(self, index: object) -> RecordError:
        count = len(self._records)
        if not count:
            return RecordError(f"The run has no record yet: {self.why_none}")
        return RecordError(f"The run has no record {quoted(index)}; it has {count}, from 0 to {count - 1}.")

    def __len__(self) -> int:
        return len(self._records)

    def append(self, record: Record) -> Record:
        """Keep this record, and return it as it is kept."""
        if self._records:
            record = record._replace(step=_sharing_tensors(self._records[-1].step, record.step))
        self._records.append(record)
        return record

    def score(self, index: int, scores: Mapping[str, float]) -> None:
        """Attach scores to the record with this index."""
        self._records[index] = self._records[index]._replace(scores=dict(scores))

    def series(self, name: str) -> list[float]:
        """One number per record.

        Parameters
        ----------
        name : str
            "index", "seconds", "entries", or a field of the info. The value is nan where the info has no such field.
        """
        if not isinstance(name, str):
            raise SettingError(f'A series is named by text, such as "seconds", and not by {quoted(name)}.')
        return [_number(record, name) for record in self._records[:]]

    def table(self, channels: Sequence[Channel]) -> pd.DataFrame:
        """One row per record: index, seconds, entries, one column per channel, and scores if there are any."""
        records = self._records[:]
        names = ["index", "seconds", "entries", *(channel.name for channel in channels)]
        import pandas as pd

        frame = pd.DataFrame({name: [_number(record, name) for record in records] for name in names})
        frame = frame.astype({"index": int, "entries": int})
        scored = pd.DataFrame([dict(record.scores or {}) for record in records], index=frame.index)
        return frame.join(scored)

    @property
    def memory(self) -> int:
        """The bytes of the tensors of all records. Shared tensors count once."""
        stores = [part.untyped_storage() for record in self._records[:] for part in tensors(record.step)]
        return sum({store.data_ptr(): store.nbytes() for store in stores}.values())


def tensors(value: Any) -> Iterable[Tensor]:
    """Every tensor in a tuple, and in the tuples inside it."""
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


def _sharing_tensors(previous: Any, current: Any) -> Any:
    """The value `current`, with the tensors of `previous` in place of equal ones."""
    if isinstance(current, Tensor):
        return previous if isinstance(previous, Tensor) and _equal(previous, current) else current
    if isinstance(current, tuple) and type(current) is type(previous) and len(current) == len(previous):
        parts = [_sharing_tensors(*pair) for pair in zip(previous, current, strict=True)]
        if all(part is own for part, own in zip(parts, current, strict=True)):
            return current
        return type(current)(*parts) if hasattr(current, "_fields") else type(current)(parts)
    return current


def _equal(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same. Those on a GPU are not compared by value, for which the host would wait."""
    if a is b or a.device.type != "cpu":
        return a is b
    return (a.dtype, a.device, a.shape) == (b.dtype, b.device, b.shape) and torch.equal(a, b)
