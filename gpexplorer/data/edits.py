"""Rows added to, or taken from, a training set by hand: few enough to be written into a link.

An edit is a list of numbers: [x_1, ..., x_d, y] adds a row at the end, [i] takes out row i of those there are by then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError
from ..problem import Dataset
from .quoting import quote
from .splits import Split, key_of

MOST = 60  # edits of one data set: a link must hold them
LARGEST = 1e12  # of a number in the units of the file


def checked(edits: Any) -> list[list[float]]:
    """The edits as they may be applied; DataError where they are not a short list of lists of finite numbers."""
    if not isinstance(edits, list | tuple) or len(edits) > MOST:
        raise DataError(f"edits is {quote(edits)}; give a list of at most {MOST}, such as [[0.5, 1.2], [17]].")
    for edit in edits:
        if not isinstance(edit, list | tuple) or not edit or not all(map(_finite, edit)):
            raise DataError(f"The edit {quote(edit)} is no list of finite numbers, such as [0.5, 1.2] or [17].")
    return [list(edit) for edit in edits]


def edited(split: Split, edits: Any) -> Split:
    """The split with its training rows changed, in the order of the edits; the test rows stay. O(n) an edit."""
    done = checked(edits)
    train = split.train
    if not isinstance(train.X, Tensor):
        raise DataError(f"{split.name}: rows can be added where inputs are numbers; these are {type(train.X[0])}.")
    if done and train.scale is not None:
        raise DataError(
            f"{split.name}: its rows are mapped from a file in scaled units and take no edits: load it whole."
        )
    for edit in done:
        train = _without(train, edit[0], split.name) if len(edit) == 1 else _with(train, edit, split.name)
    return replace(split, train=train, key=key_of(split.name, [split.key, done], 0)) if done else split


def _finite(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and abs(value) <= LARGEST


def _without(train: Dataset, row: float, name: str) -> Dataset:
    n = len(train)
    if row != int(row) or not 0 <= row < n or n <= 2:
        raise DataError(f"{name}: there is no row {row:g} to take out of {n} training rows, of which two must stay.")
    return train.rows([i for i in range(n) if i != int(row)])


def _with(train: Dataset, numbers: Sequence[float], name: str) -> Dataset:
    if len(numbers) != train.d + 1:
        raise DataError(f"{name}: an added row has {train.d} inputs and a target, not {len(numbers)} numbers.")
    new = train.X.new_tensor(numbers)
    return replace(train, X=torch.cat([train.X, new[None, :-1]]), y=torch.cat([train.y, new[-1:]]))
