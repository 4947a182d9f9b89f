"""A run's journal on disk. Each line holds the memory of the arrays, a record, the scores of a record, or the outcome.

The lines are written in the order of events:

    {"memory": bytes, "rows": key}                             first line, once
    {"start": theta, "note": sentence}                         where the run begins, and what its starts reached
    {"index": ..., "seconds": ..., "entries": ..., "state": ..., "info": ..., "tensors": ...}   one per record
    {"at": index, "scores": {...}}                             after the record
    {"outcome": reason, "message": sentence}                   when the run ends; a later record revokes it
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from filelock import AcquireReturnProxy, FileLock, Timeout

from ...errors import StoreError
from ...problem import OUTCOMES, Outcome
from ..trace import Record, Spent
from .codec import Classes, decode, encode
from .json_lines import Lines

FILE = "journal.jsonl"
LOCK = "lock"


class InUse(StoreError):
    """Another writer has the lock of a run."""


class Kept(NamedTuple):
    """The content of a journal.

    Attributes
    ----------
    records : list of Record
        All records, in order.
    outcome : Outcome or None
        Why the run ended, or None if it has not.
    memory : float
        Bytes of the method's arrays by its formula; nan if the journal does not say.
    start : list of float or None
        The initial theta; None if the run begins where its kernel proposes.
    start_note : str
        What the starts of the run reached.
    rows : str
        The key of the rows, a hash of their content; empty if the journal does not say.
    """

    records: list[Record]
    outcome: Outcome | None
    memory: float = math.nan
    start: list[float] | None = None
    start_note: str = ""
    rows: str = ""

    def require_rows(self, key: str) -> None:
        """Raise StoreError if the run was kept with other rows, such as those of its file before it was changed."""
        if self.rows not in ("", key):
            raise StoreError(
                f"The run was kept with the rows {self.rows!r}, and these are {key!r}: choose another store, or give "
                "the changed file another name."
            )


class Journal:
    """A run's journal, open for writing. It has one writer at a time, in this process or any other.

    Opening takes the lock, removes an incomplete last line and reads the journal into `kept`.

    Parameters
    ----------
    directory : Path
        The directory of the run.
    classes : dict of str to type
        The named tuples of the method, from `codec.classes_of`.

    Raises
    ------
    StoreError
        If another writer has the lock, or the journal is damaged.
    """

    def __init__(self, directory: Path, classes: Classes) -> None:
        self._lock = locked(directory).lock
        try:
            self._lines = Lines(directory / FILE)
            self.kept = restored(self._lines.content.lines, classes)
        except BaseException:
            self._lock.release()
            raise
        self._lines.mark = len(self.kept.records)
        self._closed = False

    def __len__(self) -> int:
        """The number of records written."""
        return self._lines.mark

    def begin(self, memory: float, rows: str) -> None:
        """Write the bytes of the method's arrays by its formula and the key of the rows, if the journal is new.

        Raises
        ------
        StoreError
            If it is that of other rows.
        """
        self.kept.require_rows(rows)
        if not self._lines.content.lines:
            self._lines.append({"memory": float(memory), "rows": rows})

    def write_start(self, theta: list[float], note: str) -> None:
        """Write where the run begins, before its first record."""
        self._lines.append({"start": [repr(value) for value in theta], "note": note})

    def append(self, record: Record) -> None:
        """Write one record. After the return it survives a kill, and about a second later a power cut."""
        stamp = {"index": record.index, "seconds": record.seconds, "entries": record.cost.entries}
        self._lines.append({**stamp, **encode(record.step)}, mark=record.index + 1)
        if record.scores is not None:
            self.score(record.index, record.scores)

    def extend(self, records: Iterable[Record]) -> None:
        """Write these records, in order."""
        for record in records:
            self.append(record)

    def score(self, index: int, scores: Mapping[str, float]) -> None:
        """Write the scores of the record with this index."""
        self._lines.append({"at": index, "scores": {name: repr(float(value)) for name, value in scores.items()}})

    def end(self, outcome: Outcome) -> None:
        """Write why the run ended, and return when everything is on the disk."""
        self._lines.append({"outcome": outcome.reason, "message": outcome.message})
        self._lines.sync()

    def close(self) -> None:
        """Return when everything is on the disk, and release the lock. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._lines.close()
        finally:
            self._lock.release()


def locked(directory: Path) -> AcquireReturnProxy[Any]:
    """Take the lock of a run, which a `with` block releases at its end; StoreError if another writer has it."""
    try:
        return FileLock(directory / LOCK, timeout=0, thread_local=False).acquire()
    except Timeout:
        raise InUse(
            f"Run {directory.name} is being written elsewhere: close it there, or choose another store."
        ) from None


def restored(lines: list[dict[str, Any]], classes: Classes) -> Kept:
    """Records and outcome from the lines of a journal; StoreError if the lines are not in order."""
    records: list[Record] = []
    outcome, memory, start, note, rows = None, math.nan, None, "", ""
    for line in lines:
        try:
            if "index" in line:
                records.append(_record(line, len(records), classes))
                outcome = None  # the run continued after this outcome
            elif "scores" in line:
                scores = {str(name): float(value) for name, value in line["scores"].items()}
                records[line["at"]] = records[line["at"]]._replace(scores=scores)
            elif "memory" in line:
                memory, rows = float(line["memory"]), str(line.get("rows", ""))
            elif "start" in line:
                start, note = [float(value) for value in line["start"]], str(line["note"])
            else:
                outcome = Outcome(OUTCOMES[OUTCOMES.index(line["outcome"])], str(line["message"]))
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise StoreError(
                f"A line after record {len(records) - 1} is not a journal's ({type(error).__name__})."
            ) from error
    return Kept(records, outcome, memory, start, note, rows)


def _record(line: dict[str, Any], expected_index: int, classes: Classes) -> Record:
    if line["index"] != expected_index:
        raise StoreError(
            f"The journal has record {line['index']} where {expected_index} is due: lines are missing or doubled."
        )
    return Record(expected_index, float(line["seconds"]), Spent(int(line["entries"])), decode(line, classes))
