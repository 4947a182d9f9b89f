"""What a cluster with more workers would take for the same work: a model with few constants that can be measured.

    P pieces of s seconds each, W workers, u bytes sent and received for each piece
    o  seconds of the client and the scheduler for each piece, which they do one after another
    l  seconds until the result of a single piece is back, beside the work itself;  b  bytes per second of the client

    T = l + u / b + max( P (o + u / b),  ceil(P / W) s ) + c          c: seconds of the client alone

The first term of the maximum is the most that the client can hand out, which no number of workers changes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .cluster import mapped

EMPTY, LARGE, LARGE_BYTES = 200, 8, 4_000_000  # pieces that are sent to measure a link, and the size of the large ones


class Link(NamedTuple):
    """What it costs to send work to a cluster.

    Attributes
    ----------
    seconds_per_piece : float
        o: seconds of the client and the scheduler for each piece.
    latency : float
        l: seconds until the result of a single empty piece is back.
    bytes_per_second : float
        b: what the client sends.
    """

    seconds_per_piece: float
    latency: float
    bytes_per_second: float


class Work(NamedTuple):
    """The pieces of a step, or the runs of a sweep.

    Attributes
    ----------
    pieces : int
        P.
    seconds : float
        s: seconds of one worker for a piece while all workers of its machine are busy. Where processes share cores or
        the bandwidth of the memory, this is more than a process alone needs: twice as much on two cores with other
        work.
    bytes : float
        u: bytes that are sent and received for a piece.
    client_seconds : float
        c: seconds of the client alone, when all pieces are back.
    """

    pieces: int
    seconds: float
    bytes: float = 0.0
    client_seconds: float = 0.0


def cluster_seconds(work: Work, workers: int, link: Link) -> float:
    """Return the seconds that a cluster takes, by the model of this module.

    Parameters
    ----------
    work : Work
        The pieces.
    workers : int
        Number of workers with one thread each, at least 1. They are as fast as those on which s was measured.
    link : Link
        As `measured_link` returns it, or as assumed for another network.

    Examples
    --------
    >>> sweep = Work(pieces=200, seconds=10.0)
    >>> cluster_seconds(sweep, 100, Link(0.001, 0.01, 1e8))
    20.21...
    """
    handing_out = link.seconds_per_piece + work.bytes / link.bytes_per_second
    working = math.ceil(work.pieces / max(workers, 1)) * work.seconds
    first = link.latency + work.bytes / link.bytes_per_second
    return first + max(work.pieces * handing_out, working) + work.client_seconds


def measured_link(client: Any, clock: Callable[[], float] = time.perf_counter) -> Link:
    """Measure the constants of a link with empty and with large pieces; 32 MB are sent.

    Parameters
    ----------
    client : distributed.Client
        A client whose workers are idle.
    clock : callable
        Gives seconds.
    """
    send = mapped(client)

    def seconds(pieces: list[Any]) -> float:
        begin = clock()
        list(send(_nothing, pieces))
        return clock() - begin

    seconds([0] * 10)  # the first pieces import modules
    latency = sorted(seconds([0]) for _ in range(9))[4]
    per_piece = seconds(list(range(EMPTY))) / EMPTY
    large = [torch.full((LARGE_BYTES // 8,), float(k), dtype=torch.float64) for k in range(LARGE)]
    per_large = max(seconds(large) / LARGE - per_piece, 1e-9)
    return Link(per_piece, latency, LARGE_BYTES / per_large)


def _nothing(piece: Any) -> None:
    """Do nothing with a piece of work."""
