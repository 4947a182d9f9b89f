"""Rows that a user adds to a training set, or removes from it: few enough to be written into a link.

An edit is a list of numbers. [x_1, ..., x_d, y] adds a row at the end. [i] removes row i, where rows are counted after
all earlier edits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError
from ..problem import Dataset, described_rows
from .quoting import quote
from .splits import Split, key_of

MAX_EDITS = 60  # per data set, because a link contains them
LARGEST = 1e12  # absolute value of a number, in the units of the file


def checked(edits: Any) -> list[list[float]]:
    """Return the edits as lists; DataError unless they are a short list of lists of finite numbers."""
    if not isinstance(edits, list | tuple) or len(edits) > MAX_EDITS:
        raise DataError(f"edits is {quote(edits)}; give a list of at most {MAX_EDITS}, such as [[0.5, 1.2], [17]].")
    for edit in edits:
        if not isinstance(edit, list | tuple) or not edit or not all(map(_is_possible, edit)):
            raise DataError(f"The edit {quote(edit)} is not a list of finite numbers, such as [0.5, 1.2] or [17].")
    return [list(edit) for edit in edits]


def edited(split: Split, edits: Any) -> Split:
    """Apply edits to the training rows of a split, in their order; the test rows do not change.

    Parameters
    ----------
    split : Split
        Rows in the units of their file.
    edits : list of list of float
        See the module docstring.

    Returns
    -------
    Split
        A split with another key. O(n) per edit.

    Raises
    ------
    DataError
        If an edit is not valid, or if the inputs are not numbers, or if the rows are scaled already.
    """
    valid = checked(edits)
    train = split.train
    if not isinstance(train.X, Tensor):
        raise DataError(
            f"{split.name}: rows can be edited only if the inputs are numbers; these are {described_rows(train.X)}."
        )
    if valid and train.scale is not None:
        raise DataError(
            f"{split.name}: its rows are mapped from a file in scaled units and cannot be edited: load it whole."
        )
    for edit in valid:
        train = _without_row(train, edit[0], split.name) if len(edit) == 1 else _with_row(train, edit, split.name)
    return replace(split, train=train, key=key_of(split.name, [split.key, valid], 0)) if valid else split


def _is_possible(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _without_row(train: Dataset, row: float, name: str) -> Dataset:
    n = len(train)
    if row != int(row) or not 0 <= row < n or n <= 2:
        raise DataError(
            f"{name}: there is no row {row:g} to remove from {n:,} training rows, of which two must remain."
        )
    return train.rows([i for i in range(n) if i != int(row)])


def _with_row(train: Dataset, numbers: Sequence[float], name: str) -> Dataset:
    if len(numbers) != train.d + 1:
        raise DataError(
            f"{name}: an added row needs {train.d} inputs and a target, but this one has {len(numbers):,} numbers."
        )
    new_row = train.X.new_tensor(numbers)
    groups = train.groups  # an added row is in none, so that it is never held out
    if groups is not None:
        groups = groups._replace(number=torch.cat([groups.number, groups.number.new_tensor([-1])]))
    X, y = torch.cat([train.X, new_row[None, :-1]]), torch.cat([train.y, new_row[-1:]])
    as_new = None if train.as_new is None else torch.cat([train.as_new, new_row[None, :-1]])
    return replace(train, X=X, y=y, groups=groups, as_new=as_new)
