"""Peak memory of a method whose rows lie in a file, measured in a separate process.

The file is memory-mapped. The system may drop its pages; pages that it has not dropped count as resident here. Rows
are normal numbers, and targets a wave of the first input with noise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import torch
import typer

from gpexplorer import kernels
from gpexplorer.methods.base import registry
from gpexplorer.problem import Dataset, Problem
from gpexplorer.runs.studies.measured_run import high_water

from . import environment

BLOCK = 100_000  # rows that are written at a time
STEPS = 3  # of a method with minibatches
PREDICTED = 1000  # rows for which predictions are made at the end
METHODS = "random,greedy-variance,titsias,ivm,cholqr,sgpr,fitc,kmeans,grief,scgd"


def command(
    rows: Annotated[int, typer.Option(help="Rows of the file.", min=100)] = 2_000_000,
    inputs: Annotated[int, typer.Option(help="Number of inputs.", min=1)] = 8,
    methods: Annotated[str, typer.Option(help="Methods, separated by commas.")] = METHODS,
    settings: Annotated[str, typer.Option(help='Settings of all of them as JSON, as {"max_epochs": 1}.')] = "{}",
    steps: Annotated[int, typer.Option(help="Most steps of a run; 0 runs to the end.", min=0)] = 0,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
) -> None:
    """Measure peak memory and time of whole runs whose rows are mapped from a file."""
    for line in report(rows, json.loads(settings), tuple(methods.split(",")), inputs, dtype, steps):
        typer.echo(line)


def report(
    rows: int,
    settings: dict[str, Any],
    methods: tuple[str, ...],
    inputs: int = 20,
    dtype: str = "float32",
    steps: int = STEPS,
) -> Iterator[str]:
    """Measure the memory of every method on a temporary file of rows.

    Parameters
    ----------
    rows : int
        Rows of the file.
    settings : dict
        Settings of every method.
    methods : tuple of str
        Keys of the methods. Each runs in a process of its own.
    inputs : int, default 20
    dtype : {"float32", "float64"}
    steps : int, default 3
        Most steps, the start included; with 0 a method runs to its end.

    Yields
    ------
    str
        A title, then one line per method.
    """
    with tempfile.TemporaryDirectory() as folder:
        size = _write(Path(folder), rows, inputs, np.dtype(dtype)) / 2**20
        yield f"{rows} rows of {inputs} inputs in a file of {size:.0f} MB, load {os.getloadavg()[0]:.2f}"
        for key in methods:
            request: dict[str, Any] = {"folder": folder, "shape": (rows, inputs), "dtype": dtype, "key": key}
            request |= {"settings": settings, "steps": steps}
            command = [sys.executable, "-m", __name__, str(torch.get_num_threads()), json.dumps(request)]
            process = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
            measured = json.loads(process.stdout)
            yield (
                f"{key:<15} at most {measured['peak']:5.0f} MB resident, {measured['more']:4.0f} MB more than before"
                f" any row was read; {measured['seconds']:.1f} s, {measured['processor']:.1f} s of a processor,"
                f" for {measured['work']}"
                f" and passes over all rows. {measured['message']}"
            )


def peak(
    folder: str, shape: tuple[int, int], dtype: str, key: str, settings: dict[str, Any], steps: int
) -> dict[str, Any]:
    """Take the steps of one method on a file, predict, and measure memory and time. Runs in the child process.

    Parameters
    ----------
    folder : str
        With the files X and y.
    shape : tuple of two int
        Rows and inputs.
    dtype, key, settings, steps : str or dict or int
        Precision of the files, key and settings of the method, and the most steps; 0 runs to the end.

    Returns
    -------
    dict
        `peak`: resident MB in total; `more`: MB more than before any row was read; `seconds` and `processor`: of the
        clock and of a processor; `work`: the minibatches or steps; `message`: why the run ended, empty if its steps
        were limited.
    """
    rows, inputs = shape
    X = torch.from_numpy(np.memmap(Path(folder) / "X", dtype, "c", shape=(rows, inputs)))
    y = torch.from_numpy(np.memmap(Path(folder) / "y", dtype, "c", shape=(rows,)))
    kernel = kernels.make("se-ard", inputs)
    problem = Problem(Dataset(X, y), kernel, torch.tensor([0.0] * (inputs + 1) + [-1.0], dtype=y.dtype))
    resident_before, growth = psutil.Process().memory_info().rss, high_water()
    begin, worked = time.perf_counter(), time.process_time()
    method, count, message = registry[key](**settings), 0, ""
    run, state = method.steps(problem), None
    while not steps or count < steps:
        try:
            state = next(run).state
        except StopIteration as end:
            message = end.value.message
            break
        count += 1
    if not steps:
        method.posterior(problem, state)(X[:PREDICTED])
    grown_bytes = growth()
    batches = getattr(state, "batches", None)
    return {
        "more": grown_bytes / 2**20,
        "peak": (resident_before + grown_bytes) / 2**20,
        "seconds": time.perf_counter() - begin,
        "processor": time.process_time() - worked,
        "work": f"{count} steps" if batches is None else f"{batches} minibatches",
        "message": message,
    }


def _write(folder: Path, rows: int, inputs: int, dtype: np.dtype[Any]) -> int:
    """Write the files of X and y; return the bytes of X."""
    rng = np.random.default_rng(0)
    with (folder / "X").open("wb") as X_file, (folder / "y").open("wb") as y_file:
        for begin in range(0, rows, BLOCK):
            X = rng.standard_normal((min(BLOCK, rows - begin), inputs), dtype=np.float32).astype(dtype)
            noise = rng.standard_normal(len(X), dtype=np.float32)
            X_file.write(X.tobytes())
            y_file.write((np.sin(2.0 * X[:, 0]) + 0.1 * noise).astype(dtype).tobytes())
    return rows * inputs * dtype.itemsize


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    print(json.dumps(peak(**json.loads(sys.argv[2]))))
