"""Time the steps of each family on the processor and on a GPU, beside what the card can do at best.

The floor of a step is the time that the card needs for the bytes or the flops which the method declares, whichever is
longer, at rates that are measured on the card just before. A ratio above 1 means that the GPU is faster.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from statistics import median
from typing import Annotated

import torch
import typer

from gpexplorer.problem import Cost
from gpexplorer.runs import Run, Spec

from ..timing.limits import Limits, measure

FAMILIES = {  # a method of each family, with settings that give a GPU work to do
    "cholqr": {"num_inducing": 512, "learn": False},
    "sgpr": {"num_inducing": 512},
    "gbcd": {"block": 512, "learn": False},
    "grief": {"num_eigenfunctions": 1000},
    "gpcv-admm": {},
    "ml": {},
    "minimax": {"width": 128},
    "scgd": {"width": 512},
    "vecchia": {},
}
DENSE = ("gpcv-admm", "ml")  # they factor matrices of all rows
MOST_DENSE_ROWS = 4000
NO_GPU = 3  # exit code


def command(
    rows: Annotated[int, typer.Option(help="Number of training rows.", min=50)] = 100_000,
    inputs: Annotated[int, typer.Option(help="Number of inputs d.", min=1)] = 8,
    steps: Annotated[int, typer.Option(help="Steps that are timed, after one that sets up.", min=1)] = 10,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    only: Annotated[str, typer.Option(help="Methods, separated by commas; empty for one of each family.")] = "",
) -> None:
    """Print seconds per step on the CPU and on the GPU, their ratio, and the floor of the card."""
    if not torch.cuda.is_available():
        print(
            "Torch sees no GPU here, so nothing was measured. `benchmarks costs` counts launches and reads without one."
        )
        raise typer.Exit(NO_GPU)
    for line in report(only.split(",") if only else list(FAMILIES), rows, inputs, steps, dtype):
        print(line, flush=True)


def report(keys: list[str], rows: int, inputs: int, steps: int, dtype: str) -> Iterator[str]:
    """Yield the lines of the table.

    Parameters
    ----------
    keys : list of str
        Methods.
    rows, inputs : int
        Training rows n (fewer for methods that factor matrices of all rows) and inputs d.
    steps : int
        Steps that are timed.
    dtype : {"float64", "float32"}

    Yields
    ------
    str
        The card with its measured rates, and one line per method; the error of a method takes the place of its times.
    """
    like = torch.zeros(1, dtype=getattr(torch, dtype), device="cuda")
    card = measure(like, min(rows, 100_000), 512)
    name, total = torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).total_memory
    yield (
        f"{name}, {total / 1e9:.0f} GB, {dtype}: {card.gemm / 1e12:.2f} Tflop/s, {card.bandwidth / 1e9:.0f} GB/s; "
        f"CPU with {torch.get_num_threads()} threads, load {card.load:.1f}"
    )
    yield f"{'method':<12}{'rows':>9}{'CPU ms':>12}{'GPU ms':>12}{'ratio':>8}{'floor ms':>12}{'GPU / floor':>13}"
    for key in keys:
        n = min(rows, MOST_DENSE_ROWS) if key in DENSE else rows
        runs = [_run(key, n, inputs, dtype, device, steps) for device in ("cpu", "cuda")]
        if errors := [str(run.error) for run in runs if run.error]:
            yield f"{key:<12}{n:>9}  {errors[0]}"
            continue
        (cpu, gpu), floor = map(_seconds, runs), floor_seconds(runs[1].method.cost(runs[1].problem), card)
        times = f"{1e3 * cpu:>12.3f}{1e3 * gpu:>12.3f}{cpu / gpu:>8.1f}{1e3 * floor:>12.3f}{gpu / floor:>13.1f}"
        yield f"{key:<12}{n:>9}{times}"


def floor_seconds(cost: Cost, card: Limits) -> float:
    """Seconds that a card needs at least for these flops and bytes; it does both at the same time."""
    return max(cost.flops / card.gemm, cost.bytes / card.bandwidth)


def _run(key: str, rows: int, inputs: int, dtype: str, device: str, steps: int) -> Run:
    """The run of a method after its steps."""
    data = {"name": "hypercube", "n": rows * 10 // 9, "d": inputs, "noise": 0.1, "seed": 0}
    run = Spec(key, FAMILIES.get(key, {}), data=data, kernel="se-ard", dtype=dtype, device=device).open()
    for _ in range(2 + steps):
        if run.advance() is None:
            break
    return run


def _seconds(run: Run) -> float:
    """The median seconds per step; the first step, which sets up, counts only if it is alone."""
    moments = [record.seconds for record in run.trace]
    times = [end - begin for begin, end in itertools.pairwise(moments)]
    return median(times[1:] or times or [float("nan")])
