"""A file upload whose limit is enforced by the server, with a message for every file that is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel_material_ui as pmui

CHUNK = 10 * 1024**2  # bytes per message: what the widget's browser part sends
LONGEST_NAME = 255  # characters


class FileUpload(pmui.FileInput):
    """The file input of panel-material-ui, for one file. It trusts no message of the browser.

    The original raises where the browser reports an error (such as a file that is too large), checks the size in the
    browser only, and shows the error for five seconds, as a tooltip.

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
        elif status == "finished" and not self._buffer:
            self._send_msg({"status": "finished"})
            self._report("The file is empty (0 bytes): choose a file with a header and at least 3 rows.")
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
