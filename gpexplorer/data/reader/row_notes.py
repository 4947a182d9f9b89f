"""What is to be said of a column of new rows: why its cells are unreadable, and what a model does not know of it.

It is apart because these sentences are made of new rows alone: reading them needs none.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from ..quoting import quote
from .cells import is_text, plain, texts_of
from .column_cells import Cells, ColumnReader
from .date_format import ORDER_NAMES
from .number_format import OTHER


def notes_on_cells(reader: ColumnReader, column: pa.ChunkedArray, cells: Cells, contradicted: bool) -> tuple[str, ...]:
    """Notes on the cells of an input that are unreadable because of their format.

    Parameters
    ----------
    contradicted : bool
        As for `ColumnReader.cells`.
    """
    if not cells.unreadable.any():
        return ()
    return _note_on_zone(reader, column, cells) + _note_on_format(reader, column, cells, contradicted)


def note_on_constant(reader: ColumnReader, table: pa.Table) -> str:
    """A note if training has one value in a column that is no input, and new rows have another; else ""."""
    if reader.name not in table.column_names or not reader.is_constant:
        return ""
    column = table[reader.name]
    other = np.flatnonzero(reader.differs(reader.cells(column)))
    if not len(other):
        return ""
    text = texts_of(column.take(pa.array(other[:1]))).original[0]
    return (
        f"{quote(reader.name)} is always {reader.only_value} in training and {text} in new rows: the model does not "
        "know what that changes."
    )


def _note_on_zone(reader: ColumnReader, column: pa.ChunkedArray, cells: Cells) -> tuple[str, ...]:
    """A note if cells of a column of dates are unreadable because of their zone alone."""
    if reader.kind != "date" or not reader.dates.zone:
        return ()
    in_utc = replace(reader, dates=reader.dates._replace(zone=""))
    if not np.isfinite(in_utc.cells(column.filter(pa.array(cells.unreadable))).values).any():
        return ()
    return (
        f"{quote(reader.name)} has times in another zone, or without one: the cells of training "
        f"{reader.dates.expected_zone}.",
    )


def _note_on_format(reader: ColumnReader, column: pa.ChunkedArray, cells: Cells, contradicted: bool) -> tuple[str, ...]:
    """A note if cells of a column are unreadable that may be dates in another order, or have another decimal mark."""
    name, unreadable = quote(reader.name), column.filter(pa.array(cells.unreadable))
    if reader.kind == "date" and (contradicted or reader.contradicted_by(column)):
        return (
            f"{name} has dates in another order than those of training, which are {ORDER_NAMES[reader.dates.order]}; "
            "so a date that may be meant either way was not read: write dates as 2021-03-01.",
        )
    others = reader.numbers._replace(decimal=OTHER[reader.numbers.decimal])
    texts = texts_of(unreadable).distinct if reader.kind == "number" and is_text(plain(unreadable).type) else ()
    text = next((text for text in texts if others.number(text) is not None), "")
    if not text:
        return ()
    plain_number = "1234.5".replace(".", reader.numbers.decimal)
    return (
        f"{name} has cells such as {text} that may be meant with another decimal mark than that of training, and were "
        f"not read: write numbers as {plain_number}.",
    )
