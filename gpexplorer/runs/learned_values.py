"""What a record says of hyperparameters, their priors and inducing points, in the units of the file.

Apart from `run`, since it is computed from a state alone: no step, no clock and no store has a part in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..data.standardising import inputs_in_units
from ..errors import SettingError, flag
from ..hyperparameters import Hyperparameters, hyperparameters
from ..kernels.row_scaled import input_count, plain_rows
from ..kernels.theta.restrictions import has_priors, log_prior, noise_limits, restricted_problem
from ..methods.base import Method
from ..problem import Problem
from .trace import Record

if TYPE_CHECKING:
    import pandas as pd

QUICK_FLOPS = 1e10  # of derivatives and standard errors of hyperparameters that are computed without being asked for


def hyperparameters_of(
    method: Method, problem: Problem, state: Any, first: Any, curvature: bool | None, gradient: bool | None
) -> Hyperparameters:
    """The hyperparameters at a state of a run whose first one is `first`; both are None before record 0.

    `curvature` and `gradient` are those of `Run.hyperparameters_at`.
    """
    theta = getattr(state, "theta", problem.theta)
    flops = (2.0 * len(problem.theta) + 1.0) * method.cost(problem).flops
    wanted = flops < QUICK_FLOPS if curvature is None else flag("curvature", curvature)
    in_any_case = gradient is not None and flag("gradient", gradient)
    asked = state is not None and (wanted or in_any_case)
    in_theta = method.theta_gradient(problem, state) if asked else None
    start = theta if first is None else getattr(first, "theta", problem.theta)
    start = problem.theta if len(start) == len(problem.theta) else start  # not of features of a method
    return hyperparameters(problem.kernel, plain_rows(problem), theta, start, in_theta, errors=wanted)


def inducing_points_of(method: Method, problem: Problem, state: Any) -> NDArray[np.float64]:
    """The inducing points [m, d] of a state; SettingError if there are none, or they are not rows of numbers."""
    Z = getattr(state, "Z", None)
    if Z is None and (rows := getattr(state, "inducing", None)) is not None:
        Z = problem.train.rows(rows).X
    elif Z is None:  # they are among the weights that the posterior reads
        Z = getattr(method.posterior(problem, state), "Z", None)
    if not isinstance(Z, Tensor):
        raise SettingError(f"Method {method.key!r} has no inducing points that are rows of numbers.")
    points: NDArray[np.float64] = inputs_in_units(Z[:, : input_count(problem)], problem.train)
    return points


def log_prior_of(problem: Problem, record: Record) -> float:
    """The log density of the priors at the theta of a record; 0 without priors."""
    theta = getattr(record.step.state, "theta", problem.theta)
    if theta.shape == problem.theta.shape:
        return log_prior(problem.kernel, theta)
    limits = noise_limits(problem.kernel, problem.theta)  # theta is that of features, with the noise as its last entry
    return 0.0 if limits is None or not len(theta) else -limits.penalty(float(theta[-1]))[0]


def changed_problem(
    method: Method, problem: Problem, table: Hyperparameters, theta: Tensor, options: Mapping[str, Any]
) -> Problem:
    """The problem with the hyperparameters of a table and these options, and what is restricted already."""
    restrictions = getattr(problem.kernel, "restrictions", None)
    asked = {} if restrictions is None else restrictions.options  # also of what is fixed now
    kept = {name: asked[name] for name in ("bounds", "tied", "priors") if name in asked}
    kernel = table.kernel(**{**kept, **options})
    if getattr(problem.kernel, "noise_is_known", False):
        del kernel["values"]["noise"]
    restricted = restricted_problem(replace(problem, theta=theta), kernel)
    method.check_restrictions(restricted)
    return restricted


def with_priors(table: pd.DataFrame, problem: Problem, records: Sequence[Record], learned: str) -> pd.DataFrame:
    """The table of a run, with two more columns after the channel that is learned where there are priors."""
    if not has_priors(problem.kernel) or learned not in table:
        return table
    place = list(table.columns).index(learned) + 1
    table.insert(place, "log_prior", [log_prior_of(problem, record) for record in records])
    table.insert(place + 1, "map_objective", table[learned] - table["log_prior"])
    return table
