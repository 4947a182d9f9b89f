"""The widgets of panels and tabs, in one size: buttons, selectors, fields, downloads, uploads, and lines of text."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any

import panel as pn
import panel_material_ui as pmui
from bokeh.models import CustomJSTickFormatter

from ..data.files.size_limits import NEEDED
from ..errors import SettingError, number, numbers_allowed
from .styles import TEXT, TOOLTIP
from .text import named

SMALL = {"size": "small", "margin": (6, 8)}
WITH_TOOLTIP = {"stylesheets": [TOOLTIP]}
WRITTEN = "return tick == null ? '' : tick.toLocaleString('en')"  # an emptied field would show 0
WIDE = {"sizing_mode": "stretch_width"}
AS_FIELD = {"& .MuiSelect-select": {"paddingBlock": "8.5px"}}


class WithLayout:
    """A part of a page, of which `_layout` is shown."""

    _layout: Any

    def __panel__(self) -> Any:
        return self._layout


def button(label: str, icon: str, act: Callable[..., Any], help_: str = "", **style: Any) -> pmui.Button:
    """Return a button.

    Parameters
    ----------
    label : str
        What is written on it.
    icon : str
        Name of a Material icon; empty for none.
    act : callable
        Called without arguments at a click; a coroutine function is called with the event, and awaited.
    help_ : str, default ""
        What it does, as the rest of a sentence, for the tooltip.
    **style : object
        Parameters of the button. The one that matters most on its panel has the variant "contained".
    """
    words = {**named(label, help_), **WITH_TOOLTIP} if help_ else {"label": label}
    click = act if iscoroutinefunction(act) else lambda _: act()
    color = "primary" if style.get("variant") == "contained" else "default"
    look = {"variant": "outlined", "margin": (6, 8), "color": color, **({"icon": icon} if icon else {})}
    return pmui.Button(**{**words, **look, **style}, on_click=click)


def select(label: str, options: Any, value: Any, width: int, **style: Any) -> pmui.Select:
    """Return a selector of this many pixels, as high as a field."""
    look = {**SMALL, "sx": AS_FIELD, **style} if style.get("size", "small") == "small" else {**SMALL, **style}
    return pmui.Select(label=label, options=options, value=value, width=width, **look)


def whole(label: str, value: int, low: int, high: int | None, width: int, **style: Any) -> pmui.IntInput:
    """Return a field for a whole number between two bounds. A browser may still send any other value; `number_in`."""
    look = {"placeholder": "", "format": CustomJSTickFormatter(code=WRITTEN), "width": width, **SMALL}
    return pmui.IntInput(label=label, value=value, start=low, end=high, **{**look, **style})


def number_in(field: pmui.IntInput, owner: str = "") -> int:
    """Return the number in a field that `whole` made, and check its bounds, which hold in the browser only.

    Parameters
    ----------
    field : IntInput
        The field.
    owner : str, default ""
        What the number is, to begin a message with; by default the label of the field.

    Raises
    ------
    SettingError
        If the field is empty, or its number is not between its bounds.
    """
    owner, high = owner or str(field.label), math.inf if field.end is None else field.end
    if field.value is None:
        raise SettingError(f"{owner} is empty; give {numbers_allowed(whole=True, low=field.start, high=high)}.")
    return int(number(owner, field.value, whole=True, low=field.start, high=high))


def download(name: str, content: Callable[..., Any], label: str = "", help_: str = "", **style: Any) -> Any:
    """Return a button that downloads a file.

    Parameters
    ----------
    name : str
        Name of the file.
    content : callable
        Returns text, bytes or an open file; it may be a coroutine function.
    label, help_ : str, default ""
        What is written on it, by default the name of the file, and what it does.
    **style : object
        Parameters of the button.
    """

    def file() -> Any:
        made = content()
        made = made.encode() if isinstance(made, str) else made
        return io.BytesIO(made) if isinstance(made, bytes) else made

    words = {**named(label or name, help_), **WITH_TOOLTIP} if help_ else {"label": label or name}
    look = {"variant": "outlined", "size": "small", "margin": (4, 6)}
    callback = content if iscoroutinefunction(content) else file
    return pmui.FileDownload(callback=callback, filename=name, **{**words, **look, **style})


def line_of_text(words: str = "", margin: Any = (0, 12), styles: Sequence[str] = (TEXT,)) -> pn.pane.HTML:
    """Return an empty line, or one with these words, which are markup."""
    return pn.pane.HTML(words, margin=margin, sizing_mode="stretch_width", stylesheets=list(styles))


def row(*parts: Any, **style: Any) -> pmui.FlexBox:
    """Return parts beside each other, which wrap where the page is narrow."""
    return pmui.FlexBox(*parts, **{"align_items": "center", **style})


def share_of_row(width: int, share: int = 1) -> dict[str, str]:
    """Return the styles of a part that takes this share of a row, and a row of its own where this is too narrow."""
    return {"flex": f"{share} 1 {width}px", "min-width": "0"}


def column(*parts: Any, **style: Any) -> pn.Column:
    """Return parts below each other, as wide as the page."""
    return pn.Column(*parts, **{**WIDE, **style})


def hidden_column(*parts: Any, **style: Any) -> pn.Column:
    """Return a hidden column, which is empty until it is first shown: what nobody sees costs the page nothing."""
    hidden = column(visible=False, **style)
    hidden.param.watch(lambda _: None if len(hidden) else hidden.extend(parts), "visible")
    return hidden


def watch(act: Callable[[], object], *widgets: Any) -> None:
    """Call a function whenever a person changes the value of one of these widgets."""
    for widget in widgets:
        widget.param.watch(lambda _: act(), "value")


CHUNK = 10 * 1024**2  # bytes per message: what the widget's browser part sends
LONGEST_NAME = 255  # characters


class FileUpload(pmui.FileInput):
    """The file input of panel-material-ui, for one file. It trusts no message of the browser.

    The original raises where the browser reports an error (such as a file that is too large), checks the size in the
    browser only, and shows the error for five seconds, as a tooltip. A file that is chosen again is read again.

    Parameters
    ----------
    report : callable
        Shows a sentence where a file is refused.
    max_bytes : int
        Size of the largest file.
    **params : object
        Parameters of `panel_material_ui.FileInput`.
    """

    def __init__(self, report: Callable[[str], None], max_bytes: int, **params: Any) -> None:
        super().__init__(max_file_size=max_bytes, **params)
        self._report, self._max_bytes = report, max_bytes

    def _handle_msg(self, msg: Any) -> None:
        status = msg.get("status") if isinstance(msg, dict) else None
        if status == "initializing":
            self._forget()
            self.clear()  # the same file once more would change nothing
        elif status == "finished" and not self._buffer:
            self._send_msg({"status": "finished"})
            self._report(f"The file is empty (0 bytes): {NEEDED}.")
        elif (status == "upload_event" and self._is_acceptable(msg)) or status == "finished":
            super()._handle_msg(msg)
        else:
            self._forget()
            size = f"{self._max_bytes / 1e6:.3g} MB"
            self._report(f"The file was not read. A file can be uploaded if it is whole and has at most {size}.")

    def _is_acceptable(self, msg: dict[str, Any]) -> bool:
        """Whether this part of a file is well formed, and the parts so far are not larger than the limit."""
        name, chunk, chunks, data = (msg.get(key) for key in ("name", "chunk", "total_chunks", "data"))
        if not (isinstance(name, str) and len(name) <= LONGEST_NAME and isinstance(msg.get("mime_type"), str)):
            return False
        if not (isinstance(chunk, int) and isinstance(chunks, int) and 1 <= chunk <= chunks):
            return False
        if not isinstance(data, bytes | bytearray | memoryview) or chunks > self._max_bytes // CHUNK + 1:
            return False
        parts = [part for file in self._file_buffer.values() for part in file["chunks"].values()]
        whole = [file["value"] for file in self._buffer]
        return sum(map(len, [*parts, *whole])) + len(data) <= self._max_bytes

    def _forget(self) -> None:
        self._buffer.clear()
        self._file_buffer.clear()
