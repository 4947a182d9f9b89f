"""The one way for text that people gave us (names, columns, files, errors) into something that renders HTML."""

from __future__ import annotations

import html

LONGEST = 400  # characters of one text on the page


def text(value: object, longest: int = LONGEST) -> str:
    """This value as text that cannot become markup, cut to a length that cannot fill a screen."""
    shown = str(value)
    shown = shown if len(shown) <= longest else f"{shown[: longest - 1]}…"
    return html.escape(shown, quote=True)
