"""The explorer: a page that plays runs, and the same object for a notebook."""

from __future__ import annotations

from .explorer import Explorer
from .session_page import app

__all__ = ["Explorer", "app"]
