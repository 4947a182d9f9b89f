"""How names, values and sizes are written inside a sentence: quoted, clipped, and with nothing unprintable in them.

What is quoted here came from a stranger's file. It is still plain text: a page escapes it before showing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import PurePosixPath


def quote(value: object, width: int = 40) -> str:
    """The value in double quotes, control characters replaced, at most `width` characters of it."""
    try:
        text = "".join(c if c.isprintable() else "�" for c in str(value))
    except ValueError:  # Python writes no whole number of more than 4300 digits
        text = f"a {type(value).__name__} too long to write"
    return f'"{text[:width]}…"' if len(text) > width else f'"{text}"'


def display_name(name: str) -> str:
    """The last part of a file name for showing only: never used to open anything."""
    last = PurePosixPath(name.replace("\\", "/")).name or "unnamed file"
    text = "".join(c if c.isprintable() else "�" for c in last)
    return text if len(text) <= 80 else f"{text[:50]}…{text[-29:]}"


def listing(names: Iterable[object], most: int = 12) -> str:
    """Names joined by commas, with a count of those left out."""
    names = list(names)
    left = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(quote(n) for n in names[:most]) + left


def nearest(name: object, known: Sequence[str]) -> str:
    """ "Did you mean ..." where one of the known names is close, else a list of them."""
    close = get_close_matches(str(name), known, n=1)
    return f"Did you mean {quote(close[0])}?" if close else f"Choose one of {listing(known)}."


def count(number: int, noun: str, plural: str = "") -> str:
    """ "1 row", "2,000 rows"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(nbytes: float) -> str:
    """Bytes in the unit that reads best: "1.1 MB" (powers of 1000)."""
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if nbytes >= 10**power:
            return f"{nbytes / 10**power:.3g} {unit}"
    return f"{int(nbytes)} bytes"
