"""Exact GPs by every solver of the family, to one tolerance, beside LAPACK's Cholesky and GPyTorch's CG.

The floor of a GBCD iteration is its kernel columns, 2 n B d flops and n B exponentials, its gradient update, 2 n B
flops, and its factor, B^3 / 3. The time of the columns alone is measured in the same process and printed beside.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import torch
import typer
from scipy import linalg

from .. import data, kernels
from ..linalg.randomness import generator
from ..methods.base import registry
from ..methods.gbcd.system import System
from ..problem import Problem
from ..runs.run import Run
from .limits import median_seconds

SOLVERS = ("gbcd", "pcg", "cg", "bcd-gradient", "bcd-cyclic", "smo")


def command(
    data: Annotated[str, typer.Option(help="A registry set or generator.")] = "kin40k",
    n: Annotated[int, typer.Option(help="Training rows.", min=10)] = 5000,
    seconds: Annotated[float, typer.Option(help="Most for each solver.")] = 30.0,
    tolerance: Annotated[float, typer.Option(help="Of the largest gradient.")] = 1e-4,
    cache: Annotated[float, typer.Option(help="Gigabytes of kernel rows kept.")] = 1.0,
    solver: Annotated[list[str] | None, typer.Option(help="Only these.")] = None,
) -> None:
    """Seconds, iterations and kernel entries to the tolerance; test error; the floor of an iteration."""
    for line in report(data, n, seconds, tolerance, cache, tuple(solver or SOLVERS)):
        typer.echo(line)


def report(
    name: str, n: int, seconds: float, tolerance: float, cache: float, solvers: tuple[str, ...]
) -> Iterator[str]:
    """Lines of the report, each as soon as it is known."""
    split = data.load(name).scaled()
    order = torch.randperm(len(split.train), generator=generator(0, "bench"))
    train = split.train.rows(order[:n])
    kernel = kernels.make("se-ard", train.d)
    learner = registry["cholesky"](subset=min(1000, len(train)), evaluations=30, tolerance=1e-8)
    start = Problem(train.rows(torch.arange(min(1000, len(train)))), kernel, kernel.start(train))
    *_, learned = learner.steps(start)
    problem = Problem(train, kernel, learned.state.theta)
    n = len(train)
    threads = torch.get_num_threads()
    yield f"{name}: n = {n}, d = {train.d}, {threads} threads, load {os.getloadavg()[0]:.2f}, theta from 1000 rows"
    yield f"LAPACK Cholesky and solve: {_lapack(problem):.2f} s, with the kernel matrix"
    system, rows = System(problem, problem.theta, 0.0), order[: min(500, n)].argsort()
    yield f"floor: {len(rows)} kernel columns {1e3 * median_seconds(lambda: system.columns(rows), 5):.0f} ms"
    yield f"{'solver':<14}{'seconds':>9}{'steps':>8}{'ms a step':>11}{'Mentries':>10}{'|g|':>10}{'SMSE':>9}"
    for key in solvers:
        yield _row(key, Run(_method(key, tolerance, cache), problem, split), seconds)


def _method(key: str, tolerance: float, cache: float) -> Any:
    return registry[key](learn=False, tolerance=tolerance, cache=cache)


def _row(key: str, run: Run, seconds: float) -> str:
    while run.advance() is not None and run.trace[-1].seconds < seconds:
        continue
    last = run.trace[-1]
    a_step = 1e3 * last.seconds / max(run.done, 1)
    entries, smse = last.cost.entries / 1e6, run.scores()["smse"]
    reached = "" if run.outcome and run.outcome.reason == "converged" else "  (not within the time)"
    return (
        f"{key:<14}{last.seconds:>9.2f}{run.done:>8}{a_step:>11.1f}{entries:>10.0f}{last.step.info.largest:>10.1e}"
        f"{smse:>9.4f}{reached}"
    )


def _lapack(problem: Problem) -> float:
    begin = time.perf_counter()
    A = problem.kernel(problem.theta, problem.train.X, problem.train.X).numpy()
    A[np.diag_indices(len(A))] += float((2 * problem.theta[-1]).exp())
    factor = linalg.cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    linalg.cho_solve(factor, problem.train.y.numpy(), check_finite=False)
    return time.perf_counter() - begin
