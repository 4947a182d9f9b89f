"""Figures 1 to 4 of Bo and Sminchisescu (2008): correlated gradients, and the convergence of solvers of the full GP."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import holoviews as hv
import numpy as np
import pandas as pd
import torch

from benchmarks.gbcd import crossing
from gpexplorer.methods.exact.gradient_correlation import gradient_correlations
from gpexplorer.problem import take
from gpexplorer.views.drawing.palette import CYCLE, ROLES

from .base import Figure, Rows, Unit, panels
from .gbcd_tasks import PACE, QUICK_ROWS, SETS, SOLVERS, method, solve, solver_run, solver_seconds, task

BINS = np.linspace(-0.4, 1.0, 29)
RACE = ("GBCD", "BCDC", "BCDG", "SMO", "CG", "GBCD, coarse")
COLOURS = dict(zip(SOLVERS, CYCLE, strict=False))
QUICK_SECONDS, FULL_SECONDS = 5.0, 1500.0
SIZE, LAPACK_ROWS = 330, 20_000


def units1(full: bool) -> list[dict[str, Any]]:
    """Every data set, with the targets and with a kernel column as right-hand side."""
    rows, block = (10_000, 500) if full else (QUICK_ROWS, 40)
    return [
        {"set": name, "right": right, "rows": rows, "block": block, "full": full}
        for right in ("y", "k")
        for name in SETS
    ]


def work1(unit: Unit) -> Rows:
    """Histogram of the correlations between gradient entries of a row and its 50 neighbours, over 50 iterations."""
    problem = task(unit["set"], unit["rows"], unit["full"]).problem
    if unit["right"] == "k":
        centre = take(problem.train.X, torch.tensor([len(problem.train) // 2]))
        column = problem.kernel(problem.theta, problem.train.X, centre + 0.1)[:, 0]
        problem = replace(problem, train=replace(problem.train, y=column))
    steps = method("GBCD", block=unit["block"], tolerance=0.0).steps(problem)
    alphas = torch.stack([step.state.alpha for step in islice(steps, 1, 51)])
    result = gradient_correlations(problem, problem.theta, alphas)
    rows = []
    for pairs, values in (("neighbours", result.near), ("any two rows", result.far)):
        shares = np.histogram(values.numpy(), BINS)[0] / len(values)
        fields = {"set": unit["set"], "right": unit["right"], "pairs": pairs, "median": float(values.median())}
        rows += [
            {**fields, "from": a, "to": b, "share": share} for a, b, share in zip(BINS, BINS[1:], shares, strict=False)
        ]
    return rows


def plot1(frame: pd.DataFrame) -> hv.Layout:
    """Draw one histogram per data set and right-hand side."""
    parts = []
    for (right, name), group in frame.groupby(["right", "set"], sort=False):
        near, far = (group[group["pairs"] == pairs] for pairs in ("neighbours", "any two rows"))
        edges = [*near["from"], near["to"].iloc[-1]]
        bars = hv.Histogram((edges, near["share"].to_numpy()), label="neighbours")
        line = hv.Curve((0.5 * (far["from"] + far["to"]), far["share"]), label="any two rows")
        parts.append(
            (bars.opts(color=ROLES["mean"], line_color=None) * line.opts(color=ROLES["reference"])).opts(
                title=f"{name}, A x = {right}; median {near['median'].iloc[0]:.2f}", width=SIZE, height=290,
                xlabel="correlation of gradients", ylabel="share of pairs", legend_position="top",
            )
        )  # fmt: skip
    return hv.Layout(parts).opts(shared_axes=False).cols(len(SETS))


def units2(full: bool) -> list[dict[str, Any]]:
    """The solvers on 10000 rows of two data sets, as in the paper."""
    rows, seconds = (10_000, FULL_SECONDS) if full else (QUICK_ROWS, QUICK_SECONDS)
    block = 500 if full else 100
    return [
        {"set": name, "solver": solver, "rows": rows, "block": block, "seconds": seconds, "full": full}
        for name in ("Calhouse", "Kin40k")
        for solver in RACE
    ]


def work2(unit: Unit) -> Rows:
    """Gradient, objective and test error at up to 120 iterations; the time for test errors is not counted."""
    case = task(unit["set"], unit["rows"], unit["full"])
    run = solver_run(unit)
    solve(run, unit["seconds"])
    K = case.problem.kernel(case.problem.theta, case.X, case.problem.train.X)
    iterations = sorted({round(k) for k in np.linspace(min(1, run.done), run.done, 120)} - {0})
    return [
        {
            "set": unit["set"], "solver": unit["solver"], "rows": unit["rows"], "iteration": k,
            "seconds": run.trace[k].seconds,
            "entries / n^2": run.trace[k].cost.entries / unit["rows"] ** 2, "gradient": run.trace[k].step.info.largest,
            "objective": run.trace[k].step.info.objective, "RMSE": case.rmse(K @ run.trace[k].step.state.alpha),
        }
        for k in iterations
    ]  # fmt: skip


def _plotter(x: str, quantities: tuple[str, ...], solvers: tuple[str, ...]) -> Any:
    """A function that draws each quantity against x, one row of panels per data set."""

    def plot(frame: pd.DataFrame) -> hv.Layout:
        parts = []
        for name, group in frame[frame["solver"].isin(solvers)].groupby("set", sort=False):
            for y in quantities:
                smallest = group.groupby("solver")["RMSE"].last().min()
                drawn = group[group["RMSE"] < 1.8 * smallest] if y == "RMSE" else group
                curves = [
                    hv.Curve(rows, x, y, label=str(solver)).opts(color=COLOURS[str(solver)], line_width=2)
                    for solver, rows in drawn.groupby("solver", sort=False)
                ]
                parts.append(hv.Overlay(curves).opts(title=f"{name}: {y}", logy=y == "gradient", show_grid=True))
        return panels(parts, len(quantities))

    return plot


def units4(full: bool) -> list[dict[str, Any]]:
    """Friedman1 at growing sizes; Cholesky only while its matrix takes at most 3 GB."""
    sizes = (10_000, 20_000, 40_000, 70_000, 100_000) if full else (500, 1000, 2000)
    seconds, block = (7200.0, 500) if full else (12.0, 100)
    return [
        {"set": "Friedman1", "solver": solver, "rows": rows, "block": block, "seconds": seconds, "full": full}
        for rows in sizes
        for solver in ("GBCD", "BCDC", "GBCD, coarse", "Cholesky")
        if solver != "Cholesky" or rows <= LAPACK_ROWS
    ]


def work4(unit: Unit) -> Rows:
    """Seconds until no gradient entry exceeds 1e-4."""
    run = solver_run(unit)
    converged = solve(run, unit["seconds"])
    last = run.trace[-1]
    entries = last.cost.entries / unit["rows"] ** 2
    fields = {"solver": unit["solver"], "rows": unit["rows"], "seconds": last.seconds, "iterations": run.done}
    return [{**fields, "entries / n^2": entries, "largest gradient": last.step.info.largest, "converged": converged}]


def plot4(frame: pd.DataFrame) -> hv.Overlay:
    """Draw time against rows: dots where it converged, growth exponents in the legend, the crossing in the title."""
    parts: list[hv.Element] = []
    for solver, rows in frame.groupby("solver", sort=False):
        colour, converged = COLOURS[str(solver)], rows[rows["converged"]]
        x, y = np.log(converged[["rows", "seconds"]].to_numpy(float).T)
        power = np.polyfit(x, y, 1)[0] if len(converged) > 1 else np.nan
        label = str(solver) if np.isnan(power) else f"{solver}: n^{power:.1f}"
        parts.append(hv.Curve(rows, "rows", "seconds", label=label).opts(color=colour, line_width=2))
        parts.append(hv.Scatter(converged, "rows", "seconds").opts(color=colour, size=7))
    return hv.Overlay(parts).opts(
        width=720, height=420, logx=True, logy=True, legend_position="right", title=_crossing(frame)
    )


def _crossing(frame: pd.DataFrame) -> str:
    """From which number of rows GBCD is faster than Cholesky; empty if both converged at fewer than two sizes."""
    table = frame[frame["converged"]].pivot_table(index="rows", columns="solver", values="seconds")
    seconds = table.reindex(columns=["Cholesky", "GBCD, coarse"]).dropna()
    times = {int(rows): (float(cholesky), float(gbcd)) for rows, cholesky, gbcd in seconds.itertuples()}
    return crossing("GBCD, coarse", times) if len(times) > 1 else ""


FIGURES = (
    Figure(
        "gbcd-fig1", "GBCD: correlation of neighbouring gradients",
        "The paper: gradients of neighbours are correlated, and more so if the right-hand side is a kernel column.",
        units1, work1, plot1,
    ),
    Figure(
        "gbcd-fig2", "GBCD: gradient, objective and error against time",
        "The paper: GBCD reaches 1e-4 first; test errors stop changing long before.",
        units2, work2, _plotter("seconds", ("gradient", "objective", "RMSE"), RACE),
        estimate=solver_seconds, pace=PACE,
    ),
    Figure(
        "gbcd-fig3", "GBCD: gradient and objective against iterations",
        "The paper: greedy blocks reduce the objective faster than blocks in turn or by gradients.",
        units2, work2, _plotter("iteration", ("gradient", "objective"), ("GBCD", "BCDC", "BCDG", "GBCD, coarse")),
        cells="gbcd-fig2", estimate=solver_seconds, pace=PACE,
    ),
    Figure(
        "gbcd-fig4", "GBCD: training time against rows, Friedman1",
        "The paper: the gap between BCDC and GBCD grows from 10000 to 100000 rows.",
        units4, work4, plot4, estimate=solver_seconds, pace=PACE,
    ),
)  # fmt: skip
