"""The arguments of `recommend`: rows in any form that can be read, and an amount of memory in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch

from .. import data as data_sets
from ..data import Split
from ..data.loading import CHOICES, choice_entries
from ..data.mapped import sha256_of
from ..data.quoting import listing, nearest, quote
from ..data.splits import ALL
from ..errors import DataError, SettingError, number, quoted
from ..memory import free_memory
from ..problem import Dataset

FEWEST_ROWS = 10
ARGUMENTS = ("seconds", "memory", "seed", "folds", "before", "prefer", "among", "on_progress", "should_stop", *CHOICES)
UNITS = {"": 1.0, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
NO_ROWS = torch.arange(0)
MOST_COMPARED = 200_000  # rows that are compared with each other: sorting them takes half a second


def rows_of(X: Any, y: Any, options: Mapping[str, Any] | None = None) -> Split:
    """The training rows in memory, in the units of the file, with notes on them.

    Those of a Split, and of a set with a name, are known: only the ones that ask how to read a column are kept, whose
    second line has the option that says so.

    Parameters
    ----------
    X, y : object
        Rows in any form, as `recommend` takes them, or a function that reads them with a column of groups, or with "".
    options : mapping, optional
        Options of `load`.
    """
    options = dict(options or {})
    if callable(X):
        X = X(options.pop("groups", ""))
    unknown = [name for name in options if name not in CHOICES]
    if unknown:
        raise SettingError(f"recommend has no argument {quote(unknown[0])}. {nearest(unknown[0], ARGUMENTS)}")
    if isinstance(y, str):
        raise SettingError(f"y is the text {quote(y)}: for a column of that name, give target={quote(y)} instead of y.")
    source = X if y is None else (X, y)
    if isinstance(source, Split) and options:
        raise SettingError(f"A Split has its columns already: give {listing(options)} to gpx.load.")
    is_named = data_sets.is_named(source)
    split = source if isinstance(source, Split) else data_sets.load(source, split=0 if is_named else ALL, **options)
    if is_named or isinstance(source, Split):
        split = replace(split, notes=tuple(note for note in split.notes if "\n" in note))
    if split.train.scale is not None:
        raise DataError(
            "The rows are scaled or mapped from a file; recommend takes rows in memory, in the units of the file. Load "
            "a sample of them."
        )
    if len(split.train) < FEWEST_ROWS:
        raise DataError(f"There are {len(split.train):,} rows; a recommendation needs at least {FEWEST_ROWS}.")
    return split


def rows_in_spec(X: Any, y: Any, options: Mapping[str, Any], split: Split) -> dict[str, Any]:
    """The fields of a Spec that name the rows of an answer as they were given: all of a file, or what was in memory.

    Parameters
    ----------
    X, y : object
        As `rows_of` takes them.
    options : mapping
        Options of `load`, with the column of groups if there is one.
    split : Split
        The rows that were read.
    """
    if callable(X) or isinstance(X, Split):
        return {"data": {"content": split.key}}
    chosen = choice_entries(options)
    if y is not None or not isinstance(X, str | PurePath | Mapping):
        return {"data": {"content": split.key, **chosen}, "split": ALL}
    source = {**(X if isinstance(X, Mapping) else {"name": str(X)}), **chosen}
    if data_sets.is_named(source):
        return {"data": source if len(source) > 1 else source["name"]}
    return {"data": {**source, "sha256": sha256_of(Path(source["name"]))}, "split": ALL}


def whole(split: Split) -> Split:
    """The split without test rows."""
    if not len(split.test):
        return split
    return replace(split, test=split.train.rows(NO_ROWS), key=f"{split.key}/all")


def repeated_rows(rows: Dataset) -> int:
    """How many rows of numbers repeat an earlier one, the target included; 0 where groups keep them together."""
    if not isinstance(rows.X, torch.Tensor) or rows.groups is not None or len(rows) > MOST_COMPARED:
        return 0
    values = np.column_stack([rows.X.double().cpu().numpy(), rows.y.double().cpu().numpy()])
    return len(values) - len(np.unique(values, axis=0))


def bytes_of(memory: str | float | None) -> float:
    """A number of bytes; by default half of the memory that is free."""
    if memory is None:
        return 0.5 * free_memory()
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*([0-9.]{1,12})\s*([KMGT]?B|)\s*", memory, re.IGNORECASE)
        with suppress(ValueError):
            if match:
                memory = float(match[1]) * UNITS[match[2].upper()]
    if isinstance(memory, str):
        raise SettingError(f'memory is {quoted(memory)}; give a number of bytes, or text such as "2 GB".')
    return float(number("memory", memory, whole=False, low=0, above=True))
