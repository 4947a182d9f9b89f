"""Tables and arrays in memory become named columns, in the same form as those of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import DataError
from .files.containers import native
from .files.reading import Raw
from .quoting import quote

if TYPE_CHECKING:
    from pandas import DataFrame

TABLE, ARRAYS = "the table", "the pair (X, y)"
OBJECT = "object"


def from_frame(frame: DataFrame) -> Raw:
    """Convert a DataFrame, column by column. Its index is not a column."""
    names = [str(name) for name in frame.columns]
    duplicates = [name for name, occurrences in Counter(names).items() if occurrences > 1]
    if duplicates:
        raise DataError(f"{TABLE} has the column {quote(duplicates[0])} more than once: give each its own name.")
    columns = {name: as_column(TABLE, name, frame.iloc[:, i].to_numpy()) for i, name in enumerate(names)}
    return Raw(pa.table(columns), TABLE, ())


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
    if _is_texts(X):
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
            f"{ARRAYS}: X has {rows} rows and y shape {values.shape}; y must be [n] with one value per row of X."
        )
    if target in inputs:
        target = f"{target} (target)"
    table = pa.table({**inputs, target: as_column(ARRAYS, target, values)})
    return Raw(table, ARRAYS, ()), target, OBJECT if OBJECT in inputs and _is_texts(X) else None


def as_column(name: str, column: str, values: NDArray[Any]) -> pa.Array:
    """Convert one column: numbers stay numbers, and everything else becomes text that error messages can quote."""
    values, kind = native(values), values.dtype.kind
    if kind == "c":
        raise DataError(
            f"{name}: column {quote(column)} contains complex numbers: give real and imaginary parts as columns."
        )
    if kind in "biu":
        return pa.array(values)
    if kind == "f":
        return pa.array(values.astype(np.float64, copy=False))
    if kind in "mM":  # as text of dates: tolist would turn some of them into numbers
        return pa.array(values.astype(str), pa.string())
    return pa.array([None if _is_missing(value) else str(value) for value in values.tolist()], pa.string())


def _is_missing(value: object) -> bool:
    not_a_number = isinstance(value, Number) and bool(value != value)
    return value is None or not_a_number or type(value).__name__ in ("NAType", "NaTType")


def _is_texts(X: Any) -> bool:
    """Whether X contains one text per row: a sequence, an array [n] or a Series of them."""
    one_dimensional = isinstance(X, Sequence) or getattr(X, "ndim", 0) == 1
    return one_dimensional and len(X) > 0 and all(isinstance(text, str) for text in X)


def _matrix(X: Any) -> NDArray[Any]:
    matrix = _array("X", X)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise DataError(f"{ARRAYS}: X has shape {matrix.shape}; it must be [n, d] with at least one column, or [n].")
    return matrix


def _array(name: str, values: Any) -> NDArray[Any]:
    if hasattr(values, "detach"):
        values = values.detach().cpu().to_dense().resolve_conj().resolve_neg()
        values = values.double() if values.is_floating_point() else values
    try:
        masked = isinstance(values, np.ma.MaskedArray)
        array = np.ma.filled(values.astype(np.float64), np.nan) if masked else np.asarray(values)
    except ValueError as error:
        raise DataError(
            f"{ARRAYS}: the rows may differ in length: {quote(error, 120)}. Give every row the same number of values."
        ) from None
    if array.ndim == 0:
        dense = ", such as its toarray()" if hasattr(values, "toarray") else ""
        raise DataError(f"{ARRAYS}: {name} is a {type(values).__name__} and not rows of numbers: give an array{dense}.")
    return array
