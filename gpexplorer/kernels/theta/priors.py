"""Prior densities of hyperparameters, read from texts such as "lognormal(0, 1)": a name of the table, and numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from ...errors import SettingError, closest

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


def _normal(z: float, mean: float, sd: float) -> Density:
    x = math.exp(z)
    r = (x - mean) / sd
    return Density(-0.5 * r * r - math.log(sd) - HALF_LOG_2PI, -r / sd * x)


def _half_normal(z: float, mean: float, sd: float) -> Density:
    density = _normal(z, mean, sd)
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
    for own, number in zip(names, (first, second), strict=True):
        if not math.isfinite(number) or (number <= 0.0 and own not in ANY_SIGN):
            kind = "a finite number" if own in ANY_SIGN else "a finite number above 0"
            raise SettingError(f"The prior {str(text).strip()!r}: its {own} is {number:g}; give {kind}.")
    return Prior(name, (first, second))
