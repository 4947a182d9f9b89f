"""Squared distances: the package's against the plain formula |a|^2 + |b|^2 - 2 a'b, in turns in the same run.

The plain formula loses digits where |x / l| is large (see `kernels.distances`). The table shows what the protection
costs: the median over repetitions of the ratio of both times, and the largest error of exp(-r2 / 2) from both against
exact differences in float64. Inputs X are standard normal, as scaled data are, a lengthscale is 1.5 or `--lengthscale`,
and each row of Z is a fraction of a lengthscale away from a row of X.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated

import torch
import typer
from torch import Tensor

from gpexplorer.kernels.distances import squared_distances
from gpexplorer.linalg.blocks import row_blocks
from gpexplorer.linalg.randomness import generator

SIZES = ((500, 500, 2), (1000, 1000, 8), (10000, 64, 8), (10000, 512, 8), (20000, 16, 8), (2000, 2000, 30))  # n, m, d


def plain_distances(X: Tensor, Z: Tensor, lengthscale: Tensor) -> Tensor:
    """Squared distances [n, m] by the plain formula."""
    A, B = X / lengthscale, Z / lengthscale
    r2 = torch.addmm(A.square().sum(1, keepdim=True) + B.square().sum(1), A, B.T, alpha=-2.0)
    return r2.clamp_min_(0.0)


def median_ratio(protected: Callable[[], object], plain: Callable[[], object], repetitions: int) -> tuple[float, float]:
    """The median ratio of the times of two functions that are called in turns, and the median seconds of the new."""
    ratios, seconds = [], []
    for repetition in range(repetitions):
        times = {}
        for function in (protected, plain) if repetition % 2 else (plain, protected):
            begin = time.perf_counter()
            function()
            times[function] = time.perf_counter() - begin
        ratios.append(times[protected] / times[plain])
        seconds.append(times[protected])
    return statistics.median(ratios), statistics.median(seconds)


def largest_error(r2: Tensor, X: Tensor, Z: Tensor, lengthscale: Tensor) -> float:
    """The largest error of exp(-r2 / 2) against exact differences in float64."""
    X, Z, error = X.double() / lengthscale.double(), Z.double() / lengthscale.double(), 0.0
    for rows in row_blocks(len(X), 8 * Z.nbytes, Z):
        exact = (X[rows, None, :] - Z).square().sum(2)
        difference = torch.exp(-0.5 * r2[rows].double()) - torch.exp(-0.5 * exact)
        error = max(error, float(difference.abs().max()))
    return error


def command(
    lengthscale: Annotated[float, typer.Option(help="In standard deviations of the inputs.", min=1e-12)] = 1.5,
    repetitions: Annotated[int, typer.Option(help="Calls of each formula.", min=1)] = 21,
    largest: Annotated[int, typer.Option(help="Sizes with more entries n m are left out.", min=1)] = 10**7,
) -> None:
    """Squared distances against the plain formula: ratio of times, and errors of both."""
    typer.echo("precision      n     m   d     ms  ratio   error  plain")
    for dtype in (torch.float64, torch.float32):
        for n, m, d in SIZES:
            if n * m > largest:
                continue
            normal = torch.randn(n + m, d, generator=generator(0, "distances"), dtype=torch.float64)
            X, scale = normal[:n].to(dtype), torch.full((d,), lengthscale, dtype=dtype)
            Z = (normal[:m] + 0.3 * lengthscale * normal[n:]).to(dtype)
            protected, plain = partial(squared_distances, X, Z, scale), partial(plain_distances, X, Z, scale)
            ratio, seconds = median_ratio(protected, plain, repetitions)
            errors = [largest_error(f(), X, Z, scale) for f in (protected, plain)]
            typer.echo(
                f"{str(dtype).removeprefix('torch.')}  {n:>6} {m:>5} {d:>3} {1e3 * seconds:>6.2f} {ratio:>6.2f} "
                f"{errors[0]:>7.0e} {errors[1]:>6.0e}"
            )
