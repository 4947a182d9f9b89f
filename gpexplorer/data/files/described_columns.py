"""A description of each column of a file, for the choice of inputs: its kind, and why it may be no sensible input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..quoting import count, listing
from ..table_checks import Floats
from .columns import parse
from .containers import is_number
from .conversions import recognised, with_points

_ID_NAME = re.compile(r"(?i)^(id|index|row|no|nr|key|uuid|unnamed: ?0|.*[ _-]id|column 1)$")
NAMES = "looks like a name of the row"


class ColumnNote(NamedTuple):
    """One column of a file.

    Attributes
    ----------
    kind : {"number", "decimal comma", "date", "levels", "SMILES", "text", "empty"}
        What its cells are.
    remark : str
        What to know of it, in a few words; empty if there is nothing.
    use : bool
        Whether it is a sensible input as it stands.
    missing : int
        Cells without a value.
    certain : bool
        For decimal commas: whether they cannot be thousands separators.
    """

    kind: str
    remark: str = ""
    use: bool = True
    missing: int = 0
    certain: bool = True


def described_columns(table: pa.Table, whole: bool = True) -> dict[str, ColumnNote]:
    """Describe every column of a table, by name.

    Parameters
    ----------
    table : Table
        The columns.
    whole : bool, default True
        Whether these are all rows of the file.

    Notes
    -----
    Where a file has copies of rows, an id is no longer different in every row. It still looks like one if rows with
    the same id are the same in all other columns, too, as long as at least half of the rows are different.
    """
    notes = {name: described_column(name, table[name], whole) for name in table.column_names}
    for name, note in notes.items():
        if whole and note.use and note.kind == "number" and _ID_NAME.match(name) and _names_copied_rows(table, name):
            notes[name] = note._replace(remark=f"{NAMES}; rows are there more than once", use=False)
    return notes


def note_on_row_names(table: pa.Table, inputs: Sequence[str]) -> tuple[str, ...]:
    """A note if some of several inputs look like names of the rows, which say nothing about the target."""
    names = [name for name in inputs if name in table.column_names and _names_rows(table, name)]
    if not names or len(inputs) < 2:
        return ()
    if len(names) == 1:
        return (f"{listing(names)} {NAMES}, but is an input: drop=[{listing(names)}] leaves it out.",)
    return (f"{listing(names)} look like names of the rows, but are inputs: drop=[{listing(names)}] leaves them out.",)


def _names_rows(table: pa.Table, name: str) -> bool:
    """Whether a column has the name of an id, and numbers that could be one."""
    if not _ID_NAME.match(name):
        return False
    note = described_column(name, table[name])
    return note.remark == NAMES or (note.use and note.kind == "number" and _names_copied_rows(table, name))


def _names_copied_rows(table: pa.Table, name: str) -> bool:
    """Whether a column of whole numbers has repeated values only in rows that are copies of each other."""
    values = parse(table[name]).values
    if np.isnan(values).any() or (values != np.round(values)).any():
        return False
    ids, row_ids, sizes = np.unique(values, return_inverse=True, return_counts=True)
    if 2 * len(ids) < len(values):
        return False
    comparable = [c for c in table.column_names if is_number(table[c].type) or pa.types.is_string(table[c].type)]
    rows = table.select(comparable).filter(pa.array(sizes[row_ids] > 1))
    different = rows.group_by(comparable, use_threads=False).aggregate([])
    return different.num_rows == int((sizes > 1).sum())


def described_column(name: str, column: pa.ChunkedArray, whole: bool = True) -> ColumnNote:
    """Describe a column.

    Parameters
    ----------
    name : str
        Its name.
    column : ChunkedArray
        Its cells.
    whole : bool, default True
        Whether these are all of its cells. Otherwise nothing is said about constant or counting columns.
    """
    parsed = parse(column)
    if parsed.is_number:
        note = _of_numbers(name, parsed.values, "number", whole)
        if parsed.text:
            words = f"{count(parsed.text, 'cell')} of text, such as {parsed.first[1]!r}" if parsed.first else ""
            return note._replace(remark=words, use=False)
        return note
    if not parsed.has_any and not parsed.text:
        return ColumnNote("empty", "no values", False, len(column))
    texts, missing = recognised(column), len(column) - parsed.text if not is_number(column.type) else 0
    if texts.kind == "decimal comma":
        values = parse(with_points(column)).values
        return _of_numbers(name, values, texts.kind, whole)._replace(certain=texts.certain)
    if texts.kind == "date":
        return ColumnNote("date", "a date: as an input, days since 1970", False, missing)
    if texts.kind == "levels":
        levels = len(texts.levels)
        if levels < 2:
            return ColumnNote("levels", "always the same text", False, missing)
        return ColumnNote("levels", f"{levels} different texts, each an input of 0 and 1", True, missing)
    if texts.kind == "SMILES":
        return ColumnNote("SMILES", "molecules, compared by a kernel of their own", False, missing)
    return ColumnNote("text", "text, which is left out", False, missing)


def _of_numbers(name: str, values: Floats, kind: str, whole: bool) -> ColumnNote:
    missing = int(np.isnan(values).sum())
    present = values[~np.isnan(values)]
    gap = f"{count(missing, 'missing value')}" if missing else ""
    if not whole or len(present) < 3:
        return ColumnNote(kind, gap, True, missing)
    if (present == present[0]).all():
        return ColumnNote(kind, f"always {present[0]:g}, which explains nothing", False, missing)
    if np.array_equal(np.diff(present), np.ones(len(present) - 1)):
        return ColumnNote(kind, "only counts the rows", False, missing)
    whole_numbers = bool((present == np.round(present)).all())
    if _ID_NAME.match(name) and whole_numbers and len(np.unique(present)) == len(present):
        return ColumnNote(kind, NAMES, False, missing)
    return ColumnNote(kind, gap, True, missing)
