"""Public files, which are downloaded once. A copy is used only if its SHA-256 is the one on the card.

The cache is in the user's cache folder, or in the folder named by GPEXPLORER_DATA_DIR, which may be read-only if the
files are there already. The card of a data set gives the path of each file inside the cache.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pooch

from ...errors import DataError
from ..quoting import quote, size
from .cards import Card, CardFile

ENV = "GPEXPLORER_DATA_DIR"
Progress = Callable[[int, int], None]  # bytes so far, bytes in all
_TIMEOUT = 30.0  # seconds without a byte, after which a download fails


def cache_dir() -> Path:
    """Return the folder of public files, which need not exist yet."""
    return Path(os.environ.get(ENV) or pooch.os_cache("gpexplorer")).expanduser()


def is_cached(card: Card) -> bool:
    """Whether all files of this set exist with the right size. Their contents are checked when the set is loaded."""
    paths = [(cache_dir() / file.path, file.nbytes) for file in card.files]
    return all(path.is_file() and path.stat().st_size == nbytes for path, nbytes in paths)


def fetch_card(card: Card, progress: Progress | None = None) -> tuple[Path, ...]:
    """Download the files of a data set that are missing, and check all of them.

    Parameters
    ----------
    card : Card
        The data set.
    progress : callable, optional
        Called as progress(done, total) with numbers of bytes over all files.

    Returns
    -------
    tuple of Path
        The files, in the order of the card.

    Raises
    ------
    DataError
        If there is no network, if the folder cannot be written to, or if a checksum is wrong.
    """
    total, done, paths = sum(file.nbytes for file in card.files), 0, []
    for file in card.files:
        path = cache_dir() / file.path
        if path.is_file():
            _check(card.name, file, path)
        else:
            _download(card.name, file, path, _Meter(file, done, total, progress))
        done += file.nbytes
        paths.append(path)
        if progress is not None:
            progress(done, total)
    return tuple(paths)


def _check(name: str, file: CardFile, path: Path) -> None:
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    if actual != file.sha256:
        raise DataError(
            f"{name}: {quote(path, 200)} has SHA-256 {actual[:12]}… where {file.sha256[:12]}… is expected, so it was "
            "not used: delete that file and load the set again."
        )


def _download(name: str, file: CardFile, path: Path, meter: _Meter) -> None:
    from requests.exceptions import RequestException  # imported here, because it is slow and rarely needed

    get = pooch.HTTPDownloader(progressbar=meter, timeout=_TIMEOUT)
    where = f"{file.path} ({size(file.nbytes)}) from {file.url}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pooch.retrieve(file.url, f"sha256:{file.sha256}", path.name, path.parent, downloader=get)
    except RequestException as error:
        raise DataError(
            f"{name}: no answer for {where} ({type(error).__name__}). Connect to the network, or put the file at "
            f"{quote(path, 200)}, or set {ENV} to a folder that contains it."
        ) from None
    except OSError as error:
        raise DataError(
            f"{name}: {where} cannot be written to {quote(path.parent, 200)} ({error.strerror or error}). "
            f"Set {ENV} to a folder that can be written to, or that contains the file."
        ) from None
    except ValueError:
        raise DataError(
            f"{name}: {where} arrived with another SHA-256 than {file.sha256[:12]}…, so it was not kept: try again. "
            f"If it is wrong again, the file has changed at its source; set {ENV} to a folder with a correct copy."
        ) from None


class _Meter:
    """A progress bar as pooch expects it, which also stops a server that sends more bytes than the card says."""

    def __init__(self, file: CardFile, before: int, total: int, progress: Progress | None) -> None:
        self._file, self._before, self._all, self._progress = file, before, total, progress
        self._done, self.total = 0, 0

    def update(self, nbytes: int) -> None:
        self._done += nbytes
        if self._done > self._file.nbytes + pooch.HTTPDownloader().chunk_size:
            raise ValueError(f"{self._file.path} is longer than {self._file.nbytes} bytes")
        if self._progress is not None:
            self._progress(self._before + min(self._done, self._file.nbytes), self._all)

    def reset(self) -> None:
        """Pooch calls this at the end of a file; the total of all files comes from the card."""
        self._done = 0

    def close(self) -> None:
        """Do nothing, because nothing is open."""
