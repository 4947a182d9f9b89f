"""What runs out: memory, file descriptors, the size a file may have, and threads that a fork does not take along.

Each is a program of its own, because a limit holds for the rest of a process. A person should read a sentence that says
what ran out, and keep every step that was taken before.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

from .. import environment
from .measurement import Measurement, Report, cases

RUNS, WAIT = 200, 300.0  # runs in one process; seconds until a program counts as hung
SAME = 1e-6  # relative difference of an SMSE: a fork uses one thread, and the order of sums depends on it
ROWS = {"name": "friedman1", "n": 60, "seed": 1}

DESCRIPTORS = """
import gc, json, os, sys, threading
import gpexplorer as gpx
folder, rows, runs = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
store = gpx.Store(folder)

def one(seed):
    run = store.open(gpx.Spec("random", {"num_inducing": 4}, rows, seed=seed, budget={"steps": 2}))
    run.finish()
    run.scores()
    run.close()

def alive():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()

one(0)
before = alive()
for seed in range(1, 1 + runs):
    one(seed)
print(json.dumps([before, alive()]))
"""

MEMORY = """
import json, resource, sys
import gpexplorer as gpx, psutil
spec = gpx.Spec("cholqr", {"num_inducing": 6}, json.loads(sys.argv[2]), budget={"steps": 3})
run = gpx.Store(sys.argv[1]).open(spec)
run.finish()  # everything that is imported on first use is there now
run.close()
allowed = psutil.Process().memory_info().vms + 200 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
try:
    large = gpx.Spec("ml", {}, {"name": "friedman1", "n": 12_000, "seed": 1}, budget={"steps": 3}).open()
    large.finish()
    said = large.outcome.message
except gpx.GPExplorerError as error:
    said = str(error)
print(json.dumps([said, len(gpx.Store(sys.argv[1]).kept(spec.key()).records)]))
"""

FILE_SIZE = """
import json, resource, signal, sys
import gpexplorer as gpx
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = gpx.Store(sys.argv[1])
spec = gpx.Spec("cholqr", {"num_inducing": 6}, json.loads(sys.argv[2]), budget={"steps": 60})
run = store.open(spec)
run.finish(steps=5)
used = (store.path / spec.key() / "journal.jsonl").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (used + 3000, used + 3000))
said = ""
try:
    run.finish()
except gpx.GPExplorerError as error:
    said = str(error)
taken = len(run.trace)
print(json.dumps([said or run.outcome.message, taken, len(store.kept(spec.key()).records)]))
"""

FORKS = """
import json, multiprocessing, sys
import gpexplorer as gpx, torch
torch.set_num_threads(2)
spec = gpx.Spec("ml", {}, {**json.loads(sys.argv[2]), "n": 400}, budget={"steps": 2})

def score(_=0):
    run = spec.open()
    run.finish()
    return run.scores()["smse"]

here = score()
with multiprocessing.get_context("fork").Pool(2) as pool:
    there = pool.map_async(score, range(4)).get(60)
print(json.dumps([here, there]))
"""


def measure(share: float, folder: Path, report: Report) -> list[Measurement]:
    """Run the four programs."""
    runs = cases(RUNS, share, 5)
    return [
        _descriptors(answer(DESCRIPTORS, folder / "descriptors", report, str(runs)), runs),
        _memory(answer(MEMORY, folder / "memory", report)),
        _file_size(answer(FILE_SIZE, folder / "size", report)),
        _forks(answer(FORKS, folder / "forks", report)),
    ]


def answer(program: str, folder: Path, report: Report, *arguments: str) -> Any:
    """What a program printed as JSON; None where it failed or hung, and why in the report."""
    folder.mkdir()
    command = [sys.executable, "-c", program, str(folder), json.dumps(ROWS), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment(), timeout=WAIT, cwd=folder
        )
    except subprocess.TimeoutExpired:
        report(f"  no answer within {WAIT:g} s")
        return None
    if done.returncode != 0:
        report(f"  {done.stderr[-800:]}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def _descriptors(seen: Any, runs: int) -> Measurement:
    said = "the program failed" if seen is None else f"from {seen[0]} to {seen[1]}"
    tried = f"{runs} runs with a store in one process: open files and threads"
    return Measurement(tried, said, "as many as after the first", seen is not None and seen[0] == seen[1])


def _memory(seen: Any) -> Measurement:
    said = "the program failed" if seen is None else f"“{seen[0]}”; {seen[1]} records of an earlier run are there"
    held = seen is not None and "memory" in seen[0].lower() and seen[1] == 4
    return Measurement("exact inference with 12,000 rows and 200 MB (RLIMIT_AS)", said, "a sentence on memory", held)


def _file_size(seen: Any) -> Measurement:
    said = "the program failed" if seen is None else f"“{seen[0]}”; {seen[1]} records in memory, {seen[2]} in the store"
    held = seen is not None and bool(seen[0]) and seen[2] >= seen[1] - 1 >= 5
    return Measurement("a journal that cannot grow any more (RLIMIT_FSIZE)", said, "a sentence, no record lost", held)


def _forks(seen: Any) -> Measurement:
    said = (
        "the program failed or hung"
        if seen is None
        else f"{len(seen[1])} runs end, with the SMSE of the parent to {SAME:g}"
    )
    held = seen is not None and all(math.isclose(value, seen[0], rel_tol=SAME) for value in seen[1])
    return Measurement("forks of a process whose torch threads have worked", said, "its numbers, no hang", held)
