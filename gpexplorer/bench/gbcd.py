"""Exact GPs by every solver of the family, to one tolerance, beside LAPACK's Cholesky, and from which n it is beaten.

The floor of an iteration over a block of B rows is its kernel columns, 2 n B d flops and n B exponentials, its gradient
update, one read of n B numbers, and its factor, B^3 / 3 flops. All three are measured in the same process; a solver's
share of the floor is what the floor would take over what the iteration took.
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

from .. import data, kernels
from ..data.sets.generators import GENERATORS
from ..linalg.randomness import generator
from ..methods.base import registry
from ..methods.exact.system import System
from ..methods.fixed_subset import learn_on_subset
from ..problem import Problem
from ..runs.run import Run
from ..runs.studies.measured_run import high_water
from .limits import median_seconds

BLOCK, LEARN_ROWS = 500, 2000
SAME = 1e-2  # slopes that differ by less meet nowhere that three sizes could tell
SOLVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gbcd": ("gbcd", {}),
    "gbcd-1000": ("gbcd", {"block": 1000, "coarse": 1000, "chunk": 200}),
    "gbcd-1000-mixed": ("gbcd", {"coarse": 1000, "chunk": 100, "mixed": True}),
    "gbcd-2000-mixed": ("gbcd", {"block": 1000, "coarse": 2000, "chunk": 200, "mixed": True, "refresh": 120}),
    "gbcd-1500-mixed": ("gbcd", {"block": 1500, "coarse": 2000, "chunk": 300, "mixed": True, "refresh": 80}),
    "gbcd-2000-wide": ("gbcd", {"block": 2000, "coarse": 2000, "chunk": 400, "mixed": True, "refresh": 45}),
    "gbcd-2000-thirds": ("gbcd", {"block": 1000, "coarse": 2000, "chunk": 334, "mixed": True, "refresh": 120}),
    "gbcd-plain-mixed": ("gbcd", {"block": 1000, "coarse": 2000, "chunk": 200, "mixed": True, "conjugate": 0}),
    "gbcd-published": ("gbcd", {"chunk": 1, "pool": 60, "coarse": 0, "conjugate": 0}),
    "gbcd-all-rows": ("gbcd", {"chunk": 1, "coarse": 0, "conjugate": 0}),
    "gbcd-chunks": ("gbcd", {"coarse": 0, "conjugate": 0}),
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


def command(  # noqa: PLR0913 - one argument an option
    data: Annotated[str, typer.Option(help="A registry set or generator.")] = "kin40k",
    n: Annotated[int, typer.Option(help="Training rows; as many as there are, where a set has fewer.", min=40)] = 5000,
    seconds: Annotated[float, typer.Option(help="Most for each solver.")] = 30.0,
    tolerance: Annotated[float, typer.Option(help="Of the largest gradient.")] = 1e-4,
    cache: Annotated[float, typer.Option(help="Gigabytes of kernel rows kept; 0 computes them anew.")] = 0.0,
    only: Annotated[str, typer.Option(help="Solvers to run, joined by commas; all where empty.")] = "",
    lapack: Annotated[bool, typer.Option(help="The dense Cholesky beside them: 8 n^2 bytes, n^3 / 3 flops.")] = True,
    crossing: Annotated[bool, typer.Option(help="Also at n / 2 and n / 4: where is Cholesky passed?")] = False,
) -> None:
    """Seconds, iterations, kernel entries and memory to the tolerance; test error; the floor of an iteration."""
    if crossing and not lapack:
        raise typer.BadParameter("--crossing is where Cholesky is passed, which --no-lapack leaves out; drop one.")
    chosen = [name for name in SOLVERS if not only or name in only.split(",")]
    for line in report(data, n, Held(seconds, tolerance, cache, lapack), chosen, crossing):
        typer.echo(line)


class Held(NamedTuple):
    """What all solvers are held to, and whether LAPACK is beside them."""

    seconds: float
    tolerance: float
    cache: float
    lapack: bool = True


def report(name: str, n: int, held: Held, chosen: Sequence[str], crossing: bool) -> Iterator[str]:
    """Lines of the report, each as soon as it is known."""
    split = data.load(name, **({"n": -(-10 * n // 9)} if name in GENERATORS else {})).scaled()
    order = torch.randperm(len(split.train), generator=generator(0, "bench"))
    problem = _problem(split, order[:n])
    n, threads = len(problem.train), torch.get_num_threads()
    known = f"theta from {min(LEARN_ROWS, n)} rows"
    yield f"{name}: n = {n}, d = {problem.train.d}, {threads} threads, load {os.getloadavg()[0]:.2f}, {known}"
    lapack, memory = _lapack(problem) if held.lapack else math.nan, f"{8e-9 * n * n:.2f} GB"
    took = f"{lapack:.2f} s and {memory}" if held.lapack else f"not run (--no-lapack); it would take {memory}"
    yield f"LAPACK Cholesky and solve, with the kernel matrix: {took}"
    floor = _floor(problem)
    parts = f"columns {floor[0]:.1f} + update {floor[1]:.1f} + factor {floor[2]:.1f}"
    yield f"floor of an iteration over {min(BLOCK, n)} rows: {sum(floor):.1f} ms = {parts}"
    columns = (("solver", -18), ("seconds", 8), ("steps", 8), ("ms a step", 11), ("of floor", 9), ("n^2", 7), ("MB", 7))
    yield "".join(f"{name:<{-w}}" if w < 0 else f"{name:>{w}}" for name, w in (*columns, ("|g|", 10), ("SMSE", 9)))
    best = ("", math.inf)
    for solver in chosen:
        peak = high_water()
        run = _finished(solver, problem, split, held)
        yield _row(solver, run, sum(floor), max(peak() - run.memory, 0.0))
        if run.outcome and run.outcome.reason == "converged":
            best = min(best, (solver, run.trace[-1].seconds), key=lambda entry: entry[1])
    if crossing and best[0]:
        yield from _crossing(best[0], {n: (lapack, best[1])}, split, order, held)


def _problem(split: data.Split, rows: Tensor) -> Problem:
    """These rows, at the maximum likelihood of the first of them."""
    train = split.train.rows(rows)
    kernel = kernels.make("se-ard", train.d)
    start = Problem(train.rows(torch.arange(min(LEARN_ROWS, len(train)))), kernel, kernel.start(train))
    *_, learned = learn_on_subset(start, 0, LEARN_ROWS, 30)
    return Problem(train, kernel, learned.theta)


def _floor(problem: Problem) -> tuple[float, float, float]:
    """Milliseconds of the columns of a block, of a read of them, and of the factor."""
    n = len(problem.train)
    system, rows = System(problem, problem.theta, 0.0), torch.arange(min(BLOCK, n))
    A = system.rows(rows)
    A_BB, step, out = A[:, rows].contiguous(), A.new_ones(len(rows)), A.new_empty(n)
    work = (
        lambda: system.columns(rows),
        lambda: torch.mv(A.T, step, out=out),
        lambda: torch.linalg.cholesky(A_BB),
    )
    columns, update, factor = (1e3 * median_seconds(one, 5) for one in work)
    return columns, update, factor


def _finished(solver: str, problem: Problem, split: data.Split | None, held: Held) -> Run:
    key, settings = SOLVERS[solver]
    method = registry[key](learn=False, tolerance=held.tolerance, cache=held.cache, max_iterations=10**9, **settings)
    run = Run(method, problem, split)
    while run.advance() is not None and run.trace[-1].seconds < held.seconds:
        continue
    return run


def _row(solver: str, run: Run, floor: float, memory: float) -> str:
    """`memory` is the most bytes held at once beside the data and the records of the run."""
    last, n = run.trace[-1], len(run.problem.train)
    a_step = 1e3 * last.seconds / max(run.done, 1)
    share = f"{floor / a_step:.2f}" if getattr(run.method, "block", 0) == BLOCK else "-"
    reached = "" if run.outcome and run.outcome.reason == "converged" else "  (not within the time)"
    return (
        f"{solver:<18}{last.seconds:>8.2f}{run.done:>8}{a_step:>11.1f}{share:>9}{last.cost.entries / n**2:>7.2f}"
        f"{memory / 1e6:>7.0f}{last.step.info.largest:>10.1e}{run.scores()['smse']:>9.4f}{reached}"
    )


def _crossing(
    solver: str, times: dict[int, tuple[float, float]], split: data.Split, order: Tensor, held: Held
) -> Iterator[str]:
    """Where the lines through three sizes cross, on logarithmic axes: between two sizes, or beyond them, as is said."""
    [n] = times
    for size in (n // 2, n // 4):
        problem = _problem(split, order[:size])
        times[size] = (_lapack(problem), _finished(solver, problem, None, held).trace[-1].seconds)
    for size in sorted(times):
        yield f"n = {size}: Cholesky {times[size][0]:.2f} s, {solver} {times[size][1]:.2f} s"
    yield crossing(solver, times)


def crossing(solver: str, times: dict[int, tuple[float, float]]) -> str:
    """The sentence about seconds {n: (Cholesky, solver)}: measured where two sizes enclose it."""
    sizes = sorted(times)
    ahead = {size: math.log(times[size][1] / times[size][0]) for size in sizes}  # below 0 the solver is faster
    for low, high in itertools.pairwise(sizes):
        if ahead[low] >= 0.0 > ahead[high]:
            share = ahead[low] / (ahead[low] - ahead[high])
            where = math.exp(math.log(low) + share * math.log(high / low))
            return f"{solver} passes Cholesky between n = {low} and {high}, at about {where:.0f}"
    if ahead[sizes[0]] < 0.0:
        return f"{solver} is faster than Cholesky from n = {sizes[0]} on, or from fewer"
    x, pairs = np.log(sizes), np.log([times[size] for size in sizes])
    (slope, level), (ours, base) = (np.polyfit(x, pairs[:, k], 1) for k in (0, 1))
    if ours >= slope - SAME:
        return f"slopes {slope:.2f} and {ours:.2f}: no crossing in sight"
    where = math.exp((base - level) / (slope - ours))
    return f"slopes {slope:.2f} and {ours:.2f}: {solver} passes Cholesky at about n = {where:.0f}, by extrapolation"


def _lapack(problem: Problem) -> float:
    begin = time.perf_counter()
    A = problem.kernel(problem.theta, problem.train.X, problem.train.X).numpy()
    A[np.diag_indices(len(A))] += float((2 * problem.theta[-1]).exp())
    factor = linalg.cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    linalg.cho_solve(factor, problem.train.y.numpy(), check_finite=False)
    return time.perf_counter() - begin
