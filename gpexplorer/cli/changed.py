"""A spec from a file, with single fields changed on the command line: `--set seed=3`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from ..errors import SettingError
from ..runs.setting_checks import once
from ..runs.spec import LARGEST, Spec, parsed
from ..runs.studies.sweep import grid


def changed(source: str, changes: Sequence[str]) -> Spec:
    """The spec in this file, changed as --set says, and only then checked."""
    held = _read(source)
    for change in changes:
        _set(held, change)
    return Spec.from_json(json.dumps(held))


def sweep_of(source: str) -> dict[str, Spec]:
    """The specs of a sweep from a file: {"spec": the spec, "over": {field or setting: values}}."""
    held = _read(source)
    over = held.get("over")
    if not isinstance(over, dict) or not all(isinstance(values, list) for values in over.values()):
        raise SettingError('The sweep has no "over": give {"spec": {...}, "over": {"num_inducing": [8, 32]}}.')
    return grid(Spec.from_json(json.dumps(held.get("spec"))), over)


def _read(source: str) -> dict[str, Any]:
    """The object in this file, or on standard input for a dash."""
    try:
        file = sys.stdin.buffer if source == "-" else open(source, "rb")  # noqa: SIM115 - closed by the with
        with file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise SettingError(f"Cannot read the spec {source!r}: {error.strerror}.") from None
    return parsed(text)


def _set(held: dict[str, Any], change: str) -> None:
    """One --set: a field of the spec, an entry of one (budget.seconds), or else a setting of the method."""
    path, equals, text = change.partition("=")
    if not equals or not path:
        raise SettingError(f"--set {change!r} names no value: write key=value, such as seed=3.")
    try:
        value = json.loads(text, object_pairs_hook=once)
    except SettingError:
        raise
    except ValueError:
        value = text
    field, dot, entry = path.partition(".")
    if not dot and field not in Spec.__dataclass_fields__:
        field, dot, entry = "settings", ".", path
    if not dot:
        held[field] = value
        return
    inner = held.setdefault(field, {})
    if not isinstance(inner, dict):
        raise SettingError(f"--set {change!r}: {field} is {inner!r} in this spec, which has no entries.")
    inner[entry] = value
