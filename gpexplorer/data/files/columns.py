"""Choice of columns: which one is the target, which ones are inputs, and their numbers.

A column is a number column if at least half of its nonempty cells are numbers. A cell of text in it is then an error,
with the column, the row and the value. Otherwise it is a text column, which is left out with a note unless it was
requested: as the only input (`objects`), beside the numbers (`texts`), or as inputs of 0 and 1 (`encode`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...errors import DataError
from .. import table_checks
from ..quoting import count, listing, nearest, quote
from ..table_checks import Floats
from .containers import is_number
from .conversions import MISSING, days, encoded, is_text, with_points
from .delimited import NUMBER
from .reading import Raw

_BOOLEAN = {"true": 1.0, "false": 0.0}
_DECIMAL_COMMA = r"^[+-]?[0-9.]+,[0-9]+$"


@dataclass(frozen=True)
class Choice:
    """Which columns of a table to use.

    Parameters
    ----------
    target : str, optional
        The target; the last number column if omitted.
    inputs : tuple of str, optional
        The inputs; all other number columns if omitted.
    drop : tuple of str
        Columns that are not inputs.
    objects : str, optional
        One text column, such as SMILES, to use as input instead of numbers.
    missing : {"refuse", "drop", "fill"}
        Whether rows with a missing value are an error, are left out, or get the median of their column. Rows whose
        target is missing are left out in the last case.
    encode : tuple of str
        Columns of text of which each different text becomes an input of 0 and 1.
    dates : tuple of str
        Columns of dates, which become days since 1970-01-01.
    decimal : {".", ","}
        How decimals are written in columns of text.
    texts : tuple of str
        Columns that are read as text and are inputs beside the numbers, for a kernel on named columns.
    groups : str, optional
        A column of texts or numbers that is no input: rows with the same value in it are held out together.
    """

    target: str | None = None
    inputs: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    objects: str | None = None
    missing: Literal["refuse", "drop", "fill"] = "refuse"
    encode: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    decimal: Literal[".", ","] = "."
    texts: tuple[str, ...] = ()
    groups: str | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """All columns that are requested by name."""
        chosen = (self.target, *(self.inputs or ()), self.objects, *self.encode, *self.dates, *self.texts, self.groups)
        return tuple(dict.fromkeys(c for c in chosen if c is not None))

    @property
    def is_full(self) -> bool:
        """Whether target and inputs are both given."""
        return self.target is not None and (self.inputs is not None or self.objects is not None)

    @property
    def identity(self) -> dict[str, Any]:
        """What distinguishes two readings of one file. Later fields count where they are set: old keys stay valid."""
        fields, defaults = asdict(self), asdict(Choice())
        always_included = ("target", "inputs", "drop", "objects", "missing")
        return {name: value for name, value in fields.items() if name in always_included or value != defaults[name]}


class Numbers(NamedTuple):
    """Finite numbers in the units of the file: X [n, d] or n texts, y [n], column names, and notes for the user.

    Columns of text beside those of X are in `texts`; their names stand behind those of X.
    """

    X: Floats | list[str]
    y: Floats
    names: tuple[str, ...]
    target: str
    notes: tuple[str, ...]
    kept: NDArray[np.bool_]  # [rows of the table]: False where a row was left out
    texts: tuple[tuple[str, ...], ...] = ()
    groups: tuple[str, ...] = ()  # the group of each row, if the choice names a column of them


class Column(NamedTuple):
    """A column as numbers [n], NaN where a cell is missing or text."""

    values: Floats
    text: int  # cells that are neither numbers nor missing
    first: tuple[int, str] | None  # the first such cell: its row, from 0, and its text

    @property
    def is_number(self) -> bool:
        return bool(2 * self.text <= len(self.values) - np.isnan(self.values).sum() + self.text) and self.has_any

    @property
    def has_any(self) -> bool:
        return bool(not np.isnan(self.values).all())


def pick(raw: Raw, choice: Choice) -> Numbers:
    """Return the chosen columns as checked numbers.

    Parameters
    ----------
    raw : Raw
        A table as it was read.
    choice : Choice
        Which columns to use.

    Raises
    ------
    DataError
        One sentence about the first thing that is wrong.
    """
    table, name = raw.table, raw.name
    refuse_choice(name, table.column_names, choice)
    table_checks.refuse_few_rows(name, table.num_rows)
    needed = choice.named if choice.is_full else table.column_names
    unread = (choice.objects, choice.groups, *choice.texts, *choice.drop)
    parsed, choice = _parsed(name, {c: table[c] for c in needed if c not in unread}, choice)
    target, inputs, omitted = roles(name, parsed, choice)

    columns = {c: _numbers(name, c, parsed[c], c == target) for c in (*inputs, target)}
    filled = _fill(columns, target) if choice.missing == "fill" else ()
    texts = {c: _texts(table[c]) for c in ((choice.objects,) if choice.objects else choice.texts)}
    survey = table_checks.Survey()
    # If missing values are filled in, a missing text counts as the empty word.
    groups = _texts(table[choice.groups]) if choice.groups else []
    missing_texts = {
        c: _missing_texts(cells) for c, cells in texts.items() if choice.objects or choice.missing != "fill"
    }
    missing_texts |= {choice.groups: _missing_texts(groups)} if choice.groups else {}
    keep = survey.add({**columns, **missing_texts})
    survey.refuse(name, target, choice.missing)
    columns = {c: values[keep] for c, values in columns.items()}
    y = columns.pop(target)

    notes = raw.notes + omitted + filled + survey.dropped + survey.notes_on(inputs)
    kept = np.flatnonzero(keep)
    row_groups = tuple(groups[i] for i in kept) if groups else ()
    if choice.objects:
        chosen = [texts[choice.objects][i] for i in kept]
        return Numbers(chosen, y, (choice.objects,), target, notes, keep, groups=row_groups)
    X = np.column_stack(list(columns.values())) if columns else np.zeros((len(y), 0))
    text_columns = tuple(tuple(cells[i] for i in kept) for cells in texts.values())
    return Numbers(X, y, (*columns, *choice.texts), target, notes, keep, text_columns, row_groups)


def _parsed(name: str, cells: dict[str, pa.ChunkedArray], choice: Choice) -> tuple[dict[str, Column], Choice]:
    """The columns as numbers, with the conversions that were asked for; the choice names the new columns."""
    parsed: dict[str, Column] = {}
    levels: dict[str, tuple[str, ...]] = {}
    for title, column in cells.items():
        if title in choice.encode and title != choice.target:
            level_columns = {level: Column(values, 0, None) for level, values in encoded(name, title, column).items()}
            levels[title] = tuple(level_columns)
            parsed |= level_columns
        elif title in choice.dates:
            parsed[title] = Column(days(name, title, column), 0, None)
        else:
            parsed[title] = parse(with_points(column) if choice.decimal == "," else column)
    if choice.inputs is None:
        return parsed, choice
    inputs = [part for title in choice.inputs for part in levels.get(title, (title,))]
    return parsed, replace(choice, inputs=tuple(inputs))


def _fill(columns: dict[str, Floats], target: str) -> tuple[str, ...]:
    """Put the median of each input where it is missing; return a note about it."""
    filled = []
    for title, values in columns.items():
        missing = np.isnan(values)
        if title != target and missing.any() and not missing.all():
            columns[title] = np.where(missing, np.median(values[~missing]), values)
            filled.append(f"{quote(title)} ({int(missing.sum()):,})")
    if not filled:
        return ()
    more = f" and {len(filled) - 12} more columns" if len(filled) > 12 else ""
    return (f"Missing values were filled in with the median of their column: {', '.join(filled[:12])}{more}.",)


def roles(name: str, parsed: dict[str, Column], choice: Choice) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return the target, the inputs in the requested order or that of the table, and a note on what was left out."""
    target = choice.target or default_target(name, parsed, choice)
    inputs, omitted = _inputs(name, parsed, target, choice)
    return target, inputs, _other_target(parsed, target, choice) + omitted


def _other_target(parsed: dict[str, Column], target: str, choice: Choice) -> tuple[str, ...]:
    """A note if the target was not chosen, and is another column than the last one because that contains no numbers."""
    last = next(reversed(parsed))
    if choice.target is not None or last == target or parsed[last].is_number or last in (choice.inputs or ()):
        return ()
    first = parsed[last].first
    contents = f" ({quote(first[1])})" if first else ""
    return (
        f"The last column, {quote(last)}{contents}, does not contain numbers, so {quote(target)} is the target: if "
        f'another column is to be predicted, give target="NAME".',
    )


def refuse_choice(name: str, columns: Sequence[str], choice: Choice) -> None:
    """Raise DataError for columns that do not exist, and for contradictory roles."""
    refuse_unknown(name, columns, (*choice.named, *choice.drop))
    taken = (choice.objects, *choice.texts, *choice.drop, *(choice.inputs or ()))
    if choice.target is not None and choice.target in taken:
        raise DataError(f"{name}: {quote(choice.target)} is the target, so it is neither an input nor dropped.")
    if choice.groups in (choice.target, *taken, *choice.encode, *choice.dates) and choice.groups is not None:
        raise DataError(f"{name}: {quote(choice.groups)} has the group of each row, so it has no other use.")
    if choice.objects and choice.inputs is not None:
        raise DataError(f"{name}: inputs are either columns of numbers or the one column {quote(choice.objects)}.")
    if choice.objects and choice.texts:
        raise DataError(
            f"{name}: {quote(choice.objects)} is the only input, but texts={listing(choice.texts)} are inputs, too: "
            "give all of them as texts."
        )
    twice = [c for c in choice.texts if c in (*(choice.inputs or ()), *choice.encode, *choice.dates, *choice.drop)]
    if twice:
        raise DataError(f"{name}: {quote(twice[0])} is read as text, so it is no column of numbers, and not dropped.")


def refuse_unknown(name: str, columns: Sequence[str], requested: Sequence[str]) -> None:
    """Raise DataError for a column that the table does not have, with the most similar one that it has."""
    for column in requested:
        if column not in columns:
            raise DataError(f"{name} has no column {quote(column)}. {nearest(column, columns)}")


def parse(column: pa.ChunkedArray) -> Column:
    """Read a column of any type as numbers. Text is read strictly: no thousands separator, no decimal comma."""
    kind = column.type
    if is_number(kind):
        cast = column.cast(pa.int8()) if pa.types.is_boolean(kind) else column
        values = cast.cast(pa.float64(), safe=False)
        return Column(np.array(pc.fill_null(values, float("nan")).to_numpy()), 0, None)
    if pa.types.is_null(kind):
        return Column(np.full(len(column), np.nan), 0, None)
    if not is_text(kind):
        first = next((str(v) for v in column[:1].to_pylist()), "")
        return Column(np.full(len(column), np.nan), len(column), (0, first))
    return _parse_text(pc.fill_null(column, ""))


def _parse_text(column: pa.ChunkedArray) -> Column:
    cells = pc.utf8_trim_whitespace(column)
    number = pc.match_substring_regex(cells, rf"(?i)^({NUMBER}|[+-]?inf(inity)?)$")
    values = pc.cast(pc.if_else(number, cells, None), pa.float64())
    values = np.array(pc.fill_null(values, float("nan")).to_numpy())
    other = np.flatnonzero(~number.to_numpy())
    if len(other) == 0:
        return Column(values, 0, None)
    words = np.array(pc.utf8_lower(cells.take(pa.array(other))).to_pylist(), dtype=object)
    if set(words) <= {*_BOOLEAN, *MISSING} and len(other) == len(values):
        return Column(np.array([_BOOLEAN.get(w, np.nan) for w in words]), 0, None)
    text = other[~np.isin(words, MISSING)]
    return Column(values, len(text), (int(text[0]), column[int(text[0])].as_py()) if len(text) else None)


def default_target(name: str, parsed: dict[str, Column], choice: Choice) -> str:
    """Return the last column of numbers that is not an input."""
    taken = choice.inputs or ()
    numbers = [c for c, column in parsed.items() if column.is_number and c not in taken]
    if not numbers:
        _refuse_decimal_comma(name, parsed)
        raise DataError(f"{name} has no column of numbers that could be the target; it has {_contents(parsed)}.")
    return numbers[-1]


def _inputs(
    name: str, parsed: dict[str, Column], target: str, choice: Choice
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The inputs in the requested order or that of the table, and a note on what was left out."""
    if choice.objects:
        return (), ()
    if choice.inputs is not None:
        inputs = tuple(c for c in dict.fromkeys(choice.inputs) if c not in choice.drop)
        omitted = []
    else:
        inputs = tuple(c for c, column in parsed.items() if column.is_number and c != target)
        omitted = [c for c, column in parsed.items() if not column.is_number and c != target]
        _refuse_decimal_comma(name, {c: parsed[c] for c in omitted})
    if not inputs and not choice.texts:
        contents = f" (it has {_contents({c: parsed[c] for c in omitted})})" if omitted else ""
        raise DataError(
            f"{name} has no input column of numbers beside the target {quote(target)}{contents}: "
            "add one, or choose another target."
        )
    return inputs, (f"Columns that do not contain numbers were left out: {listing(omitted)}.",) if omitted else ()


def _refuse_decimal_comma(name: str, parsed: dict[str, Column]) -> None:
    """Raise DataError for a column with decimal commas, which was meant as numbers."""
    for column, cells in parsed.items():
        if _has_decimal_comma(cells):
            refuse_text(name, column, cells)


def _contents(parsed: dict[str, Column]) -> str:
    """Column names, each with the first text in the column, such as "price" ("$3.50")."""
    shown = [f"{quote(c)} ({quote(cells.first[1])})" if cells.first else quote(c) for c, cells in parsed.items()]
    return ", ".join(shown[:6]) + (f" and {len(shown) - 6} more" if len(shown) > 6 else "")


def _has_decimal_comma(parsed: Column) -> bool:
    return parsed.first is not None and bool(pc.match_substring_regex(parsed.first[1], _DECIMAL_COMMA).as_py())


def refuse_text(name: str, column: str, parsed: Column, is_target: bool = False) -> None:
    """Raise DataError for a number column with a cell of text, and for a column that is empty in every row."""
    if parsed.first is not None:
        row, value = parsed.first
        content = "a decimal comma (or a thousands separator)" if _has_decimal_comma(parsed) else "text"
        more = f" (and {count(parsed.text - 1, 'more cell')} like it)" if parsed.text > 1 else ""
        raise DataError(
            f"{name}: column {quote(column)} has {content} in row {row + 1}: {quote(value)}{more}, "
            f"where a number is needed: {_way_out(column, parsed, is_target)}."
        )
    if not parsed.has_any:
        way_out = (
            'choose another target with target="..."' if is_target else f"leave it out with {_option('drop', column)}"
        )
        raise DataError(f"{name}: column {quote(column)} is empty in every row: {way_out}.")


def _way_out(column: str, parsed: Column, is_target: bool) -> str:
    """What to do about a column with a cell that is no number."""
    if _has_decimal_comma(parsed):
        return 'write 3.5 for 3,5 and 1234 for 1,234, or give decimal="," where 3,5 is 3.5'
    if is_target and not parsed.is_number:
        return 'only numbers can be predicted: choose another column with target="..."'
    if is_target:
        return "correct the cell, or leave its row out of the file"
    return (
        f"correct the cell, or leave the column out with {_option('drop', column)}, or use its words with "
        f"{_option('encode', column)}"
    )


def _option(name: str, column: str) -> str:
    """An option of `load` that names this column."""
    return f"{name}=[{quote(column)}]"


def _numbers(name: str, column: str, parsed: Column, is_target: bool) -> Floats:
    refuse_text(name, column, parsed, is_target)
    return parsed.values


def _texts(column: pa.ChunkedArray) -> list[str]:
    return [str(value).strip() if value is not None else "" for value in column.to_pylist()]


def _missing_texts(texts: list[str]) -> Floats:
    """NaN [n] where a text is missing."""
    return np.array([np.nan if text.lower() in MISSING else 0.0 for text in texts])
