"""What a person has decided about hyperparameters: values, and which are fixed, bounded, tied or have a prior.

    minimise F(theta) - sum_i log p_i(value_i),   theta = T(f)                 MAP; T is `kernels.theta.free_parameters`

The density of a prior is that of the value in the units of the file, as in GPflow and GPyTorch: the mode does not
contain the Jacobian of the logarithm. Tied parameters are equal in the units of the file.

Hyperparameters have names, and their values are written in the units of the file:

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
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import SettingError, closest
from ...problem import Dataset, Problem
from ..base import Covariance
from ..composites import OnColumns, Product
from ..row_scaled import plain_rows, unscaled_kernel
from .free_parameters import FreeParameters
from .options import OPTIONS, Prior, parse_prior

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
    scale, units = train.scale, _input_units(train)
    y_unit, y_sd = (train.target, 1.0) if scale is None else (scale.target_unit(train.target), scale.y_sd)
    for key, part, columns, carries in parts:
        seen[key] += 1
        tag = f"{key} {seen[key]}" if count[key] > 1 else key
        names = train.names if columns is None else columns
        for name in part.parameter_names:
            match = OWN_NAME.fullmatch(name)
            what, number = (match[1], match[2]) if match else (name, None)
            own = names[int(number) - 1] if number and int(number) <= len(names) and part.inputs == "real" else ""
            what = what if own or not number else name
            length, x_unit = _length(units, names, own)
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
        yield kernel.inner.key, kernel.inner, kernel.chosen, carries_variance
    elif hasattr(kernel, "parts"):
        first, second = kernel.parts
        yield from _parts(first, carries_variance)
        yield from _parts(second, carries_variance and not isinstance(kernel, Product))
    else:
        yield kernel.key, kernel, None, carries_variance


def _is_length(what: str, names: tuple[str, ...]) -> bool:
    """Whether a parameter is a length along an input; that of a sine has no unit."""
    return what in ("period", "width") or (what == "lengthscale" and "period" not in names)


def _input_units(train: Dataset) -> dict[str, tuple[float, str]]:
    """The number by which each input was divided, and the unit of a length along it, by the name of the input."""
    scale = train.scale
    if scale is None:
        return {}
    logs = [0.0] * len(scale.x_sd) if scale.x_log is None else scale.x_log.tolist()
    inputs = zip(train.names, scale.x_sd.tolist(), logs, strict=False)
    return {name: (sd, f"log of {name}" if log else name) for name, sd, log in inputs}


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


Bounds = tuple[float | None, float | None]


@dataclass(frozen=True, eq=False)
class Restrictions:
    """Which entries of theta are free, and their priors. A kernel carries it (`Covariance.restrictions`).

    Parameters
    ----------
    parameters : FreeParameters
        The map from free numbers to theta.
    priors : tuple of (Parameter, Prior)
        One per free number that has a prior.
    named_priors : mapping
        The prior of each entry of theta that has one, also of those that are fixed or tied.
    options : mapping
        What was asked for, as `restricted_problem` takes it: bounds and ties of fixed parameters hold again once these
        are learned.
    """

    parameters: FreeParameters
    priors: tuple[tuple[Parameter, Prior], ...] = ()
    named_priors: Mapping[int, Prior] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def to(self, device: torch.device) -> Restrictions:
        """Return the same restrictions of a theta on another device."""
        return replace(self, parameters=self.parameters.to(device))

    def penalty(self, theta: Float[Tensor, " p"]) -> tuple[float, Float[Tensor, " p"]]:
        """Return minus the log prior density at theta, and its gradient."""
        value, gradient = 0.0, torch.zeros_like(theta)
        for parameter, prior in self.priors:
            density = prior.at(float(theta[parameter.entry]) + math.log(parameter.factor))
            value -= density.log_density
            gradient[parameter.entry] -= density.derivative
        return value, gradient


def kept_options(spec: Any) -> dict[str, Any]:
    """Return what a spec says about hyperparameters beside their values, for a spec that begins at a given theta."""
    kernel = spec.kernel if isinstance(spec.kernel, dict) else {}
    return {name: kernel[name] for name in OPTIONS if name != "values" and name in kernel}


def options_of(kernel: Any, parameter: Parameter, parameters: Parameters) -> tuple[Bounds, bool, list[str], str]:
    """Return the bounds of a hyperparameter, whether it is fixed, the names of those tied to it, and its prior."""
    restrictions = getattr(kernel, "restrictions", None)
    if restrictions is None:
        return (None, None), False, [], ""
    free, entry = restrictions.parameters, parameter.entry
    group = int(free.group[entry])
    prior = str((restrictions.named_priors or {}).get(entry, ""))
    if group < 0:
        groups = tied_entries(parameters, restrictions.options.get("tied", ()))
        partners = [parameters[i].name for tied in groups if entry in tied for i in tied if i != entry]
        return (None, None), True, partners, prior
    limits = (float(limit[group] + free.offset[entry]) for limit in (free.lower, free.upper))
    low, high = (math.exp(limit) * parameter.factor if math.isfinite(limit) else None for limit in limits)
    others = (i for i, other in enumerate(free.group.tolist()) if other == group and i != entry)
    return (low, high), False, [parameters[i].name for i in others], prior


def has_priors(kernel: Any) -> bool:
    """Return whether any hyperparameter has a prior, so that the mode of the posterior is what learning looks for."""
    return bool(getattr(getattr(kernel, "restrictions", None), "priors", ()))


def log_prior(kernel: Any, theta: Tensor) -> float:
    """Return the log prior density of theta, 0 without priors."""
    return -kernel.restrictions.penalty(theta)[0] if has_priors(kernel) else 0.0


def largest_derivative(kernel: Any, theta: Tensor, gradient: Tensor) -> float:
    """Return the largest absolute derivative in the numbers that may move, with that of the priors.

    A derivative does not count where a bound stops the descent.
    """
    restrictions = getattr(kernel, "restrictions", None)
    if restrictions is not None:
        free, total = restrictions.parameters, gradient.to(theta) + restrictions.penalty(theta)[1]
        f, g = free.free(theta), free.sums(total)
        gradient = g[~(((f <= free.lower) & (g > 0.0)) | ((f >= free.upper) & (g < 0.0)))]
    return float(gradient.abs().max()) if len(gradient) else 0.0


def projected(kernel: Any, theta: Tensor) -> Tensor:
    """Return the allowed theta [p] nearest to this one: theta itself where nothing is restricted."""
    restrictions = getattr(kernel, "restrictions", None)
    return theta if restrictions is None else restrictions.parameters.project(theta)


def is_free(kernel: Any, entries: Tensor) -> bool:
    """Return whether none of these entries of theta (a mask [p]) is fixed, bounded, tied or has a prior."""
    restrictions = getattr(kernel, "restrictions", None)
    if restrictions is None:
        return True
    with_prior = torch.zeros_like(entries)
    with_prior[[parameter.entry for parameter, _ in restrictions.priors]] = True
    return not bool(((restrictions.parameters.is_restricted | with_prior) & entries).any())


class NoiseLimits(NamedTuple):
    """What is left of restrictions for a method that has the noise alone.

    Attributes
    ----------
    low, high : float
        Least and largest log noise sd in the scaled space; equal where the noise is fixed.
    prior : tuple of Parameter and Prior, or None
    """

    low: float
    high: float
    prior: tuple[Parameter, Prior] | None

    @property
    def is_fixed(self) -> bool:
        """Whether the noise has one value."""
        return self.low == self.high

    def penalty(self, log_sd: float) -> tuple[float, float]:
        """Return minus the log prior density of the noise sd, and its derivative in log_sd."""
        if self.prior is None:
            return 0.0, 0.0
        parameter, prior = self.prior
        density = prior.at(log_sd + math.log(parameter.factor))
        return -density.log_density, -density.derivative


def noise_limits(kernel: Any, theta: Tensor) -> NoiseLimits | None:
    """Return what restricts the noise, None if nothing does; noise that is tied is fixed at its value in theta [p]."""
    restrictions = getattr(kernel, "restrictions", None)
    if restrictions is None or is_free(kernel, torch.arange(len(theta), device=theta.device) == len(theta) - 1):
        return None
    parameters, priors = restrictions.parameters, restrictions.priors
    prior = next(((each, prior) for each, prior in priors if each.entry == len(theta) - 1), None)
    group = int(parameters.group[-1])
    if group < 0 or int((parameters.group == group).sum()) > 1:
        return NoiseLimits(float(theta[-1]), float(theta[-1]), None)
    return NoiseLimits(float(parameters.lower[group]), float(parameters.upper[group]), prior)


def restricted_problem(problem: Problem, options: Mapping[str, Any]) -> Problem:
    """Return the problem with the values of these options, and a kernel that carries the restrictions.

    Parameters
    ----------
    problem : Problem
        Its theta is where learning begins.
    options : mapping
        "values", "fixed", "bounds", "tied" and "priors", as `Spec` takes them; values in the units of the file.

    Raises
    ------
    SettingError
        If a name is not that of a hyperparameter, or the options contradict each other.
    """
    options = {name: options[name] for name in OPTIONS if options.get(name)}
    if not options:
        return problem
    kernel = problem.kernel
    assert isinstance(kernel, Covariance)
    parameters = kernel_parameters(kernel, plain_rows(problem))
    fixed = [each.entry for each in matching_all(parameters, options.get("fixed", ()))]
    tied = tied_entries(parameters, options.get("tied", ()))
    offsets, lower, upper = _offsets(problem, parameters, tied), *_bounds(problem, parameters, options)
    given = _given_values(problem, parameters, options.get("values", {}), tied, offsets)
    theta = problem.theta.clone()
    theta[list(given)] = theta.new_tensor(list(given.values()))
    map_of_free = FreeParameters.of(theta, fixed, tied, lower, upper, offsets)
    _refuse_contradictions(parameters, map_of_free, (theta, lower, upper), given)
    named_priors = by_entry(parameters, options.get("priors", {}))
    priors = {entry: parse_prior(text) for entry, text in named_priors.items()}
    counted, used = set[tuple[int, Prior]](), list[tuple[Parameter, Prior]]()
    for entry, prior in sorted(priors.items()):
        group = int(map_of_free.group[entry])
        if group >= 0 and (group, prior) not in counted:  # tied parameters are one parameter
            counted.add((group, prior))
            used.append((parameters[entry], prior))
    restrictions = Restrictions(map_of_free, tuple(used), priors, options)
    return replace(problem, kernel=kernel.restricted(restrictions), theta=map_of_free.project(theta))


def _offsets(problem: Problem, parameters: Parameters, tied: list[list[int]]) -> Tensor:
    """What is added to the common number of a group, so that tied parameters are equal in the units of the file."""
    offsets = torch.zeros_like(problem.theta)
    for entry in {entry for entries in tied for entry in entries}:
        offsets[entry] = -math.log(parameters[entry].factor)
    return offsets


def _bounds(problem: Problem, parameters: Parameters, options: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    lower = torch.full_like(problem.theta, -math.inf)
    upper = -lower
    for entry, (low, high) in by_entry(parameters, options.get("bounds", {})).items():
        lower[entry] = -math.inf if not low else parameters[entry].log_scaled(low)
        upper[entry] = math.inf if high is None else parameters[entry].log_scaled(high)
    return lower, upper


def _given_values(
    problem: Problem, parameters: Parameters, values: Mapping[str, float], tied: list[list[int]], offsets: Tensor
) -> dict[int, float]:
    """The entries of theta that have a given value, also those that are tied to one with a value."""
    given = {entry: parameters[entry].log_scaled(value) for entry, value in by_entry(parameters, values).items()}
    if len(problem.theta) - 1 in given and getattr(problem.kernel, "noise_is_known", False):
        raise SettingError("The noise of each row is given with the data; leave the value of noise out.")
    for entries in tied:
        with_value = [entry for entry in entries if entry in given]
        common = {round(given[entry] - float(offsets[entry]), 12) for entry in with_value}
        if len(common) > 1:
            names = " and ".join(parameters[entry].name for entry in with_value)
            raise SettingError(f"{names} are tied, but their values differ; give one of them, or the same.")
        for entry in entries if with_value else ():
            given.setdefault(entry, given[with_value[0]] - float(offsets[with_value[0]] - offsets[entry]))
    return given


def _refuse_contradictions(
    parameters: Parameters, free: FreeParameters, limits: tuple[Tensor, Tensor, Tensor], given: Mapping[int, float]
) -> None:
    """Refuse bounds of tied parameters that no value keeps, and a given or fixed value outside its bounds."""
    theta, lower, upper = limits
    for group in torch.nonzero(free.lower > free.upper)[:, 0].tolist():
        names = " and ".join(each.name for each in parameters if free.group[each.entry] == group)
        raise SettingError(f"{names} are tied, but no value is within the bounds of all; change the bounds or the tie.")
    theta = theta.where(~free.is_fixed, free.given)
    for entry in sorted({*given, *torch.nonzero(free.is_fixed)[:, 0].tolist()}):
        if not float(lower[entry]) - 1e-9 <= float(theta[entry]) <= float(upper[entry]) + 1e-9:
            each = parameters[entry]
            low, high = (math.exp(float(limit[entry])) * each.factor for limit in (lower, upper))
            raise SettingError(
                f"{each.name} is {each.value(theta):.4g}, outside its bounds {low:.4g} and {high:.4g}; change either."
            )
