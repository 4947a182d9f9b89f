"""GP-GRIEF against the limits of this machine: the pass over the rows, the likelihoods, and the chains.

The limits are measured beside each figure, on the same machine at the same time:

    Gram matrix                          n p^2 flops at the rate of a square matrix product. (A product of which only
                                         half is computed can be faster than this.)
    likelihood in the orthogonal basis   one exponential and one logarithm per weight, in one call each
    iteration of a chain                 the same, and one normal random number per weight

The likelihood in the orthogonal basis is also timed at growing n, where its time must stay the same.
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

from gpexplorer import data, kernels
from gpexplorer.features.basis_choices import Leading
from gpexplorer.features.grid_eigenfunctions import Eigenfunctions, Grid
from gpexplorer.linalg.blocks import add_gram_, row_blocks, sum_of_squares
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.eigenfunctions.chains import Target, log_normal
from gpexplorer.methods.eigenfunctions.evidence import evidence_gradient, gram_products, regress
from gpexplorer.methods.eigenfunctions.orthogonal_basis import (
    OrthogonalBasis,
    fisher_information,
    likelihood,
    likelihood_terms,
    orthogonalise,
)
from gpexplorer.methods.langevin import constant_step, initial_tuning, randomness, run_chains
from gpexplorer.problem import Dataset

from .timing import limits as timing_limits
from .timing.limits import measure, median_seconds, times_as_long

COMPARED = 100  # weights in the lines that compare sizes: every size has at least as many
SEGMENT = 100  # iterations of the chains per call


def command(
    data: Annotated[str, typer.Option(help="A data set or a generator of the registry.")] = "kin40k",
    p: Annotated[int, typer.Option(help="Number of eigenfunctions.", min=1)] = 1000,
    rows: Annotated[int, typer.Option(help="Training rows, at most.", min=10)] = 36_000,
    chains: Annotated[int, typer.Option(help="Chains in the line with many chains.", min=1)] = 64,
    iterations: Annotated[int, typer.Option(help="MALA iterations of one chain.", min=10)] = 10_000,
    large: Annotated[int, typer.Option(help="Rows of the largest set that is compared.", min=1000)] = 1_000_000,
) -> None:
    """Time the pass over the rows, both likelihoods and the chains, and test whether n matters."""
    for line in report(data, p, rows, chains, iterations, large):
        typer.echo(line)


def report(name: str, p: int, rows: int, chains: int, iterations: int, large: int) -> Iterator[str]:
    """Yield the lines of the report, each as soon as it is measured; the arguments are those of `command`."""
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
    choice = Leading(grid, grid.spectrum(theta, p).axis_indices)
    yield f"search among 10^{train.d} eigenvalues: {1e3 * search:.1f} ms"
    yield from _first_pass(choice, theta, train, limits.gemm)
    yield from _orthogonal_likelihood(choice, theta, train, chains, iterations)
    for n in sorted({1000, len(train), large}):
        yield _at_size(n, train.d, min(p, 250))


def _first_pass(choice: Leading, theta: Tensor, train: Dataset, gemm: float) -> Iterator[str]:
    n, p = len(train), len(choice)
    basis = Eigenfunctions(choice.grid, theta, choice.index)
    strips = list(row_blocks(n, 3 * train.y.element_size() * p // 2, train.y))
    phi = median_seconds(lambda: [basis(train.X[rows]) for rows in strips], 3)
    F, A, limit = basis(train.X[strips[0]]), train.y.new_zeros(p, p), 1.0 * n * p * p / gemm
    gram = median_seconds(lambda: _add_gram(A, F, len(strips)), 3) * n / (len(strips) * F.shape[1])
    size = timing_limits.SQUARE
    square = torch.randn(size, size, generator=generator(0, "square"), dtype=A.dtype)
    share = F.shape[1] * p * p / (2.0 * size**3) / times_as_long(lambda: add_gram_(A, F), lambda: square @ square)
    yield f"Phi {phi:.2f} s, {n * p / phi / 1e6:.0f} million entries per second"
    yield f"Gram {gram:.2f} s, {share:.0%} of the limit: n p^2 flops at the rate of square products, timed in turns"
    pass_seconds = median_seconds(lambda: gram_products(choice, theta, train), 3)
    yield f"first pass, Phi and Gram in strips: {pass_seconds:.2f} s"
    regression = regress(choice, theta, train)
    gradient = median_seconds(lambda: evidence_gradient(choice, theta, train, regression), 3)
    share = 2 * limit / gradient
    yield f"type II: likelihood {pass_seconds:.2f} s, its gradient {gradient:.2f} s, {share:.0%} of the limit"


def _add_gram(A: Tensor, F: Tensor, times: int) -> None:
    for _ in range(times):
        add_gram_(A, F)


def _orthogonal_likelihood(
    choice: Leading, theta: Tensor, train: Dataset, chains: int, iterations: int
) -> Iterator[str]:
    begin = time.perf_counter()
    basis = _orthogonal_basis(choice, theta, train)
    yield f"orthogonal basis of {len(basis.e)}: {time.perf_counter() - begin:.2f} s with the pass over the rows, once"
    z = _initial_values(basis, 1)
    dense = median_seconds(lambda: _dense_factor(basis, z[0]), 3)
    terms = likelihood_terms(basis)
    elapsed = median_seconds(lambda: likelihood(terms, z), 301)
    limit = median_seconds(lambda: z.exp().log_(), 301)
    yield (
        f"LML and {z.shape[1]} derivatives: {1e6 * elapsed:.0f} microseconds, {elapsed / limit:.1f} times the limit of "
        f"{1e6 * limit:.0f}; in a basis that is not orthogonal {1e6 * dense:.0f}"
    )
    yield from _iterations(basis, z, chains, iterations)


def _iterations(basis: OrthogonalBasis, z: Tensor, chains: int, iterations: int) -> Iterator[str]:
    processor = time.process_time()
    elapsed, processor = _chain_seconds(basis, 1, iterations), time.process_time() - processor
    yield (
        f"{iterations} MALA iterations of one chain: {elapsed:.2f} s, {processor:.2f} s of processor "
        "(the paper: about 0.6 hours)"
    )
    fewer, values, source = max(iterations // chains, 10), z.repeat(chains, 1), generator(0, "floor")
    limit = median_seconds(lambda: torch.randn(values.shape, generator=source, dtype=torch.float32).to(values), 21)
    limit += median_seconds(lambda: values.exp().log_(), 21)
    yield (
        f"{chains} chains at once: {chains * fewer / _chain_seconds(basis, chains, fewer):.0f} chain steps per second; "
        f"the limit of normal numbers, exponentials and logarithms allows {chains / limit:.0f}"
    )


def _at_size(n: int, d: int, p: int) -> str:
    source = generator(0, "flat", n)
    X = torch.rand(n, d, generator=source, dtype=torch.float64)
    train = Dataset(X, X.sum(1).sin())
    kernel = kernels.make("se-ard", d)
    theta = kernel.start(train)
    grid = Grid(kernel, X, 10)
    begin = time.perf_counter()
    basis = _orthogonal_basis(Leading(grid, grid.spectrum(theta, p).axis_indices), theta, train)
    first_pass = time.perf_counter() - begin
    basis = basis._replace(V=basis.V[:, :COMPARED], e=basis.e[:COMPARED], u=basis.u[:COMPARED])
    z, terms = _initial_values(basis, 1), likelihood_terms(basis)
    elapsed = median_seconds(lambda: likelihood(terms, z), 301)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return (
        f"n = {n:>9}: first pass {first_pass:6.2f} s, LML and derivatives {1e6 * elapsed:4.0f} microseconds, "
        f"{peak:.2f} GiB peak"
    )


def _orthogonal_basis(choice: Leading, theta: Tensor, train: Dataset) -> OrthogonalBasis:
    A, c = gram_products(choice, theta, train)
    return orthogonalise(A, c, sum_of_squares(train.y), len(train), torch.finfo(train.y.dtype).eps)


def _initial_values(basis: OrthogonalBasis, chains: int) -> Tensor:
    """Weights 1 and noise variance exp(-2) for each chain [C, r + 1]."""
    z = basis.e.new_zeros(chains, len(basis.e) + 1)
    z[:, -1] = -2.0
    return z


def _dense_factor(basis: OrthogonalBasis, z: Tensor) -> Tensor:
    """The Cholesky factor that the likelihood needs if Phi'Phi is not diagonal: P = s2 W^-1 + Phi'Phi."""
    P = (basis.V * basis.e) @ basis.V.T
    P.diagonal().add_(z[-1].exp())
    return torch.linalg.cholesky(P)


def _chain_seconds(basis: OrthogonalBasis, chains: int, iterations: int) -> float:
    """Seconds of this number of iterations of all chains, with the random numbers."""
    z, source = _initial_values(basis, chains), generator(0, "walked")
    target = Target(basis, log_normal(1.0, 100.0), log_normal(math.exp(-2.0), 0.04))
    density, sd = target.density(), (fisher_information(basis, z[0]) + target.prior[1].square().reciprocal()).rsqrt()
    tuning, begin = initial_tuning(z.shape[1]), time.perf_counter()
    for _ in range(0, iterations, SEGMENT):
        z = run_chains(density, z, sd, randomness(z, source, SEGMENT), constant_step, tuning, SEGMENT).z
    return (time.perf_counter() - begin) * iterations / (SEGMENT * -(-iterations // SEGMENT))
