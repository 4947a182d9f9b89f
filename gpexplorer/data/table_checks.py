"""What a table of numbers must be before anything runs; each refusal names the column, the row and the way out.

Rows are counted from 1 in every sentence, the header not counted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .quoting import count, listing, quote

Floats = NDArray[np.float64]
MIN_ROWS = 3
LARGEST = 1e150  # its square is a number of 64 bits too


class Survey:
    """Columns of numbers looked at a strip of rows at a time: a table in memory is one strip, a large file many.

    Rows with a missing value are counted and left out of all that follows.
    """

    def __init__(self) -> None:
        self.rows = self.incomplete = 0
        self._holes: dict[str, int] = {}  # missing values a column
        self._hole: tuple[str, int] | None = None  # the first
        self._infinite: dict[str, tuple[int, int]] = {}  # how many, and the first row
        self._first: dict[str, float] = {}
        self._constant: dict[str, bool] = {}
        self._counting: dict[str, bool] = {}

    @property
    def kept(self) -> int:
        """Rows without a missing value."""
        return self.rows - self.incomplete

    def add(self, columns: dict[str, Floats]) -> NDArray[np.bool_]:
        """Look at the next rows; which of them [n] are whole."""
        missing = {column: np.isnan(values) for column, values in columns.items()}
        incomplete = np.logical_or.reduce(list(missing.values()))
        for column, holes in missing.items():
            self._holes[column] = self._holes.get(column, 0) + int(holes.sum())
        if self._hole is None and incomplete.any():
            row = int(np.argmax(incomplete))
            self._hole = next(column for column, holes in missing.items() if holes[row]), self.rows + row
        for column, values in columns.items():
            self._look(column, values[~incomplete])
        self.rows, self.incomplete = self.rows + len(incomplete), self.incomplete + int(incomplete.sum())
        return np.asarray(~incomplete)

    def _look(self, column: str, values: Floats) -> None:
        """Infinities, and columns that never change or only count."""
        if not len(values):
            return
        infinite = np.abs(values) > LARGEST
        if infinite.any():
            many, first = self._infinite.get(column, (0, self.kept + int(np.argmax(infinite))))
            self._infinite[column] = many + int(infinite.sum()), first
            return
        first_value = self._first.setdefault(column, float(values[0]))
        self._constant[column] = self._constant.get(column, True) and bool((values == first_value).all())
        if self._counting.get(column, True):
            rows = np.arange(self.kept, self.kept + len(values), dtype=float)
            self._counting[column] = bool(np.array_equal(values - first_value, rows))

    def refuse(self, name: str, target: str, missing: str) -> None:
        """Refuse missing values unless `missing` is "drop", then few rows, infinities and a constant target."""
        if missing == "refuse":
            self._refuse_missing(name)
        refuse_few_rows(name, self.kept, self.incomplete)
        self._refuse_infinite(name)
        if self._constant[target]:
            raise DataError(
                f"{name}: the target {quote(target)} is {self._first[target]:g} in all {count(self.kept, 'row')}, so "
                "there is nothing to learn: choose another target."
            )

    def _refuse_missing(self, name: str) -> None:
        """NaN or empty cells: how many, in which columns, first where."""
        if self._hole is None:
            return
        holes = {column: number for column, number in self._holes.items() if number}
        others = f" (in {listing(holes, 5)})" if len(holes) > 1 else ""
        column, row = self._hole
        raise DataError(
            f"{name} has {count(sum(holes.values()), 'missing value')}{others} in {count(self.incomplete, 'row')} of "
            f"{self.rows:,}, the first in column {quote(column)}, row {row + 1}: "
            'drop those rows with missing="drop", or fill them in.'
        )

    def _refuse_infinite(self, name: str) -> None:
        """Infinities, and numbers too large to be squared."""
        for column, (many, first) in self._infinite.items():
            raise DataError(
                f"{name} has {count(many, 'infinite value')} in column {quote(column)}, the first in "
                f"row {first + 1} (infinite, or beyond {LARGEST:g}, whose square no 64-bit number holds): "
                "correct or remove those rows."
            )

    @property
    def dropped(self) -> tuple[str, ...]:
        """A note on rows left out, where there are any."""
        verb = "was" if self.incomplete == 1 else "were"
        note = f"{count(self.incomplete, 'row')} of {self.rows:,} had a missing value and {verb} left out."
        return (note,) if self.incomplete else ()

    def notes_on(self, inputs: tuple[str, ...]) -> tuple[str, ...]:
        """What is allowed but should be known: constant inputs, and inputs that only number the rows."""
        constant = [c for c in inputs if self._constant[c]]
        counting = [c for c in inputs if len(inputs) > 1 and self._counting[c]]
        notes = []
        if constant:
            verb = "is" if len(constant) == 1 else "are"
            notes.append(
                f"{listing(constant)} {verb} constant: kept, but an input that never changes explains nothing."
            )
        if counting:
            verb = "only counts" if len(counting) == 1 else "only count"
            notes.append(f"{listing(counting)} {verb} the rows: leave out what is no more than a row number.")
        return tuple(notes)


def refuse_few_rows(name: str, rows: int, dropped: int = 0) -> None:
    """Refuse a table with too few rows to train and to test on."""
    if rows < MIN_ROWS:
        left = f" after {count(dropped, 'row')} with missing values were dropped" if dropped else ""
        raise DataError(f"{name} has {count(rows, 'row')}{left}; at least {MIN_ROWS} are needed to train and to test.")
