"""Speed limits of this machine, and functions that time pieces of work beside each other.

A limit is measured in the same process as the work that is compared with it, just before. A shared machine changes its
speed within a minute, so only times of the same round can be compared (`in_turns`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

SQUARE = 1500  # rows of the matrices whose product is timed


class Limits(NamedTuple):
    """Lower bounds for work on a factor [m, n], and the load of the machine at that time."""

    product: float  # seconds of one matrix-vector product with the factor, which is one read of it
    bandwidth: float  # bytes per second of the same read
    gemm: float  # flops per second of a square matrix product
    load: float  # mean number of running processes in the last minute


def seconds(work: Callable[[], object]) -> float:
    """Wall seconds of `work`."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def median_seconds(work: Callable[[], object], repeats: int = 15) -> float:
    """Median wall seconds of `work` over `repeats` runs, after one run to warm up."""
    work()
    return median(seconds(work) for _ in range(repeats))


def in_turns(works: Mapping[str, Callable[[], object]], rounds: int = 15) -> dict[str, list[float]]:
    """Time several pieces of work in turns.

    Parameters
    ----------
    works : mapping
        Name -> function without arguments.
    rounds : int, default 15
        In each round every function is timed once, after one run to warm up.

    Returns
    -------
    dict
        Name -> wall seconds, one entry per round.
    """
    times: dict[str, list[float]] = {label: [] for label in works}
    for _ in range(rounds):
        for label, work in works.items():
            times[label].append(median_seconds(work, 1))
    return times


def ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """Median over rounds of the ratio of two series of times from `in_turns`."""
    return median(time / other for time, other in zip(times, others, strict=True))


def times_as_long(work: Callable[[], object], other: Callable[[], object], repeats: int = 15) -> float:
    """Time of `work` divided by the time of `other`: the median over rounds in which both are timed."""
    times = in_turns({"work": work, "other": other}, repeats)
    return ratio(times["work"], times["other"])


def measure(like: Tensor, n: int, m: int) -> Limits:
    """Measure the limits for a factor [m, n].

    Parameters
    ----------
    like : Tensor
        Its precision and device are used.
    n, m : int
        Shape of the factor.
    """
    factor, w, out = like.new_ones(m, n), like.new_ones(m), like.new_empty(n)
    product = median_seconds(lambda: _done(torch.mv(factor.T, w, out=out)))
    square = like.new_ones(SQUARE, SQUARE)
    gemm = median_seconds(lambda: _done(square @ square), 5)
    return Limits(product, factor.nbytes / product, 2 * SQUARE**3 / gemm, os.getloadavg()[0])


def seconds_per_call(like: Tensor, calls: int = 2000) -> float:
    """Seconds of one operation of torch on a single number: those of Python and of starting it."""

    def work() -> None:
        for _ in range(calls):
            torch.add(like, like)

    return median_seconds(work, 3) / calls


def _done(result: Tensor) -> Tensor:
    """The result, after a GPU has finished computing it."""
    if result.is_cuda:
        torch.cuda.synchronize(result.device)
    return result
