"""The hyperparameters of a kernel by name, and how their values are written in the units of the file.

    theta_i = log(value_i / factor_i)

A name is the part of the kernel, a dot, what the number is, and the input in brackets: "se-ard.lengthscale[width]",
"lp.period", "noise". Where several parts have one key they are numbered in their order, "se 1" and "se 2". The factor
is the standard deviation by which the input or the target was divided.

Where two names mean one hyperparameter, the one that means fewer counts, such as "noise" beside "*". Their order has no
meaning: JSON does not keep it.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from ...errors import SettingError, closest
from ...problem import Dataset, Scale
from ..composites import Product
from ..on_columns import OnColumns
from ..row_scaled import unscaled_kernel

SD_OF_INPUTS = "sd of x"  # the unit of a length over several inputs, which were each divided by their own sd
T = TypeVar("T")
OWN_NAME = re.compile(r"(.*?)(?: (\d+))?")


class Parameter(NamedTuple):
    """One entry of theta."""

    entry: int
    part: str  # key of the part of the kernel; empty for the noise
    what: str  # "lengthscale"
    input: str  # name of the input, if there is one parameter per input
    unit: str  # such as "sd of x"; empty for a number without unit
    factor: float

    @property
    def name(self) -> str:
        """The name in a spec."""
        return f"{self.part}{'.' if self.part else ''}{self.own_name}"

    @property
    def own_name(self) -> str:
        """The name without the part of the kernel."""
        return f"{self.what}[{self.input}]" if self.input else self.what

    def value(self, theta: Tensor) -> float:
        """The value at theta [p], in the units of the file."""
        return math.exp(float(theta[self.entry])) * self.factor

    def log_scaled(self, value: float) -> float:
        """The entry of theta at which the parameter has this value."""
        return math.log(value / self.factor)


Parameters = tuple[Parameter, ...]  # of a kernel, in the order of theta


def kernel_parameters(kernel: Any, train: Dataset) -> Parameters:
    """Return one parameter per entry of theta, in their order.

    Parameters
    ----------
    kernel : Covariance
        A kernel for these rows.
    train : Dataset
        The rows, which know their units (`Dataset.scale`).
    """
    parts = list(_parts(unscaled_kernel(kernel), carries_variance=True))
    count, seen, rows = Counter(key for key, *_ in parts), Counter[str](), list[Parameter]()
    scale = train.scale
    y_unit = f"{scale.transform} of {train.target}" if scale is not None and scale.transform else train.target
    y_sd = 1.0 if scale is None else scale.y_sd
    for key, part, columns, carries in parts:
        seen[key] += 1
        tag = f"{key} {seen[key]}" if count[key] > 1 else key
        names = train.names if columns is None else columns
        for name in part.parameter_names:
            match = OWN_NAME.fullmatch(name)
            what, number = (match[1], match[2]) if match else (name, None)
            own = names[int(number) - 1] if number and int(number) <= len(names) and part.inputs == "real" else ""
            what = what if own or not number else name
            length, x_unit = _length(_input_units(train, scale, names), names, own)
            unit, factor = "", 1.0
            if what.endswith("sd"):
                unit, factor = (y_unit, y_sd) if carries else ("", 1.0)
                if what.startswith("slope"):
                    unit, factor = f"{unit or '1'} per {x_unit}", factor / length
            elif part.inputs == "real" and _is_length(what, part.parameter_names):
                unit, factor = x_unit, length
            elif part.inputs != "real" and what.startswith("sd ") and carries:
                unit, factor = y_unit, y_sd
            rows.append(Parameter(len(rows), tag, what, own, unit, factor))
    return (*rows, Parameter(len(rows), "", "noise", "", y_unit, y_sd))


def _parts(kernel: Any, carries_variance: bool) -> Iterator[tuple[str, Any, tuple[str, ...] | None, bool]]:
    """Key, kernel, columns, and whether its sd has the unit of the target, of each part in the order of theta."""
    if isinstance(kernel, OnColumns):
        for key, part, _, carries in _parts(kernel.inner, carries_variance):
            yield key, part, kernel.chosen, carries
    elif hasattr(kernel, "parts"):
        first, second = kernel.parts
        yield from _parts(first, carries_variance)
        yield from _parts(second, carries_variance and not isinstance(kernel, Product))
    else:
        yield kernel.key, kernel, None, carries_variance


def _is_length(what: str, names: tuple[str, ...]) -> bool:
    """Whether a parameter is a length along an input; that of a sine has no unit."""
    return what in ("period", "width") or (what == "lengthscale" and "period" not in names)


def _input_units(train: Dataset, scale: Scale | None, names: tuple[str, ...]) -> dict[str, tuple[float, str]]:
    """The number by which each of these inputs was divided, and the unit of a length along it."""
    if scale is None:
        return {}
    logs = [0.0] * len(scale.x_sd) if scale.x_log is None else scale.x_log.tolist()
    return {
        name: (sd, f"log of {name}" if log else name)
        for name, sd, log in zip(train.names, scale.x_sd.tolist(), logs, strict=False)
        if name in names
    }


def _length(units: Mapping[str, tuple[float, str]], names: tuple[str, ...], own: str) -> tuple[float, str]:
    """The factor and the unit of a length along one input, or along all of these."""
    if own or len(names) == 1:
        name = own or names[0]
        return units.get(name, (1.0, name))
    return 1.0, SD_OF_INPUTS if units else "x"


def matching(parameters: Parameters, pattern: str) -> list[Parameter]:
    """Return the parameters that a name means; * and ? stand for any characters, and the input or part may be left out.

    Raises
    ------
    SettingError
        If there is none.

    Examples
    --------
    "lengthscale", "*.lengthscale" and "se-ard.lengthscale[x1]" all name parameters of the kernel se-ard.
    """
    exact = [each for each in parameters if pattern == each.name]
    if exact:
        return exact
    form = re.compile(fnmatch.translate(pattern.replace("[", "[[]")))
    found = [each for each in parameters if any(form.match(name) for name in _names(each))]
    if not found:
        raise SettingError(
            f"The kernel has no hyperparameter {pattern!r}"
            f"{closest(pattern, [each.name for each in parameters], set().union(*map(_names, parameters)))}"
        )
    return found


def matching_all(parameters: Parameters, patterns: Iterable[str]) -> list[Parameter]:
    """Return the parameters that any of these names means, in the order of theta; see `matching`."""
    found = {each.entry: each for pattern in patterns for each in matching(parameters, pattern)}
    return [found[entry] for entry in sorted(found)]


def by_entry(parameters: Parameters, named: Mapping[str, T]) -> dict[int, T]:
    """Return what is said of each entry of theta by names; the name that means fewer entries counts.

    Raises
    ------
    SettingError
        If a name means nothing, or two names mean as many entries and say different things of one of them.
    """
    chosen = dict[int, tuple[int, str, T]]()
    for name, said in named.items():
        entries = [each.entry for each in matching(parameters, name)]
        for entry in entries:
            size, other, earlier = chosen.get(entry, (len(parameters) + 1, "", said))
            if size == len(entries) and said != earlier:
                raise SettingError(
                    f"{other!r} and {name!r} say different things of {parameters[entry].name}: {earlier} and {said}. "
                    "Leave one of them out."
                )
            if len(entries) < size:
                chosen[entry] = (len(entries), name, said)
    return {entry: chosen[entry][2] for entry in sorted(chosen)}


def tied_entries(parameters: Parameters, groups: Iterable[Iterable[str]]) -> list[list[int]]:
    """Return the entries of each group of tied parameters; groups that have one in common are one group."""
    merged: list[set[int]] = []
    for names in groups:
        entries = {each.entry for each in matching_all(parameters, names)}
        overlapping = [group for group in merged if group & entries]
        merged = [group for group in merged if not group & entries] + [entries.union(*overlapping)]
    return [sorted(group) for group in merged]


def _names(parameter: Parameter) -> set[str]:
    part = f"{parameter.part}." if parameter.part else ""
    return {parameter.name, parameter.own_name, f"{part}{parameter.what}", parameter.what}
