"""The usual kinds of settings, each with the values that it can have: whole numbers, amounts, shares, choices.

`usual` is the range of the slider; a setting may have any value that its kind allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import param

Range = tuple[float, float] | None


def count(
    default: int, usual: tuple[int, int] | None = None, *, doc: str, least: int | None = None, most: int | None = None
) -> Any:
    """Declare a whole number of at least `least`: by default 1, or the lower end of the slider if that is less."""
    lowest = min(1, usual[0]) if usual else 1
    return param.Integer(default, bounds=(lowest if least is None else least, most), softbounds=usual, doc=doc)


def amount(default: float, usual: Range = None, *, doc: str, most: float | None = None) -> Any:
    """Declare a number of 0 or more."""
    return param.Number(default, bounds=(0.0, most), softbounds=usual, doc=doc)


def positive(default: float, usual: Range = None, *, doc: str) -> Any:
    """Declare a number above 0."""
    return param.Number(default, bounds=(0.0, None), inclusive_bounds=(False, True), softbounds=usual, doc=doc)


def share(default: float, usual: Range = None, *, doc: str, inclusive: tuple[bool, bool] = (True, True)) -> Any:
    """Declare a number from 0 to 1; `inclusive` says whether it may be 0, and whether it may be 1."""
    return param.Number(default, bounds=(0.0, 1.0), inclusive_bounds=inclusive, softbounds=usual, doc=doc)


def choice(options: Sequence[Any], *, default: Any = None, doc: str) -> Any:
    """Declare one of some options, by default the first."""
    return param.Selector(default=options[0] if default is None else default, objects=[*options], doc=doc)
