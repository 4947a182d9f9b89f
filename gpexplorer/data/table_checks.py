"""Checks of a table of numbers before anything runs. Each message names the column, the row and the way out.

In messages, rows are counted from 1, without the header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..errors import DataError
from .quoting import count, exact, joined, listing, quote
from .reader.cells import is_missing, is_text

Floats = NDArray[np.float64]
MIN_ROWS = 3
LARGEST = 1e150  # its square is still a 64-bit number
SMALLEST = 1e-150  # a difference whose square is not yet 0
LIMITS = (
    2.0**15 - 1, -(2.0**15), 1 - 2.0**15, 2.0**16 - 1, 2.0**31 - 1, -(2.0**31), 1 - 2.0**31, 2.0**32 - 1, -(2.0**63),
)  # fmt: skip # of integers, and NetCDF's
FILL = re.compile(r"1e\+(1[5-9]|[2-9][0-9])|9\.96921e\+36|3\.40282e\+38")  # powers of ten, NetCDF's, largest float32
STAND_IN_DATES = (
    "0001-01-01", "1601-01-01", "1753-01-01", "1899-12-30", "1899-12-31", "1900-01-01", "1970-01-01", "2099-12-31",
    "2999-12-31", "9999-12-31",
)  # fmt: skip
STAND_IN_DAYS = [float(np.datetime64(date, "D").astype(int)) for date in STAND_IN_DATES]  # since 1970-01-01
SHORT_CODE = re.compile(r"8+|9+")  # 8, 99 and so on: many columns have such a number that is meant
SHORT_ROWS, SHORT_GAP = 3, 2.0  # so it has to be in these rows, and as far from the others, in their ranges
MOST_BELOW = 2  # codes that count down from another one, as 998 and 997 from 999
LARGEST_EXACT = 2.0**53  # whole numbers beyond it are rounded
SUBTOTAL = r"(?i)^\W*(grand |sub-? ?)(totals?|sums?)\b|^\W*(zwischensumme|sous-total)\b"
OF_PART = re.compile(r"^(sub-?)?(totals?|sums?|summe)\b[\s:-]*|[\s:-]*\b(sub-?)?(totals?|sums?|summe)$")
ROUNDED = 1e-4  # relative error of a total that was rounded, or of rounded numbers
TOTAL = re.compile(r"(?i)^\W*(grand |sub)?(totals?|sums?|mean|averages?|gesamt|summe|insgesamt|total g.n.ral|suma)\b.*")

STATISTICS = {  # what a row says that it is, and the numbers that it then has of the values of the others
    r"(grand )?(total|sum)s?|(gesamt)?summe|gesamt|insgesamt|somme|suma": np.sum,
    r"(mean|average|avg|moyenne|media|promedio)s?|mittel(wert)?|durchschnitt": np.mean,
    r"min(imum)?": np.min,
    r"max(imum)?": np.max,
    r"median[ea]?|m\u00e9diane|50 ?%": np.median,
    r"25 ?%|q1|1st qu": partial(np.quantile, q=0.25),
    r"75 ?%|q3|3rd qu": partial(np.quantile, q=0.75),
    r"(st\.?|standard) ?d(ev(iation)?)?|stdev|sd|standardabweichung": lambda values: [values.std(), values.std(ddof=1)],
    r"var(iance|ianz)?": lambda values: [values.var(), values.var(ddof=1)],
    r"count|number|n|anzahl|nombre": np.size,
}
MOST_STATISTICS = 12  # rows of them at one end of a table
FIRST_NAMES = ("min", "max")  # of people as well


class Rows(NamedTuple):
    """The rows of a table without statistics of them: which [n] of the table stay, and a note on the others."""

    stays: NDArray[np.bool_]
    notes: tuple[str, ...]


class Survey:
    """Statistics of columns of numbers, collected one strip of rows after another.

    A table in memory is one strip, a large file has many. Rows with a missing value are counted, and then left out of
    all other statistics.
    """

    def __init__(self) -> None:
        self.rows = self.incomplete = 0
        self._missing: dict[str, int] = {}  # missing values per column
        self._first_missing: tuple[str, int] | None = None  # column and row
        self._infinite: dict[str, tuple[int, int]] = {}  # their number, and the first row
        self._first: dict[str, float] = {}
        self._low: dict[str, float] = {}
        self._high: dict[str, float] = {}
        self._counting: dict[str, bool] = {}  # whether each value is the one before it plus 1

    @property
    def kept(self) -> int:
        """Rows without a missing value."""
        return self.rows - self.incomplete

    def add(self, columns: dict[str, Floats]) -> NDArray[np.bool_]:
        """Add the next rows to the statistics; return which of them [n] have no missing value."""
        missing = {column: np.isnan(values) for column, values in columns.items()}
        incomplete = np.logical_or.reduce(list(missing.values()))
        for column, mask in missing.items():
            self._missing[column] = self._missing.get(column, 0) + int(mask.sum())
        if self._first_missing is None and incomplete.any():
            row = int(np.argmax(incomplete))
            self._first_missing = next(column for column, mask in missing.items() if mask[row]), self.rows + row
        for column, values in columns.items():
            self._add_values(column, values[~incomplete])
        self.rows, self.incomplete = self.rows + len(incomplete), self.incomplete + int(incomplete.sum())
        return np.asarray(~incomplete)

    def _add_values(self, column: str, values: Floats) -> None:
        """Find infinite values, and columns that are constant or that only count the rows."""
        if not len(values):
            return
        infinite = np.abs(values) > LARGEST
        if infinite.any():
            number, first_row = self._infinite.get(column, (0, self.kept + int(np.argmax(infinite))))
            self._infinite[column] = number + int(infinite.sum()), first_row
            return
        first_value = self._first.setdefault(column, float(values[0]))
        self._low[column] = min(self._low.get(column, first_value), float(values.min()))
        self._high[column] = max(self._high.get(column, first_value), float(values.max()))
        if self._counting.get(column, True):
            rows = np.arange(self.kept, self.kept + len(values), dtype=float)
            self._counting[column] = bool(np.array_equal(values - first_value, rows))

    def refuse(self, name: str, target: str, missing: str) -> None:
        """Raise DataError for what makes the table unusable.

        Parameters
        ----------
        name, target : str
            The table and its target, for messages.
        missing : {"refuse", "drop"}
            Whether missing values are an error, or their rows are left out.
        """
        if missing == "refuse" and self._first_missing is not None:
            numbers = {column: number for column, number in self._missing.items() if number}
            others = f" (in {listing(numbers, 5)})" if len(numbers) > 1 else ""
            column, row = self._first_missing
            raise DataError(
                f"{name} has {count(sum(numbers.values()), 'missing value')}{others} in "
                f"{count(self.incomplete, 'row')} of {self.rows:,}, the first in column {quote(column)}, "
                f'row {row + 1}: drop those rows with missing="drop", or fill them in.'
            )
        refuse_few_rows(name, self.kept, self.incomplete)
        for column, (number, first) in self._infinite.items():
            raise DataError(
                f"{name} has {count(number, 'infinite value')} in column {quote(column)}, the first in "
                f"row {first + 1} (infinite, or beyond {LARGEST:g}, so that its square is not a 64-bit number): "
                "correct or remove those rows."
            )
        for column, low in self._low.items():
            span = self._high[column] - low
            if 0 < span < SMALLEST:  # its variance would be 0
                raise DataError(
                    f"{name}: column {quote(column)} varies by {span:.3g} in all, less than {SMALLEST:g}, so that the "
                    "square is 0 as a 64-bit number: give it in a smaller unit, such as multiplied by 1e200."
                )
        if self._is_constant(target):
            raise DataError(
                f"{name}: the target {quote(target)} is {self._first[target]:g} in all {count(self.kept, 'row')}, so "
                "there is nothing to learn: choose another target."
            )

    def _is_constant(self, column: str) -> bool:
        return self._low[column] == self._high[column]

    @property
    def dropped(self) -> tuple[str, ...]:
        """A note about rows that were left out, if there are any."""
        verb = "was" if self.incomplete == 1 else "were"
        note = f"{count(self.incomplete, 'row')} of {self.rows:,} had a missing value and {verb} left out."
        return (note,) if self.incomplete else ()

    def notes_on(self, inputs: tuple[str, ...]) -> tuple[str, ...]:
        """Notes about constant inputs, and about inputs that only number the rows; both are allowed."""
        constant = [c for c in inputs if self._is_constant(c)]
        counting = [c for c in inputs if len(inputs) > 1 and self._counting[c]]
        notes = []
        if constant:
            verb = "is" if len(constant) == 1 else "are"
            notes.append(
                f"{listing(constant)} {verb} constant: kept, but an input that never changes explains nothing."
            )
        if counting:
            verb = "only counts" if len(counting) == 1 else "only count"
            notes.append(f"{listing(counting)} {verb} the rows: leave out a column that is only a row number.")
        return tuple(notes)


def refuse_few_rows(name: str, rows: int, dropped: int = 0) -> None:
    """Raise DataError for a table with too few rows to train and to test on."""
    if rows < MIN_ROWS:
        after = f" after {count(dropped, 'row')} with missing values were dropped" if dropped else ""
        raise DataError(f"{name} has {count(rows, 'row')}{after}; at least {MIN_ROWS} are needed to train and to test.")


def without_statistics(table: pa.Table, numbers: Mapping[str, Floats]) -> Rows | None:
    """The rows without those at either end that have sums, means, or other statistics of them; None if there are none.

    Parameters
    ----------
    table : Table
        All columns.
    numbers : mapping of str to array [n]
        The columns of numbers, NaN where there is none.
    """
    stays = np.ones(table.num_rows, dtype=bool)
    with_numbers = np.flatnonzero(np.any([np.isfinite(values) for values in numbers.values()], axis=0))
    n = int(with_numbers.max(initial=-1)) + 1  # rows below it are remarks
    table, numbers = table.slice(0, n), {title: values[:n] for title, values in numbers.items()}
    if note := note_on_sums(table, numbers):
        stays[n - 1] = False
        return Rows(stays, note)
    for title in table.column_names:
        for is_top in (False, True):
            names = _statistics_at_end(table[title], is_top)
            for size in range(min(len(names), n - MIN_ROWS), 0, -1):
                own = names[:size] if is_top else names[-size:]
                is_name = size == 1 and own[0].strip().casefold() in FIRST_NAMES
                if is_name or not _are_statistics(own, is_top, numbers):
                    continue
                rows = range(1, size + 1) if is_top else range(n - size + 1, n + 1)
                verbs = ("is a statistic", "was", "it") if size == 1 else ("are statistics", "were", "them")
                note = (
                    f"{count(size, 'row')} ({joined(f'{row:,}' for row in rows)}), with {listing(own)} in "
                    f"{quote(title)}, {verbs[0]} of the others and {verbs[1]} left out"
                    f"{f'; rows are counted without {verbs[2]}' if is_top else ''}.",
                )
                stays[rows[0] - 1 : rows[-1]] = False
                return Rows(stays, note)
    return None


def _statistic(name: object) -> Any:
    """The function of which a cell has the name; None if it has none."""
    word = str(name).strip(" .:*=-").casefold() if isinstance(name, str) else ""
    return next((function for names, function in STATISTICS.items() if re.fullmatch(names, word)), None)


def _statistics_at_end(column: pa.ChunkedArray, is_top: bool) -> list[str]:
    """The names of statistics from one end of a column on, in the order of the table; none that are there twice."""
    names = list[str]()
    for row in range(min(MOST_STATISTICS, len(column))):
        name = column[row if is_top else len(column) - 1 - row].as_py()
        if _statistic(name) is None:
            break
        names.append(name)
    is_once = not names or pc.sum(pc.is_in(column, pa.array(names, column.type))).as_py() == len(names)
    return (names if is_top else names[::-1]) if is_once else []


def _are_statistics(names: list[str], is_top: bool, numbers: Mapping[str, Floats]) -> bool:
    """Whether rows at one end of a table have the statistics of the others that these names say, and nothing else."""
    size, says_so = len(names), np.zeros(len(names), dtype=bool)
    for values in numbers.values():
        own, others = (values[:size], values[size:]) if is_top else (values[-size:], values[:-size])
        others = others[np.isfinite(others)]
        if not len(others) or (np.diff(values) == 1.0).all():  # the number of the row
            continue
        for row in np.flatnonzero(np.isfinite(own)).tolist():
            statistic = _statistic(names[row])
            says_so[row] |= (is_so := _is_rounded(own[row], statistic(others)))
            if not is_so and not (statistic is np.sum and _is_rounded(own[row], others.mean())):
                return False
    return bool(says_so.all())


def _is_rounded(value: float, expected: Any) -> bool:
    """Whether a number is one of these, as far as its decimals go."""
    decimals = len(f"{value:.15g}".partition(".")[2])
    tolerance = np.maximum(ROUNDED * np.abs(expected), 0.5 * 10.0**-decimals if decimals else 0.0)
    return bool((np.abs(value - np.asarray(expected)) <= tolerance).any())


def note_on_total(table: pa.Table) -> tuple[str, ...]:
    """A note if a cell of the last row says that the row has a total of the others; no other row may say so."""
    for title in table.column_names if table.num_rows > 1 else ():
        word = table[title][-1].as_py()
        if isinstance(word, str) and TOTAL.match(word) and table[title].to_pylist().count(word) == 1:
            return (
                f"Row {table.num_rows:,} has {quote(word)} in {quote(title)}: if it is a total of the others, "
                "remove that row.",
            )
    return ()


def note_on_sums(table: pa.Table, numbers: Mapping[str, Floats]) -> tuple[str, ...]:
    """A note if the last row is a total: it has no name, or one such as Total, and sums or means of the rows above.

    Parameters
    ----------
    table : Table
        All columns.
    numbers : mapping of str to array [n]
        The columns of numbers, NaN where there is none.
    """
    n = table.num_rows
    names = [title for title in table.column_names if n > MIN_ROWS and _has_no_name(table[title])]
    last = [title for title in table.column_names if names and title in numbers and np.isfinite(numbers[title][-1])]
    sums = [title for title in last if _is_sum(numbers[title])]
    others = [numbers[title][np.isfinite(numbers[title])] for title in last if title not in sums]
    if not sums or not all(len(values) > 1 and _is_close(values[-1], values[:-1].mean()) for values in others):
        return ()
    where = f"in {listing(sums, 5)} and no name in {quote(names[0])}"
    return (f"Row {n:,} has the sum of the rows above it {where}: it was left out as a total.",)


def _has_no_name(column: pa.ChunkedArray) -> bool:
    """Whether the last cell is a gap or a word such as Total, and the first cell and the one before it are not."""
    first, before, last = ("" if (cell := column[row].as_py()) is None else str(cell).strip() for row in (0, -2, -1))
    return bool((is_missing(last) or TOTAL.match(last)) and not (is_missing(first) or is_missing(before)))


def _is_sum(values: Floats) -> bool:
    """Whether the last number is the sum of those above it and larger than each of them."""
    above = values[:-1][np.isfinite(values[:-1])]
    return _is_close(values[-1], above.sum()) and bool(abs(values[-1]) > np.abs(above).max(initial=0.0))


def _is_close(total: float, expected: Any) -> bool:
    return bool(abs(total - expected) <= ROUNDED * abs(expected))


def _note_on_ends(table: pa.Table) -> tuple[str, ...]:
    """A note if the first row, or several of the last ones, have names of statistics that their numbers are not."""
    for title in table.column_names if table.num_rows > MIN_ROWS else ():
        first, last = (_statistics_at_end(table[title], is_top) for is_top in (True, False))
        if first[:1] and first[0].strip().casefold() not in FIRST_NAMES:
            return (
                f"Row 1 has {quote(first[0])} in {quote(title)}: if it is a statistic of the others, remove that row.",
            )
        if len(last) > 1:
            return (
                f"The last {count(len(last), 'row')} have {listing(last)} in {quote(title)}: if they are statistics of "
                "the others, remove them.",
            )
    return ()


def note_on_subtotals(table: pa.Table) -> tuple[str, ...]:
    """A note on the first column of texts in which cells above the last row say that they are totals of others.

    They begin so, as "Subtotal" does, or are another cell of the column with the word before or behind it. Names of
    other statistics count at both ends of the table.
    """
    if note := _note_on_ends(table):
        return note
    for title, column in zip(table.column_names, table.slice(0, table.num_rows - 1).columns, strict=True):
        if not is_text(column.type):
            continue
        different = {text: str(text).strip().casefold() for text in pc.unique(column).to_pylist() if text is not None}
        parts = {text: OF_PART.sub("", word) for text, word in different.items()}
        known = set(different.values())
        of_parts = [text for text, part in parts.items() if part != different[text] and part in known]
        says_so = pc.or_(pc.match_substring_regex(column, SUBTOTAL), pc.is_in(column, pa.array(of_parts, column.type)))
        rows = np.flatnonzero(pc.fill_null(says_so, False).to_numpy())
        if len(rows):
            words = f"{count(len(rows), 'row')} above the last one, the first of them row {rows[0] + 1}, "
            return (
                f"{words}have words such as {quote(column[int(rows[0])])} in {quote(title)}: remove totals of others.",
            )
    return ()


def notes_on_values(title: str, kind: str, column: pa.ChunkedArray, values: Floats) -> tuple[str, ...]:
    """What to say of the values of a column that was read as numbers or dates, which is its kind."""
    if kind not in ("number", "date"):
        return ()
    notes = note_on_stand_in(title, values, kind == "date")
    return notes + (note_on_rounding(title, column, values) if kind == "number" else ())


def is_stand_in(value: float) -> bool:
    """Whether a number is one that often stands for a gap: nines, as in -9, 999 or 99.9, a limit of a type, or 1e20."""
    for text in (exact(abs(value)), f"{abs(value):.7g}"):  # the second of 99.9 in float32
        if set(text) <= set("9."):
            return value < 0.0 or text.count("9") >= 3
    return value in LIMITS or FILL.fullmatch(f"{abs(value):.6g}") is not None


def note_on_stand_in(title: str, values: Floats, are_dates: bool = False) -> tuple[str, ...]:
    """A note if numbers such as -999, or dates such as 9999-12-31, may be gaps; see `stand_ins`."""
    present = values[np.isfinite(values)]
    codes = stand_ins(present, are_dates)
    if not codes:
        return ()
    others, rows = present[~np.isin(present, codes)], [count(int((present == code).sum()), "cell") for code in codes]
    if are_dates:
        days = (str(np.datetime64(int(day // 1), "D")) for day in (*codes, others.min(), others.max()))
        *shown, low, high = days
    else:
        shown, low, high = [exact(code) for code in codes], f"{others.min():.4g}", f"{others.max():.4g}"
    listed = ", ".join(f"{code} in {number}" for code, number in zip(shown, rows, strict=True))
    sentence = f"{quote(title)} is {listed} and from {low} to {high} in the others: "
    if are_dates:
        return (f"{sentence}leave such cells empty if they are gaps.",)
    does, it = ("does it stand for a missing value", "it as a gap") if len(codes) == 1 else (
        "do they stand for missing values", "them as gaps"
    )  # fmt: skip
    kind = " ".join(("number missing", *shown))
    return (f'{sentence}{does}?\nkinds={{{quote(title)}: "{kind}"}} reads {it}.',)


def stand_ins(values: Floats, are_dates: bool = False) -> list[float]:
    """The codes of gaps among numbers or days, from the lowest to the highest.

    They are set aside from both ends. Each has to be further from the values between them than these are from each
    other. A number such as 99 has to be in several rows, and further away; below 999 or 99, 998 or 98 may be another.
    """
    distinct, rows = np.unique(values, return_counts=True)
    codes: dict[float, float] = {}  # the least distance of each, in ranges of the values that are none
    for places in (range(len(distinct)), reversed(range(len(distinct)))):
        code, below = np.nan, 0
        for place in places:
            value = float(distinct[place])
            is_short = not are_dates and rows[place] >= SHORT_ROWS and SHORT_CODE.fullmatch(exact(abs(value)))
            if (value in STAND_IN_DAYS if are_dates else is_stand_in(value)) or is_short:
                codes[value] = SHORT_GAP if is_short and not is_stand_in(value) else 1.0
                code, below = value, 0
            elif rows[place] >= SHORT_ROWS and below < MOST_BELOW and abs(code) - abs(value) == below + 1:
                codes[value] = codes[code]
                below += 1
            else:
                break
    while codes:
        others = distinct[~np.isin(distinct, list(codes))]
        spread = float(np.ptp(others)) if len(others) else 0.0
        distances = {code: float(np.abs(others - code).min(initial=np.inf)) for code in codes}
        near = [
            code for code, ranges in codes.items()
            if not distances[code] > ranges * spread > 0.0 or (ranges == SHORT_GAP and len(others) < SHORT_ROWS)
        ]  # fmt: skip
        if not near:
            break
        del codes[min(near, key=distances.__getitem__)]
    return sorted(codes)


def note_on_rounding(title: str, column: pa.ChunkedArray, values: Floats) -> tuple[str, ...]:
    """A note if whole numbers are so large that different ones became equal."""
    if not len(values) or not np.nanmax(np.abs(values), initial=0.0) > LARGEST_EXACT:
        return ()
    different, kept = pc.count_distinct(column).as_py(), len(np.unique(values[~np.isnan(values)]))
    if kept >= different:
        return ()
    return (
        f"{quote(title)} has whole numbers beyond 2^53 (9e15), which are rounded: {different:,} different ones became "
        f"{kept:,}. Subtract the smallest of them, or leave their last digits out.",
    )


def note_on_blank_rows(gaps: list[NDArray[np.bool_]]) -> tuple[str, ...]:
    """A note if rows have a gap in every input."""
    blank = np.logical_and.reduce(gaps) if gaps else np.zeros(0, dtype=bool)
    if not blank.any():
        return ()
    rows = count(int(blank.sum()), "row")
    return (
        f"{rows} without a value of any input, the first of them row {int(np.argmax(blank)) + 1}: all inputs were "
        'filled in. Remove such rows if they are totals or remarks; missing="drop" leaves out every row with a gap.',
    )
