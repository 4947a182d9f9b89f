"""CholQR on real rows: seconds per swap relative to the floor, objective and SMSE per sweep, drift at the end.

The floor is the time of one matrix-vector product with the factor L [n, m], which reads s n m bytes. The column
`products` is the time of one try in units of the floor; `reads` is the counted number of passes over L per try. With
proposals, a swap does two products with L: one for the columns of the proposals and of the next removal together, and
one for the inner products of the proposals. Without proposals, L is read only when z pivots are drawn again, twice for
many swaps. Both variants read and write L once every few accepted swaps. The column `ms each` is the median time of an
accepted try. A polishing step evaluates the objective and its gradient in all points: 8 n m^2 flops.

A draw of z pivots, with the columns of k removals, is timed beside the products that it consists of: [z + k, m] and
[z, n] with L, three of z^2 n, one of them in float32, and beside the z columns of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, pairwise
from statistics import median
from typing import Annotated, Any

import torch
import typer

from gpexplorer import data, kernels
from gpexplorer.linalg.matrix_products import rows_times, times_rows
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.inducing.swapping.cholqr import CholQR
from gpexplorer.methods.inducing.swapping.compiled_swapper import compiled_code
from gpexplorer.methods.inducing.swapping.state import SwapState
from gpexplorer.objectives import nystrom
from gpexplorer.problem import Dataset, Problem
from gpexplorer.runs.run import Run
from gpexplorer.runs.trace import Record

from .timing.limits import in_turns, measure, ratio

LEARN_ROWS = 1_000


def command(  # noqa: PLR0913 - one argument per option
    data: Annotated[str, typer.Option(help="A registry set or generator.")] = "kin40k",
    m: Annotated[int, typer.Option(help="Inducing points.", min=1)] = 512,
    rows: Annotated[int, typer.Option(help="Training rows, at most.", min=1)] = 10_000,
    sweeps: Annotated[int, typer.Option(help="Sweeps of m tries.", min=1)] = 4,
    paper: Annotated[bool, typer.Option(help="Use the settings of the paper instead of the defaults.")] = False,
    proposals: Annotated[int | None, typer.Option(help="Candidates tested in addition to the pivots.", min=0)] = None,
    pivots: Annotated[int | None, typer.Option(help="Information pivots z.", min=1)] = None,
    polish: Annotated[int, typer.Option(help="Evaluations that move the points after the swaps.", min=0)] = 0,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Print seconds per swap relative to the floor, reads of the factor, objective, scores, and the drift."""
    kinds = {"float64": torch.float64, "float32": torch.float32}
    if dtype not in kinds:
        raise typer.BadParameter(f"{dtype!r} is not a precision; choose from {', '.join(kinds)}.")
    options = {"num_proposals": proposals, "num_pivots": pivots, "polish": polish}
    settings = (CholQR.published if paper else {}) | {name: to for name, to in options.items() if to is not None}
    for line in report(data, (rows, m), sweeps, kinds[dtype], device, **settings):
        typer.echo(line)


def report(
    name: str, size: tuple[int, int], sweeps: int, dtype: torch.dtype, device: str, **settings: Any
) -> Iterator[str]:
    """Yield the lines of the report, each as soon as it is measured."""
    split = data.load(name).scaled()
    order = torch.randperm(len(split.train), generator=generator(0, "bench"))
    train, m = split.train.rows(order[: size[0]]), size[1]
    kernel = kernels.make("se-ard", train.d)
    yield f"{name}: learning theta by an exact GP on {min(LEARN_ROWS, len(train))} rows takes some tens of seconds"
    theta = learned(train.rows(torch.arange(min(LEARN_ROWS, len(train)))), kernel)
    split = replace(split, train=train.to(device, dtype), test=split.test.to(device, dtype))
    problem = Problem(split.train, kernel, theta.to(device, dtype))
    n, m = len(train), min(m, len(train))
    floor = measure(split.train.y, n, m)
    yield (
        f"{name}: n = {n}, d = {train.d}, m = {m}, {str(dtype).removeprefix('torch.')} on {device}, "
        f"{torch.get_num_threads()} threads, {'with' if compiled_code(dtype) else 'without'} compiled tries, "
        f"load {floor.load:.2f}"
    )
    yield (
        f"floor: one product with L {1e3 * floor.product:.2f} ms ({floor.bandwidth / 1e9:.1f} GB/s); "
        f"GEMM {floor.gemm / 1e9:.0f} Gflop/s"
    )
    method = CholQR(num_inducing=m, learn=False, swaps_per_epoch=m, max_epochs=sweeps, tolerance=0.0, **settings)
    run = Run(method, problem, split)
    run.advance()
    heads = ("seconds", "ms/try", "products", "reads", "accepted", "ms each", "F / n", "SMSE", "SNLP")
    yield f"{'sweep':<6}" + "".join(f"{head:>10}" for head in heads)
    begin, state = run.trace[-1].seconds, run.trace[-1].step.state
    for (phase, epoch), records in groupby(iter(run.advance, None), _sweep):
        steps = list(records)
        yield f"{epoch + 1 if phase == 'swap' else phase:<6}" + _line(run, steps, begin, floor.product)
        begin, state = steps[-1].seconds, steps[-1].step.state if phase == "swap" else state
    dense = nystrom(kernel, state.theta.double(), _double(problem), train.rows(state.inducing.cpu()).X)
    drift = abs(state.objective - dense.terms.total("vfe")) / abs(dense.terms.total("vfe"))
    yield draws(method, problem, state)
    yield f"after {state.step} tries the updated objective differs from the recomputed one by {drift:.1e} (relative)"


def learned(rows: Dataset, kernel: kernels.Covariance) -> torch.Tensor:
    """Learn theta [p] by the marginal likelihood of an exact GP on these rows: VFE with every row inducing."""
    problem = Problem(rows, kernel, kernel.start(rows))
    method = CholQR(num_inducing=len(rows), max_epochs=4, evaluations=20)
    *_, last = method.steps(problem)
    return last.state.theta


@torch.inference_mode()
def draws(method: CholQR, problem: Problem, state: SwapState, rounds: int = 9) -> str:
    """Time a draw of pivots beside the products that it consists of, and the kernel columns, in turns."""
    swapper, _ = method.prepare(problem, state)
    pivots, L = swapper.pivots, swapper.factor.L.applied()
    assert pivots is not None, "no row is left to draw"
    z, slots = len(pivots.rows), list(range(min(method.pivot_refresh, L.shape[1])))
    E, W, X = pivots.E, L[: z + len(slots)], problem.train.rows(pivots.rows).X
    square, single = pivots.EE.to(E), E.float()

    def draw() -> None:
        swapper.removals = None
        swapper.refresh(state.step + 1, slots)

    def products() -> None:
        _ = times_rows(L, W), rows_times(E, L), E @ E.T, square @ E, square.float() @ single

    works = {"draw": draw, "products": products, "kernel": lambda: problem.kernel(problem.theta, X, problem.train.X)}
    times = in_turns(works, rounds)
    ms = {name: f"{1e3 * median(of):.1f} ms" for name, of in times.items()}
    longer = f"{ratio(times['draw'], times['products']):.2f} x its products ({ms['products']})"
    kernel = f"the {z} kernel columns in it take {ms['kernel']}"
    return f"a draw of {z} pivots and {len(slots)} removals takes {ms['draw']}: {longer}; {kernel}"


def _sweep(record: Record) -> tuple[str, int]:
    """Return the phase and the epoch of a record."""
    return record.step.info.phase, record.step.state.epoch


def _line(run: Run, steps: list[Record], begin: float, product: float) -> str:
    """Format one line of the table. Work that is done for many swaps at once is averaged over the sweep."""
    last, scores = steps[-1], run.scores()
    accepted = [after.seconds - before.seconds for before, after in pairwise(steps) if after.step.info.accepted]
    info, seconds_per_try = last.step.info, (last.seconds - begin) / len(steps)
    reads = sum(record.step.info.reads for record in steps) / len(steps)
    return (
        f"{last.seconds:>10.2f}{1e3 * seconds_per_try:>10.2f}{seconds_per_try / product:>10.2f}"
        f"{reads:>10.2f}{info.acceptance:>10.2f}{1e3 * median(accepted or [math.nan]):>10.2f}"
        f"{info.objective / len(run.problem.train):>10.4f}{scores['smse']:>10.4f}{scores['snlp']:>10.4f}"
    )


def _double(problem: Problem) -> Dataset:
    return problem.train.to("cpu", torch.float64)
