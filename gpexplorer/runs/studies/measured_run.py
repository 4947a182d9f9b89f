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
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ... import data as data_sets
from ...errors import GPExplorerError
from ..budget import Budget
from ..spec import Spec

if TYPE_CHECKING:
    from ...data import Split

STEPS, SECONDS = 6, 4.0  # after the first step, which prepares; the first limit reached ends the measurement
TIMEOUT = 90.0  # seconds
WATCHED = Budget(60, 2.0)  # of the run whose memory is measured: long enough for its caches to fill
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


def in_child(spec: Spec, rows: int | None = None, timeout: float = TIMEOUT, memory: bool = True) -> Measured:
    """Call `measure` in a new process, where no other thread uses its cores or its pages. It takes about 3 s to start.

    Parameters
    ----------
    spec, rows : Spec, int, optional
        As for `measure`.
    timeout : float
        Seconds after which the process is ended and the result has a sentence.
    memory : bool, default True
        Whether to measure the memory also, in a run of its own. Without it the memory is nan.
    """
    program = [sys.executable, "-m", "gpexplorer.runs.studies.measured_run"]
    request = json.dumps({"spec": spec.to_json(), "rows": rows, "threads": torch.get_num_threads(), "memory": memory})
    try:
        process = subprocess.run(
            program, input=request, capture_output=True, text=True, timeout=timeout, check=False, env=os.environ | PAGE
        )
        return Measured(**json.loads(process.stdout))
    except subprocess.TimeoutExpired:
        return Measured(0, 0, sentence=f"Not measured: it took more than {timeout:g} s.")
    except (ValueError, TypeError):
        return Measured(
            0, 0, sentence=f"Not measured: its process ended with status {process.returncode}; out of memory?"
        )


def measure(spec: Spec, rows: int | None = None, budget: Budget | None = None) -> Measured:
    """Measure the seconds per step and the peak memory of a spec in this process.

    Parameters
    ----------
    spec : Spec
        What to run.
    rows : int, optional
        Number of its shuffled training rows to use; all by default.
    budget : Budget, optional
        Limits after the first step; 6 steps and 4 s by default.
    """
    limit, seconds = (STEPS, SECONDS) if budget is None else (budget.steps or 0, budget.seconds or SECONDS)
    try:
        split = _cut(data_sets.load(spec.data, split=spec.split), rows)
        n, d = len(split.train), split.train.d
        run = spec.open(data=split)
    except GPExplorerError as error:
        return Measured(0, 0, sentence=str(error))
    started, peak = run.advance(), high_water()
    while started and run.done <= limit and run.trace[-1].seconds < seconds:
        if run.advance() is None:
            break
    memory = peak()
    if run.done == 0 or (run.outcome and run.outcome.reason == "failed"):
        return Measured(n, d, sentence=run.outcome.message if run.outcome else "It took no step.")
    elapsed = [after - before for before, after in pairwise(run.trace.series("seconds"))]
    return Measured(
        n=n, d=d, seconds=statistics.median(elapsed[1:] or elapsed), memory=memory, first=elapsed[0], steps=len(elapsed)
    )


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


def resident() -> float:
    """Bytes that this process uses at present (Linux), or the most that it has used (elsewhere)."""
    try:
        return _status("VmRSS")
    except OSError:
        import resource

        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


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
    """Measure the spec on standard input, for memory if that is asked for and then for seconds; print it as JSON."""
    request = json.loads(sys.stdin.read())
    torch.set_num_threads(request["threads"])
    spec = Spec.from_json(request["spec"])
    measure(spec, WARM, Budget(0, 1.0))  # loads what the libraries load on first use, which is not the method's work
    result = measure(spec, request["rows"], WATCHED) if request["memory"] else None
    if result is None or (not result.sentence and result.first + result.steps * result.seconds < AGAIN):
        reuse_memory()
        memory = result.memory if result is not None else math.nan
        result = replace(measure(spec, request["rows"]), memory=memory)
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    _main()
