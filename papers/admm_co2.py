"""CO2 at Mauna Loa as in Xu et al. (2019), section 5: trained on 1958 to 2008, tested on 2009 to 2015, kernel SE + LP.

The initial period is one year and the initial amplitude of the periodic part is a tenth, as the training rows show.
The methods run to their end from the same initial values: these, and random ones that differ by a factor of about e in
everything except the period. Each run is a row of the table, with the final value of its objective. For each method the
picture shows the run with the lowest objective, so that no test row influences the choice. GPCV-ADMM is computed as in
this package and with the published algorithm. One more row has the lengthscales that the paper prints, without
learning. (It prints no sizes of signal and noise: these are those of Rasmussen and Williams, to whom it refers.)

The test rows lie up to seven years after all training rows, and the rows by which the methods choose theta lie between
them: the table shows how little the objective says of the test error. The squared error is divided by the variance of
the test targets, and also by that of the training targets; the paper does not say which one it means by "standardised".
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import holoviews as hv
import pandas as pd
import torch
from torch import Tensor

from gpexplorer import data, kernels
from gpexplorer.data.standardising import fit_scale, scale
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.base import registry
from gpexplorer.methods.cross_validation.exact_posterior import by_cholesky
from gpexplorer.problem import Dataset, Problem
from gpexplorer.views.drawing.palette import ROLES

from .admm_synthetic import AS_PUBLISHED
from .base import Figure, Rows, Unit

PUBLISHED, ESTIMATES = "gpcv-admm, as published", "the estimates of the paper"
PAPER = {"gpcv-admm": 1.307, PUBLISHED: 1.307, "ml": 1.408}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpcv-admm": ("gpcv-admm", {"folds": 2}),
    PUBLISHED: ("gpcv-admm", AS_PUBLISHED),
    "ml": ("ml", {"evaluations": 200}),
}
NOISE = 0.1  # initial noise sd, in units of the target's sd
STARTS = 10  # initial values per method
TITLES = {"gpcv-admm": "GPCV-ADMM", PUBLISHED: "GPCV-ADMM, as published", "ml": "maximum likelihood"}
FIRST, LAST = 2009.0, 2016.0
ROLE = {"gpcv-admm": "mean", PUBLISHED: "proposed", "ml": "inducing"}
PRINTED = {"se: lengthscale": 27.0, "lp: lengthscale": 51.0, "lp: width": 1.26}  # years; the width has no unit
SIZES = {"se: sd": 66.0, "lp: sd": 2.4, "noise": 0.19}  # ppm, Rasmussen and Williams (2006), section 5.4.3


def task() -> tuple[Problem, Dataset]:
    """Return the problem, standardised by its training rows, and the test rows in the same units."""
    split = data.load("co2_mlo_monthly")
    X, y = torch.cat([split.train.X, split.test.X]), torch.cat([split.train.y, split.test.y])
    early, late = X[:, 0] < FIRST, (X[:, 0] >= FIRST) & (X[:, 0] < LAST)
    raw = Dataset(X[early], y[early], split.train.names, split.train.target)
    standardising = fit_scale(raw)
    train = scale(raw, standardising)
    kernel = kernels.make("se + lp", 1)
    theta = kernel.start(train)
    theta[kernel.names.index("lp: period")] = -math.log(float(standardising.x_sd))
    theta[kernel.names.index("lp: sd")] = math.log(0.1)
    theta[-1] = math.log(NOISE)
    return Problem(train, kernel, theta), scale(Dataset(X[late], y[late]), standardising)


def start(problem: Problem, k: int) -> Problem:
    """Return the problem with its k-th initial theta, which is the same for both methods; 0 is its own theta."""
    if not k:
        return problem
    change = torch.randn(len(problem.theta), generator=generator(k, "co2 restart"), dtype=torch.float64)
    change[list(problem.kernel.names).index("lp: period")] = 0.0
    return replace(problem, theta=problem.theta + change.to(problem.theta))


def printed(problem: Problem) -> Tensor:
    """Return theta [p] at the lengthscales that the paper prints."""
    file_units, theta = problem.train.scale, problem.theta.clone()
    assert file_units is not None
    x_sd, y_sd = float(file_units.x_sd), float(file_units.y_sd)
    values = {name: value / y_sd for name, value in SIZES.items()}
    values |= {name: value / (1.0 if "width" in name else x_sd) for name, value in PRINTED.items()}
    for name, value in values.items():
        theta[problem.kernel.names.index(name)] = math.log(value)
    return theta


def units(full: bool) -> list[dict[str, Any]]:
    """Return all pairs of a method and an initial theta, in the quick version too, and the paper's own theta."""
    runs = [{"method": name, "trial": k} for k in range(STARTS) for name in PAPER]
    return [*runs, {"method": ESTIMATES, "trial": 0}]


def work(unit: Unit) -> Rows:
    """Run one method from one initial theta: final objective, outcome, all errors, and theta."""
    problem, test = task()
    if unit["method"] == ESTIMATES:
        return [
            {**unit, "ended": "", "lowered": math.nan, "paper": math.nan, **_errors(problem, test, printed(problem))}
        ]
    key, settings = SETTINGS[unit["method"]]
    method, outcome = registry[key](**settings), None
    steps, last = method.steps(start(problem, unit["trial"])), None
    while outcome is None:
        try:
            last = next(steps)
        except StopIteration as end:
            outcome = end.value
    assert last is not None
    lowered = last.state.best if key == "gpcv-admm" else last.state.objective
    ends = {"ended": outcome.reason, "lowered": lowered, "paper": PAPER[unit["method"]]}
    return [{**unit, **ends, **_errors(problem, test, last.state.theta)}]


def _errors(problem: Problem, test: Dataset, theta: Tensor) -> dict[str, float]:
    """Errors of the exact GP with this theta [p], and theta."""
    file_units, posterior = problem.train.scale, by_cholesky(problem, theta)
    assert file_units is not None
    error, train_error = (
        float((rows.y - posterior(rows.X)[0]).square().mean()) * file_units.y_sd**2 for rows in (test, problem.train)
    )
    return {
        "MSE over test variance": error / float(test.y.var(correction=0)) / file_units.y_sd**2,
        "MSE over train variance": error / file_units.y_sd**2,
        "RMSE [ppm]": math.sqrt(error),
        "training RMSE [ppm]": math.sqrt(train_error),
        **dict(zip(_names(problem), theta.tolist(), strict=True)),
    }


def _names(problem: Problem) -> list[str]:
    return [f"log {name}" for name in problem.kernel.names]


def plot(frame: pd.DataFrame) -> hv.Layout:
    """Draw the test months with the band of y of each method's best run, above a table of all runs."""
    problem, test = task()
    file_units = problem.train.scale
    assert file_units is not None
    year = test.X[:, 0] * file_units.x_sd + file_units.x_mean
    y = test.y * file_units.y_sd + file_units.y_mean
    parts = [hv.Scatter((year, y), "year", "y", label="measured").opts(color=ROLES["data"], size=4)]
    learned = frame[frame["method"] != ESTIMATES]
    best_runs = learned.loc[learned.groupby("method", sort=False)["lowered"].idxmin()]
    for _, row in best_runs.iterrows():
        theta = torch.tensor(row[_names(problem)].to_numpy(float))
        mean, var = by_cholesky(problem, theta)(test.X)
        mu = mean * file_units.y_sd + file_units.y_mean
        two_sd = 2.0 * (var + (2 * theta[-1]).exp()).sqrt() * file_units.y_sd
        colour, title = ROLES[ROLE[row["method"]]], TITLES[row["method"]]
        area = hv.Area((year, mu - two_sd, mu + two_sd), "year", ["lower", "upper"], label=f"{title}, 2 sd of y")
        line = hv.Curve((year, mu), "year", "mean", label=f"{title}, RMSE {row['RMSE [ppm]']:.2f} ppm")
        parts += [area.opts(color=colour, alpha=0.15, line_alpha=0), line.opts(color=colour)]
    picture = hv.Overlay(parts).opts(
        width=800, height=420, xlabel="year", ylabel="CO2 [ppm]", legend_position="bottom_left"
    )
    numbers = frame.drop(columns=_names(problem))
    digits = numbers.apply(
        lambda c: c.map("{:.5g}".format).astype(float) if c.dtype == float else c
    )  # significant ones
    table = digits.assign(kept=frame.index.isin(best_runs.index))
    return hv.Layout([picture, hv.Table(table.sort_values(["method", "lowered"])).opts(width=800)]).cols(1)


FIGURES = (
    Figure(
        name="admm-co2",
        title="CO2 at Mauna Loa, 2009 to 2015 predicted",
        paper=(
            "The paper: standardised test MSE 1.307 for GPCV-ADMM, 1.408 for GPML. For each method, compare the run "
            "with the lowest objective."
        ),
        units=units,
        work=work,
        plot=plot,
    ),
)
