"""Settings checked against a method's parameters: every one named, typed, finite and inside its bounds.

Bounds shown by a slider exist in the browser alone, so they are checked again here, where settings become a spec.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import param

from ..data.loading import plain
from ..errors import SettingError, closest
from ..methods.base import Method

LONGEST = 60  # characters of a refused value that its message repeats


def resolve(method: type[Method], settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a method but the seed, given ones checked and the rest filled in, as JSON would hold them.

    Raises SettingError naming the setting, the value, the bounds and the way out.
    """
    known = {name: setting for name, setting in method.param.objects().items() if name not in ("name", "seed")}
    for name in settings:
        if name == "seed":
            raise SettingError("The seed is a field of the spec, not a setting: give Spec(seed=...).")
        if name not in known:
            raise SettingError(f"{method.key} has no setting {quoted(name)}{closest(name, known)}")
    return {name: _checked(method.key, known[name], settings.get(name, known[name].default)) for name in sorted(known)}


def arguments(method: type[Method], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Resolved settings as the method's constructor takes them: pairs are tuples there, lists in JSON."""
    kinds = method.param.objects()
    return {name: tuple(value) if isinstance(kinds[name], param.Tuple) else value for name, value in settings.items()}


def number(owner: str, value: Any, *, whole: bool, low: float, high: float = math.inf, above: bool = False) -> Any:
    """`value` if it is a finite (whole) number from `low` to `high`, NumPy's too; SettingError otherwise."""
    value = plain(value)
    kind, form = ("a whole number", ",") if whole else ("a number", "g")
    right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    span = f"above {low:{form}}" if above else f"of at least {low:{form}}"
    span += "" if math.isinf(high) else f" and at most {high:{form}}"
    if not right or not _is_finite(value) or value > high or (value <= low if above else value < low):
        raise SettingError(f"{owner} is {quoted(value)}; give {kind} {span}.")
    return value


def of_kind(owner: str, value: Any, kind: type[Any], way_out: str) -> Any:
    """`value` if it is a `kind`; SettingError naming the owner and the way out otherwise."""
    if not isinstance(value, kind):
        raise SettingError(f"{owner} is {quoted(value)}; give {way_out}.")
    return value


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object (an object_pairs_hook); of a name said twice, readers disagree on which holds."""
    held: dict[str, Any] = {}
    for name, value in pairs:
        if name in held:
            raise SettingError(f"The JSON says {quoted(name)} twice; leave one of them out.")
        held[name] = value
    return held


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond any float
        return False


def quoted(value: Any) -> str:
    """A value as text for a message, cut to a length that cannot fill a screen."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        text = f"a {type(value).__name__} too long to write"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _checked(owner: str, setting: param.Parameter[Any], value: Any) -> Any:
    """This value as JSON would hold it, once the parameter takes it."""
    value = plain(value)
    _finite(owner, setting, value)
    given = tuple(value) if isinstance(setting, param.Tuple) and isinstance(value, list) else value
    try:
        setting._validate(given)
    except (ValueError, TypeError):
        raise SettingError(f"{owner}'s {setting.name} is {quoted(value)}; give {wanted(setting)}.") from None
    real = isinstance(setting, (param.NumericTuple, param.Number)) and not isinstance(setting, param.Integer)
    if isinstance(given, tuple):
        return [float(part) if real else part for part in given]
    return float(given) if real and given is not None else given  # 1 and 1.0 mean the same and must read the same


def _finite(owner: str, setting: param.Parameter[Any], value: Any) -> None:
    """Refuse what a bounds check lets through: true for 1, nan, infinity, and objects that JSON cannot hold."""
    numeric = isinstance(setting, param.Number) and not isinstance(setting, param.Boolean)
    for part in value if isinstance(value, (list, tuple)) else [value]:
        odd = isinstance(part, (int, float)) and not _is_finite(part)
        strange = not isinstance(part, (bool, int, float, str, type(None)))
        if odd or strange or (numeric and isinstance(part, bool)):
            raise SettingError(f"{owner}'s {setting.name} is {quoted(value)}; give {wanted(setting)}.")


def wanted(setting: param.Parameter[Any]) -> str:
    """What this parameter takes, in words."""
    if isinstance(setting, param.Boolean):
        return "true or false"
    if isinstance(setting, param.Selector):
        return f"one of {', '.join(map(repr, setting.objects))}"
    if not isinstance(setting, (param.Number, param.Range)):
        return f"what its {type(setting).__name__.lower()} takes, like {setting.default!r}"
    kind = "a whole number" if isinstance(setting, param.Integer) else "a number"
    kind = "a pair of numbers" if isinstance(setting, param.Range) else kind
    low, high = setting.bounds or (None, None)
    spans = [f"{word} {bound:g}" for word, bound in (("of at least", low), ("at most", high)) if bound is not None]
    return " ".join([kind, " and ".join(spans)]).strip()
