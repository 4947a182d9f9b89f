"""A file of JSON lines that is only appended to and survives a kill. Each line carries its own checksum.

    <16 hex digits of BLAKE2b over the JSON> <JSON>\\n

A line is written by one call, with its newline last, so a write that was cut short leaves an incomplete last line
without a newline. That line is removed when the file is next opened for writing, if it begins as a line does. A whole
line that does not match its checksum is damage, and the file is refused. A line survives the death of the process once
`append` returns, and of the machine once `sync` returns.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import weakref
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import StoreError
from .own_files import open_own, sync_directory

SYNC_SECONDS = 1.0  # between two forced writes to the disk
_CHECKSUM = "does not match its checksum"
_TORN = re.compile(rb"[0-9a-f]{0,16}\0*|[0-9a-f]{16} (\{.*|\0*)", re.DOTALL)  # the beginning of a line, or lost blocks


class Content(NamedTuple):
    """The content of a file.

    Attributes
    ----------
    lines : list of dict
        Its whole lines.
    length : int
        The bytes of these lines.
    damaged : int
        The number of the first damaged line, counted from 1; 0 if there is none.
    reason : str
        What is wrong with that line.
    """

    lines: list[dict[str, Any]]
    length: int
    damaged: int
    reason: str = ""


def read(path: Path) -> Content:
    """Every line up to an incomplete last line or the first damage. A missing file is an empty one."""
    lines: list[dict[str, Any]] = []
    length = 0
    try:
        file = os.fdopen(open_own(path), "rb")
    except FileNotFoundError:
        return Content(lines, 0, 0)
    with file:
        for raw in file:
            line, reason = _checked(raw[:-1])
            whole = raw.endswith(b"\n")
            if not whole and line is None and _TORN.fullmatch(raw):
                return Content(lines, length, 0)
            if not whole or line is None:
                return Content(lines, length, len(lines) + 1, reason or _CHECKSUM)
            lines.append(line)
            length += len(raw)
    return Content(lines, length, 0)


def read_whole(path: Path) -> Content:
    """Every line up to an incomplete last line; StoreError if one line is damaged."""
    content = read(path)
    if content.damaged:
        raise StoreError(
            f"Line {content.damaged} of {path} {content.reason}. "
            f"Store.repair keeps the {len(content.lines)} whole lines before it and sets the file aside."
        )
    return content


class Lines:
    """The file, opened for appending by one writer, which holds a lock around it.

    Parameters
    ----------
    path : Path
        The file. An incomplete last line is removed.

    Raises
    ------
    StoreError
        If a line before the last one is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content = read_whole(path)
        self._file = open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._close_file = weakref.finalize(self, os.close, self._file)
        self._length, self._torn = self.content.length, True
        self._cut()
        self.sync()
        sync_directory(path.parent)

    def append(self, line: dict[str, Any]) -> None:
        """Write one line. A write that fails half-way (a full disk) is undone before its error is raised.

        Raises
        ------
        StoreError
            If the file was deleted.
        """
        text = json.dumps(line, separators=(",", ":"), allow_nan=False).encode()
        raw = _checksum(text) + b" " + text + b"\n"
        if self._torn:
            self._cut()
        self._torn = True
        try:
            written = 0
            while written < len(raw):
                written += os.write(self._file, raw[written:])
        except OSError:
            self._cut()
            raise
        self._torn = False
        self._length += len(raw)
        if os.fstat(self._file).st_nlink == 0:
            raise StoreError(f"{self.path} was deleted while the run was writing to it: keep the run again.")
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def _cut(self) -> None:
        """Remove what follows the last whole line. The file is open for appending, so the next write begins there."""
        os.ftruncate(self._file, self._length)
        self._torn = False

    def sync(self) -> None:
        """Return when everything appended is on the disk."""
        os.fsync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Return when everything is on the disk, and close the file."""
        self.sync()
        self._close_file()


def _checksum(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode()


def _checked(raw: bytes) -> tuple[dict[str, Any] | None, str]:
    """The object on a line without its newline, or None and what is wrong with the line."""
    if raw[16:17] != b" " or raw[:16] != _checksum(raw[17:]):
        return None, _CHECKSUM
    try:
        value = json.loads(raw[17:])
    except (ValueError, RecursionError):  # bad UTF-8, an integer of too many digits, brackets nested too deeply
        return None, "is not JSON"
    return (value, "") if isinstance(value, dict) else (None, "is not an object")
