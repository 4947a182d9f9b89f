"""What a table of numbers must be before anything runs; each refusal names the column, the row and the way out.

Rows are counted from 1 in every sentence, the header not counted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .wording import count, listing, quote

Floats = NDArray[np.float64]
MIN_ROWS = 3


def rows_with_missing(columns: dict[str, Floats]) -> NDArray[np.bool_]:
    """Which rows [n] have a NaN in any of these columns."""
    missing = np.zeros(len(next(iter(columns.values()))), dtype=bool)
    for values in columns.values():
        missing |= np.isnan(values)
    return missing


def refuse_missing(name: str, columns: dict[str, Floats]) -> None:
    """Refuse NaN or empty cells: how many, in which columns, first where."""
    counts = {column: int(np.isnan(values).sum()) for column, values in columns.items()}
    holes = {column: number for column, number in counts.items() if number}
    if not holes:
        return
    rows = rows_with_missing(columns)
    first = int(np.argmax(rows))
    column = next(c for c in holes if np.isnan(columns[c][first]))
    others = f" (in {listing(holes, 5)})" if len(holes) > 1 else ""
    raise DataError(
        f"{name} has {count(sum(holes.values()), 'missing value')}{others} in {count(int(rows.sum()), 'row')} of "
        f"{len(rows):,}, the first in column {quote(column)}, row {first + 1}: "
        'drop those rows with missing="drop", or fill them in.'
    )


def refuse_infinite(name: str, columns: dict[str, Floats]) -> None:
    """Refuse infinities, among them numbers too large for 64 bits."""
    for column, values in columns.items():
        infinite = np.isinf(values)
        if infinite.any():
            raise DataError(
                f"{name} has {count(int(infinite.sum()), 'infinite value')} in column {quote(column)}, the first in "
                f"row {int(np.argmax(infinite)) + 1} (infinite, or larger than the 1.8e308 a 64-bit number holds): "
                "correct or remove those rows."
            )


def refuse_few_rows(name: str, rows: int, dropped: int = 0) -> None:
    """Refuse a table with too few rows to train and to test on."""
    if rows < MIN_ROWS:
        left = f" after {count(dropped, 'row')} with missing values were dropped" if dropped else ""
        raise DataError(f"{name} has {count(rows, 'row')}{left}; at least {MIN_ROWS} are needed to train and to test.")


def refuse_constant_target(name: str, target: str, y: Floats) -> None:
    """Refuse a target that never changes."""
    if (y == y[0]).all():
        raise DataError(
            f"{name}: the target {quote(target)} is {y[0]:g} in all {count(len(y), 'row')}, so there is nothing to "
            "learn: choose another target."
        )


def notes_on_inputs(columns: dict[str, Floats]) -> tuple[str, ...]:
    """What is allowed but should be known: constant inputs, and inputs that only number the rows."""
    constant = [c for c, values in columns.items() if (values == values[0]).all()]
    rows = np.arange(len(next(iter(columns.values()))), dtype=float)
    counting = [c for c, values in columns.items() if len(columns) > 1 and np.array_equal(values - values[0], rows)]
    notes = []
    if constant:
        verb = "is" if len(constant) == 1 else "are"
        notes.append(f"{listing(constant)} {verb} constant: kept, but an input that never changes explains nothing.")
    if counting:
        verb = "only counts" if len(counting) == 1 else "only count"
        notes.append(f"{listing(counting)} {verb} the rows: leave out what is no more than a row number.")
    return tuple(notes)
