"""What short lengthscales cost: covariances that are too small for a normal number, in a block and in whole methods.

A processor computes 10 to 100 times as slowly with such numbers (see `linalg.denormals`), so each line stands beside
the same work at a lengthscale of 1, timed in turns. Inputs are standard normal, and lengthscales are in their sd. The
steps of a method begin at these lengthscales; `ml` and `sgpr` learn from there on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from statistics import quantiles
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

import gpexplorer as gpx
from gpexplorer.kernels.base import Covariance
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.base import registry
from gpexplorer.problem import Dataset, Problem
from gpexplorer.runs import Run

from ..timing.limits import in_turns, ratio

KERNELS = ("se-ard", "matern12-ard", "matern32-ard", "matern52-ard", "rq-ard", "periodic", "lp", "se-ard*periodic")
METHODS: Mapping[str, tuple[int, dict[str, Any]]] = {  # rows, settings
    "ml": (1000, {}),
    "sgpr": (4000, {"num_inducing": 200}),
    "gbcd": (6000, {"learn": False}),
    "cholqr": (4000, {"num_inducing": 128, "learn": False}),
}
D, STEPS = 4, 3  # inputs, and steps of a method
WIDTH = 20.0  # of "lp", in lengthscales


def command(
    rows: Annotated[int, typer.Option(help="Rows and columns of a block of covariances.", min=2)] = 2000,
    short: Annotated[str, typer.Option(help="Lengthscales beside 1, in sds of an input.")] = "0.1,0.04",
    repetitions: Annotated[int, typer.Option(help="Rounds in turn.", min=2)] = 5,
    only: Annotated[str, typer.Option(help="Kernels and methods, separated by commas; empty for all.")] = "",
) -> None:
    """Nanoseconds per covariance and milliseconds of methods at short lengthscales, beside those at 1."""
    lengthscales = [1.0, *map(float, short.split(","))]
    typer.echo("what            rows      lengthscale  zeros  median (quartiles)        times that of 1")
    for key in only.split(",") if only else (*KERNELS, *METHODS):
        if key in METHODS:
            steps = {scale: partial(_steps, key, scale) for scale in lengthscales}
            _print_lines(f"{key:15} {METHODS[key][0]:<8}", steps, {}, repetitions, 1e3, "ms")
            continue
        for dtype in (torch.float64, torch.float32):
            blocks = {scale: _block(key, dtype, rows, scale) for scale in lengthscales}
            zeros = {scale: f"{float((K == 0.0).double().mean()):.2f}" for scale, (_, K) in blocks.items()}
            works = {scale: work for scale, (work, _) in blocks.items()}
            _print_lines(f"{key:15} {str(dtype)[6:]:8}", works, zeros, repetitions, 1e9 / rows**2, "ns")


def _print_lines(
    name: str,
    works: Mapping[float, Callable[[], object]],
    zeros: Mapping[float, str],
    repetitions: int,
    units: float,
    unit: str,
) -> None:
    times = in_turns({str(scale): work for scale, work in works.items()}, repetitions)
    for scale in works:
        low, middle, high = (units * x for x in quantiles(times[str(scale)], n=4))
        spread = f"{middle:.1f} {unit} ({low:.1f} to {high:.1f})"
        of_one = ratio(times[str(scale)], times["1.0"])
        typer.echo(f"{name}  {scale:>11g}  {zeros.get(scale, ''):>5}  {spread:28} {of_one:.2f}")


def _block(key: str, dtype: torch.dtype, rows: int, scale: float) -> tuple[Callable[[], object], Tensor]:
    """A function that writes a block of covariances [rows, rows], and the block, which has been written once."""
    normal = torch.randn(2 * rows, D, generator=generator(0, "short"), dtype=torch.float64).to(dtype)
    kernel, K = gpx.kernels.make(key, d=D), normal.new_empty(rows, rows)
    work = partial(kernel.fill, _theta(kernel, scale).to(dtype), normal[:rows], normal[rows:], K)
    work()
    return work, K


def _steps(key: str, scale: float) -> None:
    """The first steps of a method."""
    (n, settings), source, kernel = METHODS[key], generator(1, "short"), gpx.kernels.make("se-ard", d=D)
    X = torch.randn(n, D, generator=source, dtype=torch.float64)
    y = torch.sin(3.0 * X).sum(1) + 0.1 * torch.randn(n, generator=source, dtype=torch.float64)
    train = Dataset(X, y / y.std())
    Run(registry[key](**settings), Problem(train, kernel, _theta(kernel, scale))).finish(steps=STEPS)


def _theta(kernel: Covariance, scale: float) -> Tensor:
    """Lengthscales of this size, the other parameters 1, and a noise of .1."""
    values = {"lengthscale": scale, "width": WIDTH * scale, "noise": 0.1}
    sizes = [next((x for part, x in values.items() if part in name), 1.0) for name in kernel.names]
    return torch.tensor([math.log(x) for x in sizes], dtype=torch.float64)
