"""Figures 2 and 3 and table 1 of Xu et al. (2019): draws from a GP with the kernels of eqs 19 to 21.

Inputs lie in [0, 10] for 500 rows, and in [0, 20] otherwise; 20 additional rows are for testing. The paper does not
state the noise of its draws. Here its sd is 0.3 and that of the signal 1, so that test errors compare the two methods
with each other, but not with the paper. As in the paper, theta is l, or (l, p), or (l1, l2, p): the sizes of signal and
noise are fixed at those of the draws, and the lengthscale of the sine is that of the decay (eq 20). In table 1 both
methods begin at the best of the same random initial values, each by its own objective (section 5.3 recommends restarts
and gives no number).

For SE + LP the estimates of GPCV-ADMM from random initial values are far from the truth, and those of the paper are
close to it. The reason is the criterion and not its minimiser: the cross-validated error of such an estimate is that of
the local minimum next to the truth, which a run that begins at the truth finds. A squared error over two folds does not
tell such hyperparameters apart. A table row starts there. Figure 2 and, at 500 rows, table 1 are also computed with the
algorithm as it is published, theta by coordinate descent included (`AS_PUBLISHED`). For LP, with the two free numbers
of the paper, runs from the truth (0.5 and 1) end at l = 0.49 and p = 0.97 on the mean of five draws of 500 rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import holoviews as hv
import pandas as pd
import torch

from gpexplorer import kernels
from gpexplorer.kernels.theta.restrictions import projected, restricted_problem
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.base import Method, registry
from gpexplorer.methods.cross_validation.learning import initial_values
from gpexplorer.objectives import evidence
from gpexplorer.problem import Dataset, Problem
from gpexplorer.views.drawing.palette import ROLES

from .base import Figure, Rows, Unit

NOISE, TESTS, RESTARTS = 0.3, 20, 10


class Published(NamedTuple):
    """What table 1 of the paper prints for one cell, in the order GPCV-ADMM, GPML."""

    mse: tuple[float, float]
    estimates: tuple[tuple[float, ...], tuple[float, ...]]  # in the order of the hyperparameters listed


class Truth(NamedTuple):
    """A kernel, the hyperparameters of the draws, and those that the table lists by name."""

    kernel: str
    theta: tuple[float, ...]
    listed: dict[str, int]  # name -> index in theta
    paper: dict[int, Published]  # by n

    @property
    def options(self) -> dict[str, Any]:
        """The restrictions of theta to the hyperparameters of the paper."""
        decay = {"tied": [["lp.lengthscale", "lp.width"]]} if "lp" in self.kernel else {}
        return {"fixed": ["*.sd", "noise"], **decay}


TRUTHS = {
    "SE": Truth(
        kernel="se",
        theta=(1.0, 0.5),
        listed={"l": 1},
        paper={
            500: Published((0.12, 0.13), ((0.46,), (0.52,))),
            1000: Published((0.12, 0.14), ((0.50,), (0.50,))),
            2000: Published((0.12, 0.14), ((0.50,), (0.53,))),
        },
    ),
    "LP": Truth(
        kernel="lp",
        theta=(1.0, 0.5, 1.0, 0.5),
        listed={"l": 1, "p": 2},
        paper={
            500: Published((0.13, 0.36), ((0.34, 1.13), (0.55, 1.06))),
            1000: Published((0.17, 0.44), ((0.39, 1.06), (0.52, 1.16))),
            2000: Published((0.26, 0.28), ((0.44, 1.19), (0.53, 1.02))),
        },
    ),
    "SE+LP": Truth(
        kernel="se + lp",
        theta=(1.0, 3.0, 1.0, 1.0, 2.0, 1.0),
        listed={"l1": 1, "l2": 3, "p": 4},
        paper={
            500: Published((0.18, 0.21), ((3.73, 0.94, 2.38), (3.62, 1.08, 2.38))),
            1000: Published((0.13, 0.15), ((3.74, 0.95, 2.14), (3.61, 1.05, 2.27))),
            2000: Published((0.34, 0.37), ((3.94, 0.99, 2.10), (3.69, 1.09, 2.13))),
        },
    ),
}
METHODS = {"GPCV-ADMM": ("gpcv-admm", {"folds": 2}), "maximum likelihood": ("ml", {})}
FROM_TRUTH = "GPCV-ADMM, from the truth"
PUBLISHED = "GPCV-ADMM, as published"
AS_PUBLISHED = {  # algorithm 1 and section 5.3, without what this package adds
    "folds": 2, "theta_method": "z held still", "one_at_a_time": True, "dual_start": "ones", "rho": 5.0, "rank": 0,
    "balance": 0.0, "forcing": 0.0, "tolerance": 0.01, "patience": 1,
}  # fmt: skip
ALGORITHMS: dict[str, dict[str, Any]] = {"this package": {"folds": 2}, "as published": AS_PUBLISHED}


def drawn(name: str, n: int, trial: int) -> tuple[Problem, Dataset]:
    """Draw n training rows and TESTS test rows. The initial theta is that of the kernel."""
    truth, rng = TRUTHS[name], generator(trial, "table 1", name, n)
    kernel = kernels.make(truth.kernel, 1)
    theta = torch.tensor([*truth.theta, NOISE], dtype=torch.float64).log()
    X = (10.0 if n <= 500 else 20.0) * torch.rand(n + TESTS, 1, generator=rng, dtype=torch.float64)
    K = kernel(theta, X, X)
    K.diagonal().add_(1e-8)
    noise = NOISE * torch.randn(n + TESTS, generator=rng, dtype=torch.float64)
    y = torch.linalg.cholesky(K) @ torch.randn(n + TESTS, generator=rng, dtype=torch.float64) + noise
    train = Dataset(X[:n], y[:n])
    sizes = [theta[i] if own in ("sd", "noise") else begin for i, (own, begin) in enumerate(_begin(kernel, train))]
    problem = Problem(train, kernel, torch.stack(sizes))
    return restricted_problem(problem, truth.options), Dataset(X[n:], y[n:])


def _begin(kernel: Any, train: Dataset) -> list[tuple[str, torch.Tensor]]:
    """What each entry of theta is, and where the kernel begins it."""
    return [(name.rpartition(": ")[2], begin) for name, begin in zip(kernel.names, kernel.start(train), strict=True)]


def trials(full: bool) -> list[dict[str, Any]]:
    """Return the trials of all cells of table 1."""
    sizes, count = ((500, 1000, 2000), 50) if full else ((500,), 5)
    return [{"kernel": name, "n": n, "trial": k} for n in sizes for k in range(count) for name in TRUTHS]


def estimate(unit: Unit) -> Rows:
    """Run both methods on one draw, and GPCV-ADMM from the true theta too: test MSE, estimates, CV error, seconds.

    With up to 500 rows the published algorithm runs as well, from the same initial values.
    """
    name, n = unit["kernel"], unit["n"]
    truth, (task, test) = TRUTHS[name], drawn(name, n, unit["trial"])
    theta = torch.tensor([*truth.theta, NOISE], dtype=torch.float64).log()
    consensus, rows = registry["gpcv-admm"], []
    runs: dict[str, Callable[[], tuple[Method, Problem]]] = {
        "GPCV-ADMM": lambda: (consensus(folds=2, restarts=RESTARTS), task),
        FROM_TRUTH: lambda: (consensus(folds=2), replace(task, theta=projected(task.kernel, theta))),
        PUBLISHED: lambda: (consensus(**AS_PUBLISHED, restarts=RESTARTS), task),
        "maximum likelihood": lambda: (registry["ml"](), _likeliest(task)),
    }
    for label, opened in runs.items():
        if label == PUBLISHED and n > 500:
            continue
        begin, is_ml = time.perf_counter(), label == "maximum likelihood"
        method, problem = opened()
        _, first, *_, last = method.steps(problem)
        mean, _ = method.posterior(problem, last.state)(test.X)
        seconds = time.perf_counter() - begin
        row = {**unit, "method": label, "test MSE": float((test.y - mean).square().mean())}
        row |= {"paper": truth.paper[n].mse[is_ml], "seconds": seconds}
        for (word, index), published in zip(truth.listed.items(), truth.paper[n].estimates[is_ml], strict=True):
            row |= {word: float(last.state.theta[index].exp()), f"{word} (paper)": published}
        if not is_ml:
            row["CV error"] = last.state.best
        if label == FROM_TRUTH:
            row["CV error at the truth"] = first.state.best
        rows.append(row)
    return rows


def _likeliest(task: Problem) -> Problem:
    """Return the task with the initial theta of highest evidence. The restarts of `ml` would descend from each."""
    best = min(
        (projected(task.kernel, theta) for theta in initial_values(task.theta, RESTARTS, seed=0)),
        key=lambda theta: evidence(task.kernel, theta, task.train)[0],
    )
    return replace(task, theta=best)


def table(frame: pd.DataFrame) -> hv.Table:
    """Show the means over the trials, and the numbers of the paper."""
    numbers = [c for c in frame if c not in ("kernel", "n", "trial", "method")]
    return hv.Table(frame.groupby(["kernel", "n", "method"], sort=False)[numbers].mean().round(3).reset_index()).opts(
        width=800
    )


def curves(unit: Unit) -> Rows:
    """Record the four curves of figure 2 for one draw of 500 rows."""
    task, _ = drawn(unit["kernel"], 500, 0)
    method, rows = registry["gpcv-admm"](**ALGORITHMS[unit["algorithm"]]), []
    for k, step in enumerate(islice(method.steps(task), 1, None)):
        info, names = step.info, TRUTHS[unit["kernel"]].listed
        values = {
            next(iter(names)): float(info.consensus[next(iter(names.values()))].exp()),
            "|z|": info.z_norm,
            "|z - C^-1 y|^2": info.z_gap,
            "Lagrangian": info.lagrangian,
        }
        rows += [{**unit, "iteration": k, "curve": name, "value": value} for name, value in values.items()]
    return rows


def four(frame: pd.DataFrame) -> hv.Layout:
    """Draw four curves per kernel and algorithm."""
    parts = []
    for (kernel, algorithm, curve), points in frame.dropna().groupby(["kernel", "algorithm", "curve"], sort=False):
        line = hv.Curve(points, "iteration", "value").opts(
            color=ROLES["mean"], title=f"{kernel}, {algorithm}: {curve}", width=280, height=220, show_grid=True
        )
        parts.append(line)
    return hv.Layout(parts).opts(shared_axes=False).cols(4)


def sizes(full: bool) -> list[dict[str, Any]]:
    """Return the sizes at which each method is timed; maximum likelihood stops at 4000."""
    most = {"GPCV-ADMM": 8000 if full else 2000, "maximum likelihood": 4000 if full else 2000}
    return [{"method": m, "n": n} for m in METHODS for n in (500, 1000, 2000, 4000, 8000) if n <= most[m]]


def clocked(unit: Unit) -> Rows:
    """Return the median seconds per step after the first two."""
    task, _ = drawn("SE", unit["n"], 0)
    key, settings = METHODS[unit["method"]]
    times, begin = [], time.perf_counter()
    for _ in islice(registry[key](tolerance=0.0, **settings).steps(task), 6):
        times.append(time.perf_counter() - begin)
        begin = time.perf_counter()
    return [{**unit, "seconds": sorted(times[2:])[len(times[2:]) // 2]}]


def factors(frame: pd.DataFrame) -> hv.Overlay:
    """Draw the scaling factors relative to n = 500, with lines for n^2 and n^3."""
    parts = []
    for (method, times), role in zip(frame.groupby("method", sort=False), ("mean", "inducing"), strict=True):
        base = times[times["n"] == 500]["seconds"].iloc[0]
        ratio = times["n"] / 500
        points = pd.DataFrame({"x": ratio, "y": times["seconds"] / base / ratio})
        parts.append(hv.Curve(points, "x", "y", label=method).opts(color=ROLES[role], line_width=2))
    ends = sorted(frame["n"].unique() / 500)
    for power in (2, 3):
        line = hv.Curve([(r, r ** (power - 1)) for r in ends], "x", "y", label=f"n^{power}")
        parts.append(line.opts(color=ROLES["reference"], line_dash="dashed"))
    return hv.Overlay(parts).opts(
        xlabel="n / 500",
        ylabel="scaling factor",
        logx=True,
        logy=True,
        width=600,
        height=400,
        legend_position="top_left",
    )


FIGURES = (
    Figure(
        name="admm-fig2",
        title="GPCV-ADMM: convergence",
        paper="The paper: all four curves become flat within some tens of iterations, for every kernel.",
        units=lambda full: [{"kernel": name, "algorithm": algorithm} for name in TRUTHS for algorithm in ALGORITHMS],
        work=curves,
        plot=four,
    ),
    Figure(
        name="admm-fig3",
        title="GPCV-ADMM: scaling factors",
        paper="The paper: at 2000 rows GPCV-ADMM lies on the line of n^2, and GPML above it towards n^3.",
        units=sizes,
        work=clocked,
        plot=factors,
    ),
    Figure(
        name="admm-table1",
        title="GPCV-ADMM and maximum likelihood on draws of three kernels",
        paper=(
            "The paper, 50 trials at 500 rows: test MSE .12, .13, .18 against .13, .36, .21 of GPML. Its estimates are "
            "listed too. Compare the rows from the truth: several minima have nearly the same cross-validated error."
        ),
        units=trials,
        work=estimate,
        plot=table,
    ),
)
