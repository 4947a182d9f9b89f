"""How one column is read: its kind and format, decided from all of its cells."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .cells import Texts, as_they_are, is_number, is_text, plain, plain_numbers, texts_of, typed_values
from .column_cells import KINDS, ColumnReader
from .date_format import (
    ORDER_NAMES,
    ORDERS,
    DateFormat,
    are_compact,
    are_versions,
    date_format,
    format_of_moments,
    format_of_texts,
    is_marked_as_date,
    is_named_as_date,
    may_be_compact,
    may_be_digits,
    order_by_name,
    without_versions,
)  # fmt: skip
from .date_texts import WEEK, YEAR_QUARTER, clock_hours
from .learned_columns import of_levels, with_statistics
from .number_format import (
    DAYS,
    DURATION_NAME,
    EXAMPLES,
    NumberFormat,
    missing_number,
    number_format,
    without_limit,
    written,
)
from .words import (
    SMILES_SAMPLE,
    are_smiles,
    are_yes_no,
    gap_words_of,
    levels_of,
    repeated_words,
)  # fmt: skip

MOST_LEVELS = 30  # words that become inputs of 0 and 1 if that is asked for
MONTH_AND_YEAR = r"^\s*(0?[1-9]|1[0-2])\.(19|20)[0-9]{2}\s*$"  # may be a number as well
THOUSANDS = r"^\s*[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+\s*$"  # likewise, with points between the groups of digits


def column_reader(name: str, column: pa.ChunkedArray, asked: str = "", decimal: str = "") -> ColumnReader:
    """Decide how a column is read.

    Parameters
    ----------
    name : str
        Its name.
    column : ChunkedArray
        All of its cells.
    asked : str
        A kind that was asked for, such as "words", "date", "date mdy", "number 1.234,5" or "number missing -999"; ""
        decides by the cells.
    decimal : {"", ".", ","}
        The mark before the decimals, if the rest of the file says it.

    Returns
    -------
    ColumnReader
        With the unreadable cells, up to ten, of a column that consists of numbers or dates for the most part.
    """
    column = plain(column)
    kind, _, form = asked.partition(" ")
    kind, form = (asked, "") if asked in KINDS else (kind, form)
    if kind in ("number", "decimal"):
        decimal = next((mark for mark, shown in EXAMPLES.items() if form.partition(" ")[0] == shown), decimal)
    if kind in ("raw", "raw text"):
        levels = repeated_words(as_they_are(column))
        return ColumnReader(name, "raw text", levels=levels, rows=len(column), on_gap="refuse")
    decided = (
        _by_type(name, column, kind, form)
        or _by_plain_numbers(name, column, kind, decimal)
        or _by_texts(name, texts_of(column), kind, form, decimal)
    )
    if decided.kind == "date":
        days = typed_values(column, "date")
        clock = None if days is None else format_of_moments(days, getattr(column.type, "tz", None))
        decided = replace(decided, dates=clock or decided.dates.with_clock_of(texts_of(column).distinct))
    if decided.kind == "number":
        decided = replace(decided, numbers=decided.numbers._replace(missing=missing_number(form)))
    return with_statistics(decided, decided.cells(column))


def _by_type(name: str, column: pa.ChunkedArray, kind: str, form: str) -> ColumnReader | None:
    """How a column is read that has a type; None for texts, and for what is to be read as words."""
    types, of = pa.types, column.type
    if kind == "words" or is_text(of):
        return None
    if types.is_null(of) or not len(column):
        return ColumnReader(name, "empty")
    if types.is_boolean(of):
        return ColumnReader(name, "yes/no")
    if kind in ("", "date") and (types.is_integer(of) or types.is_floating(of)):
        values = typed_values(column, "number")
        if values is not None and (form in (WEEK, YEAR_QUARTER) or are_compact("" if form else name, values)):
            return None
    if is_number(of):
        return ColumnReader(name, "number")
    if types.is_duration(of):
        return ColumnReader(name, "number", numbers=NumberFormat(unit=DAYS, unit_in_all=True))
    if types.is_timestamp(of) or types.is_date(of):
        return ColumnReader(name, "date")
    if types.is_time(of):
        return ColumnReader(name, "time of day")
    return ColumnReader(name, "text", left_out=f"cells of type {of}")


def _by_plain_numbers(name: str, column: pa.ChunkedArray, kind: str, decimal: str) -> ColumnReader | None:
    """A column of texts that are numbers such as 1234.5, read quickly; None for anything else."""
    if kind not in ("", "number") or decimal == "," or not is_text(column.type):
        return None
    values = plain_numbers(column)
    if values is None or np.isnan(values).all() or (kind == "" and may_be_compact(values)):
        return None
    points = pc.match_substring(column, ".")
    has_points = pc.any(points).as_py()
    if kind == "" and has_points and pc.all(pc.match_substring_regex(column.filter(points), MONTH_AND_YEAR)).as_py():
        return None
    may_be_thousands = has_points and pc.all(pc.match_substring_regex(column.filter(points), THOUSANDS)).as_py()
    evidence = "none" if not has_points else "either" if may_be_thousands else "sure"
    return ColumnReader(name, "number", numbers=NumberFormat(evidence=evidence))


def _by_texts(name: str, texts: Texts, kind: str, form: str, decimal: str) -> ColumnReader:
    """How a column of texts is read."""
    cells = [text for text in texts.distinct if text]
    if not cells:
        return ColumnReader(name, "empty")
    if kind == "words":
        return _of_words(name, texts, numbers_apart=form != "merged")
    if kind in ("", "date") and not form and (order := order_by_name(name, cells)):
        return ColumnReader(name, "date", dates=DateFormat(order))
    if kind == "" and may_be_digits(cells) and (dates := date_format(cells)):
        return ColumnReader(name, "date", dates=dates)
    if kind in ("", "time") and all(text[-1:] in "mM." and clock_hours(text) is not None for text in cells):
        return ColumnReader(name, "time of day")  # 1 PM, which is no number with a unit
    has_durations = kind == "number" or DURATION_NAME.search(name) is not None
    if kind in ("", "number") and (numbers := number_format(cells, decimal, has_durations)):
        return ColumnReader(name, "number", numbers=numbers)
    has_versions = kind == "" and are_versions(name, cells)
    if kind in ("", "date") and not has_versions and (dates := format_of_texts(name, texts, form)):
        return ColumnReader(name, "date", dates=dates)
    if kind in ("", "time") and all(clock_hours(text) is not None for text in cells):
        return ColumnReader(name, "time of day")
    if kind == "" and are_yes_no(levels_of(texts).names):
        return ColumnReader(name, "yes/no", levels=levels_of(texts))
    mostly = (
        None if has_versions else _mostly_numbers(name, texts, kind, decimal) or _mostly_dates(name, texts, kind, form)
    )
    if mostly is not None:
        return mostly
    if kind == "" and are_smiles(cells[:SMILES_SAMPLE]) and 2 * len(cells) > len(texts.place):
        return ColumnReader(name, "molecules", left_out="molecules, which need a kernel of their own")
    return _of_words(name, texts) if kind == "" else ColumnReader(name, "text", examples=texts.first_rows(cells[:1]))


def _mostly_numbers(name: str, texts: Texts, kind: str, decimal: str) -> ColumnReader | None:
    """A column of which at least half of the cells are numbers, with the others as unreadable cells."""
    if kind not in ("", "number"):
        return None
    parts = {text: written(text) for text in texts.distinct if text}
    units = Counter(part.unit for part in parts.values() if part and part.unit)
    unit = max(units, key=units.__getitem__, default="")
    cells = [text for text, part in parts.items() if part is not None and part.unit in ("", unit)]
    numbers = number_format(cells, decimal) or max(
        (NumberFormat(mark, unit) for mark in (decimal or ".", ",")),
        key=lambda form: sum(form.number(text) is not None for text in cells),
    )
    others = [text for text in parts if numbers.number(text) is None]
    counts = texts.counts()
    unreadable = sum(counts[text] for text in others)
    present = sum(counts[text] for text in parts)
    if 2 * unreadable > present and kind == "":
        return None
    limits = [t for t in others if t[0] in "<>\u2264\u2265" and numbers.number(without_limit(t)) is not None]
    numbers, others = numbers._replace(limits=bool(limits)), [text for text in others if text not in limits]
    gap_words, others = gap_words_of(others, counts)
    return ColumnReader(name, "number", numbers=numbers, gap_words=gap_words, examples=texts.first_rows(others))


def _mostly_dates(name: str, texts: Texts, kind: str, form: str) -> ColumnReader | None:
    """A column of which nearly all cells are dates, in one order or in two, with the others as unreadable cells."""
    if kind not in ("", "date"):
        return None
    counts = texts.counts()
    cells = [text for text in counts if text]
    orders = [o for o, shown in ORDER_NAMES.items() if form in (o, shown)] or ORDERS
    readable = {o: [text for text in cells if DateFormat(o).days(text) is not None] for o in orders}
    if not form:
        readable["mdy"] = without_versions(readable["mdy"], is_named_as_date(name))
    order = max(orders, key=lambda o: len(readable[o]))
    dated = {*readable[order]}
    if not form:
        dated |= {text for one in ("dmy", "mdy") for text in readable[one] if is_marked_as_date(name, text)}
    if len(dated) < 0.9 * len(cells) and (kind == "" or not readable[order]):
        return None
    likely = None if form else date_format(readable[order], is_dated=is_named_as_date(name))
    dates = (likely or DateFormat(order)).with_century(readable[order])
    gap_words, others = gap_words_of([text for text in cells if dates.days(text) is None], counts)
    return ColumnReader(name, "date", dates=dates, gap_words=gap_words, examples=texts.first_rows(others))


def _of_words(name: str, texts: Texts, numbers_apart: bool = False) -> ColumnReader:
    return of_levels(ColumnReader(name, "words", levels=levels_of(texts, numbers_apart)), len(texts.place))
