"""GP-GRIEF against what this machine could do: set-up over its GEMM, an evaluation and a chain step over their flops.

The floor of the Gram matrix is n p^2 flops at the rate of a square GEMM measured beside it (a product of which only
half is computed can beat that rate's full product). The floor of an evaluation in the orthogonal basis is an
exponential and a logarithm of every weight, that of a chain's step a normal number more, each in one call measured
beside it. An evaluation is timed at growing n, and its time must not move.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Iterator
from typing import Annotated

import torch
import typer
from torch import Tensor

from .. import data, kernels
from ..features.basis_choices import Leading
from ..features.grid_eigenfunctions import Eigenfunctions, Grid
from ..linalg.blocks import row_blocks
from ..linalg.randomness import generator
from ..linalg.reduction import add_gram_, sum_of_squares
from ..methods.eigenfunctions.evidence import gradient, gram, products
from ..methods.eigenfunctions.orthogonal_basis import Rotated, fisher, halves, likelihood, rotate
from ..methods.eigenfunctions.sampling.chains import Target, fixed
from ..methods.eigenfunctions.sampling.mala import randomness, tuning, walk
from ..methods.eigenfunctions.sampling.priors import log_normal
from ..problem import Dataset
from .limits import measure, median_seconds, times_as_long

FLAT = 100  # slopes of the lines that compare sizes: as many as every size has


def command(
    data: Annotated[str, typer.Option(help="A registry set or generator.")] = "kin40k",
    p: Annotated[int, typer.Option(help="Eigenfunctions.", min=1)] = 1000,
    rows: Annotated[int, typer.Option(help="Training rows, at most.", min=10)] = 36_000,
    chains: Annotated[int, typer.Option(help="Chains of the many-chains line.", min=1)] = 64,
    iterations: Annotated[int, typer.Option(help="MALA iterations of one chain.", min=10)] = 10_000,
    large: Annotated[int, typer.Option(help="Rows of the largest set of the flatness lines.", min=1000)] = 1_000_000,
) -> None:
    """Set-up, type II evaluation, LML and gradient, chain steps a second, and whether n matters."""
    for line in report(data, p, rows, chains, iterations, large):
        typer.echo(line)


def report(name: str, p: int, rows: int, chains: int, iterations: int, large: int) -> Iterator[str]:
    """Lines of the report, each as soon as it is known."""
    split = data.load(name).scaled()
    order = torch.randperm(len(split.train), generator=generator(0, "bench"))
    train = split.train.rows(order[:rows])
    kernel = kernels.make("se-ard", train.d)
    theta = kernel.start(train)
    limits = measure(train.y, len(train), min(p, 512))
    yield (
        f"{name}: n = {len(train)}, d = {train.d}, p = {p}, {torch.get_num_threads()} threads, "
        f"load {limits.load:.2f}, GEMM {limits.gemm / 1e9:.0f} GF/s"
    )
    grid = Grid(kernel, train.X, 10)
    search = median_seconds(lambda: grid.spectrum(theta, p), 5)
    index = grid.spectrum(theta, p).made_of
    yield f"search among 10^{train.d} eigenvalues: {1e3 * search:.1f} ms"
    yield from _setup(grid, theta, train, index, limits.gemm)
    yield from _sampling(grid, theta, train, index, chains, iterations)
    for n in sorted({1000, len(train), large}):
        yield _flat(n, train.d, min(p, 250))


def _setup(grid: Grid, theta: Tensor, train: Dataset, index: Tensor, gemm: float) -> Iterator[str]:
    n, p = len(train), len(index)
    basis, strips = Eigenfunctions(grid, theta, index), list(row_blocks(n, 3 * train.y.element_size() * p // 2))
    phi = median_seconds(lambda: [basis(train.X[rows]) for rows in strips], 3)
    F, A, floor = basis(train.X[strips[0]]), train.y.new_zeros(p, p), 1.0 * n * p * p / gemm
    half = median_seconds(lambda: _added(A, F, len(strips)), 3) * n / (len(strips) * F.shape[1])
    square = torch.randn(1500, 1500, generator=generator(0, "square"), dtype=A.dtype)
    share = F.shape[1] * p * p / (2.0 * 1500**3) / times_as_long(lambda: add_gram_(A, F), lambda: square @ square)
    yield f"Phi {phi:.2f} s, {n * p / phi / 1e6:.0f} million entries a second"
    yield f"Gram {half:.2f} s, {share:.0%} of the floor: n p^2 flops at the rate of square products in turns with it"
    both = median_seconds(lambda: products(Leading(grid, index), theta, train), 3)
    yield f"set-up, both streamed: {both:.2f} s"
    now = gram(Leading(grid, index), theta, train)
    slope = median_seconds(lambda: gradient(Leading(grid, index), theta, train, now), 3)
    yield f"type II: likelihood {both:.2f} s, its gradient {slope:.2f} s, {2 * floor / slope:.0%} of 2 n p^2 flops"


def _added(A: Tensor, F: Tensor, times: int) -> None:
    for _ in range(times):
        add_gram_(A, F)


def _sampling(grid: Grid, theta: Tensor, train: Dataset, index: Tensor, chains: int, iterations: int) -> Iterator[str]:
    begin = time.perf_counter()
    basis = _basis(grid, theta, train, index)
    yield f"orthogonal basis of {len(basis.e)}: {time.perf_counter() - begin:.2f} s with the pass over the rows, once"
    z = _start(basis, 1)
    dense = median_seconds(lambda: _in_the_old_basis(basis, z[0]), 3)
    given = halves(basis)
    once = median_seconds(lambda: likelihood(given, z), 301)
    bare = median_seconds(lambda: z.exp().log_(), 301)
    yield (
        f"LML and {z.shape[1]} slopes: {1e6 * once:.0f} microseconds, {once / bare:.1f} times the floor of "
        f"{1e6 * bare:.0f}; in the first basis {1e6 * dense:.0f}"
    )
    yield from _stepping(basis, z, chains, iterations)


def _stepping(basis: Rotated, z: Tensor, chains: int, iterations: int) -> Iterator[str]:
    worked = time.process_time()
    seconds, worked = _walked(basis, 1, iterations), time.process_time() - worked
    yield (
        f"{iterations} MALA iterations of one chain: {seconds:.2f} s, {worked:.2f} s of processor "
        "(the paper: about 0.6 hours)"
    )
    few, many, source = max(iterations // chains, 10), z.repeat(chains, 1), generator(0, "floor")
    bare = median_seconds(lambda: torch.randn(many.shape, generator=source, dtype=torch.float32).to(many), 21)
    bare += median_seconds(lambda: many.exp().log_(), 21)
    yield (
        f"{chains} chains at once: {chains * few / _walked(basis, chains, few):.0f} chain steps a second; the floor of "
        f"normals, exponentials and logarithms allows {chains / bare:.0f}"
    )


def _flat(n: int, d: int, p: int) -> str:
    source = generator(0, "flat", n)
    X = torch.rand(n, d, generator=source, dtype=torch.float64)
    train = Dataset(X, X.sum(1).sin())
    kernel = kernels.make("se-ard", d)
    theta = kernel.start(train)
    grid = Grid(kernel, X, 10)
    begin = time.perf_counter()
    basis = _basis(grid, theta, train, grid.spectrum(theta, p).made_of)
    setup = time.perf_counter() - begin
    basis = basis._replace(V=basis.V[:, :FLAT], e=basis.e[:FLAT], u=basis.u[:FLAT])
    z = _start(basis, 1)
    given = halves(basis)
    once = median_seconds(lambda: likelihood(given, z), 301)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return f"n = {n:>9}: set-up {setup:6.2f} s, LML and slopes {1e6 * once:4.0f} microseconds, {peak:.2f} GiB peak"


def _basis(grid: Grid, theta: Tensor, train: Dataset, index: Tensor) -> Rotated:
    A, c = products(Leading(grid, index), theta, train)
    return rotate(A, c, sum_of_squares(train.y), len(train), torch.finfo(train.y.dtype).eps)


def _start(basis: Rotated, chains: int) -> Tensor:
    z = basis.e.new_zeros(chains, len(basis.e) + 1)
    z[:, -1] = -2.0
    return z


def _in_the_old_basis(basis: Rotated, z: Tensor) -> Tensor:
    """What the likelihood costs where Phi'Phi is not diagonal: P = s2 W^-1 + Phi'Phi and its factor."""
    P = (basis.V * basis.e) @ basis.V.T
    P.diagonal().add_(z[-1].exp())
    return torch.linalg.cholesky(P)


def _walked(basis: Rotated, chains: int, iterations: int) -> float:
    """Seconds of so many iterations, random numbers included."""
    z, source = _start(basis, chains), generator(0, "walked")
    target = Target(basis, log_normal(1.0, 100.0), log_normal(math.exp(-2.0), 0.04))
    density, sd = target.density(), (fisher(basis, z[0]) + target.prior[1].square().reciprocal()).rsqrt()
    begin, stretch = time.perf_counter(), 100
    for _ in range(0, iterations, stretch):
        z = walk(density, z, sd, randomness(z, source, stretch), fixed, tuning(z.shape[1]), stretch).z
    return (time.perf_counter() - begin) * iterations / (stretch * -(-iterations // stretch))
