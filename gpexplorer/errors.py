"""Errors whose text is a sentence for the user, who is shown the object, the number and the way out.

Beside them, what these sentences are made of: a refused value in quotes, the closest name, the range of a number.
"""

from __future__ import annotations

import difflib
import errno
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

DISK_FULL = {getattr(errno, name, None) for name in ("ENOSPC", "EDQUOT", "EFBIG")}  # no more bytes fit on the disk

LONGEST = 60  # a message repeats at most this many characters of a refused value


def closest(name: object, choices: Iterable[str], others: Iterable[str] = ()) -> str:
    """The end of an error message about an unknown name: the closest choice if there is one, and all choices.

    Others are names that would have been understood too, and may be the closest; the message does not list them.

    Examples
    --------
    >>> "Method 'cholrq' is not known" + closest("cholrq", ["grief", "cholqr"])
    "Method 'cholrq' is not known; did you mean 'cholqr'? Choose one of cholqr, grief."
    """
    choices = sorted(choices)
    matches = difflib.get_close_matches(str(name), [*choices, *sorted(others)], n=1)
    suggestion = f"; did you mean {matches[0]!r}?" if matches else "."
    return f"{suggestion} Choose one of {', '.join(choices)}."


def not_written(error: OSError, otherwise: str) -> str:
    """The end of a message about a file that cannot be written: the reason, and the way out, such as another file.

    Examples
    --------
    >>> "Cannot write p.csv " + not_written(OSError(errno.ENOSPC, "No space left on device"), "choose another --out")
    'Cannot write p.csv (No space left on device): free space on its disk, or choose another --out.'
    """
    return f"({error.strerror or error}): {'free space on its disk, or ' * (error.errno in DISK_FULL)}{otherwise}."


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


def number(owner: str, value: Any, *, whole: bool, low: float, high: float = math.inf, above: bool = False) -> Any:
    """Check that a value is a finite number in a range.

    Parameters
    ----------
    owner : str
        What the number is, to begin the message with.
    value : number
        Numbers of NumPy and torch are accepted and become Python's own.
    whole : bool
        Whether the number must be a whole number.
    low, high : float
        The bounds, which are included.
    above : bool
        Whether `low` itself is excluded.

    Returns
    -------
    int or float
        The value.

    Raises
    ------
    SettingError
        If the value is not such a number.
    """
    value = listed(value) if getattr(value, "shape", None) == () else value
    right_type = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not right_type or not is_finite(value) or value > high or (value <= low if above else value < low):
        allowed = numbers_allowed(whole=whole, low=low, high=high, above=above)
        raise SettingError(f"{owner} is {quoted(value)}; give {allowed}.")
    return value


def numbers_allowed(*, whole: bool, low: float, high: float = math.inf, above: bool = False) -> str:
    """Return which numbers `number` accepts, such as "a whole number of at least 1 and at most 10"."""
    kind, form = ("a whole number", ",") if whole else ("a number", "g")
    span = f"above {low:{form}}" if above else f"of at least {low:{form}}"
    return f"{kind} {span}" + ("" if math.isinf(high) else f" and at most {high:{form}}")


def whole_number(value: Any) -> int | None:
    """The value as an integer of Python; None if it is no whole number. True and False are none."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def flag(owner: str, value: Any) -> bool:
    """Check that a value is True or False, also NumPy's, or 1 or 0; SettingError for others, such as an array."""
    value = listed(value) if getattr(value, "shape", None) == () else value
    if not isinstance(value, int) or value not in (0, 1):
        raise SettingError(f"{owner} is {quoted(value)}; give True or False.")
    return bool(value)


def function(owner: str, value: Any, of: str) -> Callable[..., Any]:
    """Check that a value can be called; SettingError otherwise, which says what it is a function of."""
    if not callable(value):
        raise SettingError(f"{owner} is {quoted(value)}; give a function {of}.")
    checked: Callable[..., Any] = value
    return checked


def is_one_of(value: Any, words: Iterable[str]) -> bool:
    """Whether a value is one of these texts. A list or an array is none, and whether one is true is not asked.

    Examples
    --------
    >>> is_one_of("fill", ("drop", "fill")), is_one_of(["fill"], ("drop", "fill"))
    (True, False)
    """
    return isinstance(value, str) and value in words


def has_items(value: Any) -> bool:
    """Whether a value can be taken apart into items: not an array without axes, which says that it can."""
    return isinstance(value, Iterable) and getattr(value, "shape", None) != ()


def listed(value: Any) -> Any:
    """An array of NumPy or torch as Python's numbers, or lists of them; any other value as it is.

    A tensor that has no values, as on the device "meta", or none in order, as a sparse one, stays as it is too.
    """
    try:
        return value.tolist() if hasattr(value, "tolist") else value
    except (NotImplementedError, RuntimeError):
        return value


def quoted(value: Any) -> str:
    """A value as text for a message, cut to a length that cannot fill a screen."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a whole number of more than 4300 digits, or lists nested too deeply
        text = f"a {type(value).__name__} too long to write"
    text = " ".join(text.split()) if "\n" in text else text  # a frame is written on several lines
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def is_finite(value: float) -> bool:
    """Whether a number is finite, and one that a float can hold."""
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond any float
        return False
