"""Checks of settings against a method's parameters: each is known, of the right type, finite and inside its bounds.

The bounds that a slider shows exist only in the browser. They are checked again here, where settings become a spec.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import param

from ..data.loading import plain
from ..errors import SettingError, closest, is_finite, quoted
from ..methods.base import Method, registry
from .description import Description

LOWEST, HIGHEST = ("of at least", "above"), ("at most", "below")  # a bound that is allowed itself, and one that is not


def resolve(method: type[Method], settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a method except the seed, as JSON would represent them.

    Parameters
    ----------
    method : type of Method
        The method whose parameters are the settings.
    settings : mapping
        Some of the settings by name. They are checked, and the others are filled in with their defaults.

    Raises
    ------
    SettingError
        If a setting is unknown or out of bounds. The message names the setting, its value and what it takes.

    Notes
    -----
    If all settings are given that the method had before some were added to it, these take the values of the earlier
    behaviour (`Method.added_settings`), so that an old spec keeps its meaning.
    """
    parameters = {name: setting for name, setting in method.param.objects().items() if name not in ("name", "seed")}
    settings = written_out(method, settings)
    settings = {**added_before(method, settings), **settings}
    for name in settings:
        if name == "seed":
            raise SettingError("The seed is a field of the spec, not a setting: give Spec(seed=...).")
        if name not in parameters:
            raise SettingError(
                f"{method.key} has no setting {quoted(name)}{_all_of_another(settings)}{closest(name, parameters)}"
            )
    return {
        name: _checked(method.key, parameters[name], settings.get(name, parameters[name].default))
        for name in sorted(parameters)
    }


def _all_of_another(settings: Mapping[str, Any]) -> str:
    """What to say of settings that are all those of another method, as where one is put in place of another."""
    others = [
        key for key, other in registry.items() if settings.keys() == other.param.objects().keys() - {"name", "seed"}
    ]
    return f"; these are all settings of {' or '.join(others)}, so give settings={{}} too" if others else ""


def written_out(method: type[Method], settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings with each shorthand of the method replaced by what it stands for.

    A setting that it stands for and that has another value than its default keeps that value.
    """
    objects = method.param.objects()
    for name, words in method.shorthands.items():
        word = settings.get(name)
        if isinstance(word, str) and word in words:
            others = {key: value for key, value in settings.items() if key != name}
            implied = {
                key: value for key, value in words[word].items() if others.get(key) in (None, objects[key].default)
            }
            settings = {**others, **implied}
    return settings


def added_before(method: type[Method], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of settings that did not exist yet when these settings were written; empty for new ones."""
    added, names = method.added_settings, method.param.objects().keys() - {"name", "seed"}
    if not added or not names - added.keys() <= settings.keys():
        return {}
    return {name: value(settings) if callable(value) else value for name, value in added.items()}


def method_of(spec: Description) -> Method:
    """Make the method of a spec with its settings: what is a list in JSON is a tuple in a setting that is a pair."""
    method = registry[spec.method]
    kinds = method.param.objects()
    values = {name: tuple(v) if isinstance(kinds[name], param.Tuple) else v for name, v in spec.settings.items()}
    return method(seed=spec.seed, **values)


def of_kind(owner: str, value: Any, kind: type[Any], way_out: str) -> Any:
    """The value if it is an instance of `kind`; otherwise a SettingError that names the owner and the way out."""
    if not isinstance(value, kind):
        raise SettingError(f"{owner} is {quoted(value)}; give {way_out}.")
    return value


def object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, for use as `object_pairs_hook`.

    A name that occurs twice is refused with a SettingError, because readers of JSON disagree on which value counts.
    """
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise SettingError(f"The JSON says {quoted(name)} twice; leave one of them out.")
        values[name] = value
    return values


def typed_value(text: str, pairs: Callable[[list[tuple[str, Any]]], Any] = object_without_duplicates) -> Any:
    """A value as a person types it: JSON, such as 3, true or [1, 2], or else a word; `pairs` makes an object."""
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except SettingError:
        raise
    except (ValueError, RecursionError):  # a word, or brackets nested too deeply to be a value
        return text


def wanted(setting: param.Parameter[Any]) -> str:
    """What this parameter takes, in words: its own, where it `takes` less than its kind."""
    if hasattr(setting, "takes"):
        return str(setting.takes)
    if isinstance(setting, param.Boolean):
        return "true or false"
    if isinstance(setting, param.Selector):
        return f"one of {', '.join(map(repr, setting.objects))}"
    if not isinstance(setting, (param.Number, param.Range)):
        return f"what its {type(setting).__name__.lower()} takes, like {setting.default!r}"
    kind = "a whole number" if isinstance(setting, param.Integer) else "a number"
    kind = "a pair of numbers" if isinstance(setting, param.Range) else kind
    bounds = zip(setting.bounds or (None, None), setting.inclusive_bounds, (LOWEST, HIGHEST), strict=True)
    spans = [f"{words[not inclusive]} {bound:g}" for bound, inclusive, words in bounds if bound is not None]
    return " ".join([kind, " and ".join(spans)]).strip()


def _checked(owner: str, setting: param.Parameter[Any], value: Any) -> Any:
    """This value as JSON would represent it, if the parameter accepts it."""
    value = plain(value)
    if hasattr(setting, "lists"):  # a name, or a list of its own form
        try:
            return setting.checked(value)
        except ValueError:
            way_out = f"{wanted(setting)}, or {setting.lists}"
            raise SettingError(f"{owner}'s {setting.name} is {quoted(value)}; give {way_out}.") from None
    _refuse_what_bounds_accept(owner, setting, value)
    converted = tuple(value) if isinstance(setting, param.Tuple) and isinstance(value, list) else value
    try:
        setting._validate(converted)
    except (ValueError, TypeError):
        raise SettingError(f"{owner}'s {setting.name} is {quoted(value)}; give {wanted(setting)}.") from None
    real = isinstance(setting, (param.NumericTuple, param.Number)) and not isinstance(setting, param.Integer)
    if isinstance(converted, tuple):
        return [float(part) if real else part for part in converted]
    # 1 and 1.0 mean the same and must read the same
    return float(converted) if real and converted is not None else converted


def _refuse_what_bounds_accept(owner: str, setting: param.Parameter[Any], value: Any) -> None:
    """Refuse values that a check of bounds accepts: true for 1, nan, infinity, and objects that are not JSON."""
    numeric = isinstance(setting, param.Number) and not isinstance(setting, param.Boolean)
    for part in value if isinstance(value, (list, tuple)) else [value]:
        not_finite = isinstance(part, (int, float)) and not is_finite(part)
        not_json = not isinstance(part, (bool, int, float, str, type(None)))
        if not_finite or not_json or (numeric and isinstance(part, bool)):
            raise SettingError(f"{owner}'s {setting.name} is {quoted(value)}; give {wanted(setting)}.")
