"""What a person has decided about hyperparameters: values, and which are fixed, bounded, tied or have a prior.

    minimise F(theta) - sum_i log p_i(value_i),   theta = T(f)                 MAP; T is `kernels.theta.free_parameters`

The density of a prior is that of the value in the units of the file, as in GPflow and GPyTorch: the mode does not
contain the Jacobian of the logarithm. Tied parameters are equal in the units of the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import SettingError
from ...problem import Problem
from ..base import Covariance
from ..row_scaled import plain_rows
from .free_parameters import FreeParameters
from .named_parameters import Parameter, Parameters, by_entry, kernel_parameters, matching_all, tied_entries
from .options import OPTIONS
from .priors import Prior, parse_prior

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
