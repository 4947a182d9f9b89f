"""Rows in memory as an estimator takes them: arrays or texts, all for training."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import Split, load
from ..data.files.containers import refuse_duplicates
from ..data.given_folds import row_groups
from ..data.in_memory import TABLE, column_titles, is_frame, plain_array, refuse_other_order, table_of
from ..data.quoting import quote
from ..data.reader.cells import is_dictionary, is_text
from ..data.reader.table_reader import TableReader
from ..data.splits import ALL
from ..data.standardising import fit_scale, inputs_in_units, targets
from ..data.table_checks import LARGEST, SMALLEST, note_on_stand_in
from ..errors import DataError, PosteriorError, SettingError
from ..kernels.base import registry as kernel_classes
from ..kernels.composites import NAME
from ..kernels.row_scaled import RowScaled
from ..methods.base import Method, registry
from ..problem import Dataset, MixedRows, RowGroups, RowNoise
from ..runs import Run
from ..target_transforms import checked_transform
from .parameters import Units

Floats = NDArray[np.float64]


class RowDetails(NamedTuple):
    """The noise and the group of each row, if they are known."""

    noise: RowNoise | None = None
    groups: RowGroups | None = None


NO_DETAILS = RowDetails()


def all_for_training(
    X: Any, y: Floats, names: tuple[str, ...], row_details: RowDetails = NO_DETAILS, reader: TableReader | None = None
) -> Split:
    """A split with all rows for training and none for testing. Its key is a hash of the content."""
    texts, mixed, (noise, groups) = isinstance(X, list), isinstance(X, MixedRows), row_details
    y = np.ascontiguousarray(y)  # a tensor has no negative strides, such as those of y[::-1]
    X = X if texts or mixed else np.ascontiguousarray(X)
    numbers = X.numbers.numpy() if mixed else np.zeros(1) if texts else X
    if max(np.abs(numbers).max(initial=0.0), np.abs(y).max()) > LARGEST:
        raise DataError(f"X or y holds numbers beyond {LARGEST:g}, whose square no 64-bit number holds: rescale them.")
    if 0.0 < np.ptp(y) < SMALLEST:
        raise DataError(
            f"y varies by {np.ptp(y):.3g} in all, less than {SMALLEST:g}, whose square is 0 as a 64-bit number: give "
            "it in a smaller unit, such as multiplied by 1e200."
        )
    row_bytes = "\0".join(X).encode() if texts else np.ascontiguousarray(numbers).tobytes()
    row_bytes += repr(X.texts).encode() if mixed else b""
    noise_bytes = b"" if noise is None else noise.ratio.numpy().tobytes() + str(noise.common).encode()
    group_bytes = b"" if groups is None else groups.number.numpy().tobytes() + str(groups.are_folds).encode()
    content = hashlib.sha256(row_bytes + y.tobytes() + noise_bytes + group_bytes).hexdigest()[:16]
    names = names or (("object",) if texts else tuple(f"x{i}" for i in range(X.shape[1])))
    rows = X if texts or mixed else torch.tensor(X)
    train = Dataset(rows, torch.tensor(y), names, noise=noise, groups=groups, reader=reader)
    return Split(train, train.rows(torch.arange(0)), "arrays", key=f"arrays-{content}")


def refuse_mixed_up(X: Any, **row_values: Any) -> None:
    """DataError for a frame with a name twice, or for values per row that have the labels of X in another order."""
    if is_frame(X):
        refuse_duplicates(TABLE, column_titles(X))
    for name, values in row_values.items():
        refuse_other_order("X", X, name, values)


def checked_targets(y: Any) -> Any:
    """Targets that are texts or objects as numbers [n]; others as they are.

    Raises
    ------
    DataError
        For a text or a missing value, with its row, and for dates and durations.
    """
    values = np.asarray(y) if isinstance(y, list | tuple | np.ndarray | pd.Series | pd.Index) else None
    if values is not None and values.dtype.kind in "mM":
        kind, way = (
            ("dates", "their difference from a first day") if values.dtype.kind == "M" else ("durations", "them")
        )
        raise DataError(f"y has {kind}, and only numbers can be predicted: give {way} in a unit, such as hours.")
    if values is None or values.dtype.kind not in "OUS" or values.ndim != 1:
        return y
    numbers = np.full(len(values), np.nan)
    for row, cell in enumerate(values):
        with suppress(TypeError, ValueError):
            numbers[row] = float(cell)
    lost = np.flatnonzero(np.isnan(numbers))
    if len(lost) and len(lost) == len(values):
        raise DataError(f"y has {quote(values[0])} in row 1 and no number in any row: give numbers, such as 0 and 1.")
    if len(lost):
        cell, row = values[lost[0]], int(lost[0]) + 1
        others = f" and {len(lost) - 1} more without one" if len(lost) > 1 else ""
        raise DataError(f"y has {quote(cell)} in row {row}, where a number is needed: leave this row{others} out.")
    return numbers


def kept_rows(
    X: Any, y: Floats, sample_weight: Any, noise: Any, groups: RowGroups | None
) -> tuple[Any, Floats, RowDetails]:
    """The rows with a weight above 0, with their noise and groups.

    Raises
    ------
    SettingError
        If both weights and noise are given, or if one has the wrong length or holds a number that is not allowed.
    """
    if sample_weight is None and noise is None:
        return X, y, RowDetails(None, groups)
    if sample_weight is not None and noise is not None:
        raise SettingError("Give sample_weight or noise, not both: a weight w stands for a noise variance of s2 / w.")
    name, row_values = ("noise", noise) if sample_weight is None else ("sample_weight", sample_weight)
    try:
        numbers = np.asarray(plain_array(row_values), np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.full(0, np.nan)
    numbers = np.full(len(y), numbers) if numbers.ndim == 0 else numbers
    positive = numbers > 0.0 if noise is not None else numbers >= 0.0
    wrong = ~(positive & np.isfinite(numbers))
    if numbers.shape != (len(y),) or wrong.any():
        what = f"shape {list(numbers.shape)}"
        if numbers.shape == (len(y),):
            what = f"{numbers[np.argmax(wrong)]:g} in row {np.argmax(wrong) + 1}"
        raise SettingError(f"{name} has {what}; give one {_NEEDED[name]} for each of {len(y):,} rows.")
    if noise is not None:
        common = float(numbers.mean())
        return X, y, RowDetails(RowNoise(torch.tensor(numbers / common), common), groups)
    kept = np.flatnonzero(numbers)
    if len(kept) < 2:
        raise SettingError(
            f"sample_weight has {len(kept):,} weights above zero; give 2 rows or more a weight above zero."
        )
    if isinstance(X, list):
        X = [X[i] for i in kept]
    else:
        X = X.iloc[kept] if hasattr(X, "iloc") else table_of(X).take(kept) if is_frame(X) else X[kept]
    groups = groups and groups._replace(number=groups.number[torch.from_numpy(kept)])
    if (numbers[kept] == 1.0).all():
        return X, y[kept], RowDetails(None, groups)
    return X, y[kept], RowDetails(RowNoise(torch.tensor(1.0 / numbers[kept])), groups)


_NEEDED = {"noise": "positive variance, in the units of y squared,", "sample_weight": "finite number of 0 or more"}


def checked_groups(folds: Any, X: Any, y: Floats, groups: Any, method: type[Method] | None) -> RowGroups | None:
    """How the folds and groups that a caller gave hold rows out; SettingError for a method that cannot use them."""
    for name, value, flag in (("folds", folds, "uses_folds"), ("groups", groups, "uses_groups")):
        needed = value is not None and (name == "folds" or folds is None)  # beside folds, groups are for the splitter
        if needed and method is not None and not getattr(method, flag):
            able = ", ".join(sorted(key for key, candidate in registry.items() if getattr(candidate, flag)))
            lacks = "takes no folds" if name == "folds" else "holds out no rows"
            raise SettingError(f"Method {method.key!r} {lacks}: leave {name} out, or choose one of {able}.")
    return row_groups(folds, X, y, groups)


def units_of(train: Dataset, target_transform: str = "") -> Units:
    """The standard deviations by which rows are scaled; that of the targets is taken after their transform."""
    scale = fit_scale(train, target_transform=checked_transform(target_transform))
    if not isinstance(train.X, torch.Tensor):
        return Units(np.ones(1), scale.y_sd)  # kernels of other packages read numbers only
    return Units(scale.x_sd.numpy(), scale.y_sd)


def checked_texts(X: Any, y: Any, least: int) -> tuple[list[str], Floats]:
    """Texts and their targets; DataError unless there are `least` texts or more with a finite target each."""
    targets = np.asarray(y, np.float64)
    if len(targets) != len(X) or not np.isfinite(targets).all() or len(X) < least:
        shape = list(targets.shape)
        raise DataError(f"{len(X)} texts have targets {shape}; give 2 texts or more, and a finite target each.")
    return [str(text) for text in X], targets


def needs_reader(X: Any) -> bool:
    """Whether X is a frame with columns that are not plain numbers, or with gaps."""
    if not is_frame(X):
        return False
    if not isinstance(X, pd.DataFrame):
        return True
    has_others = any(dtype.kind not in "biuf" or not isinstance(dtype, np.dtype) for dtype in X.dtypes)
    return has_others or bool(X.isna().to_numpy().any())


def warn_of_stand_ins(X: Any, y: Floats, names: Sequence[str], reader: TableReader | None) -> None:
    """Warn of numbers such as -999, and of dates such as 9999-12-31, that may stand for gaps, as a file has a note.

    Parameters
    ----------
    X : array [n, d], MixedRows or list of str
        The inputs.
    y : array [n] or [n, k]
        The targets.
    names : sequence of d str
        The names of the inputs, none for those of an array.
    reader : TableReader, optional
        How the inputs were read.
    """
    matrix = X.numbers.numpy() if isinstance(X, MixedRows) else np.zeros((0, 0)) if isinstance(X, list) else X
    way = "give NaN in such cells" if names else "give a DataFrame with NaN in such cells"
    asked = []
    for k, values in enumerate(matrix.T):
        made = reader.inputs[k] if reader else None
        kind = reader.column(made.source).kind if reader and made else "number"
        if kind in ("number", "date") and (made is None or made.role == "value"):
            asked += [(note, way) for note in note_on_stand_in(names[k] if names else f"x{k}", values, kind == "date")]
    for column in y.reshape(len(y), -1).T:
        asked += [(note, "leave out such rows") for note in note_on_stand_in("y", column)]
    for note, way in asked:
        question, _, is_question = note.partition("\n")
        warnings.warn(f"{question} If so, {way}." if is_question else question, stacklevel=4)


def refuse_words(X: Any) -> None:
    """DataError for new rows in a DataFrame with a text that is no number, where training had numbers alone."""
    for k, dtype in enumerate(X.dtypes if isinstance(X, pd.DataFrame) else ()):
        if dtype.kind in "biuf":
            continue
        cells = X.iloc[:, k].astype(object)
        is_wrong = (cells.notna() & pd.to_numeric(cells, "coerce").isna()).to_numpy()
        if is_wrong.any():
            row = int(is_wrong.argmax())
            raise DataError(
                f"Column {quote(cells.name)} of the new rows has {quote(cells.iloc[row])} in row {row + 1}, where "
                "training had numbers alone: write a number, or train with such cells as well."
            )


def read_frame(X: Any, y: Floats, kernel: Any) -> tuple[Any, TableReader]:
    """Read a frame as inputs: words, dates and gaps become numbers, but for texts that the kernel compares itself.

    The reader comes with them. The target gives the means of words, and decides which hours of dates are inputs.

    Raises
    ------
    DataError
        If a column cannot be read, or the frame has too few rows.
    """
    table = table_of(X)
    texts = _texts_of_kernel(kernel, table)
    gap = next((name for name in texts if table[name].null_count), None)
    if gap is not None:
        raise DataError(f"Column {gap!r} has a missing text, and the kernel reads texts: leave out its rows.")
    train = load((X, y), split=ALL, texts=texts).train
    return train.X if isinstance(train.X, MixedRows) else train.X.numpy(), train.reader


def _texts_of_kernel(kernel: Any, table: Any) -> tuple[str, ...]:
    """The columns that a kernel on texts reads: those in its brackets, or all columns of text."""
    name = kernel.get("name", "") if isinstance(kernel, dict) else getattr(kernel, "key", kernel)
    if not isinstance(name, str):
        return ()
    texts = [field.name for field in table.schema if is_text(field.type) or is_dictionary(field.type)]
    for key, inside in re.findall(r"([a-z][a-z0-9-]*)(\[[^\]]*\])?", name):
        if key in kernel_classes and kernel_classes[key].inputs == "strings" and not inside:
            return tuple(texts)
    named = {quoted or plain for quoted, plain in NAME.findall(",".join(re.findall(r"\[([^\]]*)\]", name)))}
    return tuple(text for text in texts if text in named)


def rows_of(run: Run) -> tuple[Any, Floats]:
    """The training rows of a run, in the units of the data; PosteriorError if they have noise of their own."""
    if isinstance(run.problem.kernel, RowScaled):
        raise PosteriorError("A fit with noise per row cannot be repeated with more rows here; call fit with all rows.")
    train = run.problem.train
    return inputs_in_units(train.X, train), targets(train.y.double(), train).cpu().numpy()
