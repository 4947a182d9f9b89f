"""Data sets: public sets, generators, files and arrays, each loaded as a Split in the units of its file.

The public names are imported when they are first used, so that the child process that parses uploads does not import
torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .files.choice import Choice as Choice
    from .files.size_limits import UPLOAD as UPLOAD
    from .loading import available as available
    from .loading import fetch as fetch
    from .loading import is_named as is_named
    from .loading import load as load
    from .reader.table_reader import TableReader as TableReader
    from .sets.generators import truth as truth
    from .splits import Split as Split
    from .uploads import Preview as Preview
    from .uploads import preview as preview
    from .uploads import read_rows as read_rows
    from .uploads import read_upload as read_upload

_NAMES_IN = {
    "files.choice": ("Choice",),
    "files.size_limits": ("UPLOAD",),
    "loading": ("available", "fetch", "is_named", "load"),
    "reader.table_reader": ("TableReader",),
    "sets.generators": ("truth",),
    "splits": ("Split",),
    "uploads": ("Preview", "preview", "read_rows", "read_upload"),
}
_MODULE_OF = {name: module for module, names in _NAMES_IN.items() for name in names}
__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
