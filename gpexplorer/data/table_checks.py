"""Checks of a table of numbers before anything runs. Each message names the column, the row and the way out.

In messages, rows are counted from 1, without the header.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..errors import DataError
from .quoting import count, exact, listing, quote

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
