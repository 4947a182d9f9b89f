"""The explorer: a page that plays runs, and the same object in a notebook."""

from __future__ import annotations

from .explorer import Explorer
from .page import app

__all__ = ["Explorer", "app"]
