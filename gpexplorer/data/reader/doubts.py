"""What of the cells of a column could be meant otherwise, as notes, most of them with the option that reads them so.

It is apart because notes are made of training alone: a reader that is saved with a model needs none of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..quoting import listing, quote
from .cells import Texts, is_text, plain, texts_of
from .column_cells import ColumnReader
from .date_format import is_named_as_date, is_named_as_quarters, is_named_as_weeks
from .date_texts import MONTH_OF
from .number_format import OTHER
from .words import nearly_number

_YEAR, _MONTH, _DAY = "(?:19|20)[0-9]{2}", "(?:0[1-9]|1[0-2])", "(?:0[1-9]|[12][0-9]|3[01])"
_OF_MONTHS = re.compile(r"(?i)month|monat|mois|(?<![a-z])mes(?![a-z])")
_DIGITS = {  # numbers that are dates in a column with such a name, and the kind that reads them as dates
    "year, month and day": (f"[0-9]{{2}}{_MONTH}{_DAY}", is_named_as_date, ""),
    "year and week": (f"{_YEAR}(?:0[1-9]|[1-4][0-9]|5[0-3])", is_named_as_weeks, "date week"),
    "year and quarter": (f"{_YEAR}\\.?[1-4]", is_named_as_quarters, "date quarter"),
    "year and month": (f"{_YEAR}\\.{_MONTH}", lambda name: _OF_MONTHS.search(name) or is_named_as_date(name), "date"),
    "year and day of the year": (f"{_YEAR}(?:[0-2][0-9]{{2}}|3[0-6][0-9])", is_named_as_date, ""),
    "day, month and year": (f"(?:{_DAY}|[1-9]){_MONTH}{_YEAR}", is_named_as_date, ""),
}
_SHORT_MONTH = re.compile(
    rf"(?P<mon>[^\W\d_]{{3,12}})\.? [0-9]{{2}}|[0-9]{{2}}[- ](?P<last>[^\W\d_]{{3,12}})|{_MONTH}-[0-9]{{2}}"
)
_MONTH_AND_DIGITS = re.compile(r"[^\W\d_]{3,12}\.?-([0-9]{2})")
LAST_DAY = 31
_SEASON = re.compile(r"((?:19|20)[0-9]{2})-([0-9]{2})")
NOON = 13.0  # hours: up to here, a time such as 1:30 may be a duration


def doubts(reader: ColumnReader, column: pa.ChunkedArray, is_told: bool = False) -> tuple[str, ...]:
    """Notes on a column of training.

    Parameters
    ----------
    reader : ColumnReader
    column : ChunkedArray
        All of its cells.
    is_told : bool
        Whether it was said how it is read, or it is predicted, so that it cannot be words.
    """
    column, name, notes = plain(column), quote(reader.name), list[str]()
    dates = "" if is_told else _as_dates(reader, column)
    if dates:
        notes.append(f"{name}{dates}")
    elif is_text(column.type):
        notes += [f"{name}{note}" for note in _of_texts(reader, column, name, is_told)]
    if reader.kind == "date":
        notes += [f"{name}: {doubt}" for doubt in reader.dates.doubts(name, reader.low, reader.high)]
    if merged := reader.levels.merged:
        notes.append(f"{name} has words in more than one spelling, each read as one: {listing(merged, 5)}.")
    if reader.gap_words:
        notes.append(f"{name}: cells that say {listing(reader.gap_words)} were read as gaps.")
    if (text := nearly_number(reader.levels.names)) and not reader.left_out:
        advice = "write a number alone, such as 5, to use it as one"
        notes.append(f"{name}: cells such as {quote(text)} are words: {advice}.")
    if reader.numbers.limits:
        notes.append(f"{name}: of cells such as <0.5 or >100, the number was read.")
    return tuple(notes)


def _as_dates(reader: ColumnReader, column: pa.ChunkedArray) -> str:
    """What to say behind the name of a column that may have other dates than were read, or dates that were not read."""
    named = [own for own in _DIGITS.items() if reader.kind == "number" and own[1][1](reader.name)]
    cells = [text.removesuffix(".0") for text in texts_of(column).distinct if text] if named else []
    for meaning, (form, _, kind) in named:
        if all(re.fullmatch(form, cell) for cell in cells):
            way = f'\nkinds={{{quote(reader.name)}: "{kind}"}} reads it as a date.' if kind else ""
            return f": {cells[0]} may be {meaning}, and was read as a number: write dates as 2021-03-01.{way}"
    if reader.kind == "words" and all(map(_is_short_month, reader.levels.names)):
        first = quote(reader.levels.names[0])
        return f": cells such as {first} are words, since a year or a day may be meant: write months as 2021-03."
    if reader.kind == "date" and is_text(column.type) and _are_seasons(texts_of(column).distinct):
        first = next(filter(None, texts_of(column).distinct))
        return f": {first} was read as a month: if it is a season of two years, write the first year alone."
    if reader.kind == "date" and is_text(column.type) and (first := _day_or_year(reader, texts_of(column))):
        return f": {first} was read as a month of a year: if it is a month and a day, write dates as 2021-03-01."
    return ""


def _day_or_year(reader: ColumnReader, texts: Texts) -> str:
    """A cell of a column such as Jan-03, Jan-12, Feb-01, of which each may be a day; "" if the rows rise or fall so."""
    matches = [_MONTH_AND_DIGITS.fullmatch(text) for text in texts.distinct if text]
    if not matches or not all(match and 0 < int(match[1]) <= LAST_DAY for match in matches):
        return ""
    days = texts.parsed(reader.dates.days)
    steps = np.diff(days[~np.isnan(days)])
    return "" if (steps >= 0.0).all() or (steps <= 0.0).all() else next(filter(None, texts.distinct))


def _is_short_month(text: str) -> bool:
    """Whether a word is a month with two digits, such as Jan 21, 21-Jan or 01-21."""
    match = _SHORT_MONTH.fullmatch(text)
    month = match and (match["mon"] or match["last"])
    return match is not None and (not month or month.casefold() in MONTH_OF)


def _are_seasons(cells: Sequence[str]) -> bool:
    """Whether all cells are two years in a row, such as 2000-01, 2001-02 and 2002-03."""
    matches = [_SEASON.fullmatch(text) for text in cells if text]
    return len(matches) > 2 and all(match and (int(match[1]) + 1) % 100 == int(match[2]) for match in matches)


def _of_texts(reader: ColumnReader, column: pa.ChunkedArray, name: str, is_told: bool) -> list[str]:
    """What to say behind the name of a column of texts; numbers such as 1.5 alone are not taken apart."""
    numbers, notes = reader.numbers, list[str]()
    if numbers.evidence == "either" and (meant := numbers.doubt(texts_of(column).distinct)):
        notes.append(meant.format(name=name).removeprefix(name))
    if numbers.evidence == "sure" and pc.any(pc.match_substring(column, OTHER[numbers.decimal]), min_count=0).as_py():
        notes += filter(None, [numbers.note_on_marks(texts_of(column).distinct)])
    if numbers.unit and (note := numbers.note_on_unit(texts_of(column).counts())):
        notes.append(f": {note}")
    if numbers.scaled and (note := numbers.note_on_letter(texts_of(column).counts())):
        notes.append(f": {note}")
    if reader.kind == "number" and not is_told:
        codes = column.filter(pc.match_substring_regex(column, r"^\s*0[0-9]{3,}\s*$"))
        if len(codes):
            notes.append(
                f" has cells such as {str(codes[0]).strip()}, which were read as numbers, without the zero.\n"
                f'kinds={{{name}: "words"}} reads them as words.'
            )
    cells = texts_of(column).distinct if reader.kind == "time of day" and reader.high < NOON else ()
    if cells and not any(text[-1:].isalpha() for text in cells):
        first = next(filter(None, cells))
        notes.append(
            f": cells such as {first} were read as times of day, none of which is in the afternoon.\n"
            f'kinds={{{name}: "number"}} reads them as durations.'
        )
    return notes
