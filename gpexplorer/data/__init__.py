"""Data: public sets, generators, files and arrays, all as a Split in the units of their file.

Names are filled in on first use, so that the child process that parses uploads never imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .columns import Choice as Choice
    from .generators import truth as truth
    from .limits import UPLOAD as UPLOAD
    from .loading import available as available
    from .loading import fetch as fetch
    from .loading import is_named as is_named
    from .loading import load as load
    from .splits import Split as Split
    from .uploads import Preview as Preview
    from .uploads import preview as preview
    from .uploads import read_upload as read_upload

_HOMES = {
    "Choice": "columns",
    "Preview": "uploads",
    "Split": "splits",
    "UPLOAD": "limits",
    "available": "loading",
    "fetch": "loading",
    "is_named": "loading",
    "load": "loading",
    "preview": "uploads",
    "read_upload": "uploads",
    "truth": "generators",
}
__all__ = [
    "UPLOAD",
    "Choice",
    "Preview",
    "Split",
    "available",
    "fetch",
    "is_named",
    "load",
    "preview",
    "read_upload",
    "truth",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
