"""Errors whose text is a sentence for the user: it names the object, the number and the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(name: object, choices: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the closest choice if there is one, and all choices.

    Examples
    --------
    >>> "Method 'cholrq' is not known" + closest("cholrq", ["grief", "cholqr"])
    "Method 'cholrq' is not known; did you mean 'cholqr'? Choose one of cholqr, grief."
    """
    choices = sorted(choices)
    matches = difflib.get_close_matches(str(name), choices, n=1)
    suggestion = f"; did you mean {matches[0]!r}?" if matches else "."
    return f"{suggestion} Choose one of {', '.join(choices)}."


class GPExplorerError(Exception):
    """Base class of all errors that this package raises on purpose. Their text can be shown to the user."""


class DataError(GPExplorerError, ValueError):
    """A data set cannot be read, split or scaled in the requested way."""


class SettingError(GPExplorerError, ValueError):
    """A setting is unknown, has the wrong type, or is outside its bounds."""


class KernelError(GPExplorerError, ValueError):
    """A kernel is unknown, or is not defined for the inputs it is given."""


class StoreError(GPExplorerError, OSError):
    """A stored run cannot be read or written."""


class PosteriorError(GPExplorerError, ValueError):
    """A posterior cannot give what is asked for, or a file of one cannot be written or read."""


class OutOfMemory(GPExplorerError, MemoryError):
    """The requested computation needs more memory than there is."""


class ClusterError(GPExplorerError, RuntimeError):
    """The workers of a cluster are gone, or the work ended them."""


class RecordError(GPExplorerError, IndexError):
    """A run has no record with this index."""


class NotPositiveDefinite(GPExplorerError, ArithmeticError):
    """A matrix that should be positive definite is not, even with the largest jitter allowed.

    Parameters
    ----------
    name : str
        The matrix, such as "K_mm".
    size : int
        Its number of rows.
    jitter : float
        The largest jitter that was tried.
    hint : str, optional
        What the user can do; there is a general hint if it is omitted.
    """

    def __init__(self, name: str, size: int, jitter: float, hint: str = "") -> None:
        self.name, self.size, self.jitter = name, size, jitter
        hint = hint or "Drop duplicate rows, raise the noise, or use fewer points."
        super().__init__(f"{name} [{size} x {size}] is not positive definite after jitter {jitter:.1e}. {hint}")
