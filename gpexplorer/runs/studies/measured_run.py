"""One run, measured in a process of its own: seconds per step, and the largest memory that its steps used.

Memory is the high-water mark of the resident set over the steps, minus what was resident before them. (On Linux this
is VmHWM, reset before the first step; elsewhere it is the maximum of the process, which can only grow.) Everything
that touches memory counts: tensors, LAPACK's workspaces, and what the kernel function allocates temporarily. While
memory is measured, freed blocks return to the system at once (MALLOC_MMAP_THRESHOLD_), so that a later step cannot
reuse an earlier one's pages unnoticed. New pages can double the time of a step. Therefore the seconds come from a
second run, in which freed memory is kept for reuse as it is in any other process.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch

from ...errors import GPExplorerError
from ..budget import Budget
from ..opening import opened_rows
from ..run import Run
from ..spec import Spec

if TYPE_CHECKING:
    from ...data import Split

STEPS, SECONDS = 6, 4.0  # after the first step, which prepares; the first limit reached ends the measurement
TIMEOUT = 90.0  # seconds
WATCHED = Budget(60, 2.0)  # of the run whose memory is measured: long enough for its caches to fill
TIMED = Budget(4, 2.0)  # of a run whose processor seconds are measured: they vary less than those of the clock
AGAIN = 25.0  # seconds: a run that took longer is not repeated
PAGE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
REUSE = {-3: 32 * 2**20, -1: 64 * 2**20}  # the values that glibc's M_MMAP_THRESHOLD and M_TRIM_THRESHOLD grow to
WARM = 64  # rows
CHANGED = "measured rows"  # in the key of a split that was cut


@dataclass(frozen=True)
class Measured:
    """What one run took.

    Attributes
    ----------
    n, d : int
        Training rows and inputs.
    seconds : float
        The median seconds of a step after the first one.
    memory : float
        Bytes that the steps used at most.
    first : float
        Seconds of the first step.
    steps : int
        The number of steps.
    sentence : str
        What went wrong; the numbers are then nan.
    """

    n: int
    d: int
    seconds: float = float("nan")
    memory: float = float("nan")
    first: float = float("nan")
    steps: int = 0
    sentence: str = ""


class Child:
    """A process in which no other thread uses the cores or the pages, for one measurement after another.

    It takes about 3 s to start. Use it as a context manager, or call `close` at the end.
    """

    def __init__(self) -> None:
        program = [sys.executable, "-m", "gpexplorer.runs.studies.measured_run"]
        pipe, no_output, page = subprocess.PIPE, subprocess.DEVNULL, os.environ | PAGE
        self._process = subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=no_output, text=True, env=page)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def measure(
        self, spec: Spec, rows: int | None = None, timeout: float = TIMEOUT, *, memory: bool = False
    ) -> Measured:
        """Measure a spec in the process, and wait for the result.

        Parameters
        ----------
        spec, rows : Spec, int, optional
            As for `measure`.
        timeout : float
            Seconds after which the process is ended and the result has a sentence.
        memory : bool, default False
            Whether to measure the memory, in a run of its own, and the seconds of the clock. It must be the first
            measurement of the process: later ones use freed pages again. Without it the memory is nan, and the seconds
            are those of the processor with one thread.
        """
        threads = torch.get_num_threads() if memory else 1
        request = {"spec": spec.to_json(), "rows": rows, "threads": threads, "memory": memory}
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(timeout, end)
        timer.start()
        try:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return Measured(**json.loads(self._process.stdout.readline()))
        except (ValueError, TypeError, OSError):
            reason = f"its process ended with status {self._process.wait()}; out of memory?"
            reason = f"it took more than {timeout:g} s." if late.is_set() else reason
            return Measured(0, 0, sentence=f"Not measured: {reason}")
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with suppress(BrokenPipeError):
            self._process.communicate()


def in_child(spec: Spec, rows: int | None = None, timeout: float = TIMEOUT) -> Measured:
    """Measure seconds and memory in a new process.

    Parameters
    ----------
    spec, rows, timeout : Spec, int, optional, float
        As for `Child.measure`.
    """
    with Child() as child:
        return child.measure(spec, rows, timeout, memory=True)


def measure(spec: Spec, rows: int | None = None, budget: Budget | None = None, *, processor: bool = False) -> Measured:
    """Measure the seconds per step and the peak memory of a spec in this process.

    Parameters
    ----------
    spec : Spec
        What to run.
    rows : int, optional
        Number of its shuffled training rows to use; all by default.
    budget : Budget, optional
        Limits after the first step; 6 steps and 4 s by default.
    processor : bool, default False
        Whether the seconds are those of the processor, which other processes on the same cores do not lengthen.
    """
    limit, seconds = (STEPS, SECONDS) if budget is None else (budget.steps or 0, budget.seconds or SECONDS)
    try:
        split = _cut(opened_rows(spec, None)[1], rows)
        n, d = len(split.train), split.train.d
        run = spec.open(data=split)
        if processor:
            run = Run(run.method, run.problem, clock=time.process_time)  # without test rows, so without scores
    except GPExplorerError as error:
        return Measured(0, 0, sentence=str(error))
    started, peak = run.advance(), high_water()
    while started and run.done <= limit:
        since_the_first = run.trace[-1].seconds - run.trace[1].seconds if run.done else -1.0
        if since_the_first >= seconds or run.advance() is None:
            break
    memory = peak()
    if run.done == 0 or (run.outcome and run.outcome.reason == "failed"):
        return Measured(n, d, sentence=run.outcome.message if run.outcome else "It took no step.")
    elapsed = [after - before for before, after in pairwise(run.trace.series("seconds"))]
    usual = statistics.median(elapsed[1:] or elapsed)
    return Measured(n=n, d=d, seconds=usual, memory=memory, first=elapsed[0], steps=len(elapsed))


def reuse_memory() -> None:
    """Undo PAGE, if this process was started with it and its C library is glibc."""
    mallopt = _of_libc("mallopt")
    if mallopt is not None and "MALLOC_MMAP_THRESHOLD_" in os.environ:
        for name, value in REUSE.items():
            mallopt(name, value)


def high_water() -> Callable[[], float]:
    """Start measuring this process's memory.

    Returns
    -------
    callable
        Gives the largest number of bytes that the process has used since, beyond those it used before.

    Notes
    -----
    With glibc, free memory first returns to the system, because allocations that reuse it would not be seen.
    """
    if (trim := _of_libc("malloc_trim")) is not None:
        trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        return lambda: max(_status("VmHWM") - before, 0.0)
    except OSError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        maximum = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return lambda: float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - maximum) * unit


def _of_libc(name: str) -> Any:
    """This function of the C library, or None if there is none."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def _status(name: str) -> float:
    """One number of Linux's /proc/self/status, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return float(line.split()[1]) * 1024


def _cut(split: Split, rows: int | None) -> Split:
    """The split with this number of its training rows, drawn at random."""
    if rows is None:
        return split
    index = torch.randperm(len(split.train), generator=torch.Generator().manual_seed(0))[:rows]
    return replace(split, train=split.train.rows(index), key=f"{split.key}/{CHANGED}/{rows}")


def _main() -> None:
    """Measure the spec of each line on standard input, and print the result as a line of JSON."""
    for line in sys.stdin:
        request = json.loads(line)
        torch.set_num_threads(request["threads"])
        result = _measured(Spec.from_json(request["spec"]), request["rows"], request["memory"])
        print(json.dumps(asdict(result)), flush=True)


def _measured(spec: Spec, rows: int | None, memory: bool) -> Measured:
    """Measure memory, if that is asked for, and then seconds."""
    measure(spec, WARM, Budget(0, 1.0))  # loads what the libraries load on first use, which is not the method's work
    if not memory:
        reuse_memory()
        return replace(measure(spec, rows, TIMED, processor=True), memory=math.nan)
    watched = measure(spec, rows, WATCHED)
    if watched.sentence or watched.first + watched.steps * watched.seconds >= AGAIN:
        return watched
    reuse_memory()
    return replace(measure(spec, rows), memory=watched.memory)


if __name__ == "__main__":
    _main()
