"""The explorer: a page that plays runs, and the same object for a notebook.

Each public name is imported on first use, so that `panel serve` can load the guard of `gate` without torch. Importing
Material UI makes its design that of every component of the process; the host's design is set back, as its own
components are none of ours.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import param

if TYPE_CHECKING:
    from .explorer import Explorer
    from .notebook.panes import pane_of
    from .notebook.run_widget import RunWidget
    from .session_page import app

__all__ = ["Explorer", "RunWidget", "app", "pane_of"]

_MODULE_OF = {
    "Explorer": "explorer",
    "RunWidget": "notebook.run_widget",
    "app": "session_page",
    "pane_of": "notebook.panes",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if "panel_material_ui" in sys.modules:
        return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    from panel import config

    design = param.Parameterized.__getattribute__(config, "design")  # that of the process, not of the present session
    found = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    param.Parameterized.__setattr__(config, "design", design)
    return found
