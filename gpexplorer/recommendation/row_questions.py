"""Questions about the rows that are asked before an answer is given: each finding is a sentence with its numbers.

leak          one column alone explains the targets, as a copy of the target in other units would, or a sum of columns;
              the only input does so where it is a copy
gross errors  targets so far beyond all others that their rows are set apart before anything is compared
outliers      a few targets lie far from those of the nearest rows, and far from all others
counters      a column counts the rows, and is no date or named as a time
copies        a column is another one, up to a factor and a shift
codes         whole numbers with several rows each have targets that are alike, and those of near numbers are not
two values    the target is yes or no
groups        rows with the same values of some columns are alike; asked where single rows are held out

A cell with 1e6 among numbers near 1 would decide every mean over rows: the scale of the target, the fit of trees and of
other simple models, the hyperparameters of a GP and the comparison of all of them. A target with a heavy tail has large
values too, which belong to it. The two differ in the gap before the largest values. In a tail that falls as a power,
the logarithms of the sorted distances from the median have independent exponential spacings, of which the first has the
mean h, the mean logarithm of the next distances over a smaller one (Hill's estimate of the tail):

    l_1 >= l_2 >= ..    rows 1..m are apart if l_m - l_{m+1} > 8 max(h, 1/4),  h = mean_{j <= k} l_{m+j} - l_{m+k+1}

The differences from the nearest rows have to have such a gap too. By chance the first gap is so large with a
probability of about exp(-8), and later ones with a smaller one. For a normal target the gap is a factor of about 7, for
a lognormal one whose logarithm has a standard deviation of 2 about 1000, and for a Cauchy target 3000.

References
----------
Renyi, A. (1953). On the theory of order statistics. Acta Mathematica Hungarica 4.
Hill, B. (1975). A simple general approach to inference about the tail of a distribution. Annals of Statistics 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import rankdata

from ..data import Split
from ..data.given_folds import Pair
from ..data.quoting import count, listing, quote
from ..problem import Dataset
from .row_order import (
    DEPENDENT_ERRORS,
    FEWEST_PANEL,
    LABELS_AT_MOST,
    LARGEST_GROUP,
    LEAST_PANEL_ROWS,
    PLAIN_NAME,
    are_whole,
    correlation_of_neighbours,
    is_named_time,
    linear_residuals,
    numbers_of,
    share_between_groups,
    times_of,
)  # fmt: skip

Array = NDArray[np.float64]

MOST_ROWS = 5000  # that are looked at
LEAK = 0.998  # squared rank correlation of a column with the target, above which its neighbours are compared
LEAK_ERROR = 1e-3  # the share of the variance that a line in this column leaves, or the neighbours
FEWEST_VALUES = 10  # different ones of a column and of the target
COPY_ERROR = 1e-4  # standard deviation of the difference of standardised columns, of which one is a rounded copy
ROUNDING = 1e-9  # relative error of a sum
MOST_OUTLIERS = 0.05  # share of the rows
FAR = 12.0  # robust standard deviations from the targets of the nearest rows, and from all targets
ALONE = 0.5  # distance of the nearest outlier from the other targets, in ranges of these
NEIGHBOURS, MOST_INPUTS = 6, 40  # nearest rows, which are sought in so many inputs
NAMED_ROWS = 8  # outliers that are named
GAP, LEAST_SPREAD = 8.0, 0.25  # times h, which is about so large in a normal tail and 0 where counts are equal
TAIL_SHARE, FEWEST_IN_TAIL = 0.1, 10  # of the distances on one side of the median, for h
NUMBERED = re.compile(r"\d")  # words such as K001
MUCH_ALIKE = 0.5  # the same where no name or order says that these are groups: new ones have 1.4 times the error
OF_CODES, ROWS_OF_CODE = 0.2, 2  # the same of numbers that may be codes, and rows of one, which few near numbers have
TOGETHER, AS_MANY = 1.1, 0.5  # pairs of values of two columns over those of one, and those of the other, in a set
COPY = 0.99  # correlation of the ranks of two columns, from which one is a copy in other units
CROSSED = 2.0  # times over the rows, up to which groups that have the same rows of other inputs are designed


def findings(rows: Dataset) -> list[str]:
    """The sentences on what was found, the most serious ones first.

    Parameters
    ----------
    rows : Dataset
        The training rows in the order and units of the file.
    """
    apart, all_y = gross_errors(rows), rows.y.double().cpu().numpy()
    kept = np.delete(np.arange(len(rows)), apart)[:MOST_ROWS]
    X, y = numbers_of(rows)[kept], all_y[kept]
    names = rows.names[: X.shape[1]]
    checks: list[Callable[[Array, Array, tuple[str, ...], str], Iterator[str]]]
    times = frozenset(name for name in names if is_named_time(rows, name))
    columns = rows.reader.columns if rows.reader is not None else ()
    numbers = {column.name for column in columns if column.kind == "number"} - times
    checks = [
        _two_values,
        _leaks,
        _copy_of_target,
        _sums,
        partial(_outliers_in_words, rows=kept),
        partial(_counters, times=times, rows=kept),
        _copies,
        partial(_codes, numbers=numbers),
    ]
    sentences = [sentence for check in checks for sentence in check(X, y, names, rows.target)]
    if not len(apart):
        return sentences
    them = "it" if len(apart) == 1 else "them"
    return [
        f"{_far_in_words(apart, all_y, rows.target, apart)} No model has learned from {them}, and no expected error "
        f"counts {them}. {_correct(len(apart))}.",
        *sentences,
    ]


def outliers(X: Array, y: Array) -> NDArray[np.int64]:
    """The rows whose targets are far from those of the nearest rows and stand apart from all others.

    Parameters
    ----------
    X : array [n, d]
    y : array [n]

    Notes
    -----
    Far is more than 12 robust standard deviations, of the difference from the median of the six nearest rows and of
    the target itself. A skewed target has no outliers: for targets above 0, their logarithms have to stand apart too.
    """
    apart = _stand_apart(y)
    if (y > 0.0).all():
        apart &= _stand_apart(np.log(y))
    return np.intersect1d(np.flatnonzero(apart), far_rows(X, y)) if apart.any() else np.flatnonzero(apart)


def far_rows(X: Array, y: Array) -> NDArray[np.int64]:
    """The rows whose targets are far from those of the nearest rows; none if they are many."""
    found = np.flatnonzero(_far(_from_neighbours(X, y)))
    return found if len(found) <= MOST_OUTLIERS * len(y) else found[:0]


def _from_neighbours(X: Array, y: Array) -> Array:
    """The differences [n] of the targets from the median of the nearest rows; 0 where these cannot be found."""
    if len(y) < 4 * NEIGHBOURS or not 0 < X.shape[1] <= MOST_INPUTS or not np.isfinite(X).all():
        return np.zeros(len(y))
    Z = X / np.maximum(X.std(0), np.finfo(float).tiny)
    neighbours = cKDTree(Z).query(Z, k=NEIGHBOURS + 1)[1][:, 1:]
    return np.asarray(y - np.median(y[neighbours], axis=1))


def _far(values: Array) -> NDArray[np.bool_]:
    centred = np.abs(values - np.median(values))
    middle = np.quantile(centred, 0.5)
    scale = 1.4826 * middle if middle > 0.0 else float(np.quantile(centred, 0.9))
    return centred > FAR * max(scale, np.finfo(float).tiny)


def _stand_apart(values: Array) -> NDArray[np.bool_]:
    """The far values with a gap between them and the others of half the range of these."""
    far = _far(values)
    others = values[~far]
    if not far.any() or not len(others):
        return far
    low, high = others.min(), others.max()
    distance = np.maximum(values - high, low - values)
    return far & (distance > ALONE * max(high - low, np.finfo(float).tiny))


def gross_errors(rows: Dataset) -> NDArray[np.int64]:
    """The rows whose targets are far beyond the tail of all others, and far from those of near rows.

    Parameters
    ----------
    rows : Dataset
        In the units of the file.
    """
    X, y = numbers_of(rows), rows.y.double().cpu().numpy()
    beyond = beyond_the_tail(y)
    random, result = np.random.default_rng(0), [np.flatnonzero(beyond)[:0]]
    blocks = max(int(0.5 * MOST_OUTLIERS * MOST_ROWS), 1) if len(y) > MOST_ROWS else len(y)
    for first in range(0, int(beyond.sum()), blocks):  # of many rows, a random draw stands for the others
        some = np.flatnonzero(beyond)[first : first + blocks]
        others = np.setdiff1d(np.arange(len(y)), some)
        others = random.permutation(others)[: MOST_ROWS - len(some)] if len(y) > MOST_ROWS else others
        looked_at = np.r_[some, others]
        differences = _from_neighbours(X[looked_at], y[looked_at])
        is_far = _far(y[looked_at]) & _far(differences) & beyond_the_tail(differences)
        result.append(some[is_far[: len(some)]])
    return np.sort(np.concatenate(result))


def beyond_the_tail(y: Array) -> NDArray[np.bool_]:
    """Whether each target [n] lies after a gap that is too large for the tail of the others."""
    centred, result = y - np.median(y), np.zeros(len(y), dtype=bool)
    most = int(MOST_OUTLIERS * len(y))
    for side in (1.0, -1.0):
        rows = np.flatnonzero(side * centred > 0.0)
        if len(rows) <= FEWEST_IN_TAIL + most:  # such as costs, of which half are 0 and none is less
            rows = np.flatnonzero(centred)
        order = rows[np.argsort(-np.abs(centred[rows]), kind="stable")]
        logs = np.log(np.abs(centred[order]))  # in falling order
        k = max(int(TAIL_SHARE * len(logs)), FEWEST_IN_TAIL)
        sums = np.r_[0.0, np.cumsum(logs)]
        m = np.arange(1, min(most, len(logs) - k - 1) + 1)
        h = (sums[m + k] - sums[m]) / k - logs[m + k]
        after_gap = m[logs[m - 1] - logs[m] > GAP * np.maximum(h, LEAST_SPREAD)]
        result[order[: after_gap.max(initial=0)]] = True
    return result


def without_gross_errors(split: Split) -> Split:
    """The split without these training rows."""
    apart = gross_errors(split.train)
    if not len(apart):
        return split
    train = split.train.rows(torch.from_numpy(np.delete(np.arange(len(split.train)), apart)))
    return replace(split, train=train, key=f"{split.key}/without-gross-errors")


def pairs_without_gross_errors(pairs: Sequence[Pair], rows: Dataset) -> tuple[Pair, ...]:
    """These pairs by the numbers of the other rows; one that holds out none of them is left out."""
    is_kept = np.ones(len(rows), dtype=bool)
    is_kept[gross_errors(rows)] = False
    number = np.cumsum(is_kept) - 1
    others = [Pair(*(number[rows[is_kept[rows]]] for rows in pair)) for pair in pairs]
    return tuple(pair for pair in others if len(pair.train) and len(pair.test))


def _far_in_words(found: NDArray[np.int64], y: Array, target: str, numbers: NDArray[np.int64]) -> str:
    """Which rows are far from the middle of the target, and the standard deviation of the others."""
    distance, others = np.abs(y[found] - np.median(y)), np.delete(y, found)
    named = ", ".join(f"{row + 1:,}" for row in numbers[:NAMED_ROWS]) + (", ..." if len(found) > NAMED_ROWS else "")
    return (
        f"{count(len(found), 'row')} ({named}) {'lies' if len(found) == 1 else 'lie'} {distance.min():.3g} or more "
        f"from the middle of {quote(target)}; the standard deviation of the others is {others.std():.3g}."
    )


def _correct(rows: int) -> str:
    return f"Correct or remove {'it if it is a mistake' if rows == 1 else 'them if they are mistakes'}"


def _outliers_in_words(
    X: Array, y: Array, names: tuple[str, ...], target: str, rows: NDArray[np.int64]
) -> Iterator[str]:
    found = outliers(X, y)
    if len(found) and len(np.unique(y)) > 2:  # of two values, one is rare
        yield (
            f"{_far_in_words(found, y, target, rows[found])} {_correct(len(found))}; among the candidates are models "
            "that give such rows a noise of their own."
        )


def _two_values(X: Array, y: Array, names: tuple[str, ...], target: str) -> Iterator[str]:
    values, counts = np.unique(y, return_counts=True)
    if len(values) == 2:
        yield (
            f"{quote(target)} has two values, {values[0]:g} ({100 * counts[0] / len(y):.0f} % of the rows) and "
            f"{values[1]:g}: this is a question of classification. The mean of a prediction can be read as a "
            "share, but its band cannot."
        )


def _leaks(X: Array, y: Array, names: tuple[str, ...], target: str) -> Iterator[str]:
    if X.shape[1] < 2 or len(np.unique(y)) < FEWEST_VALUES:
        return
    for j, name in enumerate(names):
        flag = f"{name} is missing"  # the values of other rows were filled in
        rows = X[:, names.index(flag)] == 0.0 if flag in names else np.ones(len(X), dtype=bool)
        column, values = X[rows, j], y[rows]
        if min(len(np.unique(column)), len(np.unique(values))) < FEWEST_VALUES:
            continue
        left, is_same_order = _left_by_one(column, values), _in_one_order(column, values)
        if left < LEAK_ERROR or is_same_order:
            what = f"alone explains {100 * (1 - left):.2f} % of the variance of {quote(target)}"
            what = what if left < LEAK_ERROR else f"puts all rows in the order of {quote(target)}"
            yield (
                f"{quote(name)} {what}: if it is not known before {quote(target)} is, leave it out.\n"
                f'drop=["{name}"] leaves it out.'
            )


def _copy_of_target(X: Array, y: Array, names: tuple[str, ...], target: str) -> Iterator[str]:
    """The only input is the target in other units; a function of it, or a line with noise, is what can be learned."""
    if X.shape[1] != 1 or min(len(np.unique(X)), len(np.unique(y))) < FEWEST_VALUES:
        return
    Z = (np.column_stack([X[:, 0], y]) - [X.mean(), y.mean()]) / [X.std(), y.std()]
    if (Z[:, 0] * np.sign((Z[:, 0] * Z[:, 1]).sum()) - Z[:, 1]).std() < COPY_ERROR:
        yield (
            f"{quote(names[0])} is a copy of {quote(target)}, up to a factor and a shift, and the only input: if it is "
            f"not known before {quote(target)} is, give other columns to learn from."
        )


def _left_by_one(column: Array, y: Array) -> float:
    """The share of the variance of y that a line, in y or in log y, or the neighbours in this column leave."""
    shares = [1.0 - np.corrcoef(column, y)[0, 1] ** 2]
    if (y > 0.0).all():
        logarithms = np.log(column) if (column > 0.0).all() else column
        shares += [1.0 - np.corrcoef(own, np.log(y))[0, 1] ** 2 for own in (column, logarithms)]
    if np.corrcoef(rankdata(column), rankdata(y))[0, 1] ** 2 >= LEAK:
        sorted_y = y[np.argsort(column, kind="stable")]
        shares.append(np.square(sorted_y[1:-1] - 0.5 * (sorted_y[:-2] + sorted_y[2:])).mean() / y.var())
    return float(min(shares))


def _in_one_order(column: Array, y: Array) -> bool:
    """Whether y never falls, or never rises, with the column, or the column with y, as a rounded copy does."""
    pairs = ((first, side * second) for side in (1.0, -1.0) for first, second in ((column, y), (y, column)))
    return any(bool((np.diff(second[np.lexsort((second, first))]) >= 0.0).all()) for first, second in pairs)


def _sums(X: Array, y: Array, names: tuple[str, ...], target: str) -> Iterator[str]:
    """The target is the sum or the difference of inputs."""
    n, q = X.shape
    if not 2 <= q <= MOST_INPUTS or n < 2 * q + FEWEST_VALUES:
        return
    spread = np.maximum(X.std(0), np.finfo(float).tiny)
    factors = np.linalg.lstsq((X - X.mean(0)) / spread, y - y.mean(), rcond=None)[0] / spread
    parts = np.flatnonzero(np.abs(factors) > 0.5)
    signs = np.sign(factors[parts])
    if len(parts) < 2 or signs.max() < 0.0 or not np.allclose(X[:, parts] @ signs, y, rtol=ROUNDING, atol=0.0):
        return
    order = np.argsort(-signs, kind="stable")
    written = " ".join(f"{'+' if signs[k] > 0.0 else '-'} {quote(names[parts[k]])}" for k in order)
    dropped = ", ".join(f'"{names[part]}"' for part in parts)
    yield (
        f"{quote(target)} is {written.removeprefix('+ ')} in every row: if these are not known before {quote(target)} "
        f"is, leave them out.\ndrop=[{dropped}] leaves them out."
    )


def _counters(
    X: Array, y: Array, names: tuple[str, ...], target: str, times: frozenset[str], rows: NDArray[np.int64]
) -> Iterator[str]:
    for j, name in enumerate(names):
        if name not in times and len(X) > 20 and X.shape[1] > 1 and bool((np.diff(X[:, j]) == np.diff(rows)).all()):
            yield (
                f"{quote(name)} counts the rows from {X[0, j]:g} to {X[-1, j]:g}: leave it out, "
                f'unless it is a time.\ndrop=["{name}"] leaves it out.'
            )


def _copies(X: Array, y: Array, names: tuple[str, ...], target: str) -> Iterator[str]:
    if not 2 <= X.shape[1] <= 200 or len(X) < 10:
        return
    spread = X.std(0)
    varies = np.flatnonzero(spread > 0.0)
    Z = (X[:, varies] - X[:, varies].mean(0)) / spread[varies]
    correlation = np.abs(Z.T @ Z / len(Z))
    pairs = [(i, j) for i in range(len(varies)) for j in range(i) if correlation[i, j] > 1.0 - 1e-9]
    copies = sorted({i for i, _ in pairs})
    if copies:
        of = {i: j for i, j in reversed(pairs)}
        named = [names[varies[i]] for i in copies]
        verb, them = ("is a copy", "it") if len(copies) == 1 else ("are copies", "them")
        written = ", ".join(f'"{name}"' for name in named)
        yield (
            f"{listing(named)} {verb} of {listing([names[varies[of[i]]] for i in copies])}, up to a factor and a "
            f"shift, and can be left out.\ndrop=[{written}] leaves {them} out."
        )


def _codes(X: Array, y: Array, names: tuple[str, ...], target: str, numbers: Collection[str]) -> Iterator[str]:
    """Whole numbers that may be names of stores, of which a model of numbers would learn hardly anything."""
    residuals = linear_residuals(X, y) if numbers else y
    for j in (j for j, name in enumerate(names) if name in numbers and are_whole(X[:, j])):
        _, number, sizes = np.unique(X[:, j], return_inverse=True, return_counts=True)
        if not FEWEST_PANEL <= len(sizes) <= len(y) / ROWS_OF_CODE or sizes.max() >= LARGEST_GROUP * len(y):
            continue
        share, errors = share_between_groups(number, residuals)
        is_smooth = correlation_of_neighbours(X[:, j], residuals)[0] > LABELS_AT_MOST
        if share >= OF_CODES and errors >= DEPENDENT_ERRORS and not is_smooth:
            yield (
                f"{quote(names[j])} has {len(sizes):,} whole numbers with {np.mean(sizes):.3g} rows each, which may be "
                f"codes: {100 * share:.0f} % of the variance that a linear regression leaves lies between them, but "
                "near numbers are not alike, and it was read as a number.\n"
                f'kinds={{{quote(names[j])}: "words"}} reads it as words, with a mean for each.'
            )


def may_name_groups(rows: Dataset, name: str) -> bool:
    """Whether repeated values may be names: words with digits, or whole numbers in no order of targets."""
    if name not in rows.names[: numbers_of(rows).shape[1]]:
        column = rows.reader.column(name) if rows.reader is not None else None
        return column is not None and all(NUMBERED.search(word) for word in column.levels.names)
    if PLAIN_NAME.fullmatch(name.lower()) or is_named_time(rows, name):
        return False
    X = numbers_of(rows)
    residuals = linear_residuals(X, rows.y.double().cpu().numpy())
    return correlation_of_neighbours(times_of(rows, name), residuals)[0] <= LABELS_AT_MOST


def sets_of_rows(rows: Dataset) -> tuple[list[str], NDArray[np.int64]]:
    """Columns that name sets of rows between them, as age and weight do of a patient, and the set [n] of each row.

    Each has one value in a set, and nearly as many in all as there are sets; none is a copy of another one, or a time.
    """
    X, n, codes = numbers_of(rows), len(rows), dict[str, NDArray[np.int64]]()
    dates = {column.name for column in rows.reader.columns if column.kind == "date"} if rows.reader else set[str]()
    sources = [column.source for column in rows.reader.inputs] if rows.reader else list(rows.names)
    for j, name in enumerate(rows.names[: X.shape[1]]):
        values, code = np.unique(X[:, j], return_inverse=True)
        is_repeated = FEWEST_PANEL <= len(values) <= n / LEAST_PANEL_ROWS
        if is_repeated and sources[j] not in dates and not is_named_time(rows, name):
            codes[name] = code.astype(np.int64)
    for first in sorted(codes, key=lambda name: -int(codes[name].max())):
        names, most = [first], int(codes[first].max()) + 1
        for name, code in codes.items():
            different = int(code.max()) + 1
            if different < AS_MANY * most or len(np.unique(codes[first] * different + code)) > TOGETHER * most:
                continue
            if not any(abs(np.corrcoef(codes[other], code)[0, 1]) > COPY for other in names):
                names.append(name)
        if len(names) > 1:
            return names, np.unique(np.column_stack([codes[name] for name in names]), axis=0, return_inverse=True)[1]
    return [], np.empty(0, dtype=np.int64)


def question_of_groups(rows: Dataset, values: NDArray[Any], named: str, way: str) -> str:
    """A sentence if rows with the same value [n] are alike, and this is no designed experiment; else ""."""
    _, first, number = np.unique(values, return_index=True, return_inverse=True)
    X, sizes = numbers_of(rows), np.bincount(number)
    k, n, y = len(sizes), len(number), rows.y.double().cpu().numpy()
    varies = ~(X == X[first][number]).all(0)
    crossed = k * len(np.unique(X[:, varies], axis=0)) <= CROSSED * n
    if crossed or not FEWEST_PANEL <= k <= n / LEAST_PANEL_ROWS or sizes.max() >= LARGEST_GROUP * n:
        return ""
    share, errors = share_between_groups(number, linear_residuals(X, y))
    if share < MUCH_ALIKE or errors < DEPENDENT_ERRORS:
        return ""
    return (
        f"{named} {count(k, 'value')} with {np.median(sizes):.3g} rows each, which may be groups such as people or "
        f"places: {100 * share:.0f} % of the variance that a linear regression leaves lies between them, but single "
        f"rows were held out. If new rows are of new groups, {way}."
    )
