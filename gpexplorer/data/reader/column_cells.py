"""The cells of one column as they are read, in training and later, once it is decided how (see `column_reader`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa

from ..quoting import exact, joined, quote
from .cells import Floats, Mask, Texts, is_text, plain, plain_numbers, texts_of, typed_values
from .date_format import DateFormat
from .date_texts import clock_hours
from .number_format import DAYS, OTHER, NumberFormat
from .words import Levels, yes_no

KINDS = ("number", "yes/no", "date", "time of day", "words", "text", "molecules", "empty", "raw text")

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

    def of_rows(self, rows: Mask) -> Cells:
        """These rows alone."""
        values, gap, unseen, unreadable, with_unit = self
        return Cells(values[rows], gap[rows], unseen[rows], unreadable[rows], with_unit[rows])


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

    @property
    def is_constant(self) -> bool:
        """Whether all cells of training that are no gap have one value."""
        return len(self.levels.names) == 1 if self.kind == "words" else bool(self.quantiles) and self.low == self.high

    @property
    def only_value(self) -> str:
        """That value, for a message."""
        if self.kind == "words":
            return quote(self.levels.names[0])
        return str(np.datetime64(int(self.low // 1), "D")) if self.kind == "date" else exact(self.low)

    def differs(self, cells: Cells) -> Mask:
        """Which cells have another value than the only one of training."""
        if self.kind == "words" or not self.is_constant:
            return cells.unseen & self.is_constant
        return ~cells.gap & ~np.isclose(cells.values, self.low, rtol=1e-9, atol=0.0)

    def unknown(self, cells: Cells) -> Mask:
        """Over which cells a prediction is averaged: new words, and gaps where training has none."""
        return cells.unseen | (cells.gap & (self.on_gap == "average"))

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
