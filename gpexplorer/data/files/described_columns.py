"""A description of each column of a file, for the choice of inputs: its kind, and why it may be no sensible input."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from ..quoting import count, listing
from ..reader.column_reader import MOST_LEVELS
from .choice import Choice
from .columns import left_out
from .parsed_columns import Column, parsed
from .row_names import NAMES, names_copied_rows

_KINDS = {
    "number": "number", "yes/no": "number", "date": "date", "time of day": "number", "words": "levels", "text": "text",
    "molecules": "SMILES", "empty": "empty",
}  # fmt: skip


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
        For numbers: whether their commas leave no doubt, as 3,50 does and 1,234 does not.
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
        Whether these are all rows of the file. Otherwise nothing is said about constant or counting columns.

    Notes
    -----
    Where a file has copies of rows, an id is no longer different in every row. It still looks like one if rows with
    the same id are the same in all other columns, too, as long as at least half of the rows are different.
    """
    columns = {name: parsed(name, table[name]) for name in table.column_names}
    notes = {name: _described(columns, name, whole) for name in columns}
    for name, note in notes.items():
        if whole and note.use and note.kind == "number" and names_copied_rows(table, name, columns[name].cells.values):
            notes[name] = note._replace(remark=f"{NAMES}; rows are there more than once", use=False)
    return notes


def _described(columns: dict[str, Column], name: str, whole: bool) -> ColumnNote:
    column = columns[name]
    reader, missing = column.reader, int(column.cells.gap.sum())
    kind = _KINDS[reader.kind]
    if kind == "number" and reader.numbers.decimal == ",":
        kind = "decimal comma"
    if kind == "empty" or not column.has_any:
        return ColumnNote("empty", "no values", False, missing)
    if reader.examples and kind != "text":
        return ColumnNote(kind, f"cells of text, such as {column.first!r}", False, missing)
    why = left_out(columns, name, Choice()) if whole else reader.left_out
    if why:
        return ColumnNote(
            "text" if kind == "levels" and len(reader.levels.names) > MOST_LEVELS else kind, why, False, missing
        )
    gap = count(missing, "missing value") if missing else ""
    gap += f" ({listing(reader.gap_words)})" if reader.gap_words else ""
    remark, certain = reader.numbers.unit, True
    if kind == "levels":
        k = len(reader.levels.names)
        how = "each text an input of 0 and 1" if reader.encoding == "0/1" else "each text replaced by its mean target"
        remark = f"{k:,} different texts, {how}"
        gap += ", filled in as a text of their own" if gap else ""
    elif kind == "date":
        written = ", ".join(filter(None, ("dates", reader.shown_format())))
        remark = f"{written}: as an input, days since 1970"
    else:
        certain = reader.numbers.evidence != "either"
    return ColumnNote(kind, ", ".join(filter(None, (remark, gap))), True, missing, certain)
