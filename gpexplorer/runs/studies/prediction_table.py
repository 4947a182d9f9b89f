"""Predictions of the rows of a file as a table: strip by strip, so that the number of rows does not matter.

    mean, sd             of a new observation y (or of f), in the units of the training file
    sd_f                 standard deviation of the function without noise
    lower_95, upper_95   ends of the 95 % interval; further quantiles as q10, q90
    far                  1 if the training rows say almost nothing about the row

A row is far if the variance of f is more than 90 % of its variance before any row was seen, where the posterior has a
kernel, or if an input is more than 6 standard deviations of the training inputs from their mean. Of an average of
models, a row is far if models with more than half of the weight say so. A row with a missing value has no prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray

from ...data.files.conversions import as_inputs, inputs_for, text_inputs
from ...data.files.reading import strips
from ...data.quoting import display_name
from ...data.units import scaled_inputs
from ...errors import SettingError
from ...mixed_rows import MixedRows, mixed_rows
from ...posteriors import AveragePosterior, InUnits, MixtureMarginals, TransformedMarginals

Floats = NDArray[np.float64]
UNINFORMED = 0.9  # share of the prior variance
FAR = 6.0  # standard deviations of a training input
ENDS = {"lower_95": 0.025, "upper_95": 0.975}


def predictions_of_file(
    posterior: InUnits | AveragePosterior, path: Path, of: str = "y", quantiles: Sequence[float] = ()
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
        If the file cannot be read, or has not the columns of the model.
    """
    for table in strips(path):
        yield prediction_table(posterior, inputs_of(posterior, display_name(path.name), table), of, quantiles)


def inputs_of(posterior: InUnits | AveragePosterior, name: str, table: pa.Table) -> Any:
    """The inputs of a model in a table: numbers [t, d] with NaN for what is missing, t texts, or both."""
    columns = posterior.columns
    if isinstance(columns.X, MixedRows) and columns.columns is not None:
        numbers = as_inputs(name, table, columns.columns.numbers)
        return mixed_rows(numbers, [text_inputs(name, table, column) for column in columns.columns.texts])
    return inputs_for(name, table, list(columns.names), columns.d, isinstance(columns.X, torch.Tensor))


def prediction_table(
    posterior: InUnits | AveragePosterior, X: Any, of: str = "y", quantiles: Sequence[float] = ()
) -> pd.DataFrame:
    """Predict at inputs [t, d], or texts, some of which may be missing; the columns are those of this module.

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
    if isinstance(X, MixedRows):
        has_texts = np.array([all(row) for row in zip(*X.texts, strict=True)], dtype=bool)
        whole: NDArray[np.bool_] = np.isfinite(X.numbers.numpy()).all(1) & has_texts
        rows: Any = X[np.flatnonzero(whole)]
    elif isinstance(X, np.ndarray):
        whole = np.asarray(np.isfinite(X).all(1))
        rows = X[whole]
    else:
        whole = np.array([bool(text) for text in X], dtype=bool)
        rows = [text for text in X if text]
    named_levels = ENDS | {f"q{100 * level:g}": level for level in quantiles}
    names = ["mean", "sd", "sd_f", *named_levels, "far"]
    table = pd.DataFrame(np.nan, index=range(len(whole)), columns=names)
    if len(rows):
        table.loc[whole] = np.column_stack(_predicted(posterior, rows, of, [*named_levels.values()]))
    return table.assign(far=table["far"].astype("Int8"))


def _predicted(posterior: InUnits | AveragePosterior, rows: Any, of: str, levels: Sequence[float]) -> list[Floats]:
    """The columns [t] of the table. Each model is asked once."""
    of_f = posterior.marginals(rows, noise=False)
    answer = posterior.observed(of_f) if of == "y" else of_f
    (mean, var), (_, var_f) = ([_array(part) for part in own.moments] for own in (answer, of_f))
    ends = [_array(row) for row in answer.quantile(torch.tensor(levels, dtype=torch.float64))]
    if isinstance(posterior, AveragePosterior) and isinstance(of_f, MixtureMarginals):
        weighted = zip(posterior.weights, posterior.parts, of_f.parts, strict=True)
        far = np.sum([weight * _far(part, rows, own) for weight, part, own in weighted], 0) > 0.5
    else:
        far = _far(posterior, rows, of_f)
    return [mean, np.sqrt(var), np.sqrt(var_f), *ends, far.astype(float)]


def _array(values: torch.Tensor) -> Floats:
    return values.detach().cpu().double().numpy()


def _far(posterior: Any, rows: Any, of_f: Any) -> NDArray[np.bool_]:
    """Which rows [t] the training rows of one model say almost nothing about."""
    far = np.zeros(len(rows), dtype=bool)
    X = scaled_inputs(posterior.rows(rows), posterior.columns)
    numbers = X.numbers if isinstance(X, MixedRows) else X
    if isinstance(numbers, torch.Tensor) and posterior.columns.scale is not None:
        far |= (numbers.abs() > FAR).any(1).cpu().numpy()
    inner: Any = posterior.inner
    kernel, theta = getattr(inner, "kernel", None), getattr(inner, "theta", None)
    if kernel is not None and theta is not None:
        prior = kernel.diag(theta, inner.rows(X)).detach().cpu().double().numpy()  # [t]
        is_scaled = isinstance(of_f, TransformedMarginals)
        var_f = _array(of_f.scaled.var if is_scaled else of_f.moments[1] / posterior.y_sd**2)
        far |= var_f > UNINFORMED * prior
    return far
