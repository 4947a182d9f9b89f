"""Values of a spec as people write them: `hypercube (n 100)` in place of `{"name": "hypercube", "n": 100}`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def in_words(value: Any) -> str:
    """Write a value of a spec without quotes and braces, such that different values stay different.

    Parameters
    ----------
    value : object
        What JSON can hold. The entry "name" of a mapping stands before the others. An empty text or mapping is "none".

    Examples
    --------
    >>> in_words({"n": 100, "name": "hypercube"})
    'hypercube (n 100)'
    >>> in_words({"seconds": 5.0})
    '(seconds 5)'
    >>> in_words([0.5, True, 1e-10])
    '[0.5 on 1e-10]'
    """
    if isinstance(value, str):
        return value or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, Mapping):
        entries = ", ".join(f"{key} {in_words(entry)}" for key, entry in value.items() if key != "name")
        name = in_words(value["name"]) if "name" in value else ""
        return f"{name} ({entries})".strip() if entries else name or "none"
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(in_words, value)) + "]"
    return json.dumps(value)
