"""A run's journal: what its arrays take, its records, their scores and its outcome, a line each, as they came."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from ...errors import StoreError
from ...problem import OUTCOMES, Outcome
from ..trace import Record, Spent
from .codec import Classes, decode, encode
from .json_lines import Lines

FILE = "journal.jsonl"
LOCK = "lock"


class Kept(NamedTuple):
    """What a journal held when it was read."""

    records: list[Record]
    outcome: Outcome | None
    memory: float = math.nan  # bytes of the method's arrays by formula; nan where the journal does not say


class Journal:
    """A run's journal opened for writing; one writer at a time, in this process or any other."""

    def __init__(self, directory: Path, classes: Classes) -> None:
        """Takes the lock, cuts a torn tail and reads what is there; StoreError if another writer has it."""
        self._lock = FileLock(directory / LOCK, timeout=0, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout:
            raise StoreError(
                f"Run {directory.name} is being written elsewhere: close it there, or choose another store."
            ) from None
        try:
            self._lines = Lines(directory / FILE)
            self.kept = restored(self._lines.content.lines, classes)
        except BaseException:
            self._lock.release()
            raise
        self._length = len(self.kept.records)
        self._closed = False

    def __len__(self) -> int:
        """Records written."""
        return self._length

    def weigh(self, memory: float) -> None:
        """Write the bytes that the method's arrays take by formula, in a journal that is new."""
        if not self._lines.content.lines:
            self._lines.append({"memory": float(memory)})

    def append(self, record: Record) -> None:
        """Write one record: it survives a kill once this returns, a power cut about a second later."""
        stamp = {"index": record.index, "seconds": record.seconds, "entries": record.cost.entries}
        self._lines.append({**stamp, **encode(record.step)})
        self._length += 1
        if record.scores is not None:
            self.score(record.index, record.scores)

    def extend(self, records: Iterable[Record]) -> None:
        """Write these records, in order."""
        for record in records:
            self.append(record)

    def score(self, at: int, scores: Mapping[str, float]) -> None:
        """Write the scores of the record at this index."""
        self._lines.append({"at": at, "scores": {name: repr(float(value)) for name, value in scores.items()}})

    def end(self, outcome: Outcome) -> None:
        """Write why the run ended, and make all of it durable."""
        self._lines.append({"outcome": outcome.reason, "message": outcome.message})
        self._lines.sync()

    def close(self) -> None:
        """Make all of it durable and let another writer in; a second close does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._lines.close()
        finally:
            self._lock.release()


def restored(lines: list[dict[str, Any]], classes: Classes) -> Kept:
    """Records and outcome from the lines of a journal; StoreError where they are not in order."""
    records: list[Record] = []
    outcome, memory = None, math.nan
    for line in lines:
        try:
            if "index" in line:
                records.append(_record(line, len(records), classes))
                outcome = None  # it went on
            elif "scores" in line:
                scores = {str(name): float(value) for name, value in line["scores"].items()}
                records[line["at"]] = records[line["at"]]._replace(scores=scores)
            elif "memory" in line:
                memory = float(line["memory"])
            else:
                outcome = Outcome(OUTCOMES[OUTCOMES.index(line["outcome"])], str(line["message"]))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(
                f"A line after record {len(records) - 1} is not a journal's ({type(error).__name__})."
            ) from error
    return Kept(records, outcome, memory)


def _record(line: dict[str, Any], due: int, classes: Classes) -> Record:
    if line["index"] != due:
        raise StoreError(f"The journal has record {line['index']} where {due} is due: lines are missing or doubled.")
    return Record(due, float(line["seconds"]), Spent(int(line["entries"])), decode(line, classes))
