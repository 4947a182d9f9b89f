"""What a person may say about hyperparameters by name, in the form that a spec keeps: values, bounds and the like.

Which hyperparameters there are depends on the columns of the data, so that names are looked up where a run is opened
(`kernels.theta.restrictions`). Here the form of each option is checked.

Among them are prior densities, read from texts such as "lognormal(0, 1)": a name of the table, and numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import SettingError, closest, listed, number, quoted

FORM = re.compile(r"\s*([A-Za-z_-]+)\s*\(([^()]*)\)\s*")
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class Density(NamedTuple):
    """A log density of a positive value x, as a function of z = log x."""

    log_density: float
    derivative: float  # in z


class Family(NamedTuple):
    """A family of densities: the names of its numbers, and its log density."""

    numbers: tuple[str, str]
    evaluate: Callable[[float, float, float], Density]  # log x, and the two numbers


def _half_normal(z: float, mean: float, sd: float) -> Density:
    x = math.exp(z)
    r = (x - mean) / sd
    density = Density(-0.5 * r * r - math.log(sd) - HALF_LOG_2PI, -r / sd * x)
    return density._replace(log_density=density.log_density - math.log(0.5 * math.erfc(-mean / sd / math.sqrt(2.0))))


def _log_normal(z: float, mean: float, sd: float) -> Density:
    r = (z - mean) / sd
    return Density(-0.5 * r * r - math.log(sd) - HALF_LOG_2PI - z, -r / sd - 1.0)


def _gamma(z: float, shape: float, rate: float) -> Density:
    x = math.exp(z)
    value = shape * math.log(rate) - math.lgamma(shape) + (shape - 1.0) * z - rate * x
    return Density(value, shape - 1.0 - rate * x)


def _inverse_gamma(z: float, shape: float, scale: float) -> Density:
    x = math.exp(-z)
    value = shape * math.log(scale) - math.lgamma(shape) - (shape + 1.0) * z - scale * x
    return Density(value, scale * x - shape - 1.0)


FAMILIES = {
    "lognormal": Family(("mean of the logarithm", "sd of the logarithm"), _log_normal),
    "normal": Family(("mean", "sd"), _half_normal),  # cut at 0, since hyperparameters are positive
    "gamma": Family(("shape", "rate"), _gamma),
    "inversegamma": Family(("shape", "scale"), _inverse_gamma),
}
ANY_SIGN = ("mean", "mean of the logarithm")


class Prior(NamedTuple):
    """A density of a positive number, named as in the table FAMILIES."""

    name: str
    numbers: tuple[float, float]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{number:g}' for number in self.numbers)})"

    def at(self, z: float) -> Density:
        """Evaluate the log density of x = exp(z), and its derivative in z."""
        return FAMILIES[self.name].evaluate(z, *self.numbers)


def parse_prior(text: object) -> Prior:
    """Read a prior, such as "lognormal(0, 1)".

    Parameters
    ----------
    text : str
        A name of FAMILIES and its two numbers in parentheses.

    Raises
    ------
    SettingError
        If it is not such a text.
    """
    match = FORM.fullmatch(text) if isinstance(text, str) and len(text) <= 100 else None
    if match is None:
        forms = ", ".join(f"{name}({', '.join(family.numbers)})" for name, family in FAMILIES.items())
        raise SettingError(f"A prior is {str(text)[:60]!r}; give a text such as 'lognormal(0, 1)': one of {forms}.")
    name = match[1].lower().replace("_", "").replace("-", "")
    if name not in FAMILIES:
        raise SettingError(f"The prior {match[1]!r} is not known{closest(name, FAMILIES)}")
    names = FAMILIES[name].numbers
    try:
        first, second = (float(part) for part in match[2].split(","))
    except ValueError:
        raise SettingError(f"The prior {match[0].strip()!r} takes two numbers: {name}({', '.join(names)}).") from None
    for own, value in zip(names, (first, second), strict=True):
        if not math.isfinite(value) or (value <= 0.0 and own not in ANY_SIGN):
            kind = "a finite number" if own in ANY_SIGN else "a finite number above 0"
            raise SettingError(f"The prior {str(text).strip()!r}: its {own} is {value:g}; give {kind}.")
    return Prior(name, (first, second))


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
        pair = listed(pair)
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
