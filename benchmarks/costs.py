"""Compare every method's declared cost with what a step takes: the forecasts on the page rest on these formulas.

Each method runs in a process of its own. Predicted seconds are the flops over this machine's GEMM rate or the bytes
over its bandwidth, whichever is longer, plus the number of calls times the duration of a small operation; a column
shows the seconds of the calls. The last two columns are counted on a simulated GPU: how many kernels a step launches
there (about 5 microseconds each) and how many values the host waits for (about 15 each). On a busy machine, use one
thread. If a method can keep the hyperparameters fixed, it does so here, because its formula is not about the steps
that learn them. A ratio of 1 is a perfect forecast.
"""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from gpexplorer.errors import GPExplorerError
from gpexplorer.methods.base import registry
from gpexplorer.runs import Spec
from gpexplorer.runs.studies.machine_speed import machine
from gpexplorer.runs.studies.scaling_study import Scaling

from .gpu.step_counts import counts_per_step

DATA, KERNEL = "hypercube", "se-ard"


def command(
    rows: Annotated[int, typer.Option(help="Number of training rows.", min=50)] = 4000,
    inputs: Annotated[int, typer.Option(help="Number of inputs d.", min=1)] = 8,
    only: Annotated[str, typer.Option(help="Methods, separated by commas; empty for all.")] = "",
) -> None:
    """Print declared and measured seconds and memory of a step, for every method."""
    keys = only.split(",") if only else sorted(registry)
    print(f"n = {rows}, d = {inputs}, load {os.getloadavg()[0]:.1f}; ratios are measured / predicted")
    speed = machine()
    rates = f"{speed.flops / 1e9:.1f} Gflop/s, {speed.bytes / 1e9:.1f} GB/s"
    print(f"{rates}, {1e6 * speed.call:.1f} microseconds per call")
    print(f"{'method':24}{'s per step':>11}{'ratio':>8}{'MB':>9}{'ratio':>8}{'calls':>9}{'launches':>10}{'reads':>7}")
    for key in keys:
        print(line(key, rows, inputs), flush=True)


def line(key: str, rows: int, inputs: int) -> str:
    """One line of the table; an error of the method takes the place of its numbers."""
    try:
        row = measured(key, rows, inputs)
    except GPExplorerError as error:
        return f"{key:24}{error}"
    if row["sentence"]:
        return f"{key:24}{row['sentence']}"
    seconds, memory, work = row["seconds"], row["memory"], counts_per_step(key, rows, inputs)
    return (
        f"{key:24}{seconds:11.4f}{seconds / row['seconds predicted']:8.2f}"
        f"{memory / 1e6:9.1f}{memory / row['memory predicted']:8.2f}{row['calls'] * machine().call:9.4f}"
        f"{work.launches:10d}{work.reads:7d}"
    )


def measured(key: str, rows: int, inputs: int) -> dict[str, Any]:
    """Seconds and memory of a step of this method, measured and predicted, with the number of calls."""
    settings = {"learn": False} if "learn" in registry[key].param else {}
    spec = Spec(key, settings, data={"name": DATA, "n": rows, "d": inputs, "noise": 0.1, "seed": 0}, kernel=KERNEL)
    study = Scaling(spec, "n", [rows])
    row = study.advance()
    return row if row["sentence"] else row | {"calls": study.formula(rows, row["n"], row["d"]).calls}
