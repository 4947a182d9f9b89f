"""How one column is read: its kind and format, decided from all of its cells, and new cells read in the same way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..quoting import joined, quote
from .cells import Floats, Mask, Texts, as_they_are, is_number, is_text, plain, plain_numbers, texts_of, typed_values
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
from .number_format import (
    DAYS,
    DURATION_NAME,
    EXAMPLES,
    OTHER,
    NumberFormat,
    missing_number,
    number_format,
    without_limit,
    written,
)
from .words import (
    SMILES_SAMPLE,
    Levels,
    are_smiles,
    are_yes_no,
    gap_words_of,
    levels_of,
    nearly_number,
    repeated_words,
    yes_no,
)  # fmt: skip

KINDS = ("number", "yes/no", "date", "time of day", "words", "text", "molecules", "empty", "raw text")
FEW = 8  # words that become inputs of 0 and 1 by themselves
MOST_LEVELS = 30  # words that become inputs of 0 and 1 if that is asked for
MOST_WORDS = 5000
MONTH_AND_YEAR = r"^\s*(0?[1-9]|1[0-2])\.(19|20)[0-9]{2}\s*$"  # may be a number as well
THOUSANDS = r"^\s*[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+\s*$"  # likewise, with points between the groups of digits

PLAIN, NO_ORDER, NO_WORDS = NumberFormat(), DateFormat(), Levels((), ())


class Cells(NamedTuple):
    """The cells of a column as they were read.

    Attributes
    ----------
    values : array [n]
        Numbers, days, hours or numbers of words; NaN where there is none.
    gap, unseen, unreadable, with_unit : array of bool [n]
        Cells without a value, words that training does not have, texts that are nothing of the kind of the column, and
        numbers with a unit where those of training have none, or without one where all of these have one.
    """

    values: Floats
    gap: Mask
    unseen: Mask
    unreadable: Mask
    with_unit: Mask


@dataclass(frozen=True)
class ColumnReader:
    """How one column is read.

    Parameters
    ----------
    name : str
    kind : str
        One of `KINDS`; "raw text" is for a kernel on texts.
    numbers, dates : NumberFormat, DateFormat
        The format of numbers and of dates.
    levels : Levels
        The words.
    encoding : {"", "0/1", "mean"}
        Whether words become inputs of 0 and 1, or the mean of the target of the rows with this word.
    median, low, high : float
        Of the values of training.
    quantiles : tuple of float
        Values of training at equal probabilities, over which a value that is not known is averaged.
    gaps : float
        The share of gaps.
    rows : int
        Rows from which all of this was found.
    on_gap : {"fill", "level", "average", "refuse"}
        What becomes of a gap in a new row: the median, a level of its own, the average over the values of training, or
        no prediction.
    left_out : str
        Why the column is no input; "" if it is one.
    gap_words : tuple of str
        Texts that stand for a gap among its numbers or dates, such as "unknown".
    """

    name: str
    kind: Annotated[str, KINDS]
    numbers: NumberFormat = PLAIN
    dates: DateFormat = NO_ORDER
    levels: Levels = NO_WORDS
    encoding: Annotated[str, ("", "0/1", "mean")] = ""
    median: float = 0.0
    low: float = 0.0
    high: float = 0.0
    quantiles: tuple[float, ...] = ()
    gaps: float = 0.0
    rows: int = 0
    on_gap: Annotated[str, ("fill", "level", "average", "refuse")] = "average"
    left_out: str = ""
    gap_words: tuple[str, ...] = ()
    examples: tuple[tuple[int, str], ...] = field(default=(), compare=False)  # unreadable cells of training

    @property
    def is_number(self) -> bool:
        """Whether the column can be a target."""
        return self.kind in ("number", "yes/no", "time of day")

    def cells(self, column: pa.ChunkedArray, contradicted: bool = False) -> Cells:
        """Read cells of this column, in training or later; nothing is decided here.

        Parameters
        ----------
        contradicted : bool
            Whether other cells of the same file contradict the format (see `contradicted_by`).
        """
        column = plain(column)
        nothing = np.zeros(len(column), dtype=bool)
        is_number = self.dates.compact and self.low > 1e7  # earlier versions learned from 20210301 itself, if not text
        is_duration = pa.types.is_duration(column.type) and self.numbers.unit == DAYS
        typed = typed_values(column, "number" if is_number else "duration" if is_duration else self.kind)
        is_plain = self.kind == "number" and is_text(column.type) and self.numbers.decimal == "." and not contradicted
        plain_values = plain_numbers(column) if is_plain else None
        is_like = plain_values is not None and not np.any(self._unlike_training(plain_values))
        typed = plain_values if is_like else typed
        if typed is None:
            cells = self._of_texts(texts_of(column), contradicted)
        else:
            gap = np.isnan(typed)
            if pa.types.is_timestamp(column.type):
                typed = self.dates.days_of_moments(typed, column.type.tz)
            is_bare = nothing if is_duration else ~gap & self.numbers.unit_in_all
            cells = Cells(typed, gap, nothing, np.isnan(typed) & ~gap, is_bare)
        if not self.numbers.gaps:
            return cells
        gap = cells.gap | np.isin(cells.values, self.numbers.gaps)
        return cells._replace(values=np.where(gap, np.nan, cells.values), gap=gap)

    def _of_texts(self, texts: Texts, contradicted: bool) -> Cells:
        gap, nothing = texts.gap, np.zeros(len(texts.place), dtype=bool)
        if self.kind == "words":
            places = self.levels.places(texts)
            unseen = places == -1.0
            return Cells(np.where(unseen, np.nan, places), gap, unseen, nothing, nothing)
        parse = {
            "number": self.numbers.number, "date": self.dates.days, "time of day": clock_hours, "yes/no": yes_no,
        }.get(self.kind)  # fmt: skip
        values = np.full(len(gap), np.nan) if parse is None else texts.parsed(parse)
        gap_words = {text.casefold() for text in self.gap_words}
        gap = gap | texts.spread(np.array([text.casefold() in gap_words for text in texts.distinct], dtype=bool))
        unreadable = nothing if parse is None else np.isnan(values) & ~gap
        if contradicted or unreadable.any():
            unreadable |= texts.spread(self._in_doubt(texts.distinct, contradicted))
        if self.kind == "number":
            unreadable |= self._with_other_mark(texts, values)
        values[unreadable] = np.nan
        with_unit = nothing
        if self.kind == "number":
            units = np.array([self.numbers.has_other_unit(text) for text in texts.distinct], dtype=bool)
            with_unit = texts.spread(units) & ~unreadable
        return Cells(values, gap, nothing, unreadable, with_unit)

    def contradicted_by(self, column: pa.ChunkedArray) -> bool:
        """Whether a cell can be read only in the other format: 2,5 where the mark is a point, or 3/16 as day/month."""
        column = plain(column)
        if not is_text(column.type) or self.kind not in ("number", "date"):
            return False
        return any(old is None and others for old, others in self._meanings(texts_of(column).distinct))

    def _meanings(self, distinct: Sequence[str]) -> list[tuple[float | None, set[float]]]:
        """What texts mean in the format of training, and in others of the same kind: with the other mark or order.

        Models of earlier versions have "dmy" where training shows no order as well, such as 2021-03-01.
        """
        own: Callable[[str], float | None] = self.numbers.number if self.kind == "number" else self.dates.days
        other_mark = self.numbers._replace(decimal=OTHER[self.numbers.decimal])
        others = [other_mark.number] if self.kind == "number" else [form.days for form in self.dates.other_orders]
        return [(own(text), {value for read in others if (value := read(text)) is not None}) for text in distinct]

    def _in_doubt(self, distinct: Sequence[str], contradicted: bool) -> Mask:
        """Which texts mean something else in a format that others need: 1,234 beside 2,5, or 3/2 beside 3/16."""
        meanings = self._meanings(distinct) if self.kind in ("number", "date") else [(None, set())] * len(distinct)
        contradicted |= any(old is None and others for old, others in meanings)
        return np.array([contradicted and bool(others - {old}) for old, others in meanings], dtype=bool)

    def _unlike_training(self, values: Floats) -> tuple[Mask, Mask]:
        """Which numbers are far from all of training, and which have decimals where all of training are whole."""
        if not self.quantiles:
            return np.zeros(len(values), dtype=bool), np.zeros(len(values), dtype=bool)
        span = self.high - self.low
        far = (values < self.low - span) | (values > self.high + span)
        return far, np.isfinite(values) & (values != np.round(values)) & self.numbers.whole

    def _with_other_mark(self, texts: Texts, values: Floats) -> Mask:
        """Which cells are unlike all numbers of training, and between these by the other decimal mark.

        A cell with one meaning, such as 2.5, leaves no doubt about the decimals of the others.
        """
        far, in_parts = self._unlike_training(values)
        if not (far | in_parts).any():
            return far
        meant = texts.parsed(self.numbers._replace(decimal=OTHER[self.numbers.decimal]).number)
        in_parts &= not (in_parts & np.isnan(meant)).any()
        return np.asarray((far | in_parts) & (meant >= self.low) & (meant <= self.high))

    def shown_format(self) -> str:
        """The format in words."""
        if self.kind == "number":
            is_plain = self.numbers._replace(small=False, whole=False, evidence="none") == PLAIN
            return "" if is_plain else self.numbers.shown()
        if self.kind == "date":
            return self.dates.shown()
        if self.kind == "words":
            return joined((f"{name} ({count:,})" for name, count in zip(*self.levels[:2], strict=True)), 4)
        return ""

    @property
    def decision(self) -> str:
        """The kind and format as the option `kinds` takes them."""
        if self.kind == "number":
            return self.numbers.decision
        if self.levels.has_equal_numbers:
            return f"{self.kind} merged"
        return f"date {self.dates.order}".strip() if self.kind == "date" and not self.dates.compact else self.kind


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
    return _with_statistics(decided, column)


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
    levels = levels_of(texts, numbers_apart)
    present = sum(levels.counts)
    k, left_out = len(levels.names), ""
    if k == 1 and present == len(texts.place):
        left_out = "always the same word"
    elif (k == present and k > 2) or (2 * k > present and k > FEW):
        left_out = "a different text in nearly every row"
        left_out += f", such as {quote(text)}" if (text := nearly_number(levels.names)) else ""
    elif k > MOST_WORDS:
        left_out = f"{k:,} different words"
    encoding = "0/1" if k <= FEW else "mean"
    return ColumnReader(name, "words", levels=levels, encoding=encoding, left_out=left_out)


def _with_statistics(reader: ColumnReader, column: pa.ChunkedArray) -> ColumnReader:
    """The same reader with the median, the range and the share of gaps of its column."""
    cells = reader.cells(column)
    n = len(cells.values)
    values = cells.values[np.isfinite(cells.values)]
    reader = replace(reader, gaps=float(cells.gap.mean()) if n else 0.0, rows=n)
    if not len(values) or reader.kind == "words":
        return reader
    small, whole = bool(np.abs(values).max() <= 1.5), bool((values == np.round(values)).all())
    quantiles = np.quantile(values, (np.arange(9) + 0.5) / 9)
    return replace(
        reader,
        numbers=reader.numbers._replace(small=small, whole=whole),
        median=float(np.median(values)),
        low=float(values.min()),
        high=float(values.max()),
        quantiles=tuple(map(float, quantiles)),
    )
