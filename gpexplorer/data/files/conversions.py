"""Conversions of columns into numbers: texts become levels, dates become days, decimal commas become points.

    "colour" with the texts red and blue     two columns, "colour = red" and "colour = blue", of 0 and 1
    "when" with the text 2004-03-01          days since 1970-01-01
    "price" with the text 1.234,5            1234.5

Only the columns named in `Choice.encode`, `dates` and `decimal` are converted. The rows of a new file, for
predictions, are converted by `as_inputs` to the columns that a model was trained on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import DataError
from ..quoting import count, quote
from ..table_checks import Floats
from .containers import is_number
from .delimited import NUMBER

MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
MOST_LEVELS = 30  # texts of an encoded column
LEVEL = " = "
DAY = 86_400.0  # seconds
DECIMAL_COMMA = r"^[+-]?([0-9]{1,3}(\.[0-9]{3})+|[0-9]+),[0-9]+$"
DATE_FORMATS = (
    "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y/%m/%d", "%d.%m.%Y", "%d.%m.%Y %H:%M",
    "%d/%m/%Y", "%m/%d/%Y",
)  # fmt: skip
SAMPLE = 500  # number of first cells by which dates and SMILES are recognised
# The atoms, bonds, branches and rings of SMILES; a third of the texts must contain a bond, a branch or a ring.
_SMILES = re.compile(r"(?=.*[BCNOPSFIbcnops])(?:Cl|Br|[BCNOPSFIbcnops]|\[[^\[\]\s]{1,40}\]|[-=#$:/\\.()%0-9@+*])+")
_STRUCTURE = re.compile(r"[=#()1-9\[]")


@dataclass(frozen=True)
class Texts:
    """What the texts of one column are.

    Parameters
    ----------
    kind : {"decimal comma", "date", "levels", "SMILES", "text"}
    levels : tuple of str
        The different texts, in order, if there are at most `MOST_LEVELS`.
    certain : bool
        For decimal commas: whether one of them cannot be a thousands separator.
    """

    kind: str
    levels: tuple[str, ...] = ()
    certain: bool = True


def recognised(column: pa.ChunkedArray) -> Texts:
    """Say what a column of texts contains, by its first cells and its different texts."""
    if pa.types.is_temporal(column.type):
        return Texts("date")
    if not is_text(column.type):
        return Texts("text")
    cells = _present(column)
    sample = [str(cell) for cell in cells.slice(0, SAMPLE).to_pylist()]
    if not sample:
        return Texts("text")
    commas = [cell for cell in sample if re.search(DECIMAL_COMMA, cell)]
    if commas and all(re.fullmatch(NUMBER, cell) or re.search(DECIMAL_COMMA, cell) for cell in sample):
        return Texts("decimal comma", certain=not all(re.fullmatch(r"[+-]?\d{1,3}(,\d{3})", cell) for cell in commas))
    if date_format(sample):
        return Texts("date")
    distinct = pc.unique(cells)
    if _are_smiles(sample) and 2 * len(distinct) > len(cells):
        return Texts("SMILES")
    if len(distinct) <= MOST_LEVELS and len(distinct) < len(cells):
        return Texts("levels", tuple(sorted(map(str, distinct.to_pylist()))))
    return Texts("text")


def encoded(name: str, title: str, column: pa.ChunkedArray) -> dict[str, Floats]:
    """One column of 0 and 1 per text; for two texts, one column. A missing cell has 0 in all of them.

    Parameters
    ----------
    name, title : str
        The table and the column, for messages and new names.
    column : ChunkedArray
        The texts.

    Raises
    ------
    DataError
        If there are more than `MOST_LEVELS` different texts, or only one.
    """
    cells = _trimmed(column)
    levels = sorted(map(str, pc.unique(_present(column)).to_pylist()))
    if not 2 <= len(levels) <= MOST_LEVELS:
        raise DataError(
            f"{name}: column {quote(title)} has {count(len(levels), 'different text')}; a column can be encoded if it "
            f"has 2 to {MOST_LEVELS}: leave it out."
        )
    chosen = levels[1:] if len(levels) == 2 else levels
    return {f"{title}{LEVEL}{level}": _is_level(cells, level) for level in chosen}


def days(name: str, title: str, column: pa.ChunkedArray) -> Floats:
    """Days since 1970-01-01; NaN where a cell is missing. DataError names the first cell that is no date."""
    if (
        pa.types.is_temporal(column.type)
        and not pa.types.is_duration(column.type)
        and not pa.types.is_time(column.type)
    ):
        stamps = column.cast(pa.timestamp("us"), safe=False)
        return _seconds(stamps) / DAY
    cells = _trimmed(column) if is_text(column.type) else None
    sample = [] if cells is None else [str(cell) for cell in _present(column).slice(0, SAMPLE).to_pylist()]
    form = date_format(sample)
    if cells is None or not form:
        first = sample[0] if sample else ""
        raise DataError(
            f"{name}: column {quote(title)} does not contain dates ({quote(first)}): write them as 2004-03-01, or "
            "leave the column out."
        )
    stamps = pc.strptime(cells, form, "us", error_is_null=True)
    failed = np.flatnonzero(pc.and_(pc.is_null(stamps), pc.invert(_is_missing(cells))).to_numpy())
    if len(failed):
        row = int(failed[0])
        raise DataError(
            f"{name}: column {quote(title)} has {quote(cells[row].as_py())} in row {row + 1}, which is no date like "
            f"{quote(sample[0])}: correct it, or leave the column out."
        )
    return _seconds(stamps) / DAY


def with_points(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same texts, with decimal commas written as points: 1.234,5 becomes 1234.5."""
    if not is_text(column.type):
        return column
    cells = _trimmed(column)
    pointed = pc.replace_substring(pc.replace_substring(cells, ".", ""), ",", ".")
    return pc.if_else(pc.match_substring_regex(cells, DECIMAL_COMMA), pointed, cells)


def date_format(sample: Sequence[str]) -> str:
    """The format in which all these texts are dates; empty if there is none. Of two, the day comes before the month."""
    if not sample or not all(any(mark in text for mark in "-/.") for text in sample):
        return ""
    cells = pa.array(sample)
    for form in DATE_FORMATS:
        if pc.strptime(cells, form, "us", error_is_null=True).null_count == 0:
            return form
    return ""


def inputs_for(name: str, table: pa.Table, names: Sequence[str], d: int, numeric: bool) -> Floats | list[str]:
    """The inputs of a model in a table: numbers [t, d] with NaN for what is missing, or t texts.

    A table that shares no name with the model is taken by position, if it has d columns; DataError as for `as_inputs`.
    """
    titles = [str(title) for title in table.column_names]
    if not numeric:
        return text_inputs(name, table, names[0])
    columns = list(names) or titles[:d]
    source_columns = {title.partition(LEVEL)[0] for title in columns} | set(columns)
    if not source_columns & set(titles) and len(titles) == d:
        columns = titles
    return as_inputs(name, table, columns)


def text_inputs(name: str, table: pa.Table, column: str) -> list[str]:
    """One column of a new file as t texts, "" where a cell is missing; DataError if the file does not have it."""
    if column not in table.column_names:
        raise DataError(f"{name} has no column {quote(column)}: give the texts under their name in training.")
    return ["" if text is None else str(text).strip() for text in table[column].to_pylist()]


def as_inputs(name: str, table: pa.Table, columns: Sequence[str]) -> Floats:
    """The rows of a new file as the columns that a model was trained on.

    Parameters
    ----------
    name : str
        The file, for messages.
    table : Table
        Its cells.
    columns : sequence of d str
        The inputs of the model. "colour = red" is made from a column "colour".

    Returns
    -------
    array [t, d]
        NaN where a cell is missing or is no number.

    Raises
    ------
    DataError
        If a column is missing.
    """
    cells = [_input(name, table, column) for column in columns]
    return np.column_stack(cells) if cells else np.zeros((table.num_rows, 0))


def is_text(kind: pa.DataType) -> bool:
    """Whether the cells are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _input(name: str, table: pa.Table, title: str) -> Floats:
    if title not in table.column_names:
        base, mark, level = title.partition(LEVEL)
        if not mark or base not in table.column_names:
            missing = base if mark else title
            present = ", ".join(map(quote, table.column_names[:12]))
            raise DataError(f"{name} has no column {quote(missing)} but {present}: give every column trained on.")
        return _is_level(_trimmed(table[base]), level)
    column = table[title]
    if is_number(column.type):
        cast = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
        return np.array(pc.fill_null(cast.cast(pa.float64(), safe=False), float("nan")).to_numpy())
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_temporal(column.type) or date_format(_first_texts(column)):
        return days(name, title, column)
    cells = _trimmed(with_points(column))
    words = pc.utf8_lower(cells)
    booleans = pc.if_else(pc.equal(words, "true"), "1", pc.if_else(pc.equal(words, "false"), "0", cells))
    numbers = pc.if_else(pc.match_substring_regex(booleans, rf"^({NUMBER})$"), booleans, None)
    return np.array(pc.fill_null(pc.cast(numbers, pa.float64()), float("nan")).to_numpy())


def _first_texts(column: pa.ChunkedArray) -> list[str]:
    return [str(cell) for cell in _present(column).slice(0, SAMPLE).to_pylist()] if is_text(column.type) else []


def _trimmed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    texts = column if is_text(column.type) else column.cast(pa.string())
    return pc.utf8_trim_whitespace(pc.fill_null(texts, ""))


def _is_missing(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_in(pc.utf8_lower(cells), pa.array(MISSING, cells.type))


def _present(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The cells that are not missing, without blanks around them."""
    cells = _trimmed(column)
    return cells.filter(pc.invert(_is_missing(cells)))


def _is_level(cells: pa.ChunkedArray, level: str) -> Floats:
    return np.array(pc.equal(cells, level).to_numpy(), dtype=np.float64)


def _seconds(stamps: pa.ChunkedArray) -> Floats:
    microseconds = pc.cast(stamps.cast(pa.int64()), pa.float64(), safe=False)
    return np.array(pc.fill_null(microseconds, float("nan")).to_numpy()) / 1e6


def _are_smiles(sample: Sequence[str]) -> bool:
    with_structure = sum(bool(_STRUCTURE.search(text)) for text in sample)
    return 3 * with_structure >= len(sample) and all(_SMILES.fullmatch(text) for text in sample)
