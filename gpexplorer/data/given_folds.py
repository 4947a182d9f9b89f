"""Folds that a caller gives in place of a random draw: groups of rows, or a splitter of scikit-learn.

Folds may be given as a splitter, such as GroupKFold(5), as an iterable of pairs (training rows, held-out rows), or as
the group of each row, from which whole groups are then drawn. scikit-learn itself is not needed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import SettingError, has_items, quoted
from ..linalg.randomness import generator
from ..problem import RowGroups
from .in_memory import plain_array

Rows = NDArray[np.int64]
FORMS = "give a splitter such as GroupKFold(5), or a list of pairs (training rows, held-out rows)"


class Pair(NamedTuple):
    """The rows of one fold: those to fit, and those to hold out."""

    train: Rows
    test: Rows


def fold_pairs(folds: Any, X: Any, y: Any, groups: Any = None) -> list[Pair]:
    """Return the pairs (training rows, held-out rows) that a splitter or an iterable stands for.

    Parameters
    ----------
    folds : splitter or iterable
        An object with scikit-learn's method `split`, or pairs of row numbers or of masks [n].
    X, y : array
        All rows, which are passed to the splitter. Folds that are stratified by classes must be given as pairs,
        because `StratifiedKFold` refuses targets that are real numbers.
    groups : array [n], optional
        The group of each row, which is passed to the splitter.

    Raises
    ------
    SettingError
        If there are no pairs, if a row does not exist or is in both halves of a pair, or if a half is empty.
    """
    n = len(y)
    if isinstance(folds, str) or not (hasattr(folds, "split") or has_items(folds)):
        raise SettingError(f"folds is {quoted(folds)}; {FORMS}.")
    try:
        pairs = list(folds.split(X, y, groups) if hasattr(folds, "split") else folds)
    except (TypeError, ValueError) as error:
        raise SettingError(f"folds is {quoted(folds)}, which gives no folds of these {n:,} rows: {error}") from None
    if not pairs:
        raise SettingError(f"folds is empty; {FORMS}.")
    return [_checked_pair(k, pair, n) for k, pair in enumerate(pairs)]


def folds_of_rows(pairs: list[Pair], n: int) -> RowGroups:
    """Return the number of the fold that holds each row out; -1 for rows that none holds out.

    Raises
    ------
    SettingError
        If two folds hold out the same row, or if a fold leaves a row out of both halves. A method that learns from all
        folds at once holds out each row once at most, and trains on all other rows.
    """
    number = np.full(n, -1)
    for k, (train, test) in enumerate(pairs):
        repeated = test[number[test] >= 0]
        if len(repeated):
            first_fold = number[repeated[0]]
            raise SettingError(
                f"folds: row {repeated[0]} is held out by folds {first_fold} and {k}. Use folds that hold out each "
                "row once, such as those of KFold or GroupKFold."
            )
        if len(train) + len(test) < n:
            left_out = n - len(train) - len(test)
            raise SettingError(
                f"folds: fold {k} leaves {left_out} of {n:,} rows out of both its halves, as folds of a time "
                "series do. Use folds that train on all rows that they do not hold out."
            )
        number[test] = k
    return RowGroups(torch.from_numpy(number), are_folds=True)


def groups_of_rows(groups: Any, n: int) -> RowGroups:
    """Return groups given as numbers or texts [n]; SettingError unless there are two at least, one value per row."""
    values = np.asarray(plain_array(groups))
    if values.shape != (n,):
        raise SettingError(f"groups has shape {list(values.shape)}; give one value for each of {n:,} rows.")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise SettingError(f"groups has a missing value in row {int(np.flatnonzero(~np.isfinite(values))[0])}.")
    names, number = np.unique(values.astype(str) if values.dtype.kind == "O" else values, return_inverse=True)
    if len(names) < 2:
        raise SettingError("groups has one value for all rows; two groups at least are needed to hold one out.")
    return RowGroups(torch.from_numpy(number.astype(np.int64)), are_folds=False)


def row_groups(folds: Any, X: Any, y: Any, groups: Any = None) -> RowGroups | None:
    """Return how a method of cross-validation should hold rows out; None if neither folds nor groups are given."""
    if folds is None:
        return None if groups is None else groups_of_rows(groups, len(y))
    return folds_of_rows(fold_pairs(folds, X, y, groups), len(y))


def drawn_folds(groups: Tensor, count: int, seed: int) -> Tensor:
    """Draw folds of about equal size from whole groups.

    Parameters
    ----------
    groups : Tensor [n]
        The number of the group of each row; rows with -1 are never held out.
    count : int
        Number of folds.
    seed : int
        Seed of the order in which groups of equal size are assigned.

    Returns
    -------
    Tensor [n]
        The fold of each row, or -1.

    Raises
    ------
    SettingError
        If there are fewer groups than folds.

    Notes
    -----
    The largest group first, each to the fold with the fewest rows so far. O(G log G) for G groups.
    """
    groups_to_divide = groups[groups >= 0].cpu()
    numbers, index, sizes = torch.unique(groups_to_divide, return_inverse=True, return_counts=True)
    if len(numbers) < count:
        raise SettingError(f"There are {len(numbers):,} groups of rows and {count:,} folds; lower the number of folds.")
    order = torch.randperm(len(numbers), generator=generator(seed, "groups"))
    order = order[torch.argsort(sizes[order], descending=True, stable=True)]
    fold_of_group, fold_sizes = torch.zeros_like(numbers), [(0, fold) for fold in range(count)]
    for group, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        rows, fold = heapq.heappop(fold_sizes)
        fold_of_group[group] = fold
        heapq.heappush(fold_sizes, (rows + size, fold))
    folds = torch.full_like(groups, -1)
    folds[groups >= 0] = fold_of_group[index].to(groups.device)
    return folds


def drawn_share(groups: Tensor, share: float, seed: int) -> Tensor:
    """Draw whole groups that have about this share of the rows together: a mask [n] of the rows to hold out.

    Groups are taken in random order until they have the share. One at least is held out, and one at least is not.
    """
    numbers, index, sizes = torch.unique(groups.cpu(), return_inverse=True, return_counts=True)
    order = torch.randperm(len(numbers), generator=generator(seed, "groups"))
    order = order[numbers[order] >= 0]
    rows_before = sizes[order].cumsum(0) - sizes[order]
    chosen = order[(rows_before < share * len(groups)) & (rows_before + sizes[order] < len(groups))]
    if not len(chosen):
        raise SettingError("One group has nearly all rows, so that no group can be held out; divide it.")
    is_held_out = torch.zeros(len(numbers), dtype=torch.bool)
    is_held_out[chosen] = True
    return is_held_out[index].to(groups.device)


def drawn_parts(groups: Tensor, size: float, seed: int) -> Tensor:
    """Divide the rows into parts of whole groups with about `size` rows each.

    Parameters
    ----------
    groups : Tensor [n]
        The number of the group of each row; rows with -1 are in no part.
    size : float
        The desired number of rows of a part, at most about half of all.
    seed : int
        Seed of the order of the groups.

    Returns
    -------
    Tensor [n]
        The number of the part of each row, or -1; part 0 is the one whose size is closest to the desired one.

    Notes
    -----
    A group with more than half of the rows is in no part, because too little would be left to learn from; if there is
    one group, no row is in a part. Groups are placed in random order on a line that is cut into equal lengths, and
    each belongs to the piece where its middle lies. O(G log G) for G groups.
    """
    numbers, index, sizes = torch.unique(groups.cpu(), return_inverse=True, return_counts=True)
    order = torch.randperm(len(numbers), generator=generator(seed, "groups"))
    order = order[(numbers[order] >= 0) & (2 * sizes[order] <= len(groups))]
    part_of_group = torch.full_like(numbers, -1)
    if len(order):
        rows = sizes[order].double()
        middles, total = rows.cumsum(0) - 0.5 * rows, float(rows.sum())
        pieces = max(round(total / size), 2)
        _, part = torch.unique((middles * pieces / total).long(), return_inverse=True)
        by_distance = (torch.bincount(part, rows) - size).abs().argsort(stable=True)
        part_of_group[order] = by_distance.argsort()[part]
    return part_of_group[index].to(groups.device)


def _checked_pair(k: int, pair: Any, n: int) -> Pair:
    if isinstance(pair, (str, bytes)) or not isinstance(pair, Iterable) or len(halves := list(pair)) != 2:
        raise SettingError(f"folds: fold {k} is {quoted(pair)}; {FORMS}.")
    train, test = (_row_numbers(k, half, n) for half in halves)
    common = np.intersect1d(train, test)
    if len(common):
        raise SettingError(f"folds: row {common[0]} of fold {k} is a training row and held out; it can only be one.")
    return Pair(train, test)


def _row_numbers(k: int, half: Any, n: int) -> Rows:
    rows = np.asarray(half)
    if rows.dtype == bool and rows.shape == (n,):
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        raise SettingError(f"folds: a half of fold {k} is {quoted(half)}; give row numbers, one at least, or a mask.")
    if rows.min() < 0 or rows.max() >= n:
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise SettingError(f"folds: fold {k} names row {wrong}, but the {n:,} rows are numbered from 0 to {n - 1}.")
    return np.unique(rows).astype(np.int64)
