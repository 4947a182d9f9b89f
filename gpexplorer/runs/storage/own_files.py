"""Files of a run's directory, opened so that nothing but a file of this directory is read or written.

A run's directory may come from someone else. A symbolic link in it could show or overwrite any file of this machine, a
hard link could overwrite one, and a pipe would be waited for without end. So files are opened without following links,
and only regular files are accepted; whoever writes also refuses a file that has a second name elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...errors import StoreError

LEFT_OVER_SECONDS = 60.0  # a note that is older and not renamed was left by a process that was killed
_SAFE = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))


def open_own(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file of a run's directory.

    Parameters
    ----------
    path : Path
        The file.
    flags : int
        Flags of `os.open`, such as `os.O_RDWR | os.O_CREAT`.

    Returns
    -------
    int
        A file descriptor, which the caller closes.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    StoreError
        If it is a link, a pipe, a device or a directory, or has other names and would be written.
    """
    if path.is_symlink():  # also where the system has no flag against links
        raise _refused(path, "is a link to another file")
    try:
        descriptor = os.open(path, flags | _SAFE, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _refused(path, "is no file") from None
        raise
    status = os.fstat(descriptor)
    writes = flags & (os.O_RDWR | os.O_WRONLY)
    if not stat.S_ISREG(status.st_mode) or (writes and status.st_nlink > 1):
        os.close(descriptor)
        shared = stat.S_ISREG(status.st_mode)
        raise _refused(path, f"has {status.st_nlink} names, so other files would change" if shared else "is no file")
    return descriptor


def read_own(path: Path, most: int) -> bytes:
    """Read at most this number of bytes of a regular file of a run's directory; the errors are those of `open_own`."""
    with os.fdopen(open_own(path), "rb") as file:
        return file.read(most)


def write_whole(path: Path, text: str) -> None:
    """Replace a file of a run's directory by this text, or leave it as it was. No reader sees a part of the text."""
    with replacing(path) as fresh:
        fresh.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path, private: bool = True) -> Iterator[Path]:
    """Yield an empty file beside `path` to write to. At the end of the block it takes the place of `path`.

    If the block raises, the fresh file is removed and `path` stays as it was.

    Parameters
    ----------
    path : Path
        The file.
    private : bool, default True
        Whether it is a file of a run's directory: only the owner may read it, and a link or a pipe in its place is
        replaced. Otherwise a link is followed, and a device or a pipe is written to directly.
    """
    if not private and path.exists() and not path.is_file():
        yield path
        return
    target = path if private else path.resolve()
    descriptor, name = tempfile.mkstemp(prefix=f"{target.name}.", suffix=".new", dir=target.parent)
    os.close(descriptor)
    fresh = Path(name)
    try:
        if not private:
            # a new file usually has the mode that the umask leaves
            mask = os.umask(0o077)
            os.umask(mask)
            fresh.chmod(0o666 & ~mask)
        yield fresh
        _sync(fresh, os.O_RDWR)
        os.replace(fresh, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh)
        raise
    sync_directory(target.parent)


def remove_left_overs(directory: Path, note: str) -> None:
    """Remove what killed writers left in a run's directory. The caller holds the run's lock.

    Parameters
    ----------
    directory : Path
        The directory of the run.
    note : str
        The name of the note, which is written without the lock, so that only old files of it are removed.
    """
    for path in directory.glob("*.new"):
        with suppress(OSError):
            if not path.name.startswith(f"{note}.") or time.time() - path.lstat().st_mtime > LEFT_OVER_SECONDS:
                path.unlink()


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable, if the system can."""
    if os.name == "posix":
        _sync(path, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    entry = os.open(path, flags)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)


def _refused(path: Path, what: str) -> StoreError:
    return StoreError(f"{path} {what}, and a run's files are read and written only as files of its own: remove it.")
