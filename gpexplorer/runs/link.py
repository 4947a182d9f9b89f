"""A spec and what was looked at, as the query of a URL, and back: `v=1&method=cholqr&data=kin40k&seed=3&view=fit`.

Every setting is written, also one that equals its default, so that a default changed later does not change what an
old link shows. A link comes from strangers: it is bounded, never evaluated, opens no file of this machine, and each
part that cannot be read is put right with a sentence that says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import torch

from .. import data as data_sets
from ..data.edits import checked
from ..data.sets.generators import GENERATORS, complete
from ..errors import GPExplorerError, SettingError, closest
from .setting_checks import object_without_duplicates, quoted
from .spec import Spec

VERSION = 1
LONGEST = 4000  # characters of a link: browsers and chats cut longer ones
MOST_CORRECTIONS = 8  # sentences shown; the rest are counted
KEY = re.compile(r"[a-z0-9-]{1,40}")
NESTS = ("data", "split", "set", "budget", "kernel")  # written as set.num_inducing=12
FIELDS = ("method", "data", "split", "kernel", "seed", "set", "budget", "device", "dtype")


@dataclass(frozen=True)
class Link:
    """What a link holds: a spec, the picture looked at, the record it was at, and what had to be put right."""

    spec: Spec
    view: str = ""
    at: int | None = None  # None is the newest record
    corrected: tuple[str, ...] = ()


def write(spec: Spec, view: str = "", at: int | None = None) -> str:
    """The query, without its question mark.

    Raises SettingError where a link cannot bring the data back (rows in memory, a file) or would be too long.
    """
    if not data_sets.is_named(spec.data):
        raise SettingError(
            "These rows were uploaded or read from a file of this machine, and a link cannot bring them along: "
            "send the file with the Spec's JSON instead."
        )
    pairs = [("v", str(VERSION)), *_pairs(spec)]
    pairs += [("view", view)] * bool(view) + ([] if at is None else [("at", str(at))])
    text = urlencode(pairs, quote_via=quote, safe="*,:[]")
    if len(text) > LONGEST:
        raise SettingError(
            f"The link would be {len(text)} characters, {LONGEST} at most: send the Spec's JSON instead."
        )
    return text


def read(query: str, start: Spec, views: Iterable[str] = ()) -> Link:
    """The link this query holds. What is missing comes from `start`; what is wrong too, with a sentence. Never raises.

    `views` are the pictures there are; none given takes any well-formed key.
    """
    said: list[str] = []
    parts = _parts(query, said)
    version = parts.pop("v", None)
    if parts and version != VERSION:
        known = f"is of version {quoted(version)}" if version is not None else "names no version"
        said.append(f"The link {known}; it was read as version {VERSION}, which may mean other numbers.")
    view, at = _view(parts.pop("view", ""), tuple(views), said), _at(parts.pop("at", None), said)
    for name in [name for name in parts if name not in FIELDS and name.partition(".")[0] not in NESTS]:
        said.append(f"The link's {quoted(name)} is not known and was left out{closest(name, FIELDS)}")
        del parts[name]
    spec = _spec(parts, start, said)
    more = len(said) - MOST_CORRECTIONS
    said[MOST_CORRECTIONS:] = [f"{more} more parts of the link were put right."] if more > 0 else []
    return Link(spec, view, at, tuple(said))


def _pairs(spec: Spec) -> Iterable[tuple[str, str]]:
    kernel = spec.kernel if isinstance(spec.kernel, dict) else {"name": spec.kernel}
    yield "method", spec.method
    yield from _nest("data", spec.data)
    yield from _nest("split", spec.split)
    yield "kernel", kernel["name"]
    if "theta" in kernel:
        yield "kernel.theta", _text(kernel["theta"])
    yield "seed", str(spec.seed)
    yield from _nest("set", spec.settings)
    yield from _nest("budget", spec.budget or "none")
    yield from (("device", spec.device), ("dtype", spec.dtype))


def _nest(name: str, value: Any) -> Iterable[tuple[str, str]]:
    """One pair for a plain value, one an entry for a dict; the "name" of a dict stands for the whole."""
    if not isinstance(value, Mapping):
        yield name, _text(value)
        return
    if "name" in value:
        yield name, _text(value["name"])
    yield from ((f"{name}.{entry}", _text(part)) for entry, part in value.items() if entry != "name")


def _text(value: Any) -> str:
    """Text as it is where it cannot be taken for a number; anything else as JSON, which keeps every digit."""
    if isinstance(value, str) and isinstance(_value(value), str) and _value(value) == value:
        return value
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _value(text: str, pairs: Callable[[list[tuple[str, Any]]], Any] = dict) -> Any:
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except SettingError:
        raise
    except (ValueError, RecursionError):
        return text


def _parts(query: str, said: list[str]) -> dict[str, Any]:
    """Names and values, the first of each name."""
    query = query.removeprefix("?")
    if len(query) > LONGEST:
        said.append(f"The link is {len(query)} characters, {LONGEST} at most, and was not read.")
        return {}
    found: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name in found:
            said.append(f"The link says {quoted(name)} twice; the first was kept.")
        else:
            _keep(found, name, text, said)
    return found


def _keep(found: dict[str, Any], name: str, text: str, said: list[str]) -> None:
    """One part of a link, unless its value says two things at once."""
    try:
        found[name] = _value(text, object_without_duplicates)
    except SettingError as error:
        said.append(f"The link's {quoted(name)} was left out. {error}")


def _view(view: Any, views: tuple[str, ...], said: list[str]) -> str:
    if view == "" or (isinstance(view, str) and KEY.fullmatch(view) and (not views or view in views)):
        return str(view)
    said.append(f"There is no picture {quoted(view)}; the first one is shown.")
    return ""


def _at(at: Any, said: list[str]) -> int | None:
    if at is None or (isinstance(at, int) and not isinstance(at, bool) and 0 <= at < 2**53):
        return at
    said.append(f"The link's at={quoted(at)} is no step; the newest one is shown.")
    return None


def _spec(parts: Mapping[str, Any], start: Spec, said: list[str]) -> Spec:
    """`start` changed a field at a time, so that one bad value costs itself alone."""
    spec = start
    if "method" in parts and parts["method"] != start.method:
        spec = _changed(spec, {"method": parts["method"], "settings": {}}, said)
    same_method = spec.method == parts.get("method", start.method)
    for name, value in _entries(parts, "set").items() if same_method else ():
        spec = _changed(spec, {"settings": {**spec.settings, name: value}}, said)
    limits = _entries(parts, "budget")
    spec = replace(spec, budget={}) if limits or parts.get("budget") == "none" else spec
    for name, value in limits.items():
        spec = _changed(spec, {"budget": {**spec.budget, name: value}}, said)
    if "kernel" in parts:
        theta = _entries(parts, "kernel").get("theta")
        spec = _changed(spec, {"kernel": {"name": parts["kernel"]} | ({} if theta is None else {"theta": theta})}, said)
    for name in ("seed", "dtype", "device"):
        if name in parts:
            spec = _changed(spec, {name: parts[name]}, said)
    if spec.device.startswith("cuda") and not torch.cuda.is_available():
        said.append(f"There is no GPU here; the link's device {spec.device!r} became 'cpu'.")
        spec = replace(spec, device="cpu")
    return _with_rows(spec, parts, said)


def _with_rows(spec: Spec, parts: Mapping[str, Any], said: list[str]) -> Spec:
    """Data and split, which must be a public set or a generator."""
    options = _entries(parts, "data")
    if options and "data" not in parts:
        said.append(f"The link names no data set for {quoted(', '.join(options))[1:-1]}, which was left out.")
    if "data" in parts:
        name = parts["data"]
        if not isinstance(name, str) or not data_sets.is_named(name):
            said.append(f"There is no data set {quoted(name)}; a link can name a public set or a generator alone.")
            return spec
        spec = _changed(spec, {"data": {**options, "name": name} if options else name}, said)
    split = parts.get("split", _entries(parts, "split") or None)
    return spec if split is None else _changed(spec, {"split": split}, said)


def _entries(parts: Mapping[str, Any], nest: str) -> dict[str, Any]:
    found = (name.partition(".") for name in parts)
    return {entry: parts[f"{head}.{entry}"] for head, dot, entry in found if head == nest and dot}


def _changed(spec: Spec, changes: Mapping[str, Any], said: list[str]) -> Spec:
    """The spec with these fields, or as it was with a sentence."""
    try:
        rows = changes.get("data")
        if isinstance(rows, dict) and rows["name"] in GENERATORS:
            complete(rows["name"], {name: value for name, value in rows.items() if name not in ("name", "edits")})
        if isinstance(rows, dict) and "edits" in rows:
            checked(rows["edits"])
        return replace(spec, **changes)
    except GPExplorerError as error:
        said.append(f"{error} The link's value was left out.")
        return spec
