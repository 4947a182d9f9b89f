"""Public data sets: a card describes each, and its files are downloaded once.

A card is a YAML file; a new data set is one new card. All fields are checked when a card is loaded, so that a mistake
in a card gives an error message and never a wrong download.

A copy of a file is used only if its SHA-256 is the one on the card. The cache is in the user's cache folder, or in the
folder named by GPEXPLORER_DATA_DIR, which may be read-only if the files are there already. The card gives the path of
each file inside the cache.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any, get_args

import pooch
import yaml

from ...errors import DataError
from ..quoting import listing, nearest, quote, size

LAYOUTS = ("uci", "snelson", "co2-wide", "co2-monthly", "table", "molecules")
SPLITS = ("folds", "official", "time", "none")
_FIELDS = {
    "title": str, "task": str, "n": int, "d": int | None, "licence": str, "layout": str, "inputs": list | None,
    "target": str, "split": dict, "notes": list, "traps": list, "files": dict,
}  # fmt: skip
_FILE_FIELDS = {"url": str, "sha256": str, "bytes": int}
ENV = "GPEXPLORER_DATA_DIR"
YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C reads all cards in 20 ms, the other one in 160
Progress = Callable[[int, int], None]  # bytes so far, bytes in all
_TIMEOUT = 30.0  # seconds without a byte, after which a download fails


@dataclass(frozen=True)
class CardFile:
    """One file of a data set: its path inside the cache folder, its address, its checksum and its size."""

    path: str
    url: str
    sha256: str
    nbytes: int


@dataclass(frozen=True)
class Card:
    """The description of one public data set.

    It has `n` rows and `d` inputs (None for molecules). `traps` are warnings that are shown whenever it is loaded.
    """

    name: str
    title: str
    task: str
    n: int
    d: int | None
    licence: str
    layout: str
    inputs: tuple[str, ...] | None
    target: str
    split: Mapping[str, Any]
    notes: tuple[str, ...]
    traps: tuple[str, ...]
    files: tuple[CardFile, ...]


@cache
def names() -> tuple[str, ...]:
    """Return the names of all data sets that have a card, in alphabetical order."""
    entries = files("gpexplorer.data").joinpath("cards").iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in entries if f.name.endswith(".yaml")))


@cache
def card(name: str) -> Card:
    """Return the card of one data set (under 10 ms, then cached); DataError if there is none."""
    if name not in names():
        raise DataError(f"There is no data set {quote(name)} in the registry. {nearest(name, names())}")
    return parse_card(name, files("gpexplorer.data").joinpath("cards", f"{name}.yaml").read_text("utf-8"))


def parse_card(name: str, text: str) -> Card:
    """Read and check the text of a card; DataError names the card, the field and what it should contain."""
    try:
        fields = yaml.load(text, YAML)
    except yaml.YAMLError as error:
        raise DataError(f"Card {name}: it is not valid YAML: {quote(error, 120)}. Correct its syntax.") from None
    _check_fields(f"Card {name}", fields, _FIELDS)
    kind = fields["split"].get("kind")
    if fields["layout"] not in LAYOUTS or kind not in SPLITS:
        raise DataError(
            f"Card {name}: layout {quote(fields['layout'])} must be one of {listing(LAYOUTS)} "
            f"and split kind {quote(kind)} one of {listing(SPLITS)}."
        )
    if fields["n"] < 1 or (fields["d"] is not None and fields["d"] < 1) or not fields["files"]:
        raise DataError(f"Card {name}: n and d must be at least 1, and at least one file must be named.")
    texts = {key: tuple(map(str, fields[key])) for key in ("notes", "traps")}
    inputs = None if fields["inputs"] is None else tuple(map(str, fields["inputs"]))
    parts = tuple(_file(name, path, file_fields) for path, file_fields in fields["files"].items())
    return Card(name=name, **{**fields, **texts, "inputs": inputs, "files": parts})


def _check_fields(where: str, fields: object, types: Mapping[str, Any]) -> None:
    if not isinstance(fields, dict) or set(fields) != set(types):
        wrong = set(fields) ^ set(types) if isinstance(fields, dict) else set(types)
        raise DataError(
            f"{where}: its fields must be {listing(types, 20)}; correct {listing(sorted(map(str, wrong)))}."
        )
    for key, kind in types.items():
        if not isinstance(fields[key], kind) or isinstance(fields[key], bool):
            expected = " or ".join(getattr(k, "__name__", str(k)) for k in get_args(kind) or (kind,))
            raise DataError(f"{where}: {key} is {quote(fields[key])}; it must be of type {expected}.")


def _file(name: str, path: str, fields: Any) -> CardFile:
    where = f"Card {name}, file {quote(path)}"
    _check_fields(where, fields, _FILE_FIELDS)
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\\" in path or ":" in path:
        raise DataError(f"{where}: the path must be relative to the cache folder, such as uci/name/data.csv.gz.")
    if not re.fullmatch(r"[0-9a-f]{64}", fields["sha256"]):
        raise DataError(f"{where}: sha256 must be 64 hexadecimal digits.")
    if not fields["url"].startswith("https://") or fields["bytes"] < 1:
        raise DataError(f"{where}: url must start with https:// and bytes must be at least 1.")
    return CardFile(path, fields["url"], fields["sha256"], fields["bytes"])


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
    new_folders = [folder for folder in path.parents if not folder.exists()]  # the deepest first
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
    finally:
        with suppress(OSError):  # folders with a file in them stay
            for folder in new_folders:
                folder.rmdir()


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
