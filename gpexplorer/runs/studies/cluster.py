"""Independent pieces of work on the workers of a Dask scheduler, in place of the builtin `map`.

Results come back in the order of the pieces, whichever worker did them, so that sums do not depend on the cluster. A
piece whose worker died is done again by another one. When there has been no worker for a minute, the work is given up.

`cluster_seconds` says what a cluster with more workers would take for the same work, by a model with few
constants that can be measured.

    P pieces of s seconds each, W workers, u bytes sent and received for each piece
    o  seconds of the client and the scheduler for each piece, which they do one after another
    l  seconds until the result of a single piece is back, beside the work itself;  b  bytes per second of the client

    T = l + u / b + max( P (o + u / b),  ceil(P / W) s ) + c          c: seconds of the client alone

The first term of the maximum is the most that the client can hand out, which no number of workers changes.
"""

from __future__ import annotations

import math
import re
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import ClusterError, SettingError, quoted
from ..counting import Counter, counted_piece
from ..run import Run

TIMEOUT = 10  # seconds to reach a scheduler
AHEAD = 2  # pieces per thread of a worker: one is being worked on, one is on its way
NO_WORKER_SECONDS = 60.0  # without any worker; a cluster may need time to start the first one
LOOK_SECONDS = 1.0  # between two looks at whether there are workers
READY_SECONDS = 0.05  # between two looks at whether a run of a sweep has ended
CLOSING = ("closing", "closing_gracefully", "closed")  # states of a worker
CLOSED = ("closing", "closed", "newly-closed")  # states of a client
SCHEDULER_ENDED = "The scheduler ended before the work was done: start it, and run the same again."
Map = Callable[..., Iterable[Any]]


@contextmanager
def working(run: Run, scheduler: str, report: Callable[[str], object] = warnings.warn) -> Iterator[None]:
    """Send independent pieces of a run's steps, such as its folds, to a Dask cluster inside a `with` block.

    Parameters
    ----------
    run : Run
        The run. It is stepped in this process, and its numbers do not change. Kernel entries that are computed in
        other processes are counted.
    scheduler : str
        The address of the scheduler ("tcp://host:8786"). With an empty text the work stays in this process.
    report : callable
        Receives a sentence at the end of the block if workers could not share the work of a step. By default it is a
        warning.
    """
    if not scheduler:
        yield
        return
    sent, steps_before = Sent(run.counter), run.done
    with connected(scheduler) as client, run.using_mapper(mapped(client, sent=sent)):
        yield
    if run.done > steps_before and (sentence := undivided(run, sent.most_pieces)):
        report(sentence)


def undivided(run: Run, most_pieces: int) -> str:
    """Why workers did not make the steps of a run faster, as a sentence with a way out; empty if they could.

    Parameters
    ----------
    run : Run
        A run that has taken steps with a cluster.
    most_pieces : int
        The largest number of pieces into which work was divided.
    """
    if most_pieces > 1:
        return ""
    sweep = "Runs that differ in a setting or a seed can be sent to workers by a sweep."
    if not most_pieces:
        return f"{run.method.title} had no pieces of work to send, so the run stayed in this process. {sweep}"
    way_out = " Set copies to true, so that each fold is a piece." if "copies" in run.method.param else ""
    return f"All work of a step of {run.method.title} was one piece, which one worker did.{way_out} {sweep}"


@dataclass
class Sent:
    """What was sent to a cluster.

    Attributes
    ----------
    counter : Counter
        Receives the number of kernel entries that the workers compute.
    most_pieces : int
        The largest number of pieces of one call of the mapper.
    """

    counter: Counter
    most_pieces: int = 0


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to the Dask scheduler at this address ("tcp://host:8786"), and disconnect at the end of the block.

    The scheduler executes what it is sent, so connect only to one that is yours.

    Raises
    ------
    SettingError
        If Dask is not installed, or no scheduler answers within 10 s.
    """
    try:
        from distributed import Client
    except ImportError:
        raise SettingError("Dask is not installed: pip install gpexplorer[cluster].") from None
    if isinstance(address, str) and not re.search(r":\d+/?$|^inproc://", address):
        raise SettingError(f'The scheduler is {quoted(address)}; give its port as well, such as "tcp://host:8786".')
    try:
        client = Client(address, timeout=TIMEOUT, set_as_default=False)
    except (OSError, TypeError, ValueError, TimeoutError):
        raise SettingError(f"No Dask scheduler answers at {address!r} within {TIMEOUT} s; is it running?") from None
    with client:
        yield client


def mapped(client: Any, ahead: int = AHEAD, sent: Sent | None = None) -> Map:
    """A mapper for `Method.with_mapper`: it works like the builtin `map`, on the workers of a Dask client.

    Parameters
    ----------
    client : distributed.Client
        A connected client.
    ahead : int, default 2
        Pieces sent per thread of the workers before their results are taken, so that the memory in use does not grow
        with the number of pieces. A tensor that is the same in every piece is sent once.
    sent : Sent, optional
        Counts the pieces and the kernel entries that the workers compute.

    Returns
    -------
    callable
        Takes a pure function of a module, and its arguments as iterables. It yields the results in order, and raises
        a ClusterError if the workers are gone.
    """

    def on_workers(function: Callable[..., Any], *pieces: Iterable[Any]) -> Iterator[Any]:
        limit, shared = ahead * max(sum(client.nthreads().values()), 1), SharedArguments(client)
        pending: deque[Any] = deque()

        def next_result() -> Any:
            value, entries = result(client, pending.popleft())
            if sent is not None:
                sent.counter.add(entries)
            return value

        try:
            for number, piece in enumerate(zip(*pieces, strict=True), 1):
                if sent is not None:
                    sent.most_pieces = max(sent.most_pieces, number)
                if len(pending) == limit:
                    yield next_result()
                if client.status in CLOSED:
                    raise ClusterError(SCHEDULER_ENDED)
                pending.append(client.submit(counted_piece, function, *shared(piece), pure=False))
            while pending:
                yield next_result()
        finally:
            cancel(client, list(pending))

    return on_workers


@contextmanager
def stopping_with_worker(stop: Callable[[], object]) -> Iterator[bool]:
    """Call `stop` when the Dask worker that executes the `with` block is closed, so that its step in progress is kept.

    Yields
    ------
    bool
        Whether a worker executes the block.
    """
    worker = _this_worker()
    if worker is None:
        yield False
        return
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(READY_SECONDS):
            if worker.status.name in CLOSING:
                stop()
                return

    threading.Thread(target=watch, name="worker-watch", daemon=True).start()
    try:
        yield True
    finally:
        ended.set()


def _this_worker() -> Any:
    """The Dask worker that executes this thread's task; None elsewhere."""
    if "distributed" not in sys.modules:
        return None
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


def cancel(client: Any, futures: list[Any]) -> None:
    """Take back what has not been done yet, if the scheduler is still there."""
    if client.status not in CLOSED:
        with suppress(OSError, RuntimeError, TimeoutError):
            client.cancel(futures)


def result(client: Any, future: Any) -> Any:
    """Wait for the result of a future; ClusterError if there are no workers, or if the piece ended several of them."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError, FuturesCancelledError

    workers = Workers(client)
    try:
        while True:
            try:
                return future.result(timeout=LOOK_SECONDS)  # also of a result that was lost and is computed again
            except TimeoutError:
                if future.status == "error":  # the piece itself raised it
                    raise
                workers.require()
    except KilledWorker:
        raise ClusterError(
            "Several workers ended while they did one piece of the work: give each worker more memory."
        ) from None
    except (FutureCancelledError, FuturesCancelledError):  # of one piece, and of several
        raise ClusterError(SCHEDULER_ENDED) from None
    except OSError:  # the connection broke while a result was fetched
        if future.status == "error":
            raise
        raise ClusterError(SCHEDULER_ENDED) from None


def first_done(client: Any, futures: Collection[Any]) -> Iterator[Any]:
    """The futures in the order in which they end; ClusterError if there is no worker for a minute."""
    from distributed import as_completed

    ended, workers, count = as_completed(futures, loop=client.loop), Workers(client), 0
    while count < len(futures):
        for future in ended.next_batch(block=False) if ended.has_ready() else ():
            count += 1
            yield future
            workers = Workers(client)
        if count < len(futures) and not ended.has_ready():
            time.sleep(min(LOOK_SECONDS, READY_SECONDS))
            workers.require()


class Workers:
    """Watches whether a cluster has workers, from now on."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._last = self._look = time.monotonic()

    def require(self) -> None:
        """Look for workers, at most once per second; ClusterError if there has been none for a minute."""
        current_time = time.monotonic()
        if current_time - self._look < LOOK_SECONDS:
            return
        self._look = current_time
        try:
            has_workers = bool(self._client.nthreads())
        except (OSError, TimeoutError):  # the scheduler does not answer either
            has_workers = False
        if has_workers:
            self._last = current_time
        elif current_time - self._last > NO_WORKER_SECONDS:
            raise ClusterError(
                f"The scheduler has had no worker for {NO_WORKER_SECONDS:g} s: start workers, and run the same again."
            )


class SharedArguments:
    """Replaces a tensor that is an argument of two pieces in a row by a reference to a copy on the cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._last: tuple[Any, ...] = ()
        self._sent: dict[int, Any] = {}  # place of the argument -> the cluster's reference to it

    def __call__(self, piece: tuple[Any, ...]) -> list[Any]:
        """The arguments to submit for this piece."""
        for place, (argument, previous) in enumerate(zip(piece, self._last, strict=False)):
            if argument is not previous:
                self._sent.pop(place, None)
            elif isinstance(argument, Tensor) and place not in self._sent:
                self._sent[place] = self._client.scatter(argument, hash=False)
        self._last = piece
        return [self._sent.get(place, argument) for place, argument in enumerate(piece)]


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
