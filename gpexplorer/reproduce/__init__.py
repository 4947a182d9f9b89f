"""The papers' figures and tables, ours beside theirs. A module here with `FIGURES` adds them by being there."""

from __future__ import annotations

import importlib
import pkgutil

from ..errors import SettingError
from .base import Figure

__all__ = ["Figure", "find", "names"]

_figures: dict[str, Figure] = {}
for _found in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
    _figures |= {figure.name: figure for figure in getattr(importlib.import_module(_found.name), "FIGURES", ())}


def names() -> list[str]:
    """Every figure and table there is, by name."""
    return sorted(_figures)


def find(name: str) -> Figure:
    """The figure of this name. Raises SettingError naming those there are."""
    if name not in _figures:
        raise SettingError(f"There is nothing to reproduce under {name!r}; choose one of {', '.join(names())}.")
    return _figures[name]
