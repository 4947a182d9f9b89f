"""What this machine can do at best, measured in the same process just before what is compared with it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor


class Limits(NamedTuple):
    """Floors for a factor [m, n], in seconds, and the load beside which they were measured."""

    product: float  # one matrix-vector product with the factor: the read a swap is made of
    bandwidth: float  # bytes a second of the same read
    gemm: float  # flop/s of a square product
    load: float  # processes running in the last minute


def seconds(work: Callable[[], object]) -> float:
    """Wall seconds of `work`."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def median_seconds(work: Callable[[], object], repeats: int = 15) -> float:
    """Median wall seconds of `work`, after one run to warm up."""
    work()
    return median(seconds(work) for _ in range(repeats))


def in_turns(works: Mapping[str, Callable[[], object]], rounds: int = 15) -> dict[str, list[float]]:
    """Wall seconds of each in every round, each time after one run to warm up.

    A shared machine changes its pace within a minute: only what was timed in the same round can be compared.
    """
    took: dict[str, list[float]] = {label: [] for label in works}
    for _ in range(rounds):
        for label, work in works.items():
            took[label].append(median_seconds(work, 1))
    return took


def ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """Median, over rounds, of one's seconds over the other's."""
    return median(mine / theirs for mine, theirs in zip(times, others, strict=True))


def times_as_long(work: Callable[[], object], other: Callable[[], object], repeats: int = 15) -> float:
    """How many times as long as the other `work` takes, in turns."""
    took = in_turns({"work": work, "other": other}, repeats)
    return ratio(took["work"], took["other"])


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
