"""What of the cells of a column could be meant otherwise, as notes, most of them with the option that reads them so.

It is apart because notes are made of training alone: a reader that is saved with a model needs none of it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ..quoting import listing, quote
from .cells import is_text, plain, texts_of
from .column_reader import ColumnReader
from .number_format import OTHER
from .words import nearly_number

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
    if is_text(column.type):
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
