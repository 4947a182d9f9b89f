"""New rows for a model without a reader: its inputs are found by their names, such as "colour = red" in "colour".

The format of each column is then decided from the new rows, because nothing else is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...errors import DataError
from ..quoting import quote
from ..reader.cells import texts_of
from ..reader.column_reader import column_reader
from ..reader.input_columns import LEVEL
from ..reader.words import Levels
from ..table_checks import Floats


def inputs_for(name: str, table: pa.Table, names: Sequence[str], d: int, numeric: bool) -> Floats | list[str]:
    """The inputs of a model in a table: numbers [t, d] with NaN for what is missing, or t texts.

    A table that shares no name with the model is taken by position, if it has d columns; DataError as for `as_inputs`.
    """
    titles = [str(title) for title in table.column_names]
    if not numeric:
        return text_inputs(name, table, names[0])
    columns = list(names) or titles[:d]
    source_columns = {title.partition(LEVEL)[0] for title in columns} | set(columns)
    if not source_columns & set(titles) and len(titles) == d:
        columns = titles
    return as_inputs(name, table, columns)


def text_inputs(name: str, table: pa.Table, column: str) -> list[str]:
    """One column of a new file as t texts, "" where a cell is missing; DataError if the file does not have it."""
    if column not in table.column_names:
        raise DataError(f"{name} has no column {quote(column)}: give the texts under their name in training.")
    return ["" if text is None else str(text).strip() for text in table[column].to_pylist()]


def as_inputs(name: str, table: pa.Table, columns: Sequence[str]) -> Floats:
    """The rows of a new file as the columns that a model was trained on.

    Parameters
    ----------
    name : str
        The file, for messages.
    table : Table
        Its cells.
    columns : sequence of d str
        The inputs of the model. "colour = red" is made from a column "colour".

    Returns
    -------
    array [t, d]
        NaN where a cell is missing or is no number.

    Raises
    ------
    DataError
        If a column is missing.
    """
    cells = [_input(name, table, column) for column in columns]
    return np.column_stack(cells) if cells else np.zeros((table.num_rows, 0))


def _input(name: str, table: pa.Table, title: str) -> Floats:
    if title in table.column_names:
        reader = column_reader(title, table[title])
        if reader.kind == "words":  # at most half of its cells are numbers; those are
            reader = column_reader(title, table[title], "number")
        return reader.cells(table[title]).values
    base, mark, level = title.partition(LEVEL)
    if not mark or base not in table.column_names:
        present = ", ".join(map(quote, table.column_names[:12]))
        raise DataError(
            f"{name} has no column {quote(base if mark else title)} but {present}: give every column trained on."
        )
    places = Levels((level,), (1,)).places(texts_of(table[base]))
    return np.where(np.isnan(places), np.nan, places == 0.0)
