"""The figures and tables of the papers, computed again. Each module here that has `FIGURES` adds its own."""

from __future__ import annotations

import importlib
import pkgutil

from gpexplorer.errors import SettingError

from .base import Figure

__all__ = ["Figure", "find", "names"]

_figures: dict[str, Figure] = {}
for _module in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
    if not _module.name.endswith("__main__"):
        _figures |= {figure.name: figure for figure in getattr(importlib.import_module(_module.name), "FIGURES", ())}


def names() -> list[str]:
    """The names of all figures and tables, sorted."""
    return sorted(_figures)


def find(name: str) -> Figure:
    """The figure or table with this name; SettingError, with all names, if there is none."""
    if name not in _figures:
        raise SettingError(f"There is nothing to reproduce under {name!r}; choose one of {', '.join(names())}.")
    return _figures[name]
