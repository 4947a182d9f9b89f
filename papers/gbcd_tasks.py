"""The public data sets of Bo and Sminchisescu (2008), in the paper's scaling, and the solvers by the paper's names.

Inputs and targets have zero mean and unit variance over the training rows, so that the paper's error (eq 16) is
sqrt(mean (y - m)^2) here. The training targets of Friedman1 contain unit noise, and its test targets none. Kernel and
noise are learned by maximum likelihood on a random subset (2000 rows in the paper) before any time is measured. So is
the sd of the signal, which the formula of the paper does not have (section 3); report.md says what that changes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gpexplorer import data, kernels
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.base import Method, registry
from gpexplorer.methods.fixed_subset import learn_on_subset
from gpexplorer.problem import Dataset, Problem
from gpexplorer.runs.run import Run

SETS = {"Calhouse": 18_000, "Kin40k": 30_000, "Friedman1": 100_000}  # training rows
TESTS = {"Calhouse": 2_640, "Kin40k": 10_000, "Friedman1": 5_000}
MEASURED = 15.0  # seconds of a run from which its whole time is estimated
PACE = f"by the pace of the first {MEASURED:.0f} s of each, at least: gradients decrease more slowly later on"
TOLERANCE = 1e-4  # of the largest gradient entry, the rule of the paper
NAMES = {"Calhouse": "calhousing", "Kin40k": "kin40k"}
QUICK_ROWS, QUICK_TESTS, QUICK_SUBSET = 1_500, 500, 400
PUBLISHED: dict[str, Any] = {"chunk": 1, "pool": 60, "coarse": 0, "conjugate": 0}

SOLVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "GBCD": ("gbcd", PUBLISHED),
    "BCDC": ("bcd-cyclic", {}),
    "BCDG": ("bcd-gradient", {}),
    "SMO": ("smo", {}),
    "CG": ("cg", {}),
    "GBCD, coarse": ("gbcd", {}),
    "PCG": ("pcg", {"rank": 500, "root": "nystrom"}),
    "Cholesky": ("cholesky", {}),
}


class Task(NamedTuple):
    """A problem in the paper's scaling, with its test rows."""

    problem: Problem
    X: Tensor  # [t, d]
    y: Tensor  # [t]

    def rmse(self, mean: Tensor) -> float:
        """Root mean squared error of a predictive mean [t] on the test rows (eq 16)."""
        return float((self.y - mean).square().mean().sqrt())


@cache
def task(name: str, rows: int, full: bool) -> Task:
    """Load one data set in the paper's scaling and learn theta on a subset.

    Parameters
    ----------
    name : str
        Name in the paper: "Calhouse", "Kin40k" or "Friedman1".
    rows : int
        Number of random training rows.
    full : bool
        Whether the test rows and the subset have the paper's sizes; otherwise they are small and quick.
    """
    train, test = _rows(name, rows, full)
    X_mean, X_sd, y_mean, y_sd = train.X.mean(0), train.X.std(0), train.y.mean(), train.y.std()
    scaled = Dataset((train.X - X_mean) / X_sd, (train.y - y_mean) / y_sd, train.names)
    kernel = kernels.make("se-ard", scaled.d)
    size, evaluations = (2000, 60) if full else (QUICK_SUBSET, 25)
    *_, learned = learn_on_subset(Problem(scaled, kernel, kernel.start(scaled)), 0, size, evaluations)
    return Task(Problem(scaled, kernel, learned.theta), (test.X - X_mean) / X_sd, (test.y - y_mean) / y_sd)


def _rows(name: str, rows: int, full: bool) -> tuple[Dataset, Dataset]:
    """Training and test rows in the units of the file."""
    count = TESTS[name] if full else QUICK_TESTS
    if name == "Friedman1":
        noisy, clean = (data.load("friedman1", n=rows + count + 1, noise=noise, seed=1) for noise in (1.0, 0.0))
        train, test = _joined(noisy), _joined(clean)
    else:
        train = test = _joined(data.load(NAMES[name]))
    order = torch.randperm(len(train), generator=generator(0, "reproduce", name))
    return train.rows(order[:rows]), test.rows(order[-count:])


def _joined(split: data.Split) -> Dataset:
    """Training and test rows of a split together."""
    parts = (split.train, split.test)
    return Dataset(torch.cat([part.X for part in parts]), torch.cat([part.y for part in parts]), split.train.names)


def method(name: str, **changes: Any) -> Method:
    """Build a solver by the paper's name, with theta fixed.

    Parameters
    ----------
    name : str
        A key of `SOLVERS`.
    **changes : object
        Settings; those that the solver does not have are ignored. `block` also sets the number of coarse rows of
        GBCD, so that a quick version with small blocks has no unfair advantage.
    """
    key, settings = SOLVERS[name]
    all_settings = {
        "learn": False,
        "coarse": changes.get("block", 500),
        "cache": 0.0,
        "max_iterations": 1_000_000,
        "tolerance": TOLERANCE,
        "mean_tolerance": 0.0,
        **settings,
        **changes,
    }
    return registry[key](**{name: value for name, value in all_settings.items() if name in registry[key].param})


def timed_run(method: Method, problem: Problem) -> Run:
    """A run whose seconds are those of the processor, so that other work on the machine does not change them."""
    return Run(method, problem, clock=time.process_time)


def solver_run(unit: Mapping[str, Any]) -> Run:
    """The run of a solver of the full GP on the rows of a piece of work."""
    problem = task(unit["set"], unit["rows"], unit["full"]).problem
    return timed_run(method(unit["solver"], block=unit["block"]), problem)


def seconds_by_pace(run: Run) -> float:
    """Extrapolate the seconds of a run from its first `MEASURED`.

    For a solver, the logarithm of the largest gradient is taken to decrease at one rate until `TOLERANCE`; infinity if
    it did not decrease. For a model that grows, a step is taken to cost as much more as there are rows in it.
    """
    converged = solve(run, MEASURED)
    last = run.trace[-1]
    if converged or run.outcome is not None:
        return last.seconds
    if hasattr(last.step.info, "largest"):
        start, now = run.trace[1].step.info.largest, last.step.info.largest
        share = math.log(start / now) / math.log(start / TOLERANCE)
        return last.seconds / share if share > 0.0 else math.inf
    share = max(len(last.step.state.inducing), 1) / getattr(run.method, "num_regressors", math.inf)
    return last.seconds / share**2


def solver_seconds(unit: Mapping[str, Any]) -> float:
    """Estimate the processor seconds of a piece of work that is a run of a solver."""
    return seconds_by_pace(solver_run(unit))


def solve(run: Run, seconds: float) -> bool:
    """Advance a run until it ends or `seconds` have passed; return whether it ended by the rule of the paper."""
    while run.advance() is not None:
        if run.trace[-1].seconds > seconds:
            return False
    if run.error is not None:
        raise run.error
    gradient = getattr(run.trace[-1].step.info, "largest", math.inf)  # of solvers of the full GP
    return run.outcome is not None and (run.outcome.reason == "converged" or gradient <= TOLERANCE)
