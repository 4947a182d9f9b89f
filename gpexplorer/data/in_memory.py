"""Tables and arrays in memory become named columns, in the same form as those of a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from numbers import Number, Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import DataError
from .files.containers import native, refuse_duplicates, without_index, without_views
from .files.reading import Raw
from .quoting import quote
from .reader.cells import cleaned, is_missing
from .reader.number_format import NumberFormat, number_format

if TYPE_CHECKING:
    from torch import Tensor

TABLE, ARRAYS = "the table", "the pair (X, y)"
OBJECT = "object"
NO_MARKS: Mapping[str, str] = MappingProxyType({})


def from_frame(frame: Any, also: Collection[str] = ()) -> Raw:
    """A table of any library, with a note if it has an index that may be meant as a column.

    An index that is named in `also` is a column, and so is one that has names or dates beside a single column, as in a
    Parquet file.
    """
    index, is_meant = index_of(frame), _has_meaning(frame)
    kept = [title for title in index if title in also or (is_meant and len(frame.columns) == 1)]
    table = table_of(frame, kept)
    columns, note = without_index(table.schema, also)  # Arrow's tables have that of pandas among their columns
    note = () if {*kept, *also} & set(index) else _note_on_index(frame) + note
    return Raw(table.select(columns), TABLE, note)


def index_of(frame: Any) -> dict[str, Any]:
    """The parts of the index of a DataFrame by their names, "index" if there is none; nothing for other tables."""
    index = frame.index if hasattr(frame, "iloc") else None
    if index is None:
        return {}
    return {"index" if name is None else str(name): index.get_level_values(k) for k, name in enumerate(index.names)}


def _has_meaning(frame: Any) -> bool:
    """Whether every part of the index has a name, dates, periods or durations; false for tables without one."""
    parts = index_of(frame).values()
    return bool(parts) and all(
        part.name is not None or part.dtype.kind in "mM" or hasattr(part.dtype, "freq") for part in parts
    )


def _note_on_index(frame: Any) -> tuple[str, ...]:
    """A note if the index has a name or dates, and so may be meant as a column."""
    index = frame.index if hasattr(frame, "iloc") else None
    if index is None or (all(name is None for name in index.names) and index.dtype.kind not in "mM"):
        return ()
    title = quote(", ".join(map(str, filter(None, index.names))) or str(index.dtype))
    return (f"The index of the table ({title}) is no column: frame.reset_index() makes it one.",)


def is_frame(X: Any) -> bool:
    """Whether X is a table with named columns: of pandas, polars, pyarrow, or another library that lends Arrow's.

    Raises
    ------
    DataError
        If it is a table that is not computed yet, such as a LazyFrame.
    """
    if hasattr(type(X), "collect") and hasattr(type(X), "columns"):  # asking the object would resolve its columns
        raise DataError(f"A {type(X).__name__} has no rows yet: give its collect().")
    return hasattr(X, "__arrow_c_stream__") and (hasattr(X, "columns") or hasattr(X, "column_names"))


def column_titles(frame: Any) -> list[str]:
    """The names of the columns of a table of any library."""
    titles = frame.column_names if hasattr(frame, "column_names") else frame.columns
    return [str(title) for title in titles]


def table_of(frame: Any, index: Collection[str] = (), marks: Mapping[str, str] = NO_MARKS) -> pa.Table:
    """A table of any library as Arrow's; the parts of the index of a DataFrame with these names are columns, too.

    Numbers among texts are written with the mark of their column before the decimals; see `as_column`.
    """
    refuse_duplicates(TABLE, column_titles(frame))
    if hasattr(frame, "iloc"):  # column by column
        names = [str(name) for name in frame.columns]
        parts = {title: part.to_series() for title, part in index_of(frame).items() if title in {*index} - {*names}}
        series = parts | {name: frame.iloc[:, i] for i, name in enumerate(names)}
        return pa.table({name: _of_series(name, column, marks.get(name, "")) for name, column in series.items()})
    try:
        return without_views(pa.table(frame))
    except pa.ArrowException as error:
        raise DataError(f"{TABLE} has a column of a type that Arrow does not know: {quote(error, 80)}.") from None


def _of_series(name: str, series: Any, mark: str) -> pa.ChunkedArray | pa.Array:
    """A column of a DataFrame; what its library hides in objects, such as dates and decimals, is read as what it is."""
    values = series.to_numpy() if series.dtype.kind in "biufcSU" else None
    if values is not None and values.dtype != object:
        return as_column(TABLE, name, values)
    if series.dtype != object:
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            column = pa.Array.from_pandas(series)
            if not isinstance(getattr(column.type, "value_type", column.type), pa.BaseExtensionType):
                return column  # periods and intervals become texts
    return as_column(TABLE, name, series.to_numpy(dtype=object), mark)


def from_arrays(X: Any, y: Any) -> tuple[Raw, str, str | None]:
    """Convert inputs and targets to a table.

    Parameters
    ----------
    X : array-like [n, d] or [n], or sequence of str
        Inputs: a NumPy array, tensor, list, DataFrame or Series. Masked entries count as missing.
    y : array-like [n] or [n, 1]
        Targets.

    Returns
    -------
    raw : Raw
        The table. Column names are kept if there are any; otherwise they are x0, x1, ...
    target : str
        Name of the column of targets.
    objects : str or None
        Name of the column of texts, if X contains texts.

    Raises
    ------
    DataError
        If the shapes do not fit, or if an array does not contain real numbers.
    """
    target = str(getattr(y, "name", None) or "y")
    names = [str(name) for name in getattr(X, "columns", ())]
    if is_frame(X):
        table = table_of(X)
        inputs = dict(zip(map(str, table.column_names), table.columns, strict=True))
    elif is_texts(X):
        inputs = {OBJECT: pa.array([str(text) for text in X])}
    else:
        matrix = _matrix(X)
        names = names or [f"x{i}" for i in range(matrix.shape[1])]
        inputs = {name: as_column(ARRAYS, name, matrix[:, i]) for i, name in enumerate(names)}
        if len(inputs) < matrix.shape[1]:
            raise DataError(f"{ARRAYS}: X has a column name more than once: give each its own name.")
    values = _array("y", y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    rows = len(next(iter(inputs.values()))) if inputs else 0
    if values.ndim != 1 or len(values) != rows or not rows:
        raise DataError(
            f"{ARRAYS}: X has {rows:,} rows and y shape {values.shape}; y must be [n] with one value per row of X."
        )
    refuse_other_order(ARRAYS, X, "y", y)
    if target in inputs:
        target = f"{target} (target)"
    table = pa.table({**inputs, target: as_column(ARRAYS, target, values)})
    objects = OBJECT if OBJECT in inputs and not is_frame(X) and is_texts(X) else None
    return Raw(table, ARRAYS, _note_on_index(X)), target, objects


def refuse_other_order(source: str, X: Any, name: str, values: Any) -> None:
    """Raise DataError if values per row have the index of a frame X in another order."""
    has_indices = hasattr(X, "iloc") and hasattr(values, "iloc") and X.index.is_unique
    if has_indices and not X.index.equals(values.index) and X.index.difference(values.index, sort=False).empty:
        raise DataError(
            f"{source}: {name} has the index of X in another order: give {name}.loc[X.index], or arrays of both."
        )


def array_table(X: Any, names: Sequence[str] = (), marks: Mapping[str, str] = NO_MARKS) -> pa.Table | None:
    """The columns of an array that contains dates, durations or words.

    Parameters
    ----------
    X : object
        Anything that may be inputs.
    names : sequence of d str, optional
        The names of its columns; by default x0, x1, ...
    marks : mapping of str to {".", ","}, optional
        The mark before the decimals in texts of columns that training has as numbers.

    Returns
    -------
    Table or None
        None if X contains numbers alone, or is no array [n, d], or is a sequence of texts for a kernel on texts.

    Raises
    ------
    DataError
        If NumPy has made texts of numbers that may be meant otherwise; see `_of_numpy_texts`.
    """
    if not isinstance(X, np.ndarray | list | tuple) or is_texts(X):
        return None
    try:
        values = np.asarray(plain_array(X))
        if values.dtype.kind in "US" and not isinstance(X, np.ndarray):  # rows of numbers and texts stay such rows
            values = np.array(X, dtype=object).reshape(values.shape)
    except ValueError:  # rows of different lengths
        return None
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or not values.size or _are_numbers(values) or len(names) not in (0, values.shape[1]):
        return None
    names = names or [f"x{i}" for i in range(values.shape[1])]
    as_texts = values.dtype.kind == "U"
    return pa.table({
        name: _of_numpy_texts(name, values[:, i]) if as_texts and marks.get(name) == "," else
        as_column(ARRAYS, name, values[:, i], marks.get(name, "")) for i, name in enumerate(names)
    })  # fmt: skip


def _of_numpy_texts(name: str, values: NDArray[Any]) -> pa.Array:
    """A column of an array of texts, where training has decimal commas.

    NumPy makes the text 1.234 of the number, which is 1234 in such a file. The column has numbers if a cell such as
    1.5 is none of such a file, and is refused if all cells with a point may be meant both ways.
    """
    texts, form = values.tolist(), NumberFormat(",")
    try:
        numbers = values.astype(np.float64)
    except ValueError:  # as of 2,5
        return pa.array(texts)
    meanings = [(text, number, form.number(text)) for text, number in zip(texts, numbers.tolist(), strict=True)]
    if any(meant is None and number == number for _, number, meant in meanings):
        return pa.array(numbers)
    text = next((text for text, number, meant in meanings if meant is not None and meant != number), None)
    if text is None:
        return pa.array(texts)
    raise DataError(
        f"An array of texts has {quote(text)} in column {quote(name)}, which may be a number with decimals or, as in "
        "training, one with thousands: give a list of rows, an array with dtype=object, or a DataFrame."
    )


def _are_numbers(values: NDArray[Any]) -> bool:
    """Whether all entries are numbers, texts of numbers, missing, or objects that are neither texts nor dates."""
    if values.dtype.kind not in "mMOUS":
        return True
    if values.dtype.kind in "mM":
        return False
    if any(not isinstance(cell, str | bytes | date | np.datetime64 | Number | None) for cell in values.flat):
        return True
    cells = [np.nan if cell is None else cell for cell in values.flat]
    try:
        np.array(cells, dtype=object).astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def as_column(name: str, column: str, values: NDArray[Any], mark: str = "") -> pa.Array:
    """Convert one column: numbers stay numbers, and everything else becomes text that error messages can quote.

    Numbers among texts are written with this mark before the decimals, or else with that of the texts, so that 1.234
    beside the texts 2,5 and 3,75 is not taken for 1234.
    """
    values, kind = native(values), values.dtype.kind
    if kind == "c":
        raise DataError(
            f"{name}: column {quote(column)} contains complex numbers: give real and imaginary parts as columns."
        )
    if kind in "biu":
        return pa.array(values)
    if kind == "f":
        return pa.array(values.astype(np.float64, copy=False))
    if kind == "M":
        return pa.array(values.astype("datetime64[us]"))
    if kind == "m":
        return pa.array(values.astype("timedelta64[us]"))
    return _of_objects([None if _is_missing(value) else value for value in list(values)], mark)


def _of_objects(cells: list[Any], mark: str) -> pa.Array:
    """Objects of Python: numbers and dates if all of them are, else texts; see `as_column`."""
    cells = [cell.decode(errors="replace") if isinstance(cell, bytes) else cell for cell in cells]
    present = [cell for cell in cells if cell is not None]
    if present and all(isinstance(cell, bool | np.bool_) for cell in present):
        return pa.array([None if cell is None else bool(cell) for cell in cells])
    if present and all(isinstance(cell, Number) and not isinstance(cell, complex) for cell in present):
        return pa.array([None if cell is None else float(cell) for cell in cells], pa.float64())
    if present and all(isinstance(cell, date | np.datetime64) for cell in present):
        if any(getattr(cell, "tzinfo", None) is not None for cell in present):  # texts keep the offset of each
            return pa.array([None if cell is None else _iso(cell) for cell in cells], pa.string())
        stamps = [None if cell is None else _stamp(cell) for cell in cells]
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return pa.array(stamps, pa.timestamp("us"))
    if not mark:
        form = number_format(cleaned(cell) for cell in present if isinstance(cell, str) and not is_missing(cell))
        mark = form.decimal if form is not None and form.evidence == "sure" else "."
    written = [
        str(cell).replace(".", mark) if isinstance(cell, Real | Decimal) else cell if cell is None else str(cell)
        for cell in cells
    ]
    return pa.array(written, pa.string())


def _iso(cell: Any) -> str:
    """A date as a text such as 2021-03-01T06:30:00+02:00."""
    return str(cell) if isinstance(cell, np.datetime64) else str(cell.isoformat())


def _stamp(cell: Any) -> Any:
    """A date without a zone as a moment."""
    if isinstance(cell, np.datetime64):
        return cell.astype("datetime64[us]").astype(object)
    return cell if isinstance(cell, datetime) else datetime(cell.year, cell.month, cell.day)


def _is_missing(value: object) -> bool:
    not_a_number = isinstance(value, Number) and bool(value != value)
    return value is None or not_a_number or type(value).__name__ in ("NAType", "NaTType")


def is_texts(X: Any) -> bool:
    """Return whether X contains one text per row: a sequence, an array [n] or a Series of them."""
    one_dimensional = (isinstance(X, Sequence) and not isinstance(X, str)) or getattr(X, "ndim", 0) == 1
    return one_dimensional and len(X) > 0 and all(isinstance(text, str) for text in X)


def _matrix(X: Any) -> NDArray[Any]:
    matrix = _array("X", X)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise DataError(f"{ARRAYS}: X has shape {matrix.shape}; it must be [n, d] with at least one column, or [n].")
    return matrix


def plain_array(values: Any) -> Any:
    """Return a tensor as an array, also of another device, sparse or with a gradient, and other values as they are.

    Masked entries of an array are missing.
    """
    if isinstance(values, np.ma.MaskedArray):
        kind, mask = values.dtype.kind, np.ma.getmaskarray(values)
        gap: Any = np.nan if kind in "biufc" else np.array("NaT", values.dtype) if kind in "mM" else None
        return np.where(mask, gap, values.data) if mask.any() else values.data
    if not hasattr(values, "detach"):
        return values
    values = with_values(values.detach()).cpu().resolve_conj().resolve_neg()
    return (values.double() if values.is_floating_point() else values).numpy()


def with_values(values: Tensor) -> Tensor:
    """Return a tensor with all its entries, also those of a sparse one; DataError if it has none."""
    if values.is_meta:
        shape = list(values.shape)
        raise DataError(f'A tensor of shape {shape} on the device "meta" has no values: give one that has.')
    return values.to_dense()


def _array(name: str, values: Any) -> NDArray[Any]:
    values = plain_array(values)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(
            f"{ARRAYS}: the rows may differ in length: {quote(error, 120)}. Give every row the same number of values."
        ) from None
    if array.ndim == 0:
        dense = ", such as its toarray()" if hasattr(values, "toarray") else ""
        raise DataError(f"{ARRAYS}: {name} is a {type(values).__name__} and not rows of numbers: give an array{dense}.")
    return array
