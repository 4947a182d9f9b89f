"""A card is a YAML file that describes one public data set. A new data set is one new card.

All fields are checked when a card is loaded, so that a mistake in a card gives an error message and never a wrong
download.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any, get_args

import yaml

from ...errors import DataError
from ..quoting import listing, nearest, quote

LAYOUTS = ("uci", "snelson", "co2-wide", "co2-monthly", "table", "molecules")
SPLITS = ("folds", "official", "time", "none")
_FIELDS = {
    "title": str, "task": str, "n": int, "d": int | None, "licence": str, "layout": str, "inputs": list | None,
    "target": str, "split": dict, "notes": list, "traps": list, "files": dict,
}  # fmt: skip
_FILE_FIELDS = {"url": str, "sha256": str, "bytes": int}


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
        fields = yaml.safe_load(text)
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
