"""What a person may say about hyperparameters by name, in the form that a spec keeps: values, bounds and the like.

Which hyperparameters there are depends on the columns of the data, so that names are looked up where a run is opened
(`kernels.theta.restrictions`). Here the form of each option is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import SettingError, number, quoted
from .priors import parse_prior

LARGEST_VALUE = 1e30  # a value in the units of the file, and its inverse


def checked_options(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options among these entries, as JSON has them; SettingError if one has another form.

    Parameters
    ----------
    entries : mapping
        The kernel of a spec, or a part of it. Options that are empty are left out.
    """
    return {name: check(entries[name]) for name, check in CHECKS.items() if not _is_empty(entries.get(name))}


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, (str, Mapping, Sequence)) and not value)


def _value(owner: str, value: Any) -> float:
    return float(number(owner, value, whole=False, low=1.0 / LARGEST_VALUE, high=LARGEST_VALUE))


def _by_name(option: str, value: Any, form: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise SettingError(f"kernel's {option} is {quoted(value)}; give {form}.")
    return value


def _names(owner: str, value: Any, form: str) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and name for name in names):
        raise SettingError(f"{owner} is {quoted(value)}; give {form}.")
    return list(names)


def _values(values: Any) -> dict[str, float]:
    named = _by_name("values", values, 'names with their values, such as {"noise": 0.1}')
    return {name: _value(f"The value of {name}", value) for name, value in named.items()}


def _fixed(names: Any) -> list[str]:
    return _names("kernel's fixed", names, 'a list of names, such as ["noise"]')


def _bounds(bounds: Any) -> dict[str, list[float | None]]:
    checked = dict[str, list[float | None]]()
    for name, pair in _by_name("bounds", bounds, 'names with two bounds, such as {"noise": [0.1, 1.0]}').items():
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise SettingError(f"The bounds of {name} are {quoted(pair)}; give two numbers, or None for no bound.")
        low, high = (None if end is None or end == 0 else _value(f"A bound of {name}", end) for end in pair)
        if low is not None and high is not None and low > high:
            raise SettingError(f"The bounds of {name} are {low:g} and {high:g}; give the lower one first.")
        if pair[1] == 0:
            raise SettingError(f"The upper bound of {name} is 0; hyperparameters are positive.")
        checked[name] = [low, high]
    return checked


def _tied(groups: Any) -> list[list[str]]:
    form = 'groups of names, such as [["lp.lengthscale", "lp.width"]]'
    if not isinstance(groups, Sequence) or isinstance(groups, str):
        raise SettingError(f"kernel's tied is {quoted(groups)}; give {form}.")
    groups = [groups] if all(isinstance(name, str) for name in groups) else groups
    return [_names("kernel's tied", group, form) for group in groups]


def _priors(priors: Any) -> dict[str, str]:
    named = _by_name("priors", priors, 'names with densities, such as {"*.lengthscale": "lognormal(0, 1)"}')
    return {name: str(parse_prior(text)) for name, text in named.items()}


CHECKS: dict[str, Callable[[Any], Any]] = {
    "values": _values,
    "fixed": _fixed,
    "bounds": _bounds,
    "tied": _tied,
    "priors": _priors,
}
OPTIONS = tuple(CHECKS)  # of the kernel in a spec
