"""How an estimator finishes its run, and the attributes that it computes from the run and its posterior.

Apart because it reads a run that has ended; the estimator itself is the interface of scikit-learn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.reader.table_reader import RowsRead
from ..data.standardising import targets
from ..kernels.row_scaled import log_density_change, plain_rows
from ..posteriors import InducingPosterior, InUnits, UnitRowsPosterior
from ..problem import MixedRows
from ..runs import Run
from ..runs.studies.prediction_table import with_unknown_averaged
from ..runs.trace import Record


def finish(run: Run, callbacks: Sequence[Callable[[Record], Any]] = (), verbose: int = 0) -> None:
    """Take all steps of a run, which callbacks may stop, and print lines of progress."""

    def report(record: Record) -> bool:
        if verbose and record.index % verbose == 0:
            value = getattr(record.step.info, "objective", math.nan)
            print(f"step {record.index}, {record.seconds:.1f} s: objective {value:.6g}")
        return any([bool(callback(record)) for callback in callbacks])  # each of them is called

    run.finish(callback=report if callbacks or verbose else None)


def last_theta(run: Run) -> NDArray[np.float64]:
    """Log-hyperparameters [p] of the last record, or the initial ones if the method does not learn any."""
    theta = getattr(run.trace[-1].step.state, "theta", run.problem.theta)
    return theta.detach().cpu().double().numpy().copy()


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
        change += float(train.scale.log_derivative(targets(train.y.double(), train)).sum())
    return change - value - 0.5 * len(train) * math.log(2.0 * math.pi)


def mean_and_sd(posterior: InUnits, X: Any, read: RowsRead | None = None) -> tuple[Tensor, Tensor]:
    """Mean [t] and standard deviation [t] of what the posterior is of.

    With rows of a frame as they were read, those with words that training does not have are averaged over its words.
    """
    mean, var = posterior(X)
    if read is None or not read.unknown:
        return mean, var.sqrt()
    averaged = with_unknown_averaged(posterior, read, mean.cpu().numpy(), var.sqrt().cpu().numpy())
    return torch.from_numpy(averaged[0]), torch.from_numpy(averaged[1])


def inducing_points(posterior: InUnits) -> Any:
    """Inducing inputs [m, d] in the units of the data, or a list of m objects; an AttributeError without any."""
    inner: Any = posterior.inner
    if isinstance(inner, UnitRowsPosterior):
        inner = inner.inner
    scale = posterior.columns.scale
    if not isinstance(inner, InducingPosterior):
        raise AttributeError(f"A {type(inner).__name__} has no inducing points.")
    if isinstance(inner.Z, MixedRows):
        of_rows = inner.Z.numbers.double()
        in_units = of_rows if scale is None else scale.inputs_in_units(of_rows)
        return list(inner.Z.with_numbers(in_units))
    if not isinstance(inner.Z, Tensor):
        return list(inner.Z)
    Z = inner.Z.double()[:, : posterior.columns.d]  # without the column of `kernels.row_scaled`
    return (Z if scale is None else scale.inputs_in_units(Z)).cpu().numpy()
