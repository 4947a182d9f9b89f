"""Predictions of the rows of a file as a table: strip by strip, so that the number of rows does not matter.

    row                  number of the row in the file; the first below the names of the columns is 1
    target               name of the column that is predicted
    mean, sd             of a new observation y (or of f), in the units of the training file
    sd_f                 standard deviation of the function without noise
    lower_95, upper_95   ends of the 95 % interval; further quantiles as q10, q90
    far                  1 if the training rows say almost nothing about the row
    why                  "predicted", and what is to be said of the row: cells that were filled, words that training
                         does not have, cells that cannot be read; or why there is no prediction

A row is far if the variance of f is more than 90 % of its variance before any row was seen, where the posterior has a
kernel, if an input is more than 6 standard deviations of the training inputs from their mean, if it has a word that
training does not have, another number than the only one of training in an input, or a date outside the years of
training. Of an average of models, a row is far if models with more than half of the weight say so. The prediction of a
row with a word that is not known is the average over the words of training, whose variance it has in addition.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ...data.files.inputs_by_name import rows_without_reader, strips_read
from ...data.quoting import display_name, quote
from ...data.reader.table_reader import WARNED, RowsRead
from ...data.standardising import scaled_inputs
from ...errors import DataError, SettingError
from ...kernels.composites import OnColumns
from ...kernels.discrete import Category
from ...posteriors import AveragePosterior, InUnits, MixtureMarginals, TransformedMarginals, WidenedPosterior
from ...posteriors.table_posterior import averaged, chosen_rows, observed_average, rows_by_unknown
from ...problem import MixedRows

Floats = NDArray[np.float64]
Model = InUnits | AveragePosterior
UNINFORMED = 0.9  # share of the prior variance
QUOTED = r'"[^"]*"?$'  # the text of a cell at the end of a remark
EXAMPLE = ", such as "  # between a remark and a cell
BETWEEN_REMARKS = (
    r"; (?=predicted$|far$|filled: |word not seen: |unreadable: |no value: "
    rf"|{'|'.join(map('{}: '.format, WARNED))})"
)
BEYOND = 0.25  # of the range of dates
FAR = 6.0  # standard deviations of a training input
ENDS = {"lower_95": 0.025, "upper_95": 0.975}


def predictions_of_file(
    posterior: Model, path: Path, of: str = "y", quantiles: Sequence[float] = ()
) -> Iterator[pd.DataFrame]:
    """Predict the rows of a file, strip by strip, in their order.

    Parameters
    ----------
    posterior : InUnits
        The fitted model.
    path : Path
        A CSV, Parquet or NPZ file with the input columns of the model.
    of : {"y", "f"}
        A new observation, or the function without noise.
    quantiles : sequence of float
        Probabilities of further columns.

    Yields
    ------
    DataFrame
        One row per row of the file, with the columns that this module describes.

    Raises
    ------
    DataError
        If the file cannot be read, has no rows, or has not the columns of the model.
    """
    count = 0
    for read, _ in strips_read(path, posterior.model_inputs):
        yield prediction_table(posterior, read, of, quantiles, first=count + 1)
        count += len(read.answered)
    if not count:
        raise DataError(
            f"{display_name(path.name)} has the names of columns and no rows below them: there is nothing to predict."
        )


def prediction_table(
    posterior: Model, X: Any, of: str = "y", quantiles: Sequence[float] = (), first: int = 1
) -> pd.DataFrame:
    """Predict rows that were read, or numbers [t, d], some of which may be NaN; the first has the number `first`.

    The columns are those of this module. What is to be said of all rows is in `attrs["notes"]`.

    Raises
    ------
    SettingError
        If `of` is neither "y" nor "f", or a quantile is not between 0 and 1.
    """
    if of not in ("y", "f"):
        raise SettingError(f'of is {of!r}; give "y" for new observations or "f" for the function without noise.')
    for level in quantiles:
        if not 0.0 < level < 1.0:
            raise SettingError(f"A quantile is {level!r}; give probabilities between 0 and 1, such as 0.1.")
    read = X if isinstance(X, RowsRead) else rows_without_reader(X)
    answered = read.answered
    named_levels = ENDS | {f"q{100 * level:g}": level for level in quantiles}
    names = ["mean", "sd", "sd_f", *named_levels, "far"]
    table = pd.DataFrame(np.nan, index=range(len(answered)), columns=names)
    for unknown, rows in rows_by_unknown(read):
        table.loc[rows] = np.column_stack(_predicted(posterior, read, rows, unknown, of, [*named_levels.values()]))
    for source, unknown_cells in read.unknown.items():
        if posterior.columns.reader.column(source).kind == "words":
            table.loc[unknown_cells & answered, "far"] = 1.0
    says, is_new = _words_not_seen(posterior, read)
    if read.beyond is not None:
        is_new |= read.beyond
    table.loc[is_new & answered, "far"] = 1.0
    far = table["far"].to_numpy() == 1.0
    why = [
        "; ".join(filter(None, (said if said or not ok else "" if is_far else "predicted", "far" * bool(is_far))))
        for ok, said, is_far in zip(answered, says, far, strict=True)
    ]
    table = table.assign(far=table["far"].astype("Int8"), why=why)
    table.insert(0, "row", np.arange(first, first + len(table)))
    table.insert(1, "target", posterior.columns.target)
    table.attrs["notes"] = list(read.notes)
    return table


def _words_not_seen(posterior: Model, read: RowsRead) -> tuple[list[str], NDArray[np.bool_]]:
    """What is to be said of each row, and whether it has a word that a kernel compares and training does not have."""
    says, is_new = list(read.why), np.zeros(len(read.answered), dtype=bool)
    reader = posterior.columns.reader
    parts = posterior.parts if isinstance(posterior, AveragePosterior) else (posterior,)
    names = reader.texts if reader is not None else ()
    kernels = [getattr(_unwidened(part), "kernel", None) for part in parts]
    compared = {name for kernel in kernels for name in _compared_words(kernel, names)}
    for name, words in zip(names, read.texts, strict=False):
        known = set(reader.column(name).levels.names) if name in compared else set()
        for row, word in enumerate(words if known else ()):
            if word and word not in known:
                is_new[row] = True
                says[row] = "; ".join(filter(None, (says[row], f"word not seen: {name} {quote(word)}")))
    return says, is_new


def _unwidened(posterior: Any) -> Any:
    """One model in scaled units, without what widens its bands."""
    return posterior.inner.inner if isinstance(posterior.inner, WidenedPosterior) else posterior.inner


def _compared_words(kernel: Any, names: Sequence[str]) -> tuple[str, ...]:
    """The columns of words, of those with these names, that a kernel takes as equal or different."""
    if isinstance(kernel, Category):
        return tuple(names) if kernel.inputs == "strings" else ()
    if isinstance(kernel, OnColumns):
        return _compared_words(kernel.inner, kernel.chosen)
    parts = getattr(kernel, "parts", None) or [part for part in [getattr(kernel, "inner", None)] if part is not None]
    return tuple(name for part in parts for name in _compared_words(part, names))


def count_reasons(table: pd.DataFrame) -> dict[str, int]:
    """How many rows a table has, how many are answered, and how many have each remark, such as "filled: x".

    A remark on cells that cannot be read goes on with the first of them.
    """
    remarks, first = Counter[str](), dict[str, str]()
    for why in table["why"]:
        for part in {*re.split(BETWEEN_REMARKS, why)} - {"predicted"}:
            remark = re.sub(QUOTED, "", part).strip()
            remarks[remark] += 1
            first.setdefault(remark, part.removeprefix(remark).strip())
    named = {f"{r}{EXAMPLE}{first[r]}" if r.startswith("unreadable: ") else r: count for r, count in remarks.items()}
    return {"rows": len(table), "answered": int(table["mean"].notna().sum()), **named}


def sentence_of_counts(counts: Counter[str]) -> str:
    """How many rows were predicted, and of how many there is something to be said."""
    total, answered = counts.pop("rows", 0), counts.pop("answered", 0)
    shown: dict[str, str] = {}
    by_remark = Counter[str]()
    for reason, number in counts.items():  # of a file of several strips, the first example is shown
        remark = reason.partition(EXAMPLE)[0]
        shown.setdefault(remark, reason)
        by_remark[remark] += number
    most = sorted(by_remark.items(), key=lambda item: (-item[1], item[0]))[:12]
    parts = [f"{number:,} {shown[remark]}" for remark, number in most]
    return f"{answered:,} of {total:,} rows predicted" + (f": {'; '.join(parts)}." if parts else ".")


def _predicted(
    posterior: Model,
    read: RowsRead,
    rows: NDArray[np.int64],
    unknown: tuple[str, ...],
    of: str,
    levels: Sequence[float],
) -> list[Floats]:
    """The columns [t] of the table for some rows, averaged over the values of columns that are not known in them."""
    X = chosen_rows(posterior, read, rows)
    of_f = posterior.marginals(X, noise=False)
    far = _far_of_parts(posterior, X, of_f)
    answer: Any = posterior.observed(of_f) if of == "y" else of_f
    if unknown:
        of_f = averaged(posterior, X, unknown)
        answer = observed_average(posterior, of_f) if of == "y" else of_f
    (mean, var), (_, var_f) = ([_array(part) for part in own.moments] for own in (answer, of_f))
    ends = [_array(row) for row in answer.quantile(torch.tensor(levels, dtype=torch.float64))]
    return [mean, np.sqrt(var), np.sqrt(var_f), *ends, far.astype(float)]


def _far_of_parts(posterior: Model, X: Any, of_f: Any) -> NDArray[np.bool_]:
    """Which rows [t] are far from the training rows, by the models that have more than half of the weight."""
    if not (isinstance(posterior, AveragePosterior) and isinstance(of_f, MixtureMarginals)):
        return _far(posterior, X, of_f)
    weighted = zip(posterior.weights, posterior.parts, of_f.parts, strict=True)
    return np.asarray(np.sum([weight * _far(part, X, own) for weight, part, own in weighted], 0) > 0.5)


def _array(values: torch.Tensor) -> Floats:
    return values.detach().cpu().double().numpy()


def _far(posterior: Any, rows: Any, of_f: Any) -> NDArray[np.bool_]:
    """Which rows [t] the training rows of one model say almost nothing about."""
    far = np.zeros(len(rows), dtype=bool)
    X = scaled_inputs(posterior.rows(rows), posterior.columns)
    numbers = X.numbers if isinstance(X, MixedRows) else X
    if isinstance(numbers, torch.Tensor) and posterior.columns.scale is not None:
        far |= (numbers.abs() > FAR).any(1).cpu().numpy()
    far |= _outside_dates(posterior.columns, rows)
    inner = _unwidened(posterior)
    kernel, theta = getattr(inner, "kernel", None), getattr(inner, "theta", None)
    if kernel is not None and theta is not None:
        prior = _array(kernel.diag(theta, inner.rows(X)))  # [t]
        is_scaled = isinstance(of_f, TransformedMarginals)
        var_f = _array(of_f.scaled.var if is_scaled else of_f.moments[1] / posterior.y_sd**2)
        far |= var_f > UNINFORMED * prior
    return far


def _outside_dates(columns: Any, rows: Any) -> NDArray[np.bool_]:
    """Which rows have a date that is further outside those of training than a quarter of their range."""
    far = np.zeros(len(rows), dtype=bool)
    numbers = rows.numbers.numpy() if isinstance(rows, MixedRows) else rows
    for position, column in enumerate(columns.reader.inputs if columns.reader is not None else ()):
        reader = columns.reader.column(column.source)
        if reader.kind == "date" and column.role == "value":
            margin = BEYOND * max(reader.high - reader.low, 1.0)
            days = np.asarray(numbers)[:, position]
            far |= (days < reader.low - margin) | (days > reader.high + margin)
    return far
