"""The columns of a new table with the names of training: by their names, or by position where no name is known.

Capitals, blanks, quotes and underscores in names make no difference where only one column can be meant. A table that
shares no name with training is taken by position, which is said, together with what speaks against it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...errors import DataError
from ..quoting import joined, listing, quote
from .column_cells import ColumnReader
from .number_format import NumberFormat
from .units import differ_by_prefix
from .words import name_key

SAMPLE = 1000  # first rows, by which the order of columns is judged
MOST_COLUMNS = 30  # of a table whose columns are tried in other orders
UNLIKE, ALIKE = 0.5, 0.9  # shares of cells among those of training, of a column in its place and in a better one
SHOWN = 6  # columns in a note
MARGIN = 0.1  # of the range of training, beside it
_NUMBER = NumberFormat()


def named_as(readers: Sequence[ColumnReader], table: pa.Table, name: str) -> tuple[pa.Table, tuple[str, ...]]:
    """Give a new table the names of training, and say how they were found where that is in doubt.

    Parameters
    ----------
    readers : sequence of ColumnReader
        How the columns of training were read, in their order.
    table : Table
        Any number of rows; columns that training does not have are ignored.
    name : str
        The table, for messages.

    Raises
    ------
    DataError
        If a column is missing, or the first row stands in the place of names.
    """
    sources, written = [reader.name for reader in readers], [str(title) for title in table.column_names]
    titles = _as_in_training(written, sources)
    if not set(sources) & set(titles) and len(titles) == len(sources):
        _refuse_row_as_names(readers, titles, name)
        return table.rename_columns(sources), _notes_on_position(readers, written, table, name)
    missing = [source for source in sources if source not in titles]
    if missing:
        raise DataError(f"{name} has no column {quote(missing[0])} but {listing(written)}: give all training columns.")
    return table.rename_columns(titles), ()


def note_on_position(name: str, titles: Sequence[str], names: Sequence[str]) -> str:
    """That columns without a name of training were taken by position; "" if training has no names but x0, x1, ..."""
    if all(training == f"x{k}" for k, training in enumerate(names)):
        return ""
    taken = joined((f"{quote(title)} as {quote(own)}" for title, own in zip(titles, names, strict=False)), SHOWN)
    return f"{name} has no name of training, so columns were taken by position: {taken}."


def _as_in_training(titles: list[str], sources: list[str]) -> list[str]:
    """The names with the spelling of training."""
    found, trained = (Counter(map(name_key, names)) for names in (titles, sources))
    lacking = [source for source in sources if source not in titles]
    alone = {key: name for name in lacking if found[key := name_key(name)] == trained[key] == 1}
    meant = {title: alone.get(name_key(title), title) for title in titles if title not in sources}
    return [title if differ_by_prefix(title, name := meant.get(title, title)) else name for title in titles]


def _refuse_row_as_names(readers: Sequence[ColumnReader], titles: list[str], name: str) -> None:
    """DataError if the names of a table read as one of its rows, which would be lost; names may all be numbers."""
    if all(_NUMBER.number(title) is not None for title in titles):
        return
    known, numbers = [], []
    for reader, title in zip(readers, titles, strict=True):
        if reader.kind == "raw text":
            continue
        cell = reader.cells(pa.chunked_array([[title]], pa.string()))
        known.append(not (cell.gap[0] or cell.unseen[0] or cell.unreadable[0] or cell.with_unit[0]))
        numbers.append(reader.kind != "words")
    if known and (all(known) or any(np.logical_and(known, numbers))):
        raise DataError(
            f"{name} has no names of columns: its first line ({listing(titles)}) reads as a row. "
            f"Write the names {listing([reader.name for reader in readers])} above it."
        )


def _notes_on_position(
    readers: Sequence[ColumnReader], titles: list[str], table: pa.Table, name: str
) -> tuple[str, ...]:
    """That columns were taken by position, and which of them look like other columns of training, or like none."""
    note = note_on_position(name, titles, [reader.name for reader in readers])
    columns = [column.slice(0, SAMPLE) for column in table.columns]
    own = np.array([_likeness(reader, column) for reader, column in zip(readers, columns, strict=True)])
    if not (own < UNLIKE).any():
        return (note,)
    if len(readers) <= MOST_COLUMNS:
        likeness = np.array([[_likeness(reader, column) for column in columns] for reader in readers])

        from scipy.optimize import linear_sum_assignment  # on first use, as the first Spec needs none of it

        rows, places = linear_sum_assignment(-likeness - 1e-6 * np.eye(len(readers)))  # no change without a reason
        moved = rows != places
        if moved.any() and (likeness[rows, places][moved | (own < UNLIKE)] >= ALIKE).all():
            order = ", ".join(
                f"{quote(titles[places[row]])} like {quote(readers[row].name)}"
                for row in np.flatnonzero(moved).tolist()
            )
            return (
                f"{note} The cells look like those of another order ({order}): write the names of training above them.",
            )
    unlike = [f"{quote(readers[k].name)} ({1 - own[k]:.0%})" for k in np.flatnonzero(own < UNLIKE)[:SHOWN].tolist()]
    return (f"{note} Many cells are not among those of training: {', '.join(unlike)}. Is the order that of training?",)


def _likeness(reader: ColumnReader, column: pa.ChunkedArray) -> float:
    """The share of cells that are words of training, or lie in its range; 1 where there are only gaps."""
    if reader.kind == "raw text":
        return 1.0
    cells = reader.cells(column)
    margin = MARGIN * (reader.high - reader.low)
    within = (cells.values >= reader.low - margin) & (cells.values <= reader.high + margin)
    alike = ~cells.unseen if reader.kind == "words" else within
    return float(alike[~cells.gap].mean()) if not cells.gap.all() else 1.0
