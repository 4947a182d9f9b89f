"""Escaping of text that people typed or uploaded (names, columns, files, errors) before it is shown as HTML."""

from __future__ import annotations

import html

MAX_LENGTH = 400  # characters of one text on the page


def text(value: object, max_length: int = MAX_LENGTH) -> str:
    """Return a value as text that cannot become markup, cut to at most `max_length` characters."""
    shown = str(value)
    shown = shown if len(shown) <= max_length else f"{shown[: max_length - 1]}…"
    return html.escape(shown, quote=True)
