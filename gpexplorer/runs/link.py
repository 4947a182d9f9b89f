"""A spec and the picture that is shown, as the query of a URL: `v=1&method=cholqr&data=kin40k&seed=3&view=fit`.

`write` writes every setting, even if it equals its default, so that a default that changes later does not change what
an old link shows. `write_short` leaves out what the reader would fill in, and marks the link with a digest of that:
where a default has changed since, `read` says so.

A link may come from a stranger: its length is bounded, it is never evaluated, it opens no file of this machine, and
each part that cannot be read is replaced, with a sentence that says so.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import torch

from .. import data as data_sets
from ..data.edits import checked
from ..data.sets.generators import GENERATORS, complete
from ..errors import GPExplorerError, SettingError, closest, quoted
from ..kernels.theta.options import OPTIONS
from .setting_checks import typed_value
from .spec import TRANSFORMS, Spec

VERSION = 1
LONGEST = 4000  # characters of a link: browsers and chats cut longer ones
MOST_CORRECTIONS = 8  # sentences shown; further ones are counted
KEY = re.compile(r"[a-z0-9-]{1,40}")
NESTS = ("data", "split", "set", "budget", "kernel")  # dicts, whose entries are written as set.num_inducing=12
FIELDS = ("method", "data", "split", "kernel", "seed", "set", "budget", "device", "dtype", *TRANSFORMS)


@dataclass(frozen=True)
class Link:
    """The content of a link.

    Attributes
    ----------
    spec : Spec
        What to run.
    view : str
        The key of the picture that is shown; empty for the first one.
    at : int or None
        The index of the record that is shown; None for the newest.
    corrected : tuple of str
        One sentence for each part that could not be used.
    """

    spec: Spec
    view: str = ""
    at: int | None = None
    corrected: tuple[str, ...] = ()


def write(spec: Spec, view: str = "", at: int | None = None) -> str:
    """Write a link's query, without its question mark.

    Parameters
    ----------
    spec, view, at : Spec, str, default "", int, optional
        As in `Link`.

    Raises
    ------
    SettingError
        If a link cannot name the rows (they were in memory or in a file), or would be longer than 4000 characters.
    """
    if not data_sets.is_named(spec.data):
        file = spec.data.get("file") if isinstance(spec.data, dict) else None
        source = f"come from the file {quoted(file)}" if isinstance(file, str) else "are not public"
        way_out = "a link cannot bring them along: send the program or the Spec with them"
        raise SettingError(f"These rows {source}, and {way_out}.")
    text = _query(_pairs(spec), view, at)
    if len(text) > LONGEST:
        raise SettingError(
            f"The link would be {len(text)} characters, {LONGEST} at most: send the Spec's JSON instead."
        )
    return text


def write_short(spec: Spec, start: Spec, view: str = "", at: int | None = None) -> str:
    """Write a link's query without what it shares with another spec, such as the address of a page.

    Parameters
    ----------
    spec, view, at : Spec, str, default "", int, optional
        As in `Link`.
    start : Spec
        What `read` will be given as its start. Its data must have a name.

    Returns
    -------
    str
        Empty where there is nothing to say.

    Raises
    ------
    SettingError
        As `write` does.
    """
    whole = write(spec, view, at)
    if spec == start and not view and at is None:
        return ""
    base = _with_method(start, spec.method, [])
    shared = set(_pairs(base))
    differing = {name.partition(".")[0] for name, value in _pairs(spec) if (name, value) not in shared}
    # Rows, split and limits are read as a whole; of the settings each stands for itself.
    pairs = [
        (name, value)
        for name, value in _pairs(spec)
        if name in TRANSFORMS  # a link without one means that there is none
        or (name.partition(".")[0] in differing and (not name.startswith("set.") or (name, value) not in shared))
    ]
    pairs = pairs if spec.method == start.method else [("method", spec.method), *(p for p in pairs if p[0] != "method")]
    text = _query([("defaults", _digest(base)), *pairs], view, at)
    return text if read(text, start).spec == spec else whole


def read(query: str, start: Spec, views: Iterable[str] = ()) -> Link:
    """Read a link's query. This function never raises.

    Parameters
    ----------
    query : str
        The query, with or without its question mark.
    start : Spec
        Gives every part that is missing in the link or wrong. A link that says anything about the spec and names no
        transform of the target means none.
    views : iterable of str
        The keys of the pictures there are. Without any, every well-formed key is accepted.

    Returns
    -------
    Link
        Its `corrected` holds a sentence for each part that was wrong.
    """
    corrected: list[str] = []
    parts = _parts(query, corrected)
    version = parts.pop("v", None)
    if parts and version != VERSION:
        problem = f"is of version {quoted(version)}" if version is not None else "names no version"
        corrected.append(f"The link {problem}; it was read as version {VERSION}, which may mean other numbers.")
    view = _view(parts.pop("view", ""), tuple(views), corrected)
    at, digest = _record_index(parts.pop("at", None), corrected), parts.pop("defaults", None)
    for name in [name for name in parts if name not in FIELDS and name.partition(".")[0] not in NESTS]:
        corrected.append(f"The link's {quoted(name)} is not known and was left out{closest(name, FIELDS)}")
        del parts[name]
    spec = _spec(parts, start, corrected)
    if digest is not None and digest != _digest(_with_method(start, spec.method, [])):
        corrected.append("A default has changed since this link was made: what it leaves out may have other values.")
    hidden = len(corrected) - MOST_CORRECTIONS
    corrected[MOST_CORRECTIONS:] = [f"{hidden} more parts of the link were corrected."] if hidden > 0 else []
    return Link(spec, view, at, tuple(corrected))


def _digest(base: Spec) -> str:
    """A mark of all values that a link may leave out; letters, so that it is read as text."""
    digest = hashlib.sha256(write(base).encode()).digest()
    return "".join(chr(ord("a") + byte % 26) for byte in digest[:6])


def _with_method(start: Spec, method: object, corrected: list[str]) -> Spec:
    """The spec that fills in what a link with this method leaves out."""
    return start if method == start.method else _changed(start, {"method": method, "settings": {}}, corrected)


def _query(pairs: Iterable[tuple[str, str]], view: str, at: int | None) -> str:
    """The text of a query with the version, these pairs, and what is shown."""
    shown = [("view", view)] * bool(view) + ([] if at is None else [("at", str(at))])
    return urlencode([("v", str(VERSION)), *pairs, *shown], quote_via=quote, safe="*,:[]")


def _pairs(spec: Spec) -> Iterable[tuple[str, str]]:
    """The fields of a spec as names and values of the query."""
    kernel = spec.kernel if isinstance(spec.kernel, dict) else {"name": spec.kernel}
    yield "method", spec.method
    yield from _nest("data", spec.data)
    yield from _nest("split", spec.split)
    yield "kernel", kernel["name"]
    yield from ((f"kernel.{name}", _text(kernel[name])) for name in ("theta", "start", *OPTIONS) if name in kernel)
    yield "seed", str(spec.seed)
    yield from _nest("set", spec.settings)
    yield from _nest("budget", spec.budget or "none")
    yield from (("device", spec.device), ("dtype", spec.dtype))
    yield from ((name, getattr(spec, name)) for name in TRANSFORMS if getattr(spec, name))


def _nest(name: str, value: Any) -> Iterable[tuple[str, str]]:
    """One pair for a plain value; for a dict one pair per entry, where the "name" of data stands for the whole.

    A dict of data or of a split that these pairs would not bring back is written as JSON, in one pair.
    """
    is_whole = not isinstance(value, Mapping) or (name == "data" and len(value) == 1)
    if is_whole or (name == "split" and (not value or "name" in value)):
        yield name, _text(value)
        return
    if "name" in value:
        yield name, _text(value["name"])
    yield from ((f"{name}.{entry}", _text(part)) for entry, part in value.items() if entry != "name")


def _text(value: Any) -> str:
    """A text as it is if it cannot be mistaken for a number; anything else as JSON, which keeps every digit."""
    if isinstance(value, str) and typed_value(value, dict) == value:
        return value
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _parts(query: str, corrected: list[str]) -> dict[str, Any]:
    """Names and values of the query. Of a name that occurs twice the first value is kept."""
    query = query.removeprefix("?")
    if len(query) > LONGEST:
        corrected.append(f"The link is {len(query)} characters, {LONGEST} at most, and was not read.")
        return {}
    parts: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name in parts:
            corrected.append(f"The link says {quoted(name)} twice; the first was kept.")
            continue
        try:
            parts[name] = typed_value(text)
        except SettingError as error:
            corrected.append(f"The link's {quoted(name)} was left out. {error}")
    return parts


def _view(view: Any, views: tuple[str, ...], corrected: list[str]) -> str:
    if view == "" or (isinstance(view, str) and KEY.fullmatch(view) and (not views or view in views)):
        return str(view)
    corrected.append(f"There is no picture {quoted(view)}; the first one is shown.")
    return ""


def _record_index(index: Any, corrected: list[str]) -> int | None:
    if index is None or (isinstance(index, int) and not isinstance(index, bool) and 0 <= index < 2**53):
        return index
    corrected.append(f"The link's at={quoted(index)} is no step; the newest one is shown.")
    return None


def _spec(parts: Mapping[str, Any], start: Spec, corrected: list[str]) -> Spec:
    """The spec `start`, changed one field at a time, so that one bad value does not affect the others."""
    spec = _with_method(start, parts.get("method", start.method), corrected)
    same_method = spec.method == parts.get("method", start.method)
    for name, value in _entries(parts, "set").items() if same_method else ():
        spec = _changed(spec, {"settings": {**spec.settings, name: value}}, corrected)
    limits = _entries(parts, "budget")
    spec = replace(spec, budget={}) if limits or parts.get("budget") == "none" else spec
    for name, value in limits.items():
        spec = _changed(spec, {"budget": {**spec.budget, name: value}}, corrected)
    if "kernel" in parts:
        entries = _entries(parts, "kernel")
        options = {name: entries[name] for name in ("theta", "start", *OPTIONS) if name in entries}
        spec = _changed(spec, {"kernel": {"name": parts["kernel"], **options}}, corrected)
    spec = replace(spec, target_transform="", input_transform="") if parts else spec
    for name in ("seed", "dtype", "device", *TRANSFORMS):
        if name in parts:
            spec = _changed(spec, {name: parts[name]}, corrected)
    if spec.device.startswith("cuda") and not torch.cuda.is_available():
        corrected.append(f"There is no GPU here; the link's device {spec.device!r} became 'cpu'.")
        spec = replace(spec, device="cpu")
    return _with_rows(spec, parts, corrected)


def _with_rows(spec: Spec, parts: Mapping[str, Any], corrected: list[str]) -> Spec:
    """The spec with the link's data and split. The data must be a public set or a generator."""
    options = _entries(parts, "data")
    if options and "data" not in parts:
        corrected.append(f"The link names no data set for {quoted(', '.join(options))[1:-1]}, which was left out.")
    if "data" in parts:
        data = parts["data"]
        options = {**data, **options} if isinstance(data, dict) else options
        name = data.get("name") if isinstance(data, dict) else data
        if not isinstance(name, str) or not data_sets.is_named(name):
            corrected.append(f"There is no data set {quoted(name)}; a link can only name a public set or a generator.")
            return spec
        spec = _changed(spec, {"data": {**options, "name": name} if options else name}, corrected)
    split = parts.get("split", _entries(parts, "split") or None)
    return spec if split is None else _changed(spec, {"split": split}, corrected)


def _entries(parts: Mapping[str, Any], nest: str) -> dict[str, Any]:
    """The entries of one dict, such as "num_inducing" of set.num_inducing=12."""
    split_names = (name.partition(".") for name in parts)
    return {entry: parts[f"{head}.{entry}"] for head, dot, entry in split_names if head == nest and dot}


def _changed(spec: Spec, changes: Mapping[str, Any], corrected: list[str]) -> Spec:
    """The spec with these fields, or the spec as it was and a sentence."""
    try:
        rows = changes.get("data")
        if isinstance(rows, dict) and rows["name"] in GENERATORS:
            complete(rows["name"], {name: value for name, value in rows.items() if name not in ("name", "edits")})
        if isinstance(rows, dict) and "edits" in rows:
            checked(rows["edits"])
        return replace(spec, **changes)
    except GPExplorerError as error:
        corrected.append(f"{error} The link's value was left out.")
        return spec
