"""Readers of specs, links, data files and stored runs receive hostile input, and must answer or say what is wrong.

Each reader works in a child process that may use 1 GB more than it starts with. A case fails if it raises anything but
an error of this package, takes more than 5 s of processor time or waits for a minute, or gives an answer that does not
survive being written and read again.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from gpexplorer.errors import GPExplorerError

from .. import environment
from . import hostile_inputs
from .measurement import Measurement, Report, cases
from .readers import READERS

CASES, SECONDS, BYTES = 10_000, 5.0, 10**9
WAIT = 60.0  # seconds on the clock: a case that waits uses no processor time
SHOWN = 10  # kinds of failures that are reported per reader


class Tried(NamedTuple):
    """What became of the cases of one reader.

    Attributes
    ----------
    answers, sentences : int
        Cases that were read, and cases that were refused with an error of this package.
    slowest : float
        Seconds of processor time of the slowest case.
    failures : list of str
        What went wrong, with the case.
    """

    answers: int
    sentences: int
    slowest: float
    failures: list[str]


def measure(share: float, folder: Path, report: Report) -> list[Measurement]:
    """Give every reader 10,000 cases."""
    hostile_inputs.strategies()
    rows = []
    for name, reader in READERS.items():
        tried = _in_child(name, cases(CASES, share), folder / name)
        kinds = {failure[:80]: failure for failure in reversed(tried.failures)}
        for failure in list(kinds.values())[:SHOWN]:
            report(f"  {failure}")
        rows.append(
            Measurement(
                f"{tried.answers + tried.sentences + len(tried.failures):,} {reader.what}",
                f"{tried.answers:,} answers, {tried.sentences:,} sentences, {len(tried.failures)} failures; "
                f"slowest {tried.slowest:.2g} s",
                "an answer or a sentence, within 5 s of processor time and 1 GB",
                not tried.failures,
            )
        )
    return rows


def try_cases(name: str, count: int, folder: Path) -> Tried:
    """Give one reader this number of cases in this process, the same ones every time."""
    from hypothesis import HealthCheck, Phase, given, settings

    reader, folder = READERS[name], Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    kinds, failures, slowest = {"answer": 0, "sentence": 0}, list[str](), [0.0]

    def one_case(case: Any) -> None:
        begin = time.process_time()
        try:
            kinds[_read(reader.read, case, folder)] += 1
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {str(error)[:200]} for {case!r:.300}")
        slowest[0] = max(slowest[0], time.process_time() - begin)

    settings(
        max_examples=count, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(given(reader.cases())(one_case))()  # fmt: skip
    return Tried(kinds["answer"], kinds["sentence"], slowest[0], failures)


def _read(read: Callable[[Any, Path], None], case: Any, folder: Path) -> str:
    """Read one case, with a limit on its seconds; whether it was answered or refused with a sentence."""
    previous = [signal.signal(kind, _give_up) for kind in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAIT)
    try:
        read(case, folder)
        return "answer"
    except GPExplorerError as error:
        if not str(error).strip().endswith((".", "?")):
            raise AssertionError(f"is no sentence: {error}") from error
        return "sentence"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for kind, handler in zip((signal.SIGPROF, signal.SIGALRM), previous, strict=True):
            signal.signal(kind, handler)


def _give_up(number: int, frame: FrameType | None) -> None:
    limit = f"{SECONDS:g} s of processor time" if number == signal.SIGPROF else f"{WAIT:g} s"
    raise TimeoutError(f"The case took more than {limit}.")


def _in_child(name: str, count: int, folder: Path) -> Tried:
    command = [sys.executable, "-m", __name__, name, str(count), str(folder)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    if process.returncode != 0:
        return Tried(0, 0, 0.0, [f"{name}: the process ended with {process.returncode}: {process.stderr[-300:]}"])
    return Tried(*json.loads(process.stdout.splitlines()[-1]))


def _confine() -> None:
    """Limit the memory of this process to 1 GB more than it has, where the system can."""
    import resource

    statm = Path("/proc/self/statm")
    if statm.exists():
        total = int(statm.read_text().split()[0]) * resource.getpagesize() + BYTES
        resource.setrlimit(resource.RLIMIT_AS, (total, total))


if __name__ == "__main__":
    READERS[sys.argv[1]].cases()  # imports what it needs before the limit
    _confine()
    print(json.dumps(try_cases(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
