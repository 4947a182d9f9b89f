"""The run of a fit: taken to its end, with what it says about the time, and what an estimator keeps of it.

Apart because regressor.py has what a person calls.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ..data.standardising import targets as targets_in_units
from ..errors import SettingError
from ..kernels.row_scaled import log_density_change, plain_rows, unscaled_kernel
from ..kernels.theta.restrictions import kept_options
from ..linalg.interruption import Interrupted, interruptible
from ..runs import Run
from ..runs.budget import Budget
from ..runs.studies.machine_speed import long_step_of
from ..runs.trace import Record


def finish(run: Run, callbacks: Sequence[Callable[[Record], Any]] = (), verbose: int = 0) -> None:
    """Take all steps of a run, which callbacks may stop, print lines of progress, and close it.

    Raises
    ------
    Exception
        The error with which the run failed.

    Warns
    -----
    UserWarning
        Before any work: the first step is expected to be given up.
    ConvergenceWarning
        The limit in seconds was spent before anything was learned.
    """

    def report(record: Record) -> bool:
        if verbose and record.index % verbose == 0:
            value = getattr(record.step.info, "objective", math.nan)
            print(f"step {record.index}, {record.seconds:.1f} s: objective {value:.6g}")
        return any([bool(callback(record)) for callback in callbacks])  # each of them is called

    if (long_step := long_step_of(run)).is_given_up:
        warnings.warn(f"{run.method.key}: {long_step.note}", stacklevel=6)
    run.finish(callback=report if callbacks or verbose else None)
    run.close()
    if run.error is not None:
        raise run.error
    if run.done == 0 and run.outcome is not None and run.outcome.reason == "budget":
        warnings.warn(run.outcome.message, ConvergenceWarning, stacklevel=6)


def posterior_of(run: Run) -> Any:
    """The posterior of a finished run; where nothing was learned within the limit, in as long as a first step may take.

    Raises
    ------
    SettingError
        It takes longer: with very many rows a full GP would take hours, and predict from its start.
    """
    seconds = run.spec.budget.get("seconds") if run.spec else None
    if run.done > 0 or seconds is None:
        return run.posterior(of="y")
    budget, begin = Budget(seconds=seconds), time.monotonic()
    try:
        with interruptible(lambda: budget.is_overrun(time.monotonic() - begin, in_first_step=True)):
            return run.posterior(of="y")
    except Interrupted:
        raise SettingError(
            f"{run.method.key} learned nothing from {len(run.problem.train):,} rows in {seconds:g} s, and what it "
            "predicts without takes as long: give more seconds, fewer rows, or a method for many, such as svgp."
        ) from None


def last_theta(run: Run) -> NDArray[np.float64]:
    """Log-hyperparameters [p] of the last record, or the initial ones if the method does not learn any."""
    theta = getattr(run.trace[-1].step.state, "theta", run.problem.theta)
    return theta.detach().cpu().double().numpy().copy()


def learned_kernel(run: Run) -> dict[str, Any]:
    """The kernel as a spec takes it, which begins at the learned theta and holds the same hyperparameters.

    Theta is in the scaled space, whose units are those of other rows in a later fit. What a person fixed has its value
    in the units of the file.
    """
    kernel, options = unscaled_kernel(run.problem.kernel), kept_options(run.spec)
    if "fixed" in options:
        table = run.hyperparameters_at(-1, curvature=False)
        is_known = getattr(run.problem.kernel, "noise_is_known", False)  # given with the rows
        options["values"] = {
            row.name: row.value for row in table if row.fixed and not (is_known and row.what == "noise")
        }
    return {"name": kernel.key, "theta": last_theta(run).tolist()} | options


def evidence(run: Run) -> float | None:
    """The log likelihood of the targets in their own units, if the objective of the method is its negative."""
    objective = next((channel for channel in run.method.channels if channel.name == "objective"), None)
    value = getattr(run.trace[-1].step.info, "objective", math.nan)
    of_all_rows = objective is not None and objective.unit == "nat" and "of the subset" not in objective.label
    if (not of_all_rows and run.method.family != "eigenfunctions") or not math.isfinite(value):
        return None
    train = plain_rows(run.problem)
    change = log_density_change(run.problem)  # 0 unless rows differ in noise
    if train.scale is not None:
        change += float(train.scale.log_derivative(targets_in_units(train.y.double(), train)).sum())
    return change - value - 0.5 * len(train) * math.log(2.0 * math.pi)
