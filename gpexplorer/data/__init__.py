"""Data sets: public sets, generators, files and arrays, each loaded as a Split in the units of its file.

The public names are imported when they are first used, so that the child process that parses uploads does not import
torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .files.choice import Choice
    from .files.size_limits import UPLOAD
    from .loading import available, fetch, is_named, load
    from .reader.table_reader import TableReader
    from .sets.generators import truth
    from .splits import Split
    from .uploads import Preview, preview, read_rows, read_upload

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
__all__ = [
    "UPLOAD",
    "Choice",
    "Preview",
    "Split",
    "TableReader",
    "available",
    "fetch",
    "is_named",
    "load",
    "preview",
    "read_rows",
    "read_upload",
    "truth",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
