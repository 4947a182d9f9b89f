"""New rows as a model reads them: by its reader, or by the names of its inputs, such as "colour = red" in "colour".

A model of arrays has no reader. The format of each column is then decided from the new rows, because nothing else is
known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...errors import DataError
from ..quoting import display_name, quote
from ..reader.cells import as_they_are, is_text, plain, texts_of
from ..reader.column_names import named_as, note_on_position
from ..reader.column_reader import column_reader
from ..reader.input_columns import LEVEL
from ..reader.table_reader import RowsRead, TableReader
from ..reader.words import Levels
from ..table_checks import Floats
from .reading import Raw, strips

STRIP_ROWS = 50_000


class ModelInputs(NamedTuple):
    """The inputs of a model.

    Attributes
    ----------
    numbers, texts : tuple of str
        The names of its columns of numbers, none for a model of arrays without names, and of its columns of text.
    d : int
        The number of columns of numbers.
    reader : TableReader or None
        How the table of training was read.
    """

    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    d: int = 0
    reader: TableReader | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns that a new file may have for them."""
        if self.reader is not None:
            return self.reader.sources
        return (*self.numbers, *(name.partition(LEVEL)[0] for name in self.numbers), *self.texts)


def strips_read(
    path: Path, inputs: ModelInputs, rows: int = STRIP_ROWS, also: Sequence[str] = ()
) -> Iterator[tuple[RowsRead, pa.Table]]:
    """Read the rows of a file as a model does, strip by strip.

    Parameters
    ----------
    path : Path
        A text, Parquet or NPZ file. One of several strips with columns of text is read twice.
    rows : int
        Rows of a strip; see `strips`.
    also : sequence of str
        Other columns that are needed.

    Yields
    ------
    tuple of RowsRead and Table
        The inputs of a strip, and its cells.

    Raises
    ------
    DataError
        If the file cannot be read, or a column is missing.
    """
    name, needed, contradicted = display_name(path.name), (*inputs.sources, *also), set[str]()
    first = list(islice(strips(path, rows, needed), 2))
    if inputs.reader is not None and len(first) > 1 and any(is_text(plain(c).type) for c in first[0].table.columns):
        for strip in strips(path, rows, needed):
            contradicted |= inputs.reader.contradicted_by(strip.table, name)
    for strip in strips(path, rows, needed) if len(first) > 1 else first:
        yield rows_read(inputs, strip, contradicted), strip.table


def target_values(reader: TableReader | None, target: str, name: str, table: pa.Table) -> Floats:
    """The targets [n] of new rows, read as in training; NaN where a cell is missing or is no number."""
    if reader is None:
        return as_inputs(name, table, [target])[:, 0]
    table, _ = named_as([reader.target], table, name)
    return reader.target.cells(table[target]).values


def rows_read(inputs: ModelInputs, raw: Raw, contradicted: Collection[str] = ()) -> RowsRead:
    """New rows as a model reads them: by its reader, or by the names of its inputs if it has none.

    The notes of the file are those of the rows, too.

    A table that shares no name with a model of numbers is taken by position, if it has as many columns.

    Parameters
    ----------
    raw : Raw
        The file.
    contradicted : collection of str
        As for `TableReader.read`.

    Raises
    ------
    DataError
        If a column is missing.
    """
    table, name = raw.table, raw.name
    if inputs.reader is not None:
        rows = inputs.reader.read(table, name, contradicted)
        return rows._replace(notes=raw.notes + rows.notes)
    titles, notes = [str(title) for title in table.column_names], list(raw.notes)
    names: Sequence[str] = inputs.numbers or titles[: inputs.d]
    if not inputs.texts and not set(inputs.sources) & set(titles) and len(titles) == inputs.d:
        notes += filter(None, [note_on_position(name, titles, inputs.numbers)])
        names = titles
    X, texts = as_inputs(name, table, names), [_texts(name, table, column) for column in inputs.texts]
    return rows_without_reader(X, texts, (*names, *inputs.texts))._replace(notes=tuple(notes))


def rows_without_reader(X: Floats, texts: Sequence[Sequence[str]] = (), names: Sequence[str] = ()) -> RowsRead:
    """Numbers [t, d] and columns of t texts as rows that were read; those with NaN or "" have no answer."""
    present = np.column_stack(
        [np.isfinite(X), *(np.array([bool(text) for text in column], dtype=bool) for column in texts)]
    )
    answered, lost = np.asarray(present.all(1)), present.argmin(1)
    says = [f"a missing or unreadable cell{f': {names[k]}' if names else ''}" for k in range(present.shape[1])]
    why = tuple("" if ok else says[k] for ok, k in zip(answered, lost, strict=True))
    return RowsRead(X, tuple(map(tuple, texts)), why, answered, {})


def _texts(name: str, table: pa.Table, column: str) -> list[str]:
    """One column of a new file as t texts, "" where a cell is missing; DataError if the file does not have it."""
    if column not in table.column_names:
        raise DataError(f"{name} has no column {quote(column)}: give the texts under their name in training.")
    return as_they_are(table[column])


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
        if reader.kind == "words" or reader.dates.compact:  # the cells that are numbers are, 20210301 as well
            reader = column_reader(title, table[title], "number")
        return reader.cells(table[title]).values
    base, mark, level = title.partition(LEVEL)
    if not mark or base not in table.column_names:
        present = ", ".join(map(quote, table.column_names[:12]))
        raise DataError(
            f"{name} has no column {quote(base if mark else title)} but {present}: give all training columns."
        )
    places = Levels((level,), (1,)).places(texts_of(table[base]))
    return np.where(np.isnan(places), np.nan, places == 0.0)
