"""A button that copies a text and confirms it."""

from __future__ import annotations

from typing import Any, ClassVar

import param
from panel.custom import JSComponent

from ..styles import TEXT, beside


class CopyButton(JSComponent):
    """A button that puts a text on the clipboard of the person who presses it.

    Parameters
    ----------
    what
        What is copied, such as "the link": the button is named after it.
    **params
        Parameters of `panel.custom.JSComponent`.
    """

    copied = param.String("", doc="The text to copy; the button is disabled where it is empty.")
    what = param.String("", doc="What is copied.")

    # Outside a secure context, as on a page of another machine without TLS, there is no navigator.clipboard.
    _esm = beside(__file__, "copy_button.js")
    _stylesheets: ClassVar[list[str]] = [TEXT, beside(__file__, "copy_button.css")]

    def __init__(self, what: str, **params: Any) -> None:
        super().__init__(what=what, **params)
