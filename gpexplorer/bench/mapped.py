"""Rows from a file on disk: what loading them and a likelihood of p eigenfunctions hold in memory, and for how long.

The floor of memory is the Gram matrix with its factor, 16 p^2 bytes, and a block; that of time n p^2 flops at the GEMM
rate. Pages of the file count in the peak as long as the system leaves them in memory, so it is an upper bound.
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

from .. import data, kernels
from ..data.files.npy import ENV
from ..features.basis_choices import Leading
from ..features.grid_eigenfunctions import Grid
from ..methods.eigenfunctions.evidence import gradient, gram
from ..problem import Dataset
from ..runs.studies.measured_run import high_water
from .limits import measure

STRIP, WARM = 2**16, 2000


def command(
    rows: Annotated[int, typer.Option(help="Rows of the file.", min=100)] = 1_000_000,
    d: Annotated[int, typer.Option(help="Inputs.", min=1)] = 8,
    p: Annotated[int, typer.Option(help="Eigenfunctions.", min=1)] = 1000,
    slopes: Annotated[bool, typer.Option(help="The likelihood's gradient too, at twice its flops.")] = False,
) -> None:
    """Parquet to memory-mapped rows to GP-GRIEF's likelihood: seconds and peak memory of each."""
    for line in report(rows, d, p, slopes):
        typer.echo(line)


def report(n: int, d: int, p: int, slopes: bool = False) -> Iterator[str]:
    """Lines of the report, each as soon as it is known."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[ENV] = folder
        _once(_written(Path(folder), WARM, d), min(p, 50))  # what libraries load on first use is not the rows'
        path = _written(Path(folder), n, d)
        peak, begin = high_water(), time.perf_counter()
        train = _loaded(path)
        seconds = time.perf_counter() - begin
        held = train.X.nbytes + train.y.nbytes
        size = path.stat().st_size
        yield f"{size / 1e6:.0f} MB of Parquet, {len(train)} rows to train on: {held / 1e6:.0f} MB mapped"
        yield f"loading {seconds:.1f} s, {peak() / 1e6:.0f} MB at most beyond the interpreter"
        limits = measure(train.y, 1000, 500)
        peak, begin, worked = high_water(), time.perf_counter(), time.process_time()
        value = _once(path, p, slopes)
        seconds, worked = time.perf_counter() - begin, time.process_time() - worked
        floor = (3.0 if slopes else 1.0) * len(train) * p * p / limits.gemm
        yield (
            f"NLML {'and slopes' if slopes else 'alone'} at p = {p}: {seconds:.1f} s, {worked:.1f} s of processor, "
            f"{floor / seconds:.0%} of the floor at {limits.gemm / 1e9:.0f} GF/s, load {limits.load:.2f}"
        )
        yield f"at most {peak() / 1e6:.0f} MB beyond the interpreter, the file's pages included; NLML {value:.6g}"


def _written(folder: Path, n: int, d: int) -> Path:
    """A file of waves with noise, written a strip at a time."""
    path, rng = folder / f"{n}.parquet", np.random.default_rng(0)
    schema = pa.schema([(name, pa.float64()) for name in (*(f"x{i}" for i in range(d)), "y")])
    with pq.ParquetWriter(path, schema) as file:
        for begin in range(0, n, STRIP):
            X = rng.random((min(STRIP, n - begin), d))
            y = np.sin(6 * X[:, 0]) * X[:, -1] + 0.1 * rng.standard_normal(len(X))
            file.write_table(pa.table([*X.T.copy(), y], schema=schema))
    return path


def _loaded(path: Path) -> Dataset:
    return data.load(path, split={"test": 0.01}, memory="mapped").train


def _once(path: Path, p: int, slopes: bool = False) -> float:
    """One likelihood, with its slopes where asked."""
    train = _loaded(path)
    kernel = kernels.make("se-ard", train.d)
    theta = kernel.start(train)
    grid = Grid(kernel, train.X, 10)
    choice = Leading(grid, grid.spectrum(theta, p).made_of)
    now = gram(choice, theta, train)
    if slopes:
        gradient(choice, theta, train, now)
    return now.value
