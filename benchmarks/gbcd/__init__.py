"""Exact GPs by every solver of the family to one tolerance, and the number of rows from which one beats Cholesky.

The lower bound for an iteration over a block of B rows has three parts: its kernel columns (2 n B d flops and n B
exponentials), the update of the gradient (one read of n B numbers), and the factor of the block (B^3 / 3 flops). All
three are measured in the same process. The column "of floor" is this lower bound, for blocks of the size and precision
of a solver, over the time of an iteration.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
from scipy import linalg
from torch import Tensor

from gpexplorer import data, kernels
from gpexplorer.data.sets.generators import GENERATORS
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.base import registry
from gpexplorer.methods.exact.system import System
from gpexplorer.methods.fixed_subset import learn_on_subset
from gpexplorer.problem import Problem
from gpexplorer.runs.run import Run
from gpexplorer.runs.studies.measured_run import high_water

from ..timing.limits import median_seconds
from . import exact_answers

BLOCK, LEARN_ROWS = 500, 2000
SAME_POWER = 1e-2  # growth exponents that differ by less: three sizes cannot tell where the lines cross
SOLVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gbcd": ("gbcd", {}),
    "gbcd-float64": ("gbcd", {"mixed": False}),
    "gbcd-1000": ("gbcd", {"block": 1000, "coarse": 1000, "chunk": 200}),
    "gbcd-1000-mixed": ("gbcd", {"coarse": 1000, "chunk": 100, "mixed": True}),
    "gbcd-2000-mixed": ("gbcd", {"block": 1000, "coarse": 2000, "chunk": 200, "mixed": True, "refresh": 120}),
    "gbcd-1500-mixed": ("gbcd", {"block": 1500, "coarse": 2000, "chunk": 300, "mixed": True, "refresh": 80}),
    "gbcd-2000-wide": ("gbcd", {"block": 2000, "coarse": 2000, "chunk": 400, "mixed": True, "refresh": 45}),
    "gbcd-2000-thirds": ("gbcd", {"block": 1000, "coarse": 2000, "chunk": 334, "mixed": True, "refresh": 120}),
    "gbcd-plain-mixed": ("gbcd", {"block": 1000, "coarse": 2000, "chunk": 200, "mixed": True, "conjugate": 0}),
    "gbcd-published": ("gbcd", {"chunk": 1, "pool": 60, "coarse": 0, "conjugate": 0}),
    "gbcd-all-rows": ("gbcd", {"chunk": 1, "shortlist": 0, "coarse": 0, "conjugate": 0}),
    "gbcd-chunks": ("gbcd", {"shortlist": 0, "coarse": 0, "conjugate": 0}),
    "pcg-1000": ("pcg", {"root": "nystrom", "rank": 1000}),
    "pcg-1000-mixed": ("pcg", {"root": "nystrom", "rank": 1000, "mixed": True}),
    "pcg-2000-mixed": ("pcg", {"root": "nystrom", "rank": 2000, "mixed": True}),
    "pcg-2000-drawn": ("pcg", {"root": "drawn", "rank": 2000, "mixed": True}),
    "cg": ("cg", {}),
    "block-nystrom": ("block-nystrom", {}),
    "sampled-exact": ("block-nystrom", {"rank": 0}),
    "bcd-cyclic": ("bcd-cyclic", {}),
    "bcd-gradient": ("bcd-gradient", {}),
    "alternating": ("alternating-projections", {}),
    "smo": ("smo", {}),
    "sdd": ("sdd", {}),
}


def command(  # noqa: PLR0913 - one argument per option
    data: Annotated[str, typer.Option(help="Name of a data set or generator of the registry.")] = "kin40k",
    n: Annotated[int, typer.Option(help="Number of training rows; all rows of a data set with fewer.", min=40)] = 5000,
    seconds: Annotated[float, typer.Option(help="Time limit per solver, in seconds.")] = 30.0,
    tolerance: Annotated[float, typer.Option(help="Largest gradient entry at which a solver stops.")] = 1e-4,
    cache: Annotated[float, typer.Option(help="Gigabytes of kernel rows that are kept; 0 keeps none.")] = 0.0,
    only: Annotated[str, typer.Option(help="Solvers to run, separated by commas; empty for all.")] = "",
    lapack: Annotated[bool, typer.Option(help="Run a dense Cholesky too: 8 n^2 bytes, n^3 / 3 flops.")] = True,
    crossing: Annotated[
        bool, typer.Option(help="Run n / 2 and n / 4 too: from which n on is Cholesky slower?")
    ] = False,
    samples: Annotated[int, typer.Option(help="Samples; compares mean, variances and samples instead.", min=0)] = 0,
    points: Annotated[int, typer.Option(help="Test points of variances and samples.", min=1)] = 1000,
    peers: Annotated[bool, typer.Option(help="Run GPyTorch too, for samples.")] = True,
    bands: Annotated[bool, typer.Option(help="Compare NLPD and coverage with a dense GP instead.")] = False,
) -> None:
    """Print seconds, iterations, kernel entries, memory and test error of every solver at one tolerance."""
    if bands:
        split, order = shuffled_rows(data, n)
        problem, test = learned_problem(split, order[:n]), split.test.rows(torch.arange(min(points, len(split.test))))
        typer.echo(f"{data}: n = {len(problem.train)}, {len(test)} test rows")
        typer.echo(f"{'variances':<20}{'NLPD':>9}{'cov 68':>8}{'cov 95':>8}{'SMSE':>9}")
        for line in exact_answers.bands_report(problem, test, 0.01):
            typer.echo(line)
        return
    if samples:
        split, order = shuffled_rows(data, n)
        work = exact_answers.Work(points, samples, 0.01, tolerance, cache)
        for line in exact_answers.report(learned_problem(split, order[:n]), split.test.X[:points], work, lapack, peers):
            typer.echo(line)
        return
    if crossing and not lapack:
        raise typer.BadParameter("--crossing compares with Cholesky, which --no-lapack leaves out. Drop one of them.")
    chosen = [name for name in SOLVERS if not only or name in only.split(",")]
    for line in report(data, n, Conditions(seconds, tolerance, cache, lapack), chosen, crossing):
        typer.echo(line)


class Conditions(NamedTuple):
    """The conditions that are the same for all solvers, and whether LAPACK runs too."""

    seconds: float  # time limit of each solver
    tolerance: float  # of the largest gradient entry
    cache: float  # gigabytes of kernel rows
    lapack: bool = True


class Floor(NamedTuple):
    """Lower bound for an iteration over one block, in milliseconds."""

    columns: float  # kernel columns of the block
    update: float  # one read of them
    factor: float  # Cholesky factor of the block

    @property
    def total(self) -> float:
        """All three parts."""
        return self.columns + self.update + self.factor


def report(name: str, n: int, conditions: Conditions, chosen: Sequence[str], crossing: bool) -> Iterator[str]:
    """Yield the lines of the report, each as soon as its numbers are measured.

    Parameters
    ----------
    name : str
        Data set.
    n : int
        Number of training rows.
    conditions : Conditions
        Time limit, tolerance and cache.
    chosen : sequence of str
        Names of the solvers, from `SOLVERS`.
    crossing : bool
        Whether to compare the fastest solver with Cholesky at n / 2 and n / 4 rows too.
    """
    split, order = shuffled_rows(name, n)
    problem = learned_problem(split, order[:n])
    n, threads = len(problem.train), torch.get_num_threads()
    learned = f"theta from {min(LEARN_ROWS, n)} rows"
    yield f"{name}: n = {n}, d = {problem.train.d}, {threads} threads, load {os.getloadavg()[0]:.2f}, {learned}"
    lapack, memory = _lapack(problem) if conditions.lapack else math.nan, f"{8e-9 * n * n:.2f} GB"
    result = f"{lapack:.2f} s and {memory}" if conditions.lapack else f"not run (--no-lapack); it would take {memory}"
    yield f"LAPACK Cholesky and solve, with the kernel matrix: {result}"
    floors = {(min(BLOCK, n), False): _floor(problem, min(BLOCK, n), False)}
    [floor] = floors.values()
    parts = f"columns {floor.columns:.1f} + update {floor.update:.1f} + factor {floor.factor:.1f}"
    yield f"floor of an iteration over {min(BLOCK, n)} rows in float64: {floor.total:.1f} ms = {parts}"
    yield (
        f"{'solver':<18}{'seconds':>8}{'steps':>8}{'ms per step':>12}{'of floor':>9}{'n^2':>7}{'MB':>7}"
        f"{'|g|':>10}{'SMSE':>9}"
    )
    fastest = ("", math.inf)
    for solver in chosen:
        peak = high_water()
        run = _finished(solver, problem, split, conditions)
        memory_of_run = max(peak() - run.memory, 0.0)
        kind = _block_of(run)
        if kind[0] and kind not in floors:
            floors[kind] = _floor(problem, *kind)
        yield _row(solver, run, floors[kind].total if kind[0] else math.nan, memory_of_run)
        if run.outcome and run.outcome.reason == "converged":
            fastest = min(fastest, (solver, run.trace[-1].seconds), key=lambda entry: entry[1])
    if crossing and fastest[0]:
        yield from _crossing(fastest[0], {n: (lapack, fastest[1])}, split, order, conditions)


def shuffled_rows(name: str, n: int) -> tuple[data.Split, Tensor]:
    """A data set, and its training rows in random order."""
    split = data.load(name, **({"n": -(-10 * n // 9)} if name in GENERATORS else {})).scaled()
    return split, torch.randperm(len(split.train), generator=generator(0, "bench"))


def learned_problem(split: data.Split, rows: Tensor) -> Problem:
    """These rows, with theta from maximum likelihood on the first of them."""
    train = split.train.rows(rows)
    kernel = kernels.make("se-ard", train.d)
    start = Problem(train.rows(torch.arange(min(LEARN_ROWS, len(train)))), kernel, kernel.start(train))
    *_, learned = learn_on_subset(start, 0, LEARN_ROWS, 30)
    return Problem(train, kernel, learned.theta)


def _block_of(run: Run) -> tuple[int, bool]:
    """Rows of the last block of a run, 0 for a method without blocks, and whether its columns are float32."""
    last = run.trace[-1].step
    return len(last.info.active) if hasattr(run.method, "block") else 0, bool(len(last.state.gradient))


def _floor(problem: Problem, block: int, in_float32: bool) -> Floor:
    """The three parts of the lower bound, measured for blocks of this size and precision."""
    n = len(problem.train)
    system, rows = System(problem, problem.theta, 0.0, in_float32), torch.arange(block)
    A = system.rows(rows)  # [B, n]
    A_BB, step, out = A[:, rows].contiguous(), A.new_ones(len(rows)), A.new_empty(n)
    work = (
        lambda: system.columns(rows),
        lambda: torch.mv(A.T, step, out=out),
        lambda: torch.linalg.cholesky(A_BB),
    )
    columns, update, factor = (1e3 * median_seconds(function, 5) for function in work)
    return Floor(columns, update, factor)


def _finished(solver: str, problem: Problem, split: data.Split | None, conditions: Conditions) -> Run:
    """A run of this solver until it converges or its time is over."""
    key, settings = SOLVERS[solver]
    method = registry[key](
        learn=False,
        tolerance=conditions.tolerance,
        mean_tolerance=0.0,
        cache=conditions.cache,
        max_iterations=10**9,
        **settings,
    )
    run = Run(method, problem, split)
    while run.advance() is not None and run.trace[-1].seconds < conditions.seconds:
        continue
    return run


def _row(solver: str, run: Run, floor: float, memory: float) -> str:
    """One line of the table; `memory` is the most bytes held besides the data and the records of the run."""
    last, n = run.trace[-1], len(run.problem.train)
    per_step = 1e3 * last.seconds / max(run.done, 1)
    share = "-" if math.isnan(floor) else f"{floor / per_step:.2f}"
    note = "" if run.outcome and run.outcome.reason == "converged" else "  (did not converge in time)"
    return (
        f"{solver:<18}{last.seconds:>8.2f}{run.done:>8}{per_step:>12.1f}{share:>9}{last.cost.entries / n**2:>7.2f}"
        f"{memory / 1e6:>7.0f}{last.step.info.largest:>10.1e}{run.scores()['smse']:>9.4f}{note}"
    )


def _crossing(
    solver: str, times: dict[int, tuple[float, float]], split: data.Split, order: Tensor, conditions: Conditions
) -> Iterator[str]:
    """Measure both at n / 2 and n / 4, and say where they take the same time."""
    [n] = times
    for size in (n // 2, n // 4):
        problem = learned_problem(split, order[:size])
        times[size] = (_lapack(problem), _finished(solver, problem, None, conditions).trace[-1].seconds)
    for size in sorted(times):
        yield f"n = {size}: Cholesky {times[size][0]:.2f} s, {solver} {times[size][1]:.2f} s"
    yield crossing(solver, times)


def crossing(solver: str, times: dict[int, tuple[float, float]]) -> str:
    """Say in a sentence from which number of rows on the solver is faster than Cholesky.

    Parameters
    ----------
    solver : str
        Name of the solver.
    times : dict
        Number of rows -> (seconds of Cholesky, seconds of the solver), for at least two sizes.

    Returns
    -------
    str
        The crossing is interpolated if two sizes enclose it, and otherwise extrapolated from power laws; the sentence
        says which.
    """
    sizes = sorted(times)
    log_ratio = {size: math.log(times[size][1] / times[size][0]) for size in sizes}  # below 0 the solver is faster
    for low, high in itertools.pairwise(sizes):
        if log_ratio[low] >= 0.0 > log_ratio[high]:
            share = log_ratio[low] / (log_ratio[low] - log_ratio[high])
            rows = math.exp(math.log(low) + share * math.log(high / low))
            return f"{solver} becomes faster than Cholesky between n = {low} and {high}, at about {rows:.0f}"
    if log_ratio[sizes[0]] < 0.0:
        return f"{solver} is faster than Cholesky at n = {sizes[0]} already"
    x, y = np.log(sizes), np.log([times[size] for size in sizes])
    (lapack_power, lapack_level), (power, level) = (np.polyfit(x, y[:, k], 1) for k in (0, 1))
    powers = f"seconds grow as n^{lapack_power:.2f} (Cholesky) and n^{power:.2f} ({solver})"
    if power >= lapack_power - SAME_POWER:
        return f"{powers}: no crossing in sight"
    rows = math.exp((level - lapack_level) / (lapack_power - power))
    return f"{powers}: {solver} becomes faster than Cholesky at about n = {rows:.0f}, by extrapolation"


def _lapack(problem: Problem) -> float:
    """Seconds of the kernel matrix, its Cholesky factor and the solution, by LAPACK."""
    begin = time.perf_counter()
    A = problem.kernel(problem.theta, problem.train.X, problem.train.X).numpy()
    A[np.diag_indices(len(A))] += float((2 * problem.theta[-1]).exp())
    factor = linalg.cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    linalg.cho_solve(factor, problem.train.y.numpy(), check_finite=False)
    return time.perf_counter() - begin
