"""Which rows train and which test: folds of a seeded shuffle, a random holdout, an order in time, or the file's own.

Shuffles draw from their own generator: the same seed gives the same rows, and no global random state moves.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError
from ..problem import Dataset
from .quoting import listing, quote
from .standardising import fit_scale, scale

FOLDS = 10
Mask = NDArray[np.bool_]
How = int | Mapping[str, Any]
_FORMS = '0, 1, ..., {"test": 0.25, "seed": 1}, {"folds": 5, "fold": 0, "seed": 1} or {"before": 2004, "until": 2009}'


@dataclass(frozen=True, eq=False)
class Split:
    """Training and test rows of one data set, with what its user should know about it.

    `key` names the content: the same key means the same rows in the same order, so it serves as a cache key.
    """

    train: Dataset
    test: Dataset
    name: str
    notes: tuple[str, ...] = ()
    key: str = field(default="", repr=False)

    def scaled(self, inputs: bool = True) -> Split:
        """Inputs and target to mean 0 and sd 1 by the statistics of the training rows alone.

        Constant columns keep sd 1; objects (SMILES, text) stay as they are; a scaled split comes back unchanged.
        Without `inputs` the target alone is scaled: kernels of counts and histograms are not defined below 0.
        """
        if self.train.scale is not None:
            return self
        by = fit_scale(self.train, inputs)
        return replace(self, train=scale(self.train, by), test=scale(self.test, by), key=f"{self.key}/scaled")


@dataclass(frozen=True, eq=False)
class Given:
    """The split a data set comes with: one mask of test rows a fold ([n, folds]), an order in time, or none."""

    kind: Literal["folds", "official", "time", "none"] = "none"
    masks: Mask | None = None
    test: float = 0.0  # share of the rows, the last in time
    before: float | None = None  # train on the rows before this value of the input


class Parts(NamedTuple):
    """Masks [n] of the rows that train and of those that test; a row may be in neither, never in both."""

    train: Mask
    test: Mask


def make_split(data: Dataset, how: How, given: Given, identity: object, notes: tuple[str, ...], name: str) -> Split:
    """Cut a data set into training and test rows; `identity` is whatever JSON tells it from every other."""
    train, test = (torch.from_numpy(np.flatnonzero(mask)) for mask in part(data, how, given, name))
    return Split(data.rows(train), data.rows(test), name, notes, key_of(name, identity, how))


def key_of(name: str, identity: object, how: How) -> str:
    """A short name for this content: readable, and as unique as 64 bits of SHA-256."""
    text = json.dumps([name, identity, how], sort_keys=True, default=str)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def part(data: Dataset, how: How, given: Given, name: str = "the data") -> Parts:
    """The rows that `how` asks for: a fold of the split given, or one described by a mapping. DataError for too few."""
    parts = _part(data, how, given, name)
    train, test = (int(mask.sum()) for mask in parts)
    if train < 2 or test < 1:
        raise DataError(
            f"{name}: split {quote(how)} leaves {train} training and {test} test rows of {len(data)}; "
            f"at least 2 and 1 are needed. Choose one of {_FORMS}."
        )
    return parts


def _part(data: Dataset, how: How, given: Given, name: str) -> Parts:
    if isinstance(how, Mapping):
        return _asked(data, dict(how), name)
    if isinstance(how, bool) or not isinstance(how, int):
        raise DataError(f"{name}: split {quote(how)} is not known; choose one of {_FORMS}.")
    if given.kind == "time":
        _index(how, 1, name)
        return _time(data, given)
    if given.masks is not None:
        return _parts(np.array(given.masks[:, _index(how, given.masks.shape[1], name)]))
    folds = min(FOLDS, len(data))
    return _fold(len(data), folds, _index(how, folds, name), seed=0)


def _parts(test: Mask) -> Parts:
    return Parts(~test, test)


def _index(how: Any, folds: int, name: str) -> int:
    if isinstance(how, bool) or not isinstance(how, int) or not 0 <= how < folds:
        held = "one split, split=0" if folds == 1 else f"{folds} folds, split=0 to {folds - 1}"
        raise DataError(f"{name} has {held}; there is no split {quote(how)}.")
    return how


def shuffled(n: int, seed: int) -> Tensor:
    """A permutation [n] of the rows from a generator of its own."""
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise DataError(f"The seed of a split is a whole number of at least 0, not {quote(seed)}.")
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def _fold(n: int, folds: int, fold: int, seed: int) -> Parts:
    """One fold; the folds part the rows and differ in size by at most one."""
    mask = np.zeros(n, dtype=bool)
    mask[np.array_split(shuffled(n, seed).numpy(), folds)[fold]] = True
    return _parts(mask)


def _time(data: Dataset, given: Given) -> Parts:
    x = data.X[:, 0].numpy()
    if given.before is not None:
        return _parts(np.array(x >= given.before))
    mask = np.zeros(len(x), dtype=bool)
    mask[np.argsort(x, kind="stable")[len(x) - round(given.test * len(x)) :]] = True
    return _parts(mask)


def _asked(data: Dataset, how: dict[str, Any], name: str) -> Parts:
    n, words = len(data), set(how)
    if "test" in how and words <= {"test", "seed"}:
        share = _number(how["test"], name, "test")
        if not 0 < share < 1:
            raise DataError(f"{name}: test={share:g} is not a share of the rows; choose one between 0 and 1, say 0.25.")
        mask = np.zeros(n, dtype=bool)
        mask[shuffled(n, how.get("seed", 0)).numpy()[: max(1, round(share * n))]] = True
        return _parts(mask)
    if "folds" in how and words <= {"folds", "fold", "seed"}:
        folds = how["folds"]
        if isinstance(folds, bool) or not isinstance(folds, int) or not 2 <= folds <= n:
            raise DataError(f"{name}: folds={quote(folds)} is not a whole number between 2 and its {n} rows.")
        return _fold(n, folds, _index(how.get("fold", 0), folds, name), how.get("seed", 0))
    if "before" in how and words <= {"before", "until"} and data.d == 1 and isinstance(data.X, Tensor):
        x, before = data.X[:, 0].numpy(), _number(how["before"], name, "before")
        return Parts(x < before, (x >= before) & (x < _number(how.get("until", math.inf), name, "until")))
    raise DataError(
        f"{name}: a split by {listing(sorted(map(str, words))) or 'nothing'} is not known; choose one of {_FORMS}."
    )


def _number(value: object, name: str, word: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"{name}: {word}={quote(value)} is not a number.")
    return float(value)
