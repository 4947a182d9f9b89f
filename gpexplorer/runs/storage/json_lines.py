"""An append-only file of JSON lines that survives being killed: each line carries a checksum of its own.

    <16 hex digits of BLAKE2b over the JSON> <JSON>\\n

A line is written whole by one call, its newline last, so a write cut short leaves a tail without a newline. That tail
is cut when the file is next opened for writing. A whole line that fails its checksum is damage, and is refused.
A line survives the death of the process once `append` returns, and of the machine once `sync` returns.
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
    """What a file holds: its whole lines, the bytes they take, and the number of the first damaged line (0 if none)."""

    lines: list[dict[str, Any]]
    length: int
    damaged: int


def read(path: Path) -> Content:
    """Every line up to the torn tail or the first damage; an absent file is an empty one."""
    lines: list[dict[str, Any]] = []
    length = 0
    if not path.exists():
        return Content(lines, 0, 0)
    with path.open("rb") as file:
        for raw in file:
            found = _checked(raw[:-1])
            whole = raw.endswith(b"\n")
            if not whole or found is None:
                torn = not whole and found is None
                return Content(lines, length, 0 if torn else len(lines) + 1)
            lines.append(found)
            length += len(raw)
    return Content(lines, length, 0)


def read_whole(path: Path) -> Content:
    """Every line up to the torn tail; StoreError where one is damaged."""
    content = read(path)
    if content.damaged:
        raise StoreError(
            f"Line {content.damaged} of {path} does not match its checksum. "
            f"Store.repair keeps the {len(content.lines)} whole lines before it and sets the file aside."
        )
    return content


class Lines:
    """The file opened for appending by one writer, who holds the lock around it."""

    def __init__(self, path: Path) -> None:
        """Cuts a torn tail; StoreError where a line in the middle is damaged."""
        self.path = path
        self.content = read_whole(path)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._let_go = weakref.finalize(self, os.close, self._file)
        self._length = self.content.length
        os.ftruncate(self._file, self._length)
        os.lseek(self._file, self._length, os.SEEK_SET)
        self.sync()
        sync_directory(path.parent)

    def append(self, line: dict[str, Any]) -> None:
        """Write one line; a write that fails half-way (a full disk) is taken back before its error is raised."""
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
        """Return once everything appended is on the disk."""
        os.fsync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Sync, and let go of the file."""
        self.sync()
        self._let_go()


def write_whole(path: Path, text: str) -> None:
    """Replace a file by this text, or leave it as it was: no reader and no crash sees a half."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable, where the system knows how."""
    if os.name == "posix":
        entry = os.open(path, os.O_RDONLY)
        try:
            os.fsync(entry)
        finally:
            os.close(entry)


def _checksum(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode()


def _checked(raw: bytes) -> dict[str, Any] | None:
    """The object on a line without its newline; None where the checksum does not hold."""
    if raw[16:17] != b" " or raw[:16] != _checksum(raw[17:]):
        return None
    found = json.loads(raw[17:])
    return found if isinstance(found, dict) else None
