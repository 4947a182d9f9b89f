"""What this machine can do at best, measured in the same process just before what is compared with it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Limits(NamedTuple):
    """Floors for a factor [m, n], in seconds, and the load beside which they were measured."""

    product: float  # one matrix-vector product with the factor: the read a swap is made of
    bandwidth: float  # bytes a second of the same read
    gemm: float  # flop/s of a square product
    load: float  # processes running in the last minute


def median_seconds(work: Callable[[], object], repeats: int = 15) -> float:
    """Median wall seconds of `work`, after one run to warm up."""
    work()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return sorted(times)[repeats // 2]


def times_as_long(work: Callable[[], object], other: Callable[[], object], repeats: int = 15) -> float:
    """Median of `work`'s seconds over `other`'s, in turns, each after one to warm up.

    A shared machine changes its pace within a minute: what was timed earlier says little.
    """
    return sorted(median_seconds(work, 1) / median_seconds(other, 1) for _ in range(repeats))[repeats // 2]


def measure(like: Tensor, n: int, m: int) -> Limits:
    """The floors for a factor of m rows of n numbers, in the precision and on the device of `like`."""
    factor, w, out = like.new_ones(m, n), like.new_ones(m), like.new_empty(n)
    product = median_seconds(lambda: _done(torch.mv(factor.T, w, out=out)))
    square = like.new_ones(1500, 1500)
    gemm = median_seconds(lambda: _done(square @ square), 5)
    return Limits(product, factor.nbytes / product, 2 * 1500**3 / gemm, os.getloadavg()[0])


def _done(result: Tensor) -> Tensor:
    if result.is_cuda:
        torch.cuda.synchronize(result.device)
    return result
