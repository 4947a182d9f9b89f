"""The arguments of `recommend`: rows in any form that can be read, and an amount of memory in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import torch

from .. import data as data_sets
from ..data import Split
from ..data.loading import CHOICES
from ..data.quoting import listing, nearest, quote
from ..data.splits import Given, part
from ..errors import DataError, SettingError
from ..mixed_rows import MixedRows
from ..problem import Dataset
from ..runs.setting_checks import number, quoted

FEWEST_ROWS = 10
ARGUMENTS = ("seconds", "memory", "seed", "folds", "among", "on_progress", "should_stop", *CHOICES)
UNITS = {"": 1.0, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
NO_ROWS = torch.arange(0)
MOST_COMPARED = 200_000  # rows that are compared with each other: sorting them takes half a second


def rows_of(X: Any, y: Any, options: Mapping[str, Any] | None = None) -> Split:
    """The training rows in memory, in the units of the file; the notes are those on rows of one's own.

    Parameters
    ----------
    X, y : object
        Rows in any form, as `recommend` takes them.
    options : mapping, optional
        Options of `load`.
    """
    options = options or {}
    unknown = [name for name in options if name not in CHOICES]
    if unknown:
        raise SettingError(f"recommend has no argument {quote(unknown[0])}. {nearest(unknown[0], ARGUMENTS)}")
    if isinstance(y, str):
        raise SettingError(f"y is the text {quote(y)}: for a column of that name, give target={quote(y)} instead of y.")
    source = X if y is None else (X, y)
    if isinstance(source, Split) and options:
        raise SettingError(f"A Split has its columns already: give {listing(options)} to gpx.load.")
    if isinstance(source, Split):
        split = replace(source, notes=())
    elif y is None and not isinstance(source, tuple):
        split = data_sets.load(source, **options)
        split = replace(split, notes=()) if data_sets.is_named(source) else split
    else:
        split = _all_rows(data_sets.load(source, **options))
    if split.train.scale is not None:
        raise DataError(
            "The rows are scaled or mapped from a file; recommend takes rows in memory, in the units of the file. Load "
            "a sample of them."
        )
    if len(split.train) < FEWEST_ROWS:
        raise DataError(f"There are {len(split.train)} rows; a recommendation needs at least {FEWEST_ROWS}.")
    return split


def _all_rows(split: Split) -> Split:
    """All rows as training rows, in the order of the arrays: what a caller hands over is all for learning.

    The split must be the first one, split=0, of rows that come without a split of their own.
    """
    train, test = split.train, split.test
    if isinstance(train.X, MixedRows):
        X: Any = train.X.joined(test.X)
    elif isinstance(train.X, list):
        X = [*train.X, *test.X]
    else:
        X = torch.cat([train.X, test.X])
    every = Dataset(X, torch.cat([train.y, test.y]), train.names, train.target)
    positions = np.concatenate([np.flatnonzero(mask) for mask in part(every, 0, Given())])
    return replace(split, train=every.rows(torch.from_numpy(np.argsort(positions))), test=test.rows(NO_ROWS))


def repeated_rows(rows: Dataset) -> int:
    """How many rows of numbers repeat an earlier one, the target included; 0 where groups keep them together."""
    if not isinstance(rows.X, torch.Tensor) or rows.groups is not None or len(rows) > MOST_COMPARED:
        return 0
    values = np.column_stack([rows.X.double().cpu().numpy(), rows.y.double().cpu().numpy()])
    return len(values) - len(np.unique(values, axis=0))


def bytes_of(memory: str | float | None) -> float:
    """A number of bytes; by default half of the memory that is free."""
    if memory is None:
        return 0.5 * psutil.virtual_memory().available
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*([0-9.]{1,12})\s*([KMGT]?B|)\s*", memory, re.IGNORECASE)
        with suppress(ValueError):
            if match:
                memory = float(match[1]) * UNITS[match[2].upper()]
    if isinstance(memory, str):
        raise SettingError(f'memory is {quoted(memory)}; give a number of bytes, or text such as "2 GB".')
    return float(number("memory", memory, whole=False, low=0, above=True))
