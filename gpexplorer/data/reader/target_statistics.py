"""What a reader learns from the training rows: means per word, values for gaps, and which derived inputs matter.

The mean of a word with n rows is (n m_s + k m) / (n + k), where m is the mean of all rows and k = s2 / t2 is the
variance within words over the variance between them. A training row has the mean of the other parts of the rows, five
of them, so that its own target is no input; a new row has the mean of all training rows. A word that training does not
have gets the mean that the other inputs of its row suggest; the prediction is averaged over what they do not explain.

A gap gets the value that the other inputs suggest, by ridge regression, if that explains rows which it has not seen;
otherwise it keeps the median.

References
----------
Micci-Barreca (2001), A preprocessing scheme for high-cardinality categorical attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cells import Floats, Mask
from .column_cells import Cells
from .input_columns import RESIDUALS, InputColumn, inputs_from
from .learned_columns import relearned
from .table_reader import TableReader
from .words import repeated_words

PARTS = 5
TIE = 1e-5  # standard deviations of the target between the means of two words that would be equal
RIDGE = 1e-3  # per row, of standardised inputs
SIGNIFICANT = 14.0  # k F of k added inputs: exceeded by chance in 1 of 1,000 cases for k = 2, and less often for k = 1
LEAST_TO_FILL, LEAST_TO_EXPLAIN = 60, 0.3  # rows without a gap, and share of their variance, to fill the others
LEAST_EXPLAINED = 0.003  # share of the variance that an added input must explain


class Encoded(NamedTuple):
    """A reader that has learned from the targets, and the inputs of the training rows.

    `as_new` are the inputs of the training rows as the reader reads new rows; None if they are the same.
    """

    reader: TableReader
    train: Floats
    as_new: Floats | None


def of_training_rows(
    reader: TableReader, cells: Floats, texts: Sequence[Sequence[str]], y: Floats, rows: Mask
) -> tuple[TableReader, dict[str, Cells]]:
    """A reader that knows the words, the ranges and the gaps of these rows alone, and all cells as it reads them.

    Parameters
    ----------
    reader : TableReader
        A reader that knows all rows and has not learned from the targets.
    cells : array [n, s]
        The cells of its sources, NaN for a gap; see `data.files.parsed_columns.Numbers`.
    texts : sequence of sequences of n str
        Its columns of text.
    y : array [n]
        The targets.
    rows : array of bool [n]
        The training rows.
    """
    named = {reader.target.name: y} | dict(zip(reader.number_sources, cells.T, strict=True))
    nothing = np.zeros(len(y), dtype=bool)
    read = {name: Cells(values, np.isnan(values), nothing, nothing, nothing) for name, values in named.items()}
    readers = {column.name: column for column in (reader.target, *reader.columns)}
    as_before = reader, dict(read)
    if rows.all():
        return as_before
    for name, own in as_before[1].items():
        column, read[name] = relearned(readers[name], own, rows)
        has_policy = column.gaps > 0.0 or column.on_gap not in ("fill", "level")
        readers[name] = column if has_policy else replace(column, on_gap="average")
    for name, column_of_text in zip(reader.texts, texts, strict=True):
        levels = repeated_words([text for text, is_known in zip(column_of_text, rows, strict=True) if is_known])
        readers[name] = replace(readers[name], levels=levels)
    target = readers.pop(reader.target.name)
    inputs = [own for name in reader.number_sources for own in inputs_from(readers[name], target.name)]
    if not inputs and not reader.texts:  # all cells of training rows are gaps
        return as_before
    return replace(reader, columns=tuple(readers.values()), target=target, inputs=tuple(inputs)), read


def fit_to_targets(reader: TableReader, X: Floats, y: Floats, groups: NDArray[np.int64] | None = None) -> Encoded:
    """Learn means per word from training rows, and drop the derived inputs that do not help to explain the target.

    Parameters
    ----------
    reader : TableReader
        With all inputs that can be made; columns of means have no values yet.
    X : array [n, q]
        The inputs of training rows; a column of means holds numbers of words.
    y : array [n]
        The training targets.
    groups : array [n], optional
        The group of each training row; rows of one group are in the same part.
    """
    X, inputs = X.copy(), list(reader.inputs)
    part, new = _parts(len(y), groups), dict[int, Floats]()
    changed: list[tuple[int, Mask, Floats]] = []
    for j, column in enumerate(inputs):
        if column.role == "mean" and not column.values:
            k = len(reader.column(column.source).levels.names)
            codes = X[:, j].astype(int)
            values, default = word_means(codes, y, k + 1)
            values = _apart(values, TIE * float(y.std()))
            for held_out in range(PARTS):
                own = part == held_out
                if own.any() and not own.all():
                    of_rest, default_of_rest = word_means(codes[~own], y[~own], k + 1)
                    X[own, j] = np.append(of_rest, default_of_rest)[codes[own]]
            inputs[j] = column._replace(values=tuple(map(float, values)), default=float(default))
            new[j] = values[codes]
    kept = _that_matter(inputs, X, y)
    for j, gaps in _gaps_to_fill(inputs, X):
        places = [k for k, column in enumerate(inputs) if kept[k] and column.can_fill(inputs[j])]
        filled = _with_values_from(inputs[j], X[:, places], X[:, j], gaps)
        if filled is not None:
            inputs[j] = filled
            changed.append((j, gaps, filled.from_others(X[gaps][:, places])))
    for j, gaps, new_values in changed:  # after all of them are learned from medians
        X[gaps, j] = new_values
    others_of = X[:, [bool(keep) and column.role != "mean" for column, keep in zip(inputs, kept, strict=True)]]
    as_new = X.copy()
    for j, means in new.items():  # for words that training does not have, a regression on the other inputs
        column = inputs[j]._replace(given=_regression(means, others_of))
        left = np.quantile(means - column.regression(others_of), (np.arange(RESIDUALS) + 0.5) / RESIDUALS)
        inputs[j], as_new[:, j] = column._replace(residuals=tuple(map(float, left))), means
    chosen = tuple(column for column, keep in zip(inputs, kept, strict=True) if keep)
    return Encoded(replace(reader, inputs=chosen), X[:, kept], as_new[:, kept] if new else None)


def word_means(codes: NDArray[np.int64], y: Floats, k: int) -> tuple[Floats, float]:
    """The smoothed mean of the target for each of k words, and the mean of all rows."""
    counts = np.bincount(codes, minlength=k)[:k].astype(np.float64)
    mean = float(y.mean())
    sums = np.bincount(codes, weights=y - mean, minlength=k)[:k]
    own = np.divide(sums, counts, out=np.zeros(k), where=counts > 0)
    within = y - mean - np.append(own, np.zeros(max(codes.max(initial=0) + 1 - k, 0)))[codes]
    words = int((counts > 0).sum())
    s2 = float(np.square(within).sum()) / max(len(y) - words, 1)
    n0 = (counts.sum() - np.square(counts).sum() / max(counts.sum(), 1.0)) / max(words - 1, 1)
    between = float((counts * np.square(own)).sum()) / max(words - 1, 1)  # the mean square of an analysis of variance
    t2 = max((between - s2) / max(n0, 1e-300), 1e-6 * max(float(y.var()), 1e-300))
    return mean + counts * own / np.maximum(counts + s2 / t2, 1e-300), mean


def _apart(values: Floats, step: float) -> Floats:
    """The same means [k], where equal ones follow each other in such steps: a kernel compares words by them."""
    near = np.round(values / step) if step > 0.0 else values
    _, group, counts = np.unique(near, return_inverse=True, return_counts=True)
    rank = np.empty(len(values))
    rank[np.argsort(group, kind="stable")] = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    return values + step * rank


def _regression(values: Floats, others: Floats) -> tuple[float, ...]:
    """The ridge regression of values on other inputs [n, q] and their squares: a constant and 2 q slopes."""
    features = np.column_stack([others, np.square(others)])
    center, sd = features.mean(0), features.std(0)
    Z = (features - center) / np.where(sd > 0.0, sd, 1.0)  # [n, 2 q]
    w = np.linalg.solve(Z.T @ Z + RIDGE * len(Z) * np.eye(Z.shape[1]), Z.T @ (values - values.mean()))
    slopes = w / np.where(sd > 0.0, sd, 1.0)
    return (float(values.mean() - center @ slopes), *map(float, slopes))


def _gaps_to_fill(inputs: list[InputColumn], X: Floats) -> Iterator[tuple[int, Mask]]:
    """The columns of numbers with gaps, and the rows with gaps."""
    flags = {column.source: j for j, column in enumerate(inputs) if column.role == "missing"}
    for j, column in enumerate(inputs):
        if column.role == "value" and column.source in flags and not column.given:
            gaps = X[:, flags[column.source]] > 0.5
            if gaps.any() and (~gaps).sum() >= LEAST_TO_FILL:
                yield j, gaps


def _with_values_from(column: InputColumn, others: Floats, values: Floats, gaps: Mask) -> InputColumn | None:
    """The column with the regression that fills its gaps; None if it explains too little of rows it has not seen."""
    if not others.shape[1]:
        return None
    present, drawn = np.flatnonzero(~gaps), np.random.default_rng(0)
    tried = drawn.permutation(present)
    unseen, seen = np.split(tried, [len(tried) // 3])
    ends = float(values[present].min()), float(values[present].max())
    column = column._replace(values=ends, default=float(np.median(values[present])))
    error = values[unseen] - column._replace(given=_regression(values[seen], others[seen])).from_others(others[unseen])
    if np.square(error).mean() > (1.0 - LEAST_TO_EXPLAIN) * values[unseen].var():
        return None
    return column._replace(given=_regression(values[present], others[present]))


def _parts(n: int, groups: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """The part of each row, at random; rows of one group are in the same part."""
    rng = np.random.default_rng(0)
    if groups is None:
        return np.asarray(rng.permutation(np.arange(n) % PARTS))
    _, of_row = np.unique(groups, return_inverse=True)
    size = int(of_row.max(initial=0)) + 1
    return np.asarray(rng.permutation(np.arange(size) % PARTS)[of_row])


def _that_matter(inputs: list[InputColumn], X: Floats, y: Floats) -> Mask:
    """Which inputs to keep: all but flags of gaps and parts of dates that explain nothing beside the others."""
    kept = np.array([column.role not in ("missing", "part") for column in inputs], dtype=bool)
    kept |= [column.detail.startswith("clock ") for column in inputs]  # all that there is of a time of day
    words = {column.source for column in inputs if column.role == "level"}
    for j, column in enumerate(inputs):  # the gap of a word is a word
        kept[j] |= column.role == "missing" and column.source in words
    candidates: dict[tuple[str, str], list[int]] = {}
    for j, column in enumerate(inputs):
        if not kept[j]:
            key = (column.source, column.detail.split(" ")[0] if column.role == "part" else "missing")
            candidates.setdefault(key, []).append(j)
    for j, column in enumerate(inputs):
        if (column.source, "weekday") in candidates and column.role == "value" and _name_months(X[:, j]):
            del candidates[column.source, "weekday"]
    if not candidates:
        return kept
    ends = np.quantile(y, [0.005, 0.995])
    target = np.clip(y, *ends) - np.clip(y, *ends).mean()
    base = _base(X[:, kept], len(y))
    for places in candidates.values():
        if _explains(base, X[:, places], target):
            kept[places] = True
            base = np.column_stack([base, _standardised(X[:, places])])
    return kept


def _name_months(days: Floats) -> bool:
    """Whether dates stand for months, quarters or years, whose weekdays say nothing: all begin, or all end, a month.

    Gaps have been filled, so that one in ten may be another day.
    """
    dates = np.floor(days).astype(np.int64).astype("datetime64[D]")
    return any(np.mean(shifted == shifted.astype("datetime64[M]")) > 0.9 for shifted in (dates, dates + 1))


def _base(X: Floats, n: int) -> Floats:
    """A constant, each input, and the square of those that are no flags, all standardised."""
    Z = _standardised(X)
    Z = Z[:, np.abs(Z).max(0, initial=0.0) > 0.0]
    squares = np.square(Z) - 1.0
    squares = squares[:, squares.std(0) > 1e-9]
    columns = np.column_stack([np.ones(n), Z, squares])
    return columns if columns.shape[1] < n // 3 else np.column_stack([np.ones(n), Z])[:, : max(n // 3, 1)]


def _standardised(X: Floats) -> Floats:
    sd = X.std(0)
    return np.asarray((X - X.mean(0)) / np.where(sd > 0.0, sd, 1.0))


def _explains(base: Floats, added: Floats, y: Floats) -> bool:
    """Whether added columns explain part of the target beside the base, by an F test."""
    n, k = len(y), added.shape[1]
    coefficients, *_ = np.linalg.lstsq(base, np.column_stack([y, added]), rcond=None)
    rest = np.column_stack([y, added]) - base @ coefficients
    residual, new = rest[:, 0], rest[:, 1:]
    if np.square(new).sum() < 1e-9 * max(np.square(added - added.mean(0)).sum(), 1e-300):
        return False
    weights, *_ = np.linalg.lstsq(new, residual, rcond=None)
    before, after = float(residual @ residual), float(np.square(residual - new @ weights).sum())
    degrees = n - base.shape[1] - k
    if degrees < 3 or before <= 0.0:
        return False
    gain = (before - after) / max(after / degrees, 1e-300)
    return gain > SIGNIFICANT and before - after > LEAST_EXPLAINED * float(y @ y)
