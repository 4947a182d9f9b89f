"""The limits that the sessions of a server share: memory, cores and number of pages.

A request beyond them is refused with a sentence. One `Shares` belongs to a server, and every session takes from it. An
explorer in a notebook has one of its own.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from ..data.quoting import size
from ..errors import GPExplorerError, OutOfMemory, SettingError
from ..memory import free_memory, machine_memory
from ..runs import Spec
from ..runs.studies import machine_speed
from ..runs.studies.memory_need import Rows, cost_of_step, memory_need, refusal, rows_by_name, rows_need
from .connections import Arrivals
from .gate.visitors import MAX_SESSIONS
from .waiting_page import FirstPictures

SHARE_OF_MEMORY = 0.75  # of the machine, that all runs together may use by default
SPARE = 0.9  # of the memory that is free at present, that a new run may use
SMALL = 64e6  # bytes; the sizes of smaller runs are not compared, because the machine's own noise is larger
MANY_CORES = 4  # from which two runs take their steps at the same time
SHORT_TURN = 0.5  # seconds after which the next run does not wait any longer for the one before
LIGHT_BYTES, LIGHT_SECONDS, LIGHT_STEPS = 256e6, 5.0, 400  # of a link that is computed without a click


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    Parameters
    ----------
    max_sessions : int, default 60
        Pages that are open at the same time.
    max_memory : float, optional
        Bytes that all runs together may use by formula. By default three quarters of the memory of this machine.
    threads : int, optional
        Processor cores for the steps of all runs together. By default all but one, which answers the pages.
    ready_pages : int, default 30
        Pages that are built in advance, so that many people can open the page at once; each takes about 6 MB.
    max_per_address : int, default 0
        Pages that one address may have open at the same time; 0 for as many as the server.
    """

    max_sessions: int = MAX_SESSIONS
    max_memory: float | None = None
    threads: int | None = None
    ready_pages: int = 30
    max_per_address: int = 0

    def __post_init__(self) -> None:
        if self.max_sessions < 1 or (self.threads is not None and self.threads < 1):
            raise SettingError("A server needs at least 1 session and 1 thread: raise --max-sessions or --threads.")
        if self.max_memory is not None and not self.max_memory >= SMALL:
            raise SettingError(f"The runs of a server need at least {size(SMALL)} of memory: raise --max-memory.")

    @property
    def memory(self) -> float:
        """Bytes that all runs together may use."""
        return SHARE_OF_MEMORY * machine_memory() if self.max_memory is None else self.max_memory

    @property
    def cores(self) -> int:
        """Cores for the steps of all runs."""
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, usable - 1) if self.threads is None else self.threads


def free_device_memory(device: str) -> float:
    """Bytes that can still be allocated on a GPU such as "cuda:0"; no limit where there is none.

    What torch holds without using it counts as free.
    """
    if not torch.cuda.is_available():
        return float("inf")
    idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(torch.cuda.mem_get_info(device)[0] + idle)


class Turns:
    """Runs that take their steps in turn, at most `count` at the same time, in the order in which they asked.

    A turn that lasts longer than `patience` seconds does not keep the others waiting: the next one begins beside it.

    Parameters
    ----------
    count : int
        Turns at the same time.
    patience : float
        Seconds.
    """

    def __init__(self, count: int, patience: float = SHORT_TURN) -> None:
        self._count, self._patience = count, patience
        self._lock, self._running = threading.Lock(), 0
        self._waiting: deque[threading.Event] = deque()
        self._last_end = float("-inf")

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last turn ended; 0 while there is one."""
        return 0.0 if self._running else time.monotonic() - self._last_end

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, and hold it inside the block."""
        self._begin()
        begin = time.monotonic()
        try:
            yield
        finally:
            self._end(was_short=time.monotonic() - begin < self._patience)

    def _begin(self) -> None:
        with self._lock:
            if self._running < self._count and not self._waiting:
                self._running += 1
                return
            event = threading.Event()
            self._waiting.append(event)
        event.wait(self._patience)
        with self._lock:
            if not event.is_set():  # otherwise the one before has handed its turn over
                self._waiting.remove(event)
                self._running += 1

    def _end(self, was_short: bool) -> None:
        with self._lock:
            self._last_end = time.monotonic()
            if self._waiting and (was_short or self._running <= self._count):
                self._waiting.popleft().set()
            else:
                self._running -= 1


class Reservation:
    """The memory of one run. It is given back when the run is closed, or at the latest when this object is freed."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares

    def take(self, spec: Spec, rows: Rows | None = None, instead_of: Reservation | None = None) -> None:
        """Reserve the memory of a run before it is started, in place of what this object has reserved before.

        Parameters
        ----------
        spec : Spec
            The run.
        rows : Rows, optional
            The size of its data; by default it is found by their name. Rows of unknown size reserve nothing.
        instead_of : Reservation, optional
            Of a run that ends when this one begins.

        Raises
        ------
        OutOfMemory
            Where the memory is not enough. What was reserved before stays reserved.
        """
        self._shares.reserve(self, spec, rows, (self, instead_of))

    def add(self, spec: Spec, rows: Rows | None = None) -> None:
        """Reserve the memory of one more run; the arguments and the error are those of `take`."""
        self._shares.reserve(self, spec, rows)

    def give_back(self) -> None:
        """Reserve nothing any more."""
        self._shares.release(self)


class Shares:
    """What all sessions share.

    Parameters
    ----------
    limits : Limits, optional
        The limits of the server.

    Attributes
    ----------
    limits : Limits
        The same.
    turns : Turns
        The cores: each step of a run takes one turn.
    threads_per_turn : int
        Threads that one step may use.
    arrivals : Arrivals
        The pages that are on their way to a browser.
    first_pictures : FirstPictures
        What is shown of an address while a page of it is being built.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        turns = 2 if self.limits.cores >= MANY_CORES else 1
        self.turns, self.threads_per_turn = Turns(turns), max(1, self.limits.cores // turns)
        self.arrivals, self.first_pictures = Arrivals(), FirstPictures()
        self._lock = threading.Lock()
        self._bytes_of: weakref.WeakKeyDictionary[Reservation, float] = weakref.WeakKeyDictionary()

    def reservation(self) -> Reservation:
        """Return a new reservation, of nothing yet."""
        return Reservation(self)

    def reserve(
        self, holder: Reservation, spec: Spec, rows: Rows | None, instead_of: tuple[Reservation | None, ...] = ()
    ) -> None:
        """Reserve the memory of a run, beside or instead of other reservations; see `Reservation.take`."""
        rows = rows or rows_by_name(spec.data)
        if rows is None:
            return
        need = memory_need(spec, rows)
        if spec.device != "cpu" and torch.cuda.is_available():  # its arrays are on the GPU, its rows here as well
            if need > SMALL and (sentence := refusal(spec, rows, SPARE * free_device_memory(spec.device))):
                raise OutOfMemory(sentence.replace("are free for it", "are free for it on the GPU"))
            need = rows_need(rows)
        with self._lock:
            reserved_by_others = sum(nbytes for other, nbytes in self._bytes_of.items() if other not in instead_of)
            free = min(self.limits.memory - reserved_by_others, SPARE * free_memory())
            if need > max(SMALL, free):
                raise OutOfMemory(refusal(spec, rows, free))
            reserved_before = 0.0 if holder in instead_of else self._bytes_of.get(holder, 0.0)
            self._bytes_of[holder] = reserved_before + need

    def release(self, holder: Reservation) -> None:
        """Give back what this holder has reserved."""
        with self._lock:
            self._bytes_of.pop(holder, None)

    @property
    def reserved(self) -> float:
        """Bytes that all holders have reserved."""
        with self._lock:
            return sum(self._bytes_of.values())


def heavy_link(spec: Spec) -> str:
    """Return why the run of a link should not be opened without a click; empty where it may be."""
    rows = rows_by_name(spec.data)
    need = memory_need(spec, rows) if rows is not None else 0.0
    if rows is None or need <= LIGHT_BYTES:
        return ""
    return f"This link asks for {rows.n:,} rows and {size(need)} of memory by formula. Press Play to open it."


def long_replay(spec: Spec, steps: int) -> str:
    """Return why this number of steps of a link should not be taken without a click; empty where they may be."""
    rows = rows_by_name(spec.data)
    seconds = steps * _seconds_per_step(spec, rows) if rows is not None else 0.0
    if steps <= LIGHT_STEPS and seconds <= LIGHT_SECONDS:
        return ""
    return f"This link asks for step {steps:,}, which takes long. Press Play to take the steps."


def _seconds_per_step(spec: Spec, rows: Rows) -> float:
    """Seconds by formula and the measured speed of this machine; 0 where there is no formula."""
    try:
        return machine_speed.machine().seconds(cost_of_step(spec, rows))
    except GPExplorerError:
        return 0.0
