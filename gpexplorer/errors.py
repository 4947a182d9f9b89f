"""Errors a person can act on: each names the object, the number and the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(name: object, known: Iterable[str]) -> str:
    """The end of a refusal: what was probably meant, then all there is."""
    known = sorted(known)
    near = difflib.get_close_matches(str(name), known, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    return f"{meant} Choose one of {', '.join(known)}."


class GPExplorerError(Exception):
    """Base of every error this package raises on purpose; its text is a sentence for the user."""


class DataError(GPExplorerError, ValueError):
    """A data set cannot be read, split or scaled as asked."""


class SettingError(GPExplorerError, ValueError):
    """A setting is unknown, of the wrong type, or outside its bounds."""


class KernelError(GPExplorerError, ValueError):
    """A kernel is unknown, or does not fit the inputs it is given."""


class StoreError(GPExplorerError, OSError):
    """A stored run cannot be read or written."""


class OutOfMemory(GPExplorerError, MemoryError):
    """There is less memory than the answers asked for need."""


class RecordError(GPExplorerError, IndexError):
    """A run has no such record."""


class NotPositiveDefinite(GPExplorerError, ArithmeticError):
    """A matrix that should be positive definite is not, even after the largest jitter allowed.

    The object's name, its size and the jitter reached are kept as numbers, not only in the text.
    """

    def __init__(self, name: str, size: int, jitter: float, hint: str = "") -> None:
        self.name, self.size, self.jitter = name, size, jitter
        hint = hint or "Drop duplicate rows, raise the noise, or use fewer points."
        super().__init__(f"{name} [{size} x {size}] is not positive definite after jitter {jitter:.1e}. {hint}")
