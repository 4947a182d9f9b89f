"""Every method's declared cost beside what a step of it took: the formulas that forecasts on the page rest on.

Each method runs in a process of its own. Seconds by formula are flops over this machine's GEMM rate or bytes over its
bandwidth, whichever is longer, and on top as many calls as Python asks for one by one, each at what a small operation
takes; the last column is their seconds. On a busy machine only one thread tells. Where a method can hold the
hyperparameters it does, since the steps that learn them on a subset are not what its formula is about. 1 is exact.
"""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from ..errors import GPExplorerError
from ..methods.base import registry
from ..runs import Spec
from ..runs.studies.machine_speed import machine
from ..runs.studies.scaling_study import Scaling

NUMBERS = ("hypercube", "se-ard")


def command(
    rows: Annotated[int, typer.Option(help="Training rows.", min=50)] = 4000,
    inputs: Annotated[int, typer.Option(help="Inputs d.", min=1)] = 8,
    only: Annotated[str, typer.Option(help="Methods, joined by commas; all where empty.")] = "",
) -> None:
    """Declared against measured seconds and memory of a step, for every method."""
    keys = only.split(",") if only else sorted(registry)
    print(f"n = {rows}, d = {inputs}, load {os.getloadavg()[0]:.1f}; ratios are measured / by formula")
    now = machine()
    print(f"{now.flops / 1e9:.1f} Gflop/s, {now.bytes / 1e9:.1f} GB/s, {1e6 * now.call:.1f} microseconds a call")
    print(f"{'method':24}{'s a step':>10}{'ratio':>8}{'MB':>9}{'ratio':>8}{'calls':>9}")
    for key in keys:
        print(line(key, rows, inputs), flush=True)


def line(key: str, rows: int, inputs: int) -> str:
    """One method, measured."""
    try:
        row = measured(key, rows, inputs)
    except GPExplorerError as error:
        return f"{key:24}{error}"
    if row["sentence"]:
        return f"{key:24}{row['sentence']}"
    seconds, memory = row["seconds"], row["memory"]
    return (
        f"{key:24}{seconds:10.4f}{seconds / row['seconds predicted']:8.2f}"
        f"{memory / 1e6:9.1f}{memory / row['memory predicted']:8.2f}{row['calls'] * machine().call:9.4f}"
    )


def measured(key: str, rows: int, inputs: int) -> dict[str, Any]:
    """The row that `Scaling` finds for this method."""
    data, kernel = NUMBERS
    settings = {"learn": False} if "learn" in registry[key].param else {}
    spec = Spec(key, settings, data={"name": data, "n": rows, "d": inputs, "noise": 0.1, "seed": 0}, kernel=kernel)
    growing = Scaling(spec, "n", [rows])
    row = growing.advance()
    return row if row["sentence"] else row | {"calls": growing.formula(rows, row["n"], row["d"]).calls}
