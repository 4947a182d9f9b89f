"""CSV, TSV and other delimited text, read strictly: every cell stays the text it was.

Nothing is guessed from the values here. A row longer or shorter than the first one is an error, never an index;
a header given twice is an error, never a renamed column; numbers are made later, where a bad one can be named.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from ...errors import DataError
from ..quoting import count, listing, quote
from .size_limits import Limits

DELIMITERS = ",;\t|"
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_number = re.compile(rf"\s*({NUMBER}|[+-]?[0-9]+,[0-9]+)?\s*")  # a decimal comma counts while guessing the delimiter
_header_number = re.compile(rf"\s*({NUMBER}|nan|[+-]?inf)\s*", re.IGNORECASE)
_SIGNS = {  # first bytes of files that are often called .csv
    b"PK\3\4": "a spreadsheet or a zip archive, whatever its name says: save its table as CSV",
    b"\x1f\x8b": "compressed by gzip: add .gz to its name",
    b"PAR1": "a Parquet file: give it a name that ends in .parquet",
}
_WINDOW = 50  # lines looked at to guess the delimiter


class Text(NamedTuple):
    """A table of text cells and what the reader has to say about it."""

    table: pa.Table
    notes: tuple[str, ...]


def read_delimited(name: str, data: bytes, limits: Limits, header: bool | None = None) -> Text:
    """Table of text cells from delimited text; `header=None` takes a first row of numbers alone as data.

    Memory about 3 times the file. Raises DataError for another encoding, ragged rows, an open quote, a doubled header.
    """
    data = _utf8(name, data)
    delimiter = guess_delimiter(_head(data))
    if delimiter == " ":
        data = b"\n".join(b"\t".join(line.split()) for line in data.splitlines())
        delimiter = "\t"
    first = _head(data, 1)
    if not first:
        raise DataError(f"{name} holds only blank lines: choose a file with a header and at least 3 rows.")
    if len(_head(data, 2)) == 1 and not data.endswith((b"\n", b"\r")):
        data += b"\n"  # Arrow takes a lone line without an end for none
    limits.check_table(name, data.count(b"\n"), first[0].count(delimiter) + 1)

    cells = _cells(name, data, delimiter)
    names, notes, skip = _names(name, [cells[i][0].as_py().strip() for i in range(cells.num_columns)], header)
    cells = cells.slice(skip)
    if cells.num_rows == 0:
        raise DataError(f"{name} has a header and no rows below it: at least 3 rows are needed.")
    return Text(cells.rename_columns(names), notes)


def guess_delimiter(lines: list[str]) -> str:
    """The one of `, ; tab |` that cuts these lines most evenly into numbers, or " " for columns set by blanks."""
    best = max(DELIMITERS, key=lambda delimiter: _evenness(lines, delimiter))
    if _evenness(lines, best)[0]:
        return best
    widths = {len(line.split()) for line in lines}
    return " " if len(widths) == 1 and widths.pop() > 1 else ","


def _evenness(lines: list[str], delimiter: str) -> tuple[bool, float, float, int]:
    rows = list(csv.reader(lines, delimiter=delimiter))
    if not rows:
        return False, 0.0, 0.0, 0
    width, votes = Counter(len(row) for row in rows).most_common(1)[0]
    cells = [cell for row in rows[1:] or rows for cell in row]
    numeric = sum(bool(_number.fullmatch(cell)) for cell in cells) / max(len(cells), 1)
    return width > 1, votes / len(rows), numeric, width


def _utf8(name: str, data: bytes) -> bytes:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{name} is encoded as UTF-16: save it as UTF-8.")
    for sign, what in _SIGNS.items():
        if data.startswith(sign):
            raise DataError(f"{name} is {what}.")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in data[:4096]:
        raise DataError(f"{name} is not text (it has zero bytes): save the table as UTF-8 CSV, Parquet or NPZ.")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{name} is not UTF-8: byte 0x{data[error.start]:02x} in line {line}. Save it as UTF-8."
        ) from None
    return data


def _head(data: bytes, most: int = _WINDOW) -> list[str]:
    """The first lines that are not blank, without the last one where the window may have cut it."""
    window = data[: 1 << 20]
    lines = window.decode("utf-8", errors="ignore").splitlines()
    if len(window) < len(data) and len(lines) > 1:
        lines = lines[:-1]
    return [line for line in lines if line.strip()][:most]


def _cells(name: str, data: bytes, delimiter: str) -> pa.Table:
    """Every cell as text, the header being row 0."""
    ragged: list[pv.InvalidRow] = []

    def refuse(row: pv.InvalidRow) -> str:
        ragged.append(row)
        return "error"

    width = len(next(csv.reader(_head(data, 1), delimiter=delimiter), []))
    try:
        table = pv.read_csv(
            pa.BufferReader(data),
            pv.ReadOptions(autogenerate_column_names=True, use_threads=False, block_size=1 << 24),
            pv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse),
            pv.ConvertOptions(column_types={f"f{i}": pa.string() for i in range(width)}, strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        raise DataError(_ragged(name, ragged[0]) if ragged else f"{name} cannot be read: {error}.") from None
    table = table.cast(pa.schema([(f"f{i}", pa.string()) for i in range(table.num_columns)]))
    if data.count(b'"') % 2 and any(pc.any(pc.match_substring(c, "\n")).as_py() for c in table.columns):
        raise DataError(f"{name} opens a quote that is never closed, which swallows the rows after it: close it.")
    return table


def _ragged(name: str, row: pv.InvalidRow) -> str:
    where = f"Row {row.number - 1}" if row.number else "A row"
    return (
        f"{where} of {name} has {count(row.actual_columns, 'cell')} where the first line has {row.expected_columns}: "
        f"{quote(row.text, 60)}. Give every row as many cells as the header."
    )


def _names(name: str, first: list[str], header: bool | None) -> tuple[list[str], tuple[str, ...], int]:
    """Column names, notes, and how many rows the header takes."""
    if header is False or (header is None and all(_header_number.fullmatch(cell) for cell in first)):
        note = "The first line holds only numbers, so it was read as data; columns are named column 1, column 2, ..."
        return [f"column {i + 1}" for i in range(len(first))], () if header is False else (note,), 0
    names = [cell or f"column {i + 1}" for i, cell in enumerate(first)]
    twice = [n for n, times in Counter(names).items() if times > 1]
    if twice:
        at = [i + 1 for i, n in enumerate(names) if n == twice[0]]
        raise DataError(
            f"{name} has the header {quote(twice[0])} more than once (columns {', '.join(map(str, at))}): "
            "give each column its own name."
        )
    blank = [names[i] for i, cell in enumerate(first) if not cell]
    return names, (f"Columns without a header are called {listing(blank)}.",) if blank else (), 1
