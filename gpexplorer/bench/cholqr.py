"""CholQR on real rows: seconds a swap over the floor, the objective and SMSE sweep by sweep, the drift at the end.

A swap does two products with the factor L [n, m]: one for the proposals' columns and the next removal's together, one
for the proposals' inner products; and a read and a write every few accepted swaps. The floor is one matrix-vector
product with L, s n m bytes. Flops a swap: 2 n m (2 c + 1) + 8 n z^2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Annotated, Any

import torch
import typer

from .. import data, kernels
from ..linalg.randomness import generator
from ..methods.cholqr.cholqr import CholQR
from ..objectives import nystrom
from ..problem import Dataset, Problem
from ..runs.run import Run
from .limits import measure

ROWS, LEARN_ROWS = 10_000, 1_000


def command(
    data: Annotated[str, typer.Option(help="A registry set or generator.")] = "kin40k",
    m: Annotated[int, typer.Option(help="Inducing points.", min=1)] = 512,
    sweeps: Annotated[int, typer.Option(help="Sweeps of m tries.", min=1)] = 4,
    proposals: Annotated[int, typer.Option(help="Candidates tested exactly each try.", min=1)] = 2,
    pivots: Annotated[int, typer.Option(help="Information pivots z.", min=1)] = 16,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Seconds a swap over the floor; objective and SMSE after each sweep; drift."""
    kind = {"float64": torch.float64, "float32": torch.float32}[dtype]
    for line in report(data, m, sweeps, kind, device, num_proposals=proposals, num_pivots=pivots):
        typer.echo(line)


def report(name: str, m: int, sweeps: int, dtype: torch.dtype, device: str, **settings: Any) -> Iterator[str]:
    """Lines of the report, each as soon as it is known."""
    split = data.load(name).scaled()
    order = torch.randperm(len(split.train), generator=generator(0, "bench"))
    train = split.train.rows(order[:ROWS])
    kernel = kernels.make("se-ard", train.d)
    theta = learned(train.rows(torch.arange(min(LEARN_ROWS, len(train)))), kernel)
    split = replace(split, train=train.to(device, dtype), test=split.test.to(device, dtype))
    problem = Problem(split.train, kernel, theta.to(device, dtype))
    n, m = len(train), min(m, len(train))
    floor = measure(split.train.y, n, m)
    yield (
        f"{name}: n = {n}, d = {train.d}, m = {m}, {str(dtype).removeprefix('torch.')} on {device}, "
        f"{torch.get_num_threads()} threads, load {floor.load:.2f}"
    )
    yield (
        f"floor: one product with L {1e3 * floor.product:.2f} ms ({floor.bandwidth / 1e9:.1f} GB/s); "
        f"GEMM {floor.gemm / 1e9:.0f} Gflop/s"
    )
    method = CholQR(num_inducing=m, learn=False, swaps_per_epoch=m, max_epochs=sweeps, tolerance=0.0, **settings)
    run = Run(method, problem, split)
    run.advance()
    heads = ("seconds", "ms a try", "products", "accepted", "F / n", "SMSE", "SNLP")
    yield "sweep" + "".join(f"{head:>10}" for head in heads)
    for sweep in range(1, sweeps + 1):
        records = list(_sweep(run, m))
        if not records:
            break
        a_try = median(b - a for a, b in pairwise(records))
        info, scores = run.trace[-1].step.info, run.scores()
        yield (
            f"{sweep:>5}{records[-1]:>10.2f}{1e3 * a_try:>10.2f}{a_try / floor.product:>10.2f}{info.acceptance:>10.2f}"
            f"{info.objective / n:>10.4f}{scores['smse']:>10.4f}{scores['snlp']:>10.4f}"
        )
    state = run.trace[-1].step.state
    dense = nystrom(kernel, state.theta.double(), _double(problem), train.rows(state.inducing.cpu()).X)
    drift = abs(state.objective - dense.terms.total("vfe")) / abs(dense.terms.total("vfe"))
    yield f"after {state.step} tries the carried objective is off the recomputed one by {drift:.1e} (relative)"


def learned(rows: Dataset, kernel: kernels.Covariance) -> torch.Tensor:
    """theta by marginal likelihood of an exact GP on these rows: VFE with every row inducing."""
    problem = Problem(rows, kernel, kernel.start(rows))
    method = CholQR(num_inducing=len(rows), max_epochs=4, evaluations=20)
    *_, last = method.steps(problem)
    return last.state.theta


def _sweep(run: Run, m: int) -> Iterator[float]:
    for _ in range(m):
        record = run.advance()
        if record is None:
            return
        yield record.seconds


def _double(problem: Problem) -> Dataset:
    return problem.train.to("cpu", torch.float64)
