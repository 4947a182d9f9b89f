"""Conversion between the units of the file and the scaled space in which methods work.

    x = (x_file - x_mean) / x_sd,   y = (T(y_file) - y_mean) / y_sd

T is the transform of the target, if there is one; inputs may be logarithms. The means and standard deviations are those
of the training rows (`problem.Scale`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from ..problem import Dataset, MixedRows
from .in_memory import column_titles, is_frame, table_of
from .standardising import scaled_target

if TYPE_CHECKING:
    import pandas as pd


def inputs(X: Any, train: Dataset) -> Any:
    """Convert inputs to the scaled space, on the device and in the precision of the training rows.

    The arguments and errors are those of `checked_inputs`.
    """
    return scaled_inputs(checked_inputs(X, train), train)


def checked_inputs(X: Any, train: Dataset) -> Any:
    """Return inputs as float64 rows in the units of the file, on the device of the training rows.

    Parameters
    ----------
    X : tensor, array, frame or sequence
        Inputs [t, d] in the units of the file. A frame must have the training columns; it is read as the table of
        training was, if the rows of training came from a table. Rows of numbers and texts may
        also be a sequence of rows. A sequence of objects, for a discrete kernel, is returned as it is.
    train : Dataset
        The scaled training rows.

    Raises
    ------
    DataError
        If X does not hold rows of d finite numbers.
    """
    if train.reader is not None and is_frame(X) and set(train.reader.sources) <= set(column_titles(X)):
        read = train.reader.inputs_of(table_of(X))
        X = MixedRows(torch.from_numpy(read.X), read.texts) if read.texts else torch.from_numpy(read.X)
        X = list(read.texts[0]) if not isinstance(train.X, Tensor | MixedRows) else X
    if isinstance(train.X, MixedRows):
        return _mixed_rows(X, train)
    if not isinstance(train.X, Tensor):
        return X
    import pandas as pd

    X = _training_columns(X, train.names) if isinstance(X, pd.DataFrame) else X
    X = _numbers(X).to(train.X.device, torch.float64)
    if X.ndim != 2 or X.shape[1] != train.d:
        raise DataError(f"Inputs have shape {list(X.shape)}; the training data need [rows, {train.d}].")
    if not bool(X.isfinite().all()):
        rows = int((~X.isfinite()).any(1).sum())
        raise DataError(f"Inputs have missing or infinite values in {rows} of {len(X)} rows: leave these out.")
    return X


def scaled_inputs(X: Any, train: Dataset) -> Any:
    """Convert checked inputs to the scaled space, in the precision of the training rows; objects do not change."""
    if isinstance(X, MixedRows):
        return X.with_numbers(scaled_inputs(X.numbers, train))
    if not isinstance(X, Tensor):
        return X
    if train.scale is not None:
        X = train.scale.scaled_inputs(X)
    return X.to(train.y.dtype)


def targets(y: Tensor, train: Dataset) -> Tensor:
    """Convert scaled targets [t] to the units of the file."""
    return y if train.scale is None else train.scale.target_in_units(y)


def scaled_targets(y: Tensor, train: Dataset) -> Tensor:
    """Convert targets [t] in the units of the file to the scaled space; DataError if one cannot be transformed."""
    return y if train.scale is None else scaled_target(y, train.scale)


def _training_columns(X: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """The training columns by name and in their order. A frame that shares no name with them is taken by position."""
    missing = [name for name in names if name not in X.columns]
    if missing and len(missing) < len(names):
        columns = ", ".join(map(repr, X.columns[:12]))
        raise DataError(
            f"Inputs have no column {missing[0]!r} but {columns}: give every column trained on, or an array."
        )
    return X if missing else X[list(names)]


def _mixed_rows(X: Any, train: Dataset) -> MixedRows:
    """Rows of numbers and texts, from such rows, from a frame with the training columns, or from a sequence of rows."""
    columns = train.columns
    assert columns is not None
    if not isinstance(X, MixedRows):
        import pandas as pd

        X = _training_columns(X, train.names) if isinstance(X, pd.DataFrame) else pd.DataFrame(list(X))
        if X.shape[1] != train.d:
            raise DataError(
                f"Inputs have {X.shape[1]} columns; the training data need {train.d}: {', '.join(train.names)}."
            )
        q = len(columns.numbers)
        texts = tuple(tuple(map(str, X.iloc[:, k])) for k in range(q, train.d))
        X = MixedRows(_numbers(X.iloc[:, :q].to_numpy()), texts)
    if X.d != train.d or len(X.texts) != len(columns.texts):
        raise DataError(
            f"Inputs are {X!r}; the training data need {len(columns.numbers)} numbers and {len(columns.texts)} texts."
        )
    X = X.to(train.y.device, torch.float64)
    if not bool(X.numbers.isfinite().all()):
        rows = int((~X.numbers.isfinite()).any(1).sum())
        raise DataError(f"Inputs have missing or infinite values in {rows} of {len(X)} rows: leave these out.")
    return X


def _numbers(X: Any) -> Tensor:
    try:
        # A copy, because a frame lends memory that torch must not share.
        numbers = X if isinstance(X, Tensor) else torch.from_numpy(np.array(X, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise DataError(f"Inputs are not rows of numbers ({error}): give an array [rows, columns].") from None
    if numbers.is_complex():
        raise DataError("Inputs are complex numbers: give real and imaginary parts as columns.")
    return numbers
