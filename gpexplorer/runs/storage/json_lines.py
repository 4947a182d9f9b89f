"""A file of JSON lines that is only appended to and survives a kill. Each line carries its own checksum.

    <16 hex digits of BLAKE2b over the JSON> <JSON>\\n

A line is written by one call, with its newline last, so a write that was cut short leaves an incomplete last line
without a newline. That line is removed when the file is next opened for writing. A whole line that does not match its
checksum is damage, and the file is refused. A line survives the death of the process once `append` returns, and of the
machine once `sync` returns.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import weakref
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import StoreError

SYNC_SECONDS = 1.0  # between two forced writes to the disk


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
    """

    lines: list[dict[str, Any]]
    length: int
    damaged: int


def read(path: Path) -> Content:
    """Every line up to an incomplete last line or the first damage. A missing file is an empty one."""
    lines: list[dict[str, Any]] = []
    length = 0
    if not path.exists():
        return Content(lines, 0, 0)
    with path.open("rb") as file:
        for raw in file:
            line = _checked(raw[:-1])
            whole = raw.endswith(b"\n")
            if not whole or line is None:
                incomplete = not whole and line is None
                return Content(lines, length, 0 if incomplete else len(lines) + 1)
            lines.append(line)
            length += len(raw)
    return Content(lines, length, 0)


def read_whole(path: Path) -> Content:
    """Every line up to an incomplete last line; StoreError if one line is damaged."""
    content = read(path)
    if content.damaged:
        raise StoreError(
            f"Line {content.damaged} of {path} does not match its checksum. "
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
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._close_file = weakref.finalize(self, os.close, self._file)
        self._length = self.content.length
        os.ftruncate(self._file, self._length)
        os.lseek(self._file, self._length, os.SEEK_SET)
        self.sync()
        sync_directory(path.parent)

    def append(self, line: dict[str, Any]) -> None:
        """Write one line. A write that fails half-way (a full disk) is undone before its error is raised."""
        text = json.dumps(line, separators=(",", ":"), allow_nan=False).encode()
        raw = _checksum(text) + b" " + text + b"\n"
        try:
            written = 0
            while written < len(raw):
                written += os.write(self._file, raw[written:])
        except OSError:
            os.ftruncate(self._file, self._length)
            raise
        self._length += len(raw)
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Return when everything appended is on the disk."""
        os.fsync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Return when everything is on the disk, and close the file."""
        self.sync()
        self._close_file()


def write_whole(path: Path, text: str) -> None:
    """Replace a file by this text, or leave it as it was. No reader and no crash sees a part of the text."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable, if the system can."""
    if os.name == "posix":
        entry = os.open(path, os.O_RDONLY)
        try:
            os.fsync(entry)
        finally:
            os.close(entry)


def _checksum(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode()


def _checked(raw: bytes) -> dict[str, Any] | None:
    """The object on a line without its newline, or None if it does not match its checksum."""
    if raw[16:17] != b" " or raw[:16] != _checksum(raw[17:]):
        return None
    value = json.loads(raw[17:])
    return value if isinstance(value, dict) else None
