"""Standardising: from the units of the file to the scaled space in which methods work, and back.

    x = (x_file - x_mean) / x_sd,   y = (T(y_file) - y_mean) / y_sd

Means and standard deviations are those of the training rows, one per column (`problem.Scale`). T is the transform of
the target, if there is one. Columns with a long tail, such as populations or prices, may be taken as signed logarithms
before that: sign(x) log(1 + |x| / c), where c is smaller than nearly all values that are not 0.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ..errors import DataError, SettingError, is_one_of
from ..problem import Dataset, MixedRows, Scale
from ..target_transforms import fitted_transform
from .in_memory import array_table, column_titles, index_of, is_frame, plain_array, table_of, with_values
from .quoting import quote
from .reader.column_names import note_on_position
from .reader.date_format import may_be_compact
from .reader.table_reader import RowsRead, TableReader
from .table_checks import LARGEST

LOG_INPUTS = "log"
LONG_TAIL, SHORTENED = 1.5, 0.5  # skewness of a column with a long tail, and the share of it that a logarithm may leave
FEWEST_VALUES = 12  # different values of such a column
SMALL_VALUES = 0.02  # c is half of this quantile of the values that are not 0
IN_THE_MIDDLE = (
    "Covariances, samples and derivatives take a value in the middle for it; mean, var and quantile average over the "
    "values of training."
)
_ROUNDING = 8.0  # units in the last place: a standard deviation below this is rounding, not variation


class Moments(NamedTuple):
    """Sums over rows from which the means and standard deviations of k columns follow."""

    rows: int
    mean: Tensor  # [k]
    spread: Tensor  # [k] sum of squared differences from the mean
    largest: Tensor  # [k] largest absolute value

    def joined(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together, by the update of Chan, Golub and LeVeque (1983).

        It loses no digits in columns that are far from the origin.
        """
        rows = self.rows + other.rows
        difference, share = other.mean - self.mean, other.rows / rows
        spread = self.spread + other.spread + self.rows * share * difference.square()
        return Moments(rows, self.mean + share * difference, spread, torch.maximum(self.largest, other.largest))

    @property
    def sd(self) -> Tensor:
        """Population standard deviations [k], or 1 where a column is constant to rounding."""
        sd = (self.spread / self.rows).sqrt()
        constant = sd <= _ROUNDING * torch.finfo(sd.dtype).eps * self.largest
        return torch.where(constant, torch.ones_like(sd), sd)


def moments(columns: Tensor) -> Moments:
    """Return the moments of these rows [n, k], in two passes over them."""
    mean = columns.mean(0)
    largest = columns.abs().amax(0) if columns.numel() else mean
    return Moments(len(columns), mean, (columns - mean).square().sum(0), largest)


def long_tailed(columns: Tensor) -> Tensor:
    """The number c [d] of each column whose signed logarithm is far less skewed than the column; 0 for others."""
    result = columns.new_zeros(columns.shape[1])
    for j, column in enumerate(columns.double().T):
        sizes = column[column != 0.0].abs()
        if len(sizes) < FEWEST_VALUES or abs(_skewness(column)) < LONG_TAIL:
            continue
        c = 0.5 * float(np.quantile(sizes.cpu().numpy(), SMALL_VALUES))
        logarithms = column.sign() * torch.log1p(column.abs() / c)
        is_shorter = abs(_skewness(logarithms)) <= SHORTENED * abs(_skewness(column))
        if is_shorter and len(column.unique()) >= FEWEST_VALUES:
            result[j] = c
    return result


def _skewness(column: Tensor) -> float:
    centred = column - column.mean()
    sd = float(centred.square().mean().sqrt())
    return float((centred / sd).pow(3).mean()) if sd > 0.0 else 0.0


def checked_input_transform(name: object) -> str:
    """The name of a transform of the inputs, or "" for none.

    Raises
    ------
    SettingError
        If there is none of this name.
    """
    if not is_one_of(name, ("", LOG_INPUTS)):
        raise SettingError(f'input_transform is {quote(name)}; give "log", or "" for inputs as they are.')
    return str(name)


def fit_scale(train: Dataset, inputs: bool = True, target_transform: str = "", input_transform: str = "") -> Scale:
    """Return the means and population standard deviations of training rows.

    Parameters
    ----------
    train : Dataset
        Rows in the units of their file.
    inputs : bool, default True
        If False, the inputs keep their units, as counts and histograms must: their mean is set to 0, their sd to 1.
    target_transform : str, default ""
        A transform of the target before it is standardised; see `target_transforms.fitted_transform`.
    input_transform : {"", "log"}
        "log" takes inputs with a long tail as logarithms.

    Returns
    -------
    Scale
        A standard deviation is 1 where a column is constant to rounding.

    Raises
    ------
    DataError
        If a target cannot be transformed.
    """
    numbers = train.X.numbers if isinstance(train.X, MixedRows) else train.X
    columns = numbers if isinstance(numbers, Tensor) else train.y.new_zeros(len(train), 0)
    transform = fitted_transform(target_transform, train.y)
    target = moments((train.y if transform is None else transform.forward(train.y))[:, None])
    zeros = columns.new_zeros(columns.shape[1])
    in_units = Scale(zeros, torch.ones_like(zeros), float(target.mean[0]), float(target.sd[0]), transform)
    if not inputs:
        return in_units
    x_log = long_tailed(columns) if input_transform == LOG_INPUTS else zeros
    if bool((x_log > 0.0).any()):
        in_units = replace(in_units, x_log=x_log)
        columns = in_units.scaled_inputs(columns)
    of_inputs = moments(columns)
    return replace(in_units, x_mean=of_inputs.mean, x_sd=of_inputs.sd)


def scaled_target(y: Tensor, by: Scale) -> Tensor:
    """Return targets [t] in scaled units.

    Raises
    ------
    DataError
        If a target cannot be transformed.
    """
    scaled = by.scaled_target(y)
    if by.transform is not None and not bool(scaled.isfinite().all()):
        raise DataError(
            f"{int((~scaled.isfinite()).sum())} of {len(y):,} targets, the smallest of which is {float(y.min()):.4g}, "
            f"cannot be transformed by {by.transform.name!r}: leave these rows out, or choose another transform."
        )
    return scaled


def scale(data: Dataset, by: Scale) -> Dataset:
    """Return the same rows in scaled units; inputs that are texts or other objects do not change.

    Raises
    ------
    DataError
        If a target cannot be transformed.
    """
    X = data.X
    if isinstance(X, MixedRows):
        X = X.with_numbers(by.scaled_inputs(X.numbers))
    elif isinstance(X, Tensor):
        X = by.scaled_inputs(X)
    return replace(data, X=X, y=scaled_target(data.y, by), scale=by, as_new=None)


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
        training was, if the rows of training came from a table, and so is an array of dates or words. A cell that is
        not known gets a value in the middle, with a warning. Rows of numbers and texts may also be a sequence of rows.
        A sequence of objects, for a discrete kernel, is returned as it is.
    train : Dataset
        The scaled training rows.

    Raises
    ------
    DataError
        If X does not hold rows of d finite numbers.
    """
    if (read := table_rows(X, train)) is not None:
        if read.unknown:
            row = int(np.argmax(np.any(list(read.unknown.values()), axis=0)))
            warnings.warn(f"Inputs, row {row + 1}: {read.why[row]}. {IN_THE_MIDDLE}", stacklevel=2)
        X = model_rows(read, train)
    if isinstance(train.X, MixedRows):
        return _mixed_rows(X, train)
    if not isinstance(train.X, Tensor):
        return X
    X = _numbers(_training_columns(X, train.names) if is_frame(X) else X).to(train.X.device, torch.float64)
    if X.ndim != 2 or X.shape[1] != train.d:
        raise DataError(f"Inputs have shape {list(X.shape)}; the training data need [rows, {train.d}].")
    return _finite_rows(X, train)


def _table_of_digits(X: Any, reader: TableReader) -> Any:
    """An array of numbers as a table, where those of dates are 20210301 as in training; X itself where they are days.

    Days since 1970 are far below 190001, so that the two cannot be taken for each other.
    """
    sources = reader.sources
    compact = [k for k, source in enumerate(sources) if reader.column(source).dates.compact]
    values = _numbers(X).detach().cpu().numpy() if compact else np.zeros(0)
    if values.ndim != 2 or values.shape[1] != len(sources) or not np.isfinite(values[:, compact]).all():
        return X
    are_digits = len(values) and all(may_be_compact(values[:, k]) for k in compact)
    return pa.table(dict(zip(sources, values.T, strict=True))) if are_digits else X


def table_rows(X: Any, train: Dataset) -> RowsRead | None:
    """A frame, or an array of dates or words, as the reader of training reads it; None for all other inputs."""
    if train.reader is None:
        return None
    marks = train.reader.decimal_marks
    if isinstance(train.X, Tensor) and not is_frame(X):
        table = array_table(X, train.reader.sources, marks)
        X = _table_of_digits(X, train.reader) if table is None else table
    if not is_frame(X):
        return None
    titles = {*column_titles(X), *index_of(X)}
    has_inputs_alone = set(train.names) <= titles and not set(train.reader.sources) <= titles  # not the file's columns
    return None if has_inputs_alone else train.reader.inputs_of(table_of(X, train.reader.sources, marks))


def model_rows(read: RowsRead, train: Dataset) -> Any:
    """Rows that were read from a table, as a model of these training rows takes them, in the units of the file."""
    if isinstance(train.X, Tensor):
        return read.X
    return MixedRows(torch.from_numpy(read.X), read.texts) if isinstance(train.X, MixedRows) else list(read.texts[0])


def scaled_inputs(X: Any, train: Dataset) -> Any:
    """Convert checked inputs to the scaled space, in the precision of the training rows; objects do not change."""
    if isinstance(X, MixedRows):
        return X.with_numbers(scaled_inputs(X.numbers, train))
    if not isinstance(X, Tensor):
        return X
    X = _scaled(X, train)
    return X.to(train.y.dtype)


def inputs_in_units(X: Any, train: Dataset) -> Any:
    """Convert scaled inputs to the units of the file, in float64: an array, mixed rows, or a list of objects."""
    if not isinstance(X, Tensor | MixedRows):
        return list(X)
    numbers = (X.numbers if isinstance(X, MixedRows) else X).double()
    numbers = numbers if train.scale is None else train.scale.inputs_in_units(numbers)
    return X.with_numbers(numbers) if isinstance(X, MixedRows) else numbers.cpu().numpy()


def targets(y: Tensor, train: Dataset) -> Tensor:
    """Convert scaled targets [t] to the units of the file, in float64."""
    return y.double() if train.scale is None else train.scale.target_in_units(y)


def scaled_targets(y: Tensor, train: Dataset) -> Tensor:
    """Convert targets [t] in the units of the file to the scaled space; DataError if one cannot be transformed."""
    return y if train.scale is None else scaled_target(y, train.scale)


def _training_columns(X: Any, names: tuple[str, ...]) -> Any:
    """The training columns by name and in their order. A frame that shares no name with them is taken by position."""
    titles = list(X.column_names if hasattr(X, "column_names") else X.columns)
    missing = [name for name in names if name not in titles]
    if missing and len(missing) < len(names):
        there = ", ".join(map(repr, titles[:12]))
        raise DataError(f"The table has no column {missing[0]!r} but {there}: give all training columns, or an array.")
    if missing and (note := note_on_position("The table", titles, names)):
        warnings.warn(note, stacklevel=2)
    if missing:
        return X
    return X[list(names)] if hasattr(X, "iloc") else X.select(list(names))


def _mixed_rows(X: Any, train: Dataset) -> MixedRows:
    """Rows of numbers and texts, from such rows, from a frame with the training columns, or from a sequence of rows."""
    columns = train.columns
    assert columns is not None
    if not isinstance(X, MixedRows):
        import pandas as pd

        X = _training_columns(X, train.names) if isinstance(X, pd.DataFrame) else pd.DataFrame(list(X))
        if X.shape[1] != train.d:
            raise DataError(
                f"Inputs have {X.shape[1]:,} columns; the training data need {train.d}: {', '.join(train.names)}."
            )
        q = len(columns.numbers)
        texts = tuple(tuple(map(str, X.iloc[:, k])) for k in range(q, train.d))
        X = MixedRows(_numbers(X.iloc[:, :q].to_numpy()), texts)
    if X.d != train.d or len(X.texts) != len(columns.texts):
        raise DataError(
            f"Inputs are {X!r}; the training data need {len(columns.numbers):,} numbers and {len(columns.texts)} texts."
        )
    X = X.to(train.y.device, torch.float64)
    _finite_rows(X.numbers, train)
    return X


def _finite_rows(X: Tensor, train: Dataset) -> Tensor:
    """The inputs [t, d]; DataError if a value is missing, infinite, or so far away that its square is no number."""
    if not bool(X.isfinite().all()):
        rows = int((~X.isfinite()).any(1).sum())
        raise DataError(f"Inputs have missing or infinite values in {rows} of {len(X):,} rows: leave these out.")
    if X.numel():
        farthest, dtype = _scaled(torch.stack([X.amin(0), X.amax(0)]), train).abs().amax(0), train.y.dtype  # [d]
        largest = LARGEST * (torch.finfo(dtype).max / torch.finfo(torch.float64).max) ** 0.5
        if not bool((farthest <= largest).all()):
            k = int((farthest <= largest).logical_not().double().argmax())
            row = int(_scaled(X, train)[:, k].abs().argmax())
            name, unit = train.names[k] if train.names else f"x{k}", "standard deviations" if train.scale else "units"
            value, kind = float(X[row, k]), str(dtype).removeprefix("torch.")
            raise DataError(
                f"Inputs have {value:g} in column {quote(name)}, row {row + 1}: more than {largest:.3g} {unit} from "
                f"the training rows, the square of which is no number as {kind}. Correct or leave out such rows."
            )
    return X


def _scaled(X: Tensor, train: Dataset) -> Tensor:
    """Numbers [t, d] in the scaled space."""
    return X if train.scale is None else train.scale.scaled_inputs(X)


def _numbers(X: Any) -> Tensor:
    try:
        numbers = with_values(X) if isinstance(X, Tensor) else np.asarray(plain_array(X))
        if isinstance(numbers, np.ndarray) and not np.iscomplexobj(numbers):
            numbers = torch.from_numpy(numbers.astype(np.float64))  # a copy: torch must not share a frame's memory
    except DataError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        dense = ", such as its toarray()" if hasattr(X, "toarray") else ""
        raise DataError(f"Inputs are not rows of numbers ({error}): give an array [rows, columns]{dense}.") from None
    if not isinstance(numbers, Tensor) or numbers.is_complex():
        raise DataError("Inputs are complex numbers: give real and imaginary parts as columns.")
    return numbers
