"""`benchmarks low-accuracy`: test error against seconds, for solvers that are compared where a rough answer is enough.

All solvers have the same rows and theta. The full GP is solved by the methods of this package; the sampled ones also
with the average over their last iterates (ADASAP, Rathore et al. 2025), which is taken here, outside of their runs.
Falkon solves for the weights of a Nyström approximation, and its best error is that of its centres.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Annotated, Any, NamedTuple

import torch
import typer
from torch import Tensor

from gpexplorer.linalg.kernel_columns import kernel_rows
from gpexplorer.methods.base import registry
from gpexplorer.methods.exact.settings import GIGABYTE
from gpexplorer.problem import Problem

from ..gbcd import learned_problem, shuffled_rows
from .falkon import Falkon

CENTRES = (1000, 2000, 4000)
TEST_ROWS = 1000  # at most: they are scored between two iterations


class Weights(NamedTuple):
    """A predictive mean: k(x, X[rows]) w."""

    rows: Tensor | slice
    w: Tensor


Solver = Callable[[Problem, float], Iterator[Weights]]  # of a problem and the bytes that it may keep


def solver_of_full_gp(key: str, settings: dict[str, Any], averaged: bool = False) -> Solver:
    """A method of the full GP, with the average over its last iterates if `averaged`."""

    def iterates(problem: Problem, budget: float) -> Iterator[Weights]:
        method = registry[key](learn=False, cache=budget / GIGABYTE, max_iterations=10**9, **settings)
        alphas: Iterable[Tensor] = (step.state.alpha for step in method.steps(problem))
        for alpha in tail_averages(alphas) if averaged else alphas:
            yield Weights(slice(None), alpha)

    return iterates


def falkon(num_centres: int, problem: Problem, budget: float) -> Iterator[Weights]:
    """Iterates of Falkon with this number of centres."""
    model = Falkon(problem, num_centres, budget=budget)
    for w in model.weights():
        yield Weights(model.rows, w)


def tail_averages(vectors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Averages over the newest vectors: at least over the second half of all so far, and at most over 4 / 5 of them.

    Parameters
    ----------
    vectors : iterable of Tensor [n]
        Iterates of a solver.

    Yields
    ------
    Tensor [n]
        The average after each of them.

    Notes
    -----
    ADASAP averages over the second half of a number of iterations that is chosen before. Here the number is not known:
    two sums are kept, over the iterates from one power of two to the next and over those before, 2 n numbers.
    """
    older, newest, counts = torch.zeros(()), torch.zeros(()), [0, 0]
    for number, vector in enumerate(vectors, 1):
        if number & (number - 1) == 0:  # a power of two
            older, newest, counts = newest, torch.zeros_like(vector), [counts[1], 0]
        newest, counts[1] = newest + vector, counts[1] + 1
        yield (older + newest) / sum(counts)


SOLVERS: dict[str, Solver] = {
    "gbcd": solver_of_full_gp("gbcd", {}),
    "pcg": solver_of_full_gp("pcg", {}),
    "block-nystrom": solver_of_full_gp("block-nystrom", {}),
    "  with tail average": solver_of_full_gp("block-nystrom", {}, averaged=True),
    "sampled-exact": solver_of_full_gp("block-nystrom", {"rank": 0}),
    "sampled, tail average": solver_of_full_gp("block-nystrom", {"rank": 0, "momentum": False}, averaged=True),
    "sdd": solver_of_full_gp("sdd", {}),
    **{f"falkon-{m}": partial(falkon, m) for m in CENTRES},
}


def command(
    data: Annotated[str, typer.Option(help="Name of a data set or generator of the registry.")] = "kin40k",
    n: Annotated[int, typer.Option(help="Number of training rows.", min=40)] = 10_000,
    marks: Annotated[str, typer.Option(help="Seconds at which errors are printed.")] = "1,2,4,8",
    keep: Annotated[float, typer.Option(help="Gigabytes of kernel entries that each may keep.", min=0.0)] = 0.4,
    only: Annotated[str, typer.Option(help="Solvers to run, separated by commas; empty for all.")] = "",
    processor: Annotated[bool, typer.Option(help="Count seconds of the processor, for a busy machine.")] = False,
) -> None:
    """Print the test error after some seconds of solvers for a rough answer: blocks, CG, sampled blocks, Falkon."""
    times = [float(mark) for mark in marks.split(",")]
    clock = time.process_time if processor else time.perf_counter
    chosen = {name: solver for name, solver in SOLVERS.items() if not only or name.strip() in only.split(",")}
    for line in report(data, n, times, keep * GIGABYTE, chosen, clock):
        typer.echo(line)


def report(
    name: str, n: int, marks: list[float], budget: float, solvers: dict[str, Solver], clock: Callable[[], float]
) -> Iterator[str]:
    """Yield a title and a line for each solver: SMSE of its mean at each mark, and its iterations.

    Parameters
    ----------
    name, n : str, int
        Data set and number of training rows.
    marks : list of float
        Seconds, in rising order.
    budget : float
        Bytes of kernel entries that a solver may keep.
    solvers : dict
        Solvers by name, from `SOLVERS`.
    clock : callable
        Seconds, of the clock or of the processor. Scoring is not counted.
    """
    split, order = shuffled_rows(name, n)
    problem, test = learned_problem(split, order[:n]), split.test.rows(torch.arange(min(len(split.test), TEST_ROWS)))
    yield f"{name}: n = {len(problem.train)}, {torch.get_num_threads()} threads; SMSE after some seconds"
    yield f"{'solver':<24}" + "".join(f"{mark:>10g}" for mark in marks) + f"{'iterations':>12}"
    variance = float(test.y.var(correction=0))
    K = kernel_rows(problem.kernel, problem.theta, test.X, problem.train.X)  # [t, n]

    def smse(weights: Weights | None) -> float:
        if weights is None:
            return math.nan
        return float((test.y - K[:, weights.rows] @ weights.w).square().mean()) / variance

    for solver, iterates in solvers.items():
        errors, count = at_marks(iterates(problem, budget), marks, smse, clock)
        yield f"{solver:<24}" + "".join(f"{error:>10.4f}" for error in errors) + f"{count:>12}"


def at_marks(
    iterates: Iterator[Weights],
    marks: list[float],
    score: Callable[[Weights | None], float],
    clock: Callable[[], float],
) -> tuple[list[float], int]:
    """Scores of the last iterate that was there at each mark, and the number of iterates until the last mark."""
    errors: list[float] = []
    latest, elapsed, count = None, 0.0, 0
    while len(errors) < len(marks):
        begin = clock()
        weights = next(iterates, None)
        elapsed += clock() - begin
        while len(errors) < len(marks) and (weights is None or elapsed > marks[len(errors)]):
            errors.append(score(latest))
        latest, count = weights, count + (weights is not None and len(errors) < len(marks))
    return errors, count
