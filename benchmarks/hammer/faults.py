"""Every call that can fail is made to fail, one at a time: files, memory, clocks and signals.

A scenario writes something: a run into a store, a model, the table of a sweep, a page, a table of steps, the cache of
lists. It is done once for each k, and the k-th call of one kind fails in it; a write fails half-way. Afterwards nothing
that was acknowledged may be lost, and nothing half-written may be read as whole. As the tests of SQLite do it.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import json
import os
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import safetensors.torch

from gpexplorer.errors import GPExplorerError

from .fault_scenarios import SCENARIOS, Scenario
from .measurement import Measurement, Report

FEWEST = 20  # calls of each kind that fail at a small share; all of them at share 1
WRITERS = ((Path, "write_text"), (Path, "write_bytes"), (pd.DataFrame, "to_parquet"), (pd.DataFrame, "to_csv"))
SITES: dict[str, tuple[tuple[Any, str], ...]] = {
    "open": ((os, "open"), (builtins, "open"), (io, "open")),
    "write": ((os, "write"), (safetensors.torch, "save_file"), *WRITERS),
    "fsync": ((os, "fsync"),),
    "rename": ((os, "replace"), (os, "rename")),
    "truncate": ((os, "ftruncate"),),
    "allocation": ((json, "dumps"), (json, "loads")),
    "clock": ((time, "monotonic"), (time, "time"), (time, "perf_counter")),
}
SIGNAL, AFTER = "signal before a call", "signal after a call"  # at each call of a file and of memory
KINDS = (*SITES, SIGNAL, AFTER)
NO_ATTRIBUTES = "Could not serialize pd.DataFrame.attrs"  # PyArrow's answer to a failed call; these tables have none
EXPECTED = (GPExplorerError, OSError, MemoryError, KeyboardInterrupt)


class Fault:
    """The k-th call of one kind fails inside a `with` block.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    number : int
        Which call, counted from 1; 0 for none.

    Attributes
    ----------
    calls : int
        Calls of this kind so far.
    """

    def __init__(self, kind: str, number: int) -> None:
        self.kind, self.number, self.calls = kind, number, 0
        files = (name for name in SITES if name != "clock")
        self._sites = SITES.get(kind) or [site for name in files for site in SITES[name]]
        self._originals: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Fault:
        for owner, name in self._sites:
            original = getattr(owner, name)
            self._originals.append((owner, name, original))
            setattr(owner, name, self._failing(name, original))
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, original in self._originals:
            setattr(owner, name, original)

    def _failing(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls != self.number:
                return original(*args, **kwargs)
            if self.kind == "write":
                _write_half(name, original, args, kwargs)
            if self.kind == "allocation":
                raise MemoryError
            if self.kind == SIGNAL:
                raise KeyboardInterrupt
            if self.kind == AFTER:
                _closed(original(*args, **kwargs))
                raise KeyboardInterrupt
            raise OSError(errno.ENOSPC, "No space left on device (a fault of the experiment)")

        return call


def _closed(result: Any) -> None:
    """Close a file that was opened: an interrupt leaves nobody who could."""
    if hasattr(result, "close"):
        result.close()


def _write_half(name: str, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Write the first half, as a disk that becomes full does."""
    if name == "write":
        original(args[0], bytes(args[1])[: len(args[1]) // 2])
        return
    original(*args, **kwargs)
    path = args[1] if name in ("save_file", "to_parquet", "to_csv") else args[0]
    if isinstance(path, str | os.PathLike):
        os.truncate(path, os.path.getsize(path) // 2)


class Tried(NamedTuple):
    """What one scenario and kind of call came to.

    Attributes
    ----------
    failed : int
        Calls that were made to fail.
    broken : list of str
        One sentence for each broken invariant.
    """

    failed: int
    broken: list[str]


def measure(share: float, folder: Path, report: Report) -> list[Measurement]:
    """Fail every call of every scenario."""
    failed, broken, by_kind = 0, list[str](), Counter[str]()
    for scenario in SCENARIOS:
        for kind in KINDS:
            tried = fail_calls(scenario, kind, folder / "faults", None if share >= 1 else max(round(FEWEST * share), 2))
            failed, by_kind[kind] = failed + tried.failed, by_kind[kind] + tried.failed
            broken += tried.broken
            report(f"  {scenario.name}, {kind}: {tried.failed} calls failed, {len(tried.broken)} invariants broken")
            for sentence in tried.broken[:3]:
                report(f"    {sentence}")
    kinds = ", ".join(f"{count} of {kind}" for kind, count in by_kind.items())
    return [
        Measurement(
            f"{failed:,} calls failed, one at a time, in {len(SCENARIOS)} scenarios ({kinds})",
            f"{len(broken)} invariants broken",
            "nothing acknowledged is lost, nothing half is read as whole",
            not broken,
        )
    ]


def fail_calls(scenario: Scenario, kind: str, folder: Path, most: int | None = None) -> Tried:
    """Do a scenario once for each call of a kind, which fails in it.

    Parameters
    ----------
    scenario : Scenario
        What is done.
    kind : str
        One of `KINDS`.
    folder : Path
        A directory for files, which is emptied.
    most : int, optional
        At most this many calls fail, spread evenly.
    """
    with _fresh(folder):
        scenario.act(folder, [])  # what is made once is made now
    with _fresh(folder), Fault(kind, 0) as counted:
        scenario.act(folder, [])
    count = counted.calls
    stride = 1 if most is None else max(-(-count // most), 1)
    failed, broken = 0, list[str]()
    for number in range(1, count + 1, stride):
        happened, sentence = _one(scenario, kind, number, folder)
        failed += happened
        broken += [f"{scenario.name}, {kind} {number} of {count}: {sentence}"] if sentence else []
    return Tried(failed, broken)


def _one(scenario: Scenario, kind: str, number: int, folder: Path) -> tuple[bool, str]:
    """Fail one call; returns whether there was such a call, and what is wrong afterwards, or an empty text."""
    acknowledged: list[Any] = []
    fault = Fault(kind, number)
    with _fresh(folder):
        try:
            with warnings.catch_warnings(), fault:
                warnings.filterwarnings("ignore", NO_ATTRIBUTES, UserWarning)
                scenario.act(folder, acknowledged)
        except EXPECTED:
            pass
        except BaseException as error:
            return True, f"an unexpected {type(error).__name__}: {error}"
        try:
            scenario.check(folder, acknowledged)
        except Exception as error:
            return True, f"{type(error).__name__}: {error}"
    return fault.calls >= number, ""


@contextlib.contextmanager
def _fresh(folder: Path) -> Iterator[None]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield
    shutil.rmtree(folder, ignore_errors=True)
