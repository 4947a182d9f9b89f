"""One run measured in a process of its own: seconds a step and the most memory its steps held.

Memory is the resident set's high-water mark over the steps, less what was resident before them (Linux: VmHWM, reset
before the first step; elsewhere the process's maximum, which can only grow). Everything counts that touches memory:
tensors, LAPACK's workspaces, what the kernel function allocates in passing. While memory is watched freed blocks go
back to the system at once (MALLOC_MMAP_THRESHOLD_), so that a later step cannot hide in an earlier one's pages. Pages
asked for anew can double the time of a step: the seconds are those of a second run, with memory kept for reuse as it is
in any other process.
"""

from __future__ import annotations

import ctypes
import json
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

STEPS, SECONDS = 6, 4.0  # after the first step, which sets up; the first limit reached ends the measurement
TIMEOUT = 90.0  # seconds
WATCHED = Budget(60, 2.0)  # of the run whose memory is watched: until what it keeps has filled
AGAIN = 25.0  # seconds: what took longer is not run twice
PAGE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
REUSE = {-3: 32 * 2**20, -1: 64 * 2**20}  # glibc's M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, as far as they rise by use
WARM = 64  # rows
CHANGED = "measured rows"  # in the key of a split that was cut


@dataclass(frozen=True)
class Measured:
    """What one run took. `sentence` says what went wrong, and the numbers are then nan."""

    n: int
    d: int
    seconds: float = float("nan")  # of a step: the median
    memory: float = float("nan")  # bytes
    first: float = float("nan")  # seconds of the first step
    steps: int = 0
    sentence: str = ""


def in_child(spec: Spec, rows: int | None = None, timeout: float = TIMEOUT) -> Measured:
    """`measure` in a new process, where no other thread takes its cores or its pages; about 3 s to start."""
    program = [sys.executable, "-m", "gpexplorer.runs.studies.measured_run"]
    asked = json.dumps({"spec": spec.to_json(), "rows": rows, "threads": torch.get_num_threads()})
    try:
        done = subprocess.run(
            program, input=asked, capture_output=True, text=True, timeout=timeout, check=False, env=os.environ | PAGE
        )
        return Measured(**json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        return Measured(0, 0, sentence=f"Not measured: it took more than {timeout:g} s.")
    except (ValueError, TypeError):
        return Measured(0, 0, sentence=f"Not measured: its process ended with status {done.returncode}; out of memory?")


def measure(spec: Spec, rows: int | None = None, budget: Budget | None = None) -> Measured:
    """Seconds a step and peak memory of this spec on its first `rows` shuffled training rows (all where None)."""
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
    stamps = run.trace.series("seconds")
    took = [after - before for before, after in pairwise(stamps)]
    return Measured(n, d, statistics.median(took[1:] or took), memory, took[0], len(took))


def reuse_memory() -> None:
    """Undo PAGE, where this process was started with it and its C library is glibc."""
    mallopt = _of_libc("mallopt")
    if mallopt is not None and "MALLOC_MMAP_THRESHOLD_" in os.environ:
        for name, value in REUSE.items():
            mallopt(name, value)


def high_water() -> Callable[[], float]:
    """Start watching this process's memory; the function returned says how many bytes more it held at most.

    What is free goes back to the system first, where the C library is glibc: it would hide what takes its place.
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
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return lambda: float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most) * unit


def _of_libc(name: str) -> Any:
    """This function of the C library, None where it has none."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def resident() -> float:
    """Bytes this process holds now (Linux), or has held at most (elsewhere)."""
    try:
        return _status("VmRSS")
    except OSError:
        import resource

        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _status(name: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return float(line.split()[1]) * 1024


def _cut(split: Split, rows: int | None) -> Split:
    """The split with so many of its training rows."""
    if rows is None:
        return split
    index = torch.randperm(len(split.train), generator=torch.Generator().manual_seed(0))[:rows]
    return replace(split, train=split.train.rows(index), key=f"{split.key}/{CHANGED}/{rows}")


def _main() -> None:
    asked = json.loads(sys.stdin.read())
    torch.set_num_threads(asked["threads"])
    spec = Spec.from_json(asked["spec"])
    measure(spec, WARM, Budget(0, 1.0))  # loads what the libraries load on first use, which is not the method's
    found = measure(spec, asked["rows"], WATCHED)
    if not found.sentence and found.first + found.steps * found.seconds < AGAIN:
        reuse_memory()
        found = replace(measure(spec, asked["rows"]), memory=found.memory)
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    _main()
