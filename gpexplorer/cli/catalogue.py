"""The catalogue: methods with their settings, kernels and data sets, as plain values for lists and completions.

Collecting them imports torch, which takes seconds. They are therefore kept in the user's cache folder under a name that
changes with every file of this package, and a list or a completion of the shell takes a fraction of a second.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import platformdirs

PACKAGE = Path(__file__).resolve().parent.parent
DIGITS = 16  # hexadecimal digits in the file name of a cached catalogue

Catalogue = dict[str, list[dict[str, Any]]]


def catalogue() -> Catalogue:
    """Return "methods", "kernels" and "data", each a list of plain dicts in alphabetical order.

    Notes
    -----
    Methods that a program has registered itself are listed as well: if the methods are imported already, nothing is
    read from the cache.
    """
    if "gpexplorer.methods.base" in sys.modules:
        return collected()
    path = _path()
    with suppress(OSError, ValueError):
        cached = json.loads(path.read_text("utf-8"))
        if set(cached) == {"methods", "kernels", "data"}:
            return cached
    entries = collected()
    with suppress(OSError):  # a folder that cannot be written only costs time
        path.parent.mkdir(parents=True, exist_ok=True)
        for older in path.parent.glob("catalogue-*.json"):
            older.unlink()
        temporary = path.with_suffix(f".{os.getpid()}.new")
        temporary.write_text(json.dumps(entries), "utf-8")
        temporary.replace(path)
    return entries


def collected() -> Catalogue:
    """The catalogue of the classes and cards as they are now."""
    return {"methods": _methods(), "kernels": _kernels(), "data": _data()}


def keys(kind: str) -> list[str]:
    """The keys of the methods or kernels, or the names of the data sets."""
    return [entry["name" if kind == "data" else "key"] for entry in catalogue()[kind]]


def is_here(entry: dict[str, Any]) -> bool:
    """Whether all files of a data set exist with the right size; a generator needs none."""
    return all(Path(path).is_file() and Path(path).stat().st_size == size for path, size in entry["files"])


def _methods() -> list[dict[str, Any]]:
    from ..methods.base import registry
    from ..runs.setting_checks import wanted

    return [
        {
            "key": key,
            "title": method.title,
            "family": method.family,
            "paper": method.paper,
            "settings": [
                {"name": name, "default": setting.default, "takes": wanted(setting), "meaning": setting.doc or ""}
                for name, setting in method.used_settings().items()
            ],
        }
        for key, method in sorted(registry.items())
    ]


def _kernels() -> list[dict[str, Any]]:
    from ..kernels.base import registry

    return [
        {
            "key": key,
            "title": kernel.title,
            "inputs": kernel.inputs,
            "hyperparameters": list(registry[key](2 if kernel.inputs == "real" else 1).names),
        }
        for key, kernel in sorted(registry.items())
    ]


def _data() -> list[dict[str, Any]]:
    from ..data import available
    from ..data.sets.cache import cache_dir
    from ..data.sets.cards import card, names

    public, rows = set(names()), list[dict[str, Any]]()
    records = available().drop(columns="cached").reset_index().to_dict("records")
    for row in ({str(name): value for name, value in record.items()} for record in records):
        files = card(row["name"]).files if row["name"] in public else ()
        paths = [[str(cache_dir() / file.path), file.nbytes] for file in files]
        d = None if row["d"] is None or row["d"] != row["d"] else int(row["d"])  # molecules have no columns
        rows.append({**row, "n": int(row["n"]), "d": d, "files": paths})
    return sorted(rows, key=lambda row: row["name"])


def _path() -> Path:
    """The file of the catalogue of this version of the package, for the data folder in use."""
    state = hashlib.sha256(os.environ.get("GPEXPLORER_DATA_DIR", "").encode())
    for file in sorted(PACKAGE.rglob("*")):
        if file.suffix in (".py", ".yaml"):
            info = file.stat()
            state.update(f"{file.relative_to(PACKAGE)} {info.st_mtime_ns} {info.st_size}\n".encode())
    return Path(platformdirs.user_cache_dir("gpexplorer")) / f"catalogue-{state.hexdigest()[:DIGITS]}.json"
