"""Two writers of one run are killed again and again. Every record that was acknowledged must be there afterwards.

The writers are forked from a process that has computed nothing. They write 61 bytes per call, so that a kill can tear
a line anywhere, and report each record after `Journal.append` has returned. One of them holds the lock of the run, and
the other one is refused. Every 5 kills another run is begun.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from gpexplorer.errors import StoreError
from gpexplorer.runs.spec import Spec
from gpexplorer.runs.store import Store
from gpexplorer.runs.trace import Record, Spent

from .. import environment
from .measurement import Measurement, Report, cases

KILLS, PER_RUN, BYTES = 1000, 5, 61
LONGEST_WAIT = 0.03  # seconds from the first record to the kill
REFUSED, ENDED = 3, 4  # exit codes of a writer
ENTRIES = 7  # kernel entries per record, by which a record is recognised


class Round(NamedTuple):
    """What one kill left.

    Attributes
    ----------
    acknowledged, stored : int
        Records that the writer reported, and records that are whole in the journal.
    whole : bool
        Whether each of them is the record that was written.
    torn : bool
        Whether the kill left an incomplete last line.
    """

    acknowledged: int
    stored: int
    whole: bool
    torn: bool


def measure(share: float, folder: Path, report: Report) -> list[Measurement]:
    """Kill two writers 1000 times."""
    if not hasattr(os, "fork"):
        return [Measurement("0 kills", "this system cannot fork", "no acknowledged record is lost", False)]
    count = cases(KILLS, share, PER_RUN)
    command = [sys.executable, "-m", __name__, str(folder), str(count)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    if process.returncode != 0:
        report(f"  {process.stderr[-500:]}")
    rounds = [Round(*json.loads(line)) for line in process.stdout.splitlines()]
    lost = sum(max(kill.acknowledged - kill.stored, 0) for kill in rounds)
    num_left, changed = sum(1 for _ in folder.glob("**/*.new")), sum(not kill.whole for kill in rounds)
    return [
        Measurement(
            f"{len(rounds):,} kills (SIGKILL) of two writers of one run",
            f"{sum(kill.acknowledged for kill in _last_of_each_run(rounds)):,} records acknowledged, {lost} lost, "
            f"{changed} changed; {sum(kill.torn for kill in rounds)} torn lines removed; {num_left} files left over",
            "no acknowledged record is lost or changed",
            len(rounds) == count and lost == 0 and num_left == 0 and changed == 0,
        )
    ]


def kill_writers(folder: Path, count: int) -> Iterator[Round]:
    """Kill two writers this number of times, and look at what each kill left."""
    store, rng = Store(folder), random.Random(0)
    template = _template(store)
    for kill in range(count):
        spec = Spec("random", {"num_inducing": 3}, template[0].data, seed=kill // PER_RUN)
        read_end, write_end = os.pipe()
        writers = [_fork(store, spec, template[1], write_end) for _ in range(2)]
        os.close(write_end)
        reports = os.read(read_end, 65536)  # returns when the first record is acknowledged
        time.sleep(rng.uniform(0.0, LONGEST_WAIT))
        for writer in writers:
            os.kill(writer, signal.SIGKILL)
        for writer in writers:
            os.waitpid(writer, 0)
        while chunk := os.read(read_end, 65536):
            reports += chunk
        os.close(read_end)
        torn = not (store.path / spec.key() / "journal.jsonl").read_bytes().endswith(b"\n")
        records = store.kept(spec.key()).records
        whole = all(record.cost.entries == ENTRIES * record.index for record in records)
        yield Round(int(reports.split(b"\n")[-2]), len(records), whole, torn)


def _template(store: Store) -> tuple[Spec, Record]:
    """A spec, and the first record of its run. A child takes the step, since this process will be forked again."""
    spec = Spec("random", {"num_inducing": 3}, {"name": "friedman1", "n": 30, "seed": 1}, budget={"steps": 0})
    if os.fork() == 0:
        try:
            run = store.open(spec)
            run.advance()
            run.close()
        finally:
            os._exit(ENDED)
    os.wait()
    return spec, store.kept(spec.key()).records[0]


def _fork(store: Store, spec: Spec, template: Record, write_end: int) -> int:
    child = os.fork()
    if child == 0:
        _write(store, spec, template, write_end)
    return child


def _write(store: Store, spec: Spec, template: Record, write_end: int) -> NoReturn:
    """Append records until killed, and report how many are stored after each."""
    write = os.write
    os.write = lambda file, raw: write(file, bytes(raw)[:BYTES])  # in this process only
    try:
        journal, _ = store.take_up(spec)
        while True:
            index = len(journal)
            journal.append(template._replace(index=index, cost=Spent(ENTRIES * index)))
            write(write_end, b"%d\n" % len(journal))
    except StoreError:
        os._exit(REFUSED)
    finally:
        os._exit(ENDED)


def _last_of_each_run(rounds: list[Round]) -> list[Round]:
    return [*rounds[PER_RUN - 1 :: PER_RUN], *([rounds[-1]] if len(rounds) % PER_RUN else [])]


if __name__ == "__main__":
    for entry in kill_writers(Path(sys.argv[1]), int(sys.argv[2])):
        print(json.dumps(entry))
