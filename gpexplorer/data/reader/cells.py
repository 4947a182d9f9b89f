"""Cells of text: which ones are gaps, and each different text once, so that long columns are parsed quickly.

Cells that have a type of their own, such as numbers and dates of Parquet, become numbers here.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .date_texts import DAY

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MISSING = (
    "", "na", "n/a", "n.a.", "nan", "<na>", "nat", "null", "none", "nil", "missing", "?", "-", "--", "---", ".",
    "..", "...", "\u2026", "(null)", "<null>", "\\n", "k.a.", "k. a.", "n.d.", "0000-00-00", "0000-00-00 00:00:00",
    "\u2013", "\u2014", "#nv", "#n/a", "#na", "#value!", "#div/0!", "#ref!", "#num!", "#null!", "#name?",
)  # fmt: skip
PLAIN_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
SPACES = "\u00a0\u202f\u2007\u2009\u3000"  # blanks that spreadsheets write between digits
INVISIBLE: dict[int, str | None] = {ord("\ufeff"): None, ord("\u200b"): None}
_CLEAN = {ord(space): " " for space in SPACES} | INVISIBLE | {
    ord("\u2212"): "-", ord("\u2019"): "'", ord("\u2018"): "'", ord("\u00b4"): "'",
}  # fmt: skip


def cleaned(text: str) -> str:
    """The text without blanks around it, with one kind of blank, minus, apostrophe and letter with an accent."""
    return unicodedata.normalize("NFC", text.translate(_CLEAN).strip())


def is_missing(text: str) -> bool:
    """Whether a cleaned text stands for a gap, such as "", "NA" or "-"."""
    return text.lower() in MISSING


class Texts(NamedTuple):
    """A column of text.

    Attributes
    ----------
    distinct : tuple of str
        The different texts, cleaned of odd blanks; "" stands for every spelling of a gap.
    place : array [n]
        Which of them each row has.
    original : tuple of str
        The same texts as they stand in the file, for messages.
    """

    distinct: tuple[str, ...]
    place: NDArray[np.int64]
    original: tuple[str, ...]

    @property
    def gap(self) -> Mask:
        """Which rows [n] have a gap."""
        return self.spread(np.array([text == "" for text in self.distinct], dtype=bool))

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values of the different texts as values of the rows."""
        return values[self.place]

    def first_rows(self, cells: Sequence[str]) -> tuple[tuple[int, str], ...]:
        """The first ten rows that have one of these texts, each with its original text; (-1, "") for each row more."""
        wanted = set(cells)
        rows = np.flatnonzero(self.spread(np.array([text in wanted for text in self.distinct], dtype=bool))).tolist()
        return (*((row, self.original[self.place[row]]) for row in rows[:10]), *[(-1, "")] * len(rows[10:]))

    def counts(self) -> Counter[str]:
        """How many rows have each text; two originals may be the same text, such as with a blank behind it."""
        rows = np.bincount(self.place, minlength=len(self.distinct)).tolist()
        counts: Counter[str] = Counter()
        for text, number in zip(self.distinct, rows, strict=True):
            counts[text] += number
        return counts

    def parsed(self, parse: Callable[[str], float | None]) -> Floats:
        """Each row as a number, NaN where `parse` returns None or the row has a gap."""
        values = [parse(text) if text else None for text in self.distinct]
        return np.asarray(self.spread(np.array([np.nan if v is None else v for v in values], dtype=np.float64)))


def is_number(kind: pa.DataType) -> bool:
    """Whether the values of this type are numbers, which become float64."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether the cells are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_dictionary(kind: pa.DataType) -> bool:
    """Whether the cells are numbers of texts, as in a categorical column of a frame."""
    return bool(pa.types.is_dictionary(kind) and is_text(kind.value_type))


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without a dictionary of its values, as a categorical column of a frame has one."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def texts_of(column: pa.ChunkedArray) -> Texts:
    """Every cell as text; whole numbers in a column of floats are written without a point."""
    column = plain(column)
    kind = column.type
    if pa.types.is_floating(kind):
        values = column.to_numpy()
        cells = pa.array([None if v != v else f"{v:.15g}" for v in values.tolist()], pa.string())
        column = pa.chunked_array([cells])
    elif pa.types.is_nested(kind) or pa.types.is_duration(kind):
        column = pa.chunked_array([[None if cell is None else str(cell) for cell in column.to_pylist()]], pa.string())
    elif not is_text(kind):
        column = column.cast(pa.string())
    encoded = pc.dictionary_encode(pc.fill_null(column, "").combine_chunks())
    original = tuple(str(text) for text in encoded.dictionary.to_pylist())
    distinct = tuple("" if is_missing(text) else text for text in map(cleaned, original))
    return Texts(distinct, np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64), original)


def as_they_are(column: pa.ChunkedArray) -> list[str]:
    """The cells as a kernel on texts takes them, without blanks around them; "" for a gap."""
    return [str(value).strip() if value is not None else "" for value in column.to_pylist()]


def typed_values(column: pa.ChunkedArray, kind: str) -> Floats | None:
    """Numbers, days or hours of cells of a type that belongs to this kind; None where they are to be read as texts.

    A kind is one of a column, or "duration".
    """
    types, of = pa.types, column.type
    if types.is_null(of):
        return np.full(len(column), np.nan)
    if types.is_boolean(of) and kind in ("number", "yes/no"):
        column, kind = column.cast(pa.int8()), "number"
    if is_number(of) and kind == "number":
        return np.array(pc.fill_null(column.cast(pa.float64(), safe=False), float("nan")).to_numpy())
    if (types.is_timestamp(of) or types.is_date(of)) and kind == "date":
        stamps = column.cast(pa.timestamp("us"), safe=False)
        return _float64(stamps) / 1e6 / DAY
    if types.is_time(of) and kind == "time of day":
        return _float64(column.cast(pa.time64("us"), safe=False)) / 3.6e9
    if types.is_duration(of) and kind == "duration":
        return _float64(column.cast(pa.duration("us"), safe=False)) / 1e6 / DAY
    return None


def _float64(column: pa.ChunkedArray) -> Floats:
    values = pc.cast(column.cast(pa.int64()), pa.float64(), safe=False)
    return np.array(pc.fill_null(values, float("nan")).to_numpy())


def plain_numbers(column: pa.ChunkedArray) -> Floats | None:
    """The numbers of a column of texts, NaN for gaps; None if a cell is written in another way than 1234.5."""
    cells = pc.utf8_trim_whitespace(pc.fill_null(column, ""))
    gap = pc.is_in(pc.utf8_lower(cells), pa.array(MISSING, cells.type))
    if not pc.all(pc.or_(gap, pc.match_substring_regex(cells, f"^{PLAIN_NUMBER}$")), min_count=0).as_py():
        return None
    numbers = pc.cast(pc.if_else(gap, None, cells), pa.float64())
    return np.array(pc.fill_null(numbers, float("nan")).to_numpy())
