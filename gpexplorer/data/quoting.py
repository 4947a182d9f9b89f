"""How names, values and sizes are written inside a sentence: quoted, shortened, and without unprintable characters.

The values may come from a stranger's file. The result is plain text, which a page must still escape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Any


def quote(value: object, width: int = 40) -> str:
    """Return the value in double quotes, with control characters replaced, cut to `width` characters."""
    try:
        text = "".join(c if c.isprintable() else "�" for c in str(value))
    except (ValueError, RecursionError):  # a whole number of more than 4300 digits, or lists nested too deeply
        text = f"a {type(value).__name__} too long to write"
    return f'"{text[:width]}…"' if len(text) > width else f'"{text}"'


def display_name(name: str) -> str:
    """Return the last part of a file name, for messages only; it is never used to open a file."""
    last = PurePosixPath(name.replace("\\", "/")).name or "unnamed file"
    text = "".join(c if c.isprintable() else "�" for c in last)
    return text if len(text) <= 80 else f"{text[:50]}…{text[-29:]}"


def data_title(data: Any) -> str:
    """Return what the data of a spec are called in a sentence: the name of their set or of their file."""
    name = str(data.get("file") or data.get("name", "the data")) if isinstance(data, dict) else str(data)
    return display_name(name)


def listing(names: Iterable[object], most: int = 12) -> str:
    """Return names in quotes, joined by commas; after `most` names, the number of the others."""
    return joined(map(quote, names), most)


def joined(parts: Iterable[str], most: int = 12, noun: str = "") -> str:
    """Return texts joined by commas; after `most` of them, the number of the others, with a noun if there is one."""
    parts = list(parts)
    others = f" and {len(parts) - most} more {noun}".rstrip() if len(parts) > most else ""
    return ", ".join(parts[:most]) + others


def what_is_seen(note: str) -> str:
    """Return a note without its second line, which says what a program would write, where there is one."""
    return note.partition("\n")[0]


def nearest(name: object, choices: Sequence[str]) -> str:
    """Return "Did you mean ...?" if one of the choices is similar to the name, otherwise a list of the choices."""
    matches = get_close_matches(str(name), choices, n=1)
    return f"Did you mean {quote(matches[0])}?" if matches else f"Choose one of {listing(choices)}."


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as "1 row" or "2,000 rows"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def about(value: float) -> str:
    """Return a number with at most three digits that count, and marks between thousands: 351234 is "351,000"."""
    return f"{float(f'{value:.3g}'):,.12g}"


def exact(value: float) -> str:
    """Return a number with all its digits, as programs read it: -999, 999.9 or 9.969209968386869e+36."""
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def size(nbytes: float) -> str:
    """Return a number of bytes in a readable unit, such as "1.1 MB" (powers of 1000)."""
    if nbytes >= 1e15:
        return f"{nbytes / 1e15:,.0f} PB"
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6), ("kB", 3)):
        if nbytes >= 10**power:
            return f"{nbytes / 10**power:.3g} {unit}"
    return f"{int(nbytes)} bytes"
