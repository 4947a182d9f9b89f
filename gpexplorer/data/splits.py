"""Training and test rows: folds of a random order, a random holdout, a division in time, or the split of the file.

Random orders come from a generator of their own: the same seed gives the same rows, and the global random state does
not change.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError
from ..problem import Dataset
from .given_folds import drawn_folds, drawn_share
from .quoting import listing, quote
from .standardising import fit_scale, scale

FOLDS = 10
ALL: Literal["all"] = "all"  # in place of a split: every row is a training row
Mask = NDArray[np.bool_]
How = int | Mapping[str, Any] | Literal["all"]
_FORMS = (
    '0, 1, ..., {"test": 0.25, "seed": 1}, {"folds": 5, "fold": 0, "seed": 1}, {"before": 2004, "until": 2009} or "all"'
)


@dataclass(frozen=True, eq=False)
class Split:
    """Training and test rows of one data set.

    Parameters
    ----------
    train, test : Dataset
        The rows.
    name : str
        Name of the data set.
    notes : tuple of str
        Sentences that the user should read, about missing values for example.
    key : str
        Name of the content: the same key means the same rows in the same order, so it serves as a cache key.
    """

    train: Dataset
    test: Dataset
    name: str
    notes: tuple[str, ...] = ()
    key: str = field(default="", repr=False)

    def scaled(self, inputs: bool = True, target_transform: str = "", input_transform: str = "") -> Split:
        """Return the split with inputs and target at mean 0 and sd 1, by the statistics of the training rows alone.

        Parameters
        ----------
        inputs : bool, default True
            If False, only the target is scaled, because kernels of counts and histograms are not defined below 0.
        target_transform : str, default ""
            A transform of the target before it is scaled: "log", "yeo-johnson" or "yeo-johnson 0.5".
        input_transform : {"", "log"}
            "log" takes inputs with a long tail as logarithms before they are scaled.

        Raises
        ------
        DataError
            If a training target cannot be transformed, or the rows are scaled already.

        Notes
        -----
        Constant columns get sd 1. Objects (SMILES, text) do not change. A split that is scaled already is returned.
        """
        if self.train.scale is not None:
            for what, transform in (("target", target_transform), ("inputs", input_transform)):
                if transform:
                    raise DataError(f"{self.name}: the rows are scaled already, so the {what} cannot be transformed.")
            return self
        statistics = fit_scale(self.train, inputs, target_transform, input_transform)
        key = f"{self.key}/scaled" + f" {target_transform}" * bool(target_transform)
        key += f" inputs {input_transform}" * bool(input_transform)
        return replace(self, train=scale(self.train, statistics), test=scale(self.test, statistics), key=key)


@dataclass(frozen=True, eq=False)
class Given:
    """The split that comes with a data set: one mask of test rows per fold [n, folds], a division in time, or none."""

    kind: Literal["folds", "official", "time", "none"] = "none"
    masks: Mask | None = None
    test: float = 0.0  # share of the rows that are test rows, the latest ones
    before: float | None = None  # rows before this value of the input are training rows


class Parts(NamedTuple):
    """Masks [n] of the training rows and the test rows. A row may be in neither, but never in both."""

    train: Mask
    test: Mask


def make_split(data: Dataset, how: How, given: Given, identity: object, notes: tuple[str, ...], name: str) -> Split:
    """Divide a data set into training and test rows.

    Parameters
    ----------
    data : Dataset
        All rows.
    how : int, mapping or "all"
        The requested split; see `part`.
    given : Given
        The split that comes with the data set.
    identity : object
        Anything that JSON can hold and that distinguishes this data set from every other; it enters the key.
    notes, name : tuple of str, str
        Stored in the split.
    """
    train, test = (torch.from_numpy(np.flatnonzero(mask)) for mask in part(data, how, given, name))
    return Split(data.rows(train), data.rows(test), name, notes, key_of(name, identity, how))


def key_of(name: str, identity: object, how: How) -> str:
    """Return a short name for a content: readable, and as unique as 64 bits of SHA-256."""
    text = json.dumps([name, identity, how], sort_keys=True, default=str)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def part(data: Dataset, how: How, given: Given, name: str = "the data") -> Parts:
    """Return masks of the training and test rows.

    Parameters
    ----------
    data : Dataset
        All rows.
    how : int, mapping or "all"
        A fold of the given split by its number, {"test": share, "seed": s}, {"folds": k, "fold": i, "seed": s}, or
        {"before": x, "until": z} for one input; "all" for training rows alone.
    given : Given
        The split that comes with the data set.
    name : str
        The data set, for messages.

    Raises
    ------
    DataError
        If there is no such split, or if it leaves fewer than 2 training rows or no test row.
    """
    if how == ALL:
        return Parts(np.ones(len(data), dtype=bool), np.zeros(len(data), dtype=bool))
    parts = _part(data, how, given, name)
    train, test = (int(mask.sum()) for mask in parts)
    if train < 2 or test < 1:
        raise DataError(
            f"{name}: split {quote(how)} leaves {train} training and {test:,} test rows of {len(data)}; "
            f"at least 2 and 1 are needed. Choose one of {_FORMS}."
        )
    return parts


def rows_to_draw(draw: Callable[[int], Dataset], how: How, training_rows: int, most: int, name: str) -> int:
    """Return a number of rows of which a split leaves at least this many for training.

    Parameters
    ----------
    draw : callable
        Draws so many rows, which come with no split of their own.
    how : int or mapping
        The split; see `part`.
    training_rows : int
        How many training rows are wanted.
    most : int
        The largest number of rows that can be drawn.
    name : str
        The data set, for messages.

    Raises
    ------
    DataError
        If there is no such split, or if it leaves fewer training rows of the largest number.
    """
    drawn = max(3, training_rows + 1)
    while True:
        drawn = min(drawn, most)
        training = int(_part(draw(drawn), how, Given(), name).train.sum())
        if training >= training_rows:
            return drawn
        if drawn == most:
            raise too_few(name, how, most, training, training_rows)
        drawn += math.ceil((training_rows - training) * drawn / max(training, 1))


def too_few(name: str, how: How, rows: int, training: int, wanted: int) -> DataError:
    """Return the error of a data set that has fewer training rows than wanted."""
    return DataError(
        f"{name}: of at most {rows:,} rows, split {quote(how)} leaves {training:,} for training, and {wanted:,} are "
        f"wanted: choose at most {training:,}."
    )


def _part(data: Dataset, how: How, given: Given, name: str) -> Parts:
    if isinstance(how, Mapping):
        return _described(data, dict(how), name)
    if isinstance(how, bool) or not isinstance(how, int):
        raise DataError(f"{name}: split {quote(how)} is not known; choose one of {_FORMS}.")
    if given.kind == "time":
        _checked_fold(how, 1, name)
        x = data.X[:, 0].numpy()
        if given.before is not None:
            return _from_test(np.array(x >= given.before))
        latest = np.argsort(x, kind="stable")[len(x) - round(given.test * len(x)) :]
        return _from_test(mask_of(len(x), latest))
    if given.masks is not None:
        return _from_test(np.array(given.masks[:, _checked_fold(how, given.masks.shape[1], name)]))
    units = len(data) if data.groups is None else len(data.groups.number.unique())
    folds = min(FOLDS, units)
    return _fold(data, folds, _checked_fold(how, folds, name), seed=0)


def _from_test(test: Mask) -> Parts:
    return Parts(~test, test)


def _checked_fold(how: Any, folds: int, name: str) -> int:
    if isinstance(how, bool) or not isinstance(how, int) or not 0 <= how < folds:
        available = "one split, split=0" if folds == 1 else f"{folds:,} folds, split=0 to {folds - 1}"
        raise DataError(f"{name} has {available}; there is no split {quote(how)}.")
    return how


def mask_of(n: int, rows: NDArray[np.int64]) -> Mask:
    """Return a mask [n] that is true at these rows."""
    mask = np.zeros(n, dtype=bool)
    mask[rows] = True
    return mask


def shuffled(n: int, seed: int) -> Tensor:
    """Return a random permutation [n] of the rows, from a generator of its own."""
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise DataError(f"The seed of a split is a whole number of at least 0, not {quote(seed)}.")
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def _fold(data: Dataset, folds: int, fold: int, seed: int) -> Parts:
    """Return one fold. The folds divide the rows and differ in size by at most one, unless they have whole groups."""
    if data.groups is not None:
        return _from_test((drawn_folds(data.groups.number, folds, seed) == fold).numpy())
    n = len(data)
    return _from_test(mask_of(n, np.array_split(shuffled(n, seed).numpy(), folds)[fold]))


def _described(data: Dataset, how: dict[str, Any], name: str) -> Parts:
    n, words = len(data), set(how)  # the words tell which kind of split is described
    if "test" in how and words <= {"test", "seed"}:
        share = _number(how["test"], name, "test")
        if not 0 < share < 1:
            raise DataError(
                f"{name}: test={share:g} is not a share of the rows; choose a number between 0 and 1, such as 0.25."
            )
        if data.groups is not None:
            return _from_test(drawn_share(data.groups.number, share, how.get("seed", 0)).numpy())
        return _from_test(mask_of(n, shuffled(n, how.get("seed", 0)).numpy()[: max(1, round(share * n))]))
    if "folds" in how and words <= {"folds", "fold", "seed"}:
        folds = how["folds"]
        if isinstance(folds, bool) or not isinstance(folds, int) or not 2 <= folds <= n:
            raise DataError(f"{name}: folds={quote(folds)} is not a whole number between 2 and its {n:,} rows.")
        return _fold(data, folds, _checked_fold(how.get("fold", 0), folds, name), how.get("seed", 0))
    if "before" in how and words <= {"before", "until"} and data.d == 1 and isinstance(data.X, Tensor):
        x, before = data.X[:, 0].numpy(), _number(how["before"], name, "before")
        return Parts(x < before, (x >= before) & (x < _number(how.get("until", math.inf), name, "until")))
    raise DataError(
        f"{name}: a split by {listing(sorted(map(str, words))) or 'nothing'} is not known; choose one of {_FORMS}."
    )


def _number(value: object, name: str, word: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):  # of a whole number beyond any float
            return float(value)
    raise DataError(f"{name}: {word}={quote(value)} is not a number.")
