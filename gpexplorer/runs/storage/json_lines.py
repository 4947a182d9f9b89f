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
from typing import Any, BinaryIO, NamedTuple

from ...errors import StoreError
from .own_files import open_own, sync_directory

SYNC_SECONDS = 1.0  # between two forced writes to the disk
LONGEST = 2**31  # bytes of a line: one step of a run
LOST = 2**26  # bytes of lost blocks, which are zeros, at the end of a file
MOST_OF_LINE, MOST_OF_FILE = 2**20, 2**25  # numbers, texts and lists: each takes up to 72 bytes of memory
PIECE = 2**20  # bytes of a line that are checked at once
_CHECKSUM = "does not match its checksum"
_WHOLE_HEAD = re.compile(rb"[0-9a-f]{16} ")
_TORN_HEAD = re.compile(rb"[0-9a-f]{0,16}\0*")


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
    length = values = 0
    try:
        file = os.fdopen(open_own(path), "rb")
    except FileNotFoundError:
        return Content(lines, 0, 0)
    with file:
        while (scanned := _scan(file)).length:
            if scanned.is_torn:
                break
            values += scanned.values
            line, reason = None, scanned.reason or _too_many(values, MOST_OF_FILE, "is where a file")
            if not reason:
                file.seek(length + 17)
                line, reason = _parsed(file.read(scanned.length - 18))
            if line is None:
                return Content(lines, length, len(lines) + 1, reason)
            lines.append(line)
            length += scanned.length
            file.seek(length)
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

    Attributes
    ----------
    mark : int
        A number of the caller's, such as a count of records. It changes together with the length of the file, in one
        assignment, so that an interrupt at any place leaves the two in agreement.

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
        self._whole, self._torn = (self.content.length, 0), True
        self._cut()
        self.sync()
        sync_directory(path.parent)

    @property
    def mark(self) -> int:
        return self._whole[1]

    @mark.setter
    def mark(self, value: int) -> None:
        self._whole = (self._whole[0], value)

    def append(self, line: dict[str, Any], mark: int | None = None) -> None:
        """Write one line. A write that fails half-way (a full disk) is undone before its error is raised.

        Parameters
        ----------
        line : dict
            The line.
        mark : int, optional
            The new value of `mark`, which stays as it is if the line is not written.

        Raises
        ------
        StoreError
            If the file was deleted.
        """
        text = json.dumps(line, separators=(",", ":"), allow_nan=False).encode()
        digest = hashlib.blake2b(text, digest_size=8).hexdigest()
        raw = digest.encode() + b" " + text + b"\n"
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
        self._whole = (self._whole[0] + len(raw), self._whole[1] if mark is None else mark)
        self._torn = False
        if os.fstat(self._file).st_nlink == 0:
            raise StoreError(f"{self.path} was deleted while the run was writing to it: keep the run again.")
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def _cut(self) -> None:
        """Remove what follows the last whole line. The file is open for appending, so the next write begins there."""
        os.ftruncate(self._file, self._whole[0])
        self._torn = False

    def sync(self) -> None:
        """Return when everything appended is on the disk."""
        os.fsync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Return when everything is on the disk, and close the file."""
        self.sync()
        self._close_file()


class _Scanned(NamedTuple):
    """What a line is, as far as that can be said without keeping it in memory."""

    length: int = 0  # with its newline; 0 at the end of the file
    is_torn: bool = False  # the beginning of a line, or lost blocks, at the end of the file
    reason: str = ""  # what is wrong with the line
    values: int = 0  # of its JSON


def _scan(file: BinaryIO) -> _Scanned:
    """Check the next line by pieces: its checksum, its length, and that it ends."""
    head = file.readline(17)
    if not (_WHOLE_HEAD.fullmatch(head) or _TORN_HEAD.fullmatch(head)):
        return _Scanned(len(head), reason=_CHECKSUM)
    length, zeros, values, digest, first, end = len(head), 0, 0, hashlib.blake2b(digest_size=8), b"", b""
    while end != b"\n" and (piece := file.readline(PIECE)):
        digest.update(end)
        digest.update(piece[:-1])
        first, end, length = first or piece[:1], piece[-1:], length + len(piece)
        zeros = 0 if piece.strip(b"\0") else zeros + len(piece)
        values += sum(map(piece.count, (b",", b"[", b"{")))
        if length > LONGEST or zeros > LOST:
            limit = f"{LONGEST / 2**20:g} MB" if length > LONGEST else f"{LOST / 2**20:g} MB of zeros at its end"
            return _Scanned(length, reason=f"has more than {limit}")
    is_right = head == digest.hexdigest().encode() + b" "
    if end == b"\n" or is_right:  # a line whose newline alone is another byte is damaged and not torn
        reason = _too_many(values, MOST_OF_LINE) if is_right and end == b"\n" else _CHECKSUM
        return _Scanned(length, reason=reason, values=values)
    is_torn = len(head) + zeros == length or (first == b"{" and _WHOLE_HEAD.fullmatch(head) is not None)
    return _Scanned(length, is_torn, "" if is_torn else _CHECKSUM)


def _too_many(values: int, most: int, of: str = "") -> str:
    """What is wrong where there are more values than this; an empty text otherwise."""
    return f"{of} has more than {most:,} numbers and texts".lstrip() if values > most else ""


def _parsed(text: bytes) -> tuple[dict[str, Any] | None, str]:
    """The object that a line holds, or None and what is wrong with it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # bad UTF-8, an integer of too many digits, brackets nested too deeply
        return None, "is not JSON"
    return (value, "") if isinstance(value, dict) else (None, "is not an object")
