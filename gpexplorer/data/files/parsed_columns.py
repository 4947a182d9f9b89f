"""What is taken from a table: its columns as they were read, and the numbers of the chosen ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..reader.column_cells import Cells, ColumnReader
from ..reader.column_reader import column_reader
from ..reader.learned_columns import of_levels, relearned
from ..reader.table_reader import TableReader
from ..table_checks import Floats


class Numbers(NamedTuple):
    """Finite numbers in the units of the file: X [n, d] or n texts, y [n], column names, and notes for the user.

    Columns of text beside those of X are in `texts`; their names stand behind those of X. `reader` has read the table;
    it has not seen the targets yet (see `reader.target_statistics`). `cells` [n, s] are those of its sources, as
    numbers, days, hours or numbers of words, with NaN for a gap; None if they are the inputs themselves.
    """

    X: Floats | list[str]
    y: Floats
    names: tuple[str, ...]
    target: str
    notes: tuple[str, ...]
    kept: NDArray[np.bool_]  # [rows of the table]: False where a row was left out
    texts: tuple[tuple[str, ...], ...] = ()
    groups: tuple[str, ...] = ()  # the group of each row, if the choice names a column of them
    reader: TableReader | None = None
    cells: Floats | None = None


class Column(NamedTuple):
    """How a column is read, and its cells."""

    reader: ColumnReader
    cells: Cells

    @property
    def is_number(self) -> bool:
        """Whether the column can be a target."""
        return self.reader.is_number and self.has_any

    @property
    def is_full_of_numbers(self) -> bool:
        """Whether every cell is a number, or yes or no."""
        return self.reader.kind in ("number", "yes/no") and not self.cells.gap.any()

    @property
    def has_any(self) -> bool:
        """Whether there is a cell that is no gap."""
        return not self.cells.gap.all()

    def of_rows(self, rows: NDArray[np.bool_]) -> Column:
        """These rows [n] of the column alone, and a reader that knows no others."""
        reader, cells = relearned(self.reader, self.cells, rows)
        if reader.kind == "words":
            reader = of_levels(reader, int(rows.sum()))
        return Column(reader, cells.of_rows(rows))

    @property
    def first(self) -> str:
        """A cell that is no number, for a message; "" if there is none."""
        if self.reader.examples:
            return self.reader.examples[0][1]
        return self.reader.levels.names[0] if self.reader.levels.names else ""


def parsed(name: str, column: pa.ChunkedArray, asked: str = "", decimal: str = "") -> Column:
    """Decide how a column is read, and read it."""
    reader = column_reader(name, column, asked, decimal)
    return Column(reader, reader.cells(column))
