"""Rows that are read from a file on disk: memory and time of loading them, and of one likelihood.

The limit of memory is the Gram matrix with its factor, 16 p^2 bytes, and a block of Phi. The limit of time is n p^2
flops at the rate of a matrix product. Pages of the file that the operating system keeps in memory count in the peak,
so that the peak is an upper bound.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from gpexplorer import data, kernels
from gpexplorer.data.mapped import ENV
from gpexplorer.features.basis_choices import Leading
from gpexplorer.features.grid_eigenfunctions import Grid
from gpexplorer.methods.eigenfunctions.evidence import evidence_gradient, regress
from gpexplorer.problem import Dataset
from gpexplorer.runs.studies.measured_run import high_water

from .timing.limits import measure

FORMER_NAMES = ("mapped",)  # the command keeps its earlier name as well
STRIP = 2**16  # rows that are written at a time
WARM_UP = 2000  # rows of a first run, which loads libraries


def command(
    rows: Annotated[int, typer.Option(help="Rows of the file.", min=100)] = 1_000_000,
    d: Annotated[int, typer.Option(help="Number of inputs.", min=1)] = 8,
    p: Annotated[int, typer.Option(help="Number of eigenfunctions.", min=1)] = 1000,
    slopes: Annotated[bool, typer.Option(help="Also the gradient of the likelihood, at twice the flops.")] = False,
) -> None:
    """Measure seconds and peak memory from a Parquet file to memory-mapped rows and GP-GRIEF's likelihood."""
    for line in report(rows, d, p, slopes):
        typer.echo(line)


def report(n: int, d: int, p: int, slopes: bool = False) -> Iterator[str]:
    """Yield the lines of the report, each as soon as it is measured; the arguments are those of `command`."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[ENV] = folder
        _likelihood(
            _write(Path(folder), WARM_UP, d), min(p, 50)
        )  # memory of libraries must not count as memory of rows
        path = _write(Path(folder), n, d)
        peak, begin = high_water(), time.perf_counter()
        train = _load(path)
        seconds = time.perf_counter() - begin
        mapped_bytes = train.X.nbytes + train.y.nbytes
        size = path.stat().st_size
        yield f"{size / 1e6:.0f} MB of Parquet, {len(train)} rows to train on: {mapped_bytes / 1e6:.0f} MB mapped"
        yield f"loading {seconds:.1f} s, {peak() / 1e6:.0f} MB at most beside the interpreter"
        limits = measure(train.y, 1000, 500)
        peak, begin, processor = high_water(), time.perf_counter(), time.process_time()
        value = _likelihood(path, p, slopes)
        elapsed, processor = time.perf_counter() - begin, time.process_time() - processor
        limit = (3.0 if slopes else 1.0) * len(train) * p * p / limits.gemm
        yield (
            f"NLML {'and gradient' if slopes else 'alone'} at p = {p}: {elapsed:.1f} s, "
            f"{processor:.1f} s of processor, {limit / elapsed:.0%} of the limit at {limits.gemm / 1e9:.0f} GF/s, "
            f"load {limits.load:.2f}"
        )
        yield f"at most {peak() / 1e6:.0f} MB beside the interpreter, with the pages of the file; NLML {value:.6g}"


def _write(folder: Path, n: int, d: int) -> Path:
    """Write a file of waves with noise, strip by strip."""
    path, rng = folder / f"{n}.parquet", np.random.default_rng(0)
    schema = pa.schema([(name, pa.float64()) for name in (*(f"x{i}" for i in range(d)), "y")])
    with pq.ParquetWriter(path, schema) as file:
        for begin in range(0, n, STRIP):
            X = rng.random((min(STRIP, n - begin), d))
            y = np.sin(6 * X[:, 0]) * X[:, -1] + 0.1 * rng.standard_normal(len(X))
            file.write_table(pa.table([*X.T.copy(), y], schema=schema))
    return path


def _load(path: Path) -> Dataset:
    return data.load(path, split={"test": 0.01}, memory="mapped").train


def _likelihood(path: Path, p: int, slopes: bool = False) -> float:
    """One likelihood, with its gradient if wanted."""
    train = _load(path)
    kernel = kernels.make("se-ard", train.d)
    theta = kernel.start(train)
    grid = Grid(kernel, train.X, 10)
    choice = Leading(grid, grid.spectrum(theta, p).axis_indices)
    regression = regress(choice, theta, train)
    if slopes:
        evidence_gradient(choice, theta, train, regression)
    return regression.value
