"""A card is one YAML file that says all there is to know about one public data set; adding a set is adding a card.

Every field is checked on loading, so that a slip in a card is a sentence and never a wrong download.
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
    """One file of a data set: its path below the cache folder, and what a correct copy of it is."""

    path: str
    url: str
    sha256: str
    nbytes: int


@dataclass(frozen=True)
class Card:
    """One public data set: `n` rows, `d` inputs (None for molecules), `traps` shown to whoever loads it."""

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
    """Every data set that has a card, in alphabetical order."""
    held = files("gpexplorer.data").joinpath("cards").iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in held if f.name.endswith(".yaml")))


@cache
def card(name: str) -> Card:
    """The card of one data set (under 10 ms, then kept); DataError where there is none."""
    if name not in names():
        raise DataError(f"There is no data set {quote(name)} in the registry. {nearest(name, names())}")
    return parse_card(name, files("gpexplorer.data").joinpath("cards", f"{name}.yaml").read_text("utf-8"))


def parse_card(name: str, text: str) -> Card:
    """Read and check the text of a card; DataError names the card, the field and what it should hold."""
    try:
        held = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise DataError(f"Card {name}: it is not YAML: {quote(error, 120)}.") from None
    _check_fields(f"Card {name}", held, _FIELDS)
    kind = held["split"].get("kind")
    if held["layout"] not in LAYOUTS or kind not in SPLITS:
        raise DataError(
            f"Card {name}: layout {quote(held['layout'])} must be one of {listing(LAYOUTS)} "
            f"and split kind {quote(kind)} one of {listing(SPLITS)}."
        )
    if held["n"] < 1 or (held["d"] is not None and held["d"] < 1) or not held["files"]:
        raise DataError(f"Card {name}: n and d are at least 1, and at least one file is named.")
    texts = {key: tuple(map(str, held[key])) for key in ("notes", "traps")}
    inputs = None if held["inputs"] is None else tuple(map(str, held["inputs"]))
    parts = tuple(_file(name, path, fields) for path, fields in held["files"].items())
    return Card(name=name, **{**held, **texts, "inputs": inputs, "files": parts})


def _check_fields(where: str, held: object, fields: Mapping[str, Any]) -> None:
    if not isinstance(held, dict) or set(held) != set(fields):
        odd = set(held) ^ set(fields) if isinstance(held, dict) else set(fields)
        raise DataError(f"{where}: it holds exactly {listing(fields, 20)}; look at {listing(sorted(map(str, odd)))}.")
    for key, kind in fields.items():
        if not isinstance(held[key], kind) or isinstance(held[key], bool):
            wanted = " or ".join(getattr(k, "__name__", str(k)) for k in get_args(kind) or (kind,))
            raise DataError(f"{where}: {key} is {quote(held[key])}; it must be of type {wanted}.")


def _file(name: str, path: str, fields: Any) -> CardFile:
    where = f"Card {name}, file {quote(path)}"
    _check_fields(where, fields, _FILE_FIELDS)
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\\" in path or ":" in path:
        raise DataError(f"{where}: a path below the cache folder, such as uci/name/data.csv.gz, is needed.")
    if not re.fullmatch(r"[0-9a-f]{64}", fields["sha256"]):
        raise DataError(f"{where}: sha256 must be 64 hexadecimal digits.")
    if not fields["url"].startswith("https://") or fields["bytes"] < 1:
        raise DataError(f"{where}: url must start with https:// and bytes must be at least 1.")
    return CardFile(path, fields["url"], fields["sha256"], fields["bytes"])
