"""The explorer: a page that plays runs, and the same object for a notebook.

Each public name is imported on first use, so that `panel serve` can load the guard of `gate` without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .explorer import Explorer
    from .session_page import app

__all__ = ["Explorer", "app"]

_MODULE_OF = {"Explorer": "explorer", "app": "session_page"}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
