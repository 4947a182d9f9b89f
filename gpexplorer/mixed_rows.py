"""Rows that hold numbers and texts side by side, such as a molecule and the temperature at which it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Index = slice | Tensor | NDArray[np.integer] | Sequence[int]


class Columns(NamedTuple):
    """The names of the columns of a table, in the order in which its rows hold them."""

    numbers: tuple[str, ...]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class MixedRows:
    """Rows of q numbers and p texts.

    Parameters
    ----------
    numbers : Tensor [n, q]
        The columns of numbers.
    texts : tuple of p tuples of n str
        The columns of text.
    """

    numbers: Tensor
    texts: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Index) -> MixedRows:
        """These rows, in this order; a sequence of row numbers, a tensor of them, or a slice."""
        if isinstance(index, slice):
            return MixedRows(self.numbers[index], tuple(column[index] for column in self.texts))
        places = torch.as_tensor(index)
        chosen = places.tolist()
        texts = tuple(tuple(column[i] for i in chosen) for column in self.texts)
        return MixedRows(self.numbers[places.to(self.numbers.device)], texts)

    def __iter__(self) -> Iterator[tuple[float | str, ...]]:
        """Each row as its numbers and then its texts."""
        for numbers, *texts in zip(self.numbers.tolist(), *self.texts, strict=True):
            yield (*numbers, *texts)

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {self.numbers.shape[1]} numbers and {len(self.texts)} texts>"

    @property
    def d(self) -> int:
        """Number of columns, q + p."""
        return self.numbers.shape[1] + len(self.texts)

    def with_numbers(self, numbers: Tensor) -> MixedRows:
        """The same texts beside other numbers [n, q]."""
        return replace(self, numbers=numbers)

    def to(self, device: str | torch.device, dtype: torch.dtype) -> MixedRows:
        """The same rows with their numbers on another device or in another precision."""
        return self.with_numbers(self.numbers.to(device, dtype))

    def joined(self, other: MixedRows) -> MixedRows:
        """These rows, and the others after them."""
        texts = tuple((*own, *added) for own, added in zip(self.texts, other.texts, strict=True))
        return MixedRows(torch.cat([self.numbers, other.numbers]), texts)


def mixed_rows(numbers: NDArray[np.float64], texts: Sequence[Sequence[str]]) -> MixedRows:
    """Rows of an array of numbers [n, q] and p columns of n texts; the numbers are copied."""
    return MixedRows(torch.tensor(numbers), tuple(map(tuple, texts)))
