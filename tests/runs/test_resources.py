"""What a long life costs: open files over many runs, and exceptions of what users hand in."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpexplorer import Spec, Store
from gpexplorer.runs import Run
from gpexplorer.runs.studies.sweep import sweep

SPEC = Spec("random", {"num_inducing": 3}, {"name": "friedman1", "n": 30, "seed": 1}, budget={"steps": 1})


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted by /proc")
def test_two_hundred_runs_leave_no_open_file(tmp_path: Path):
    """Every other run is dropped and never closed, as in a notebook."""
    store = Store(tmp_path)
    store.open(SPEC).close()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for seed in range(200):
        run = store.open(Spec(SPEC.method, SPEC.settings, SPEC.data, seed=seed % 5))
        if seed % 40 == 0:
            run.advance()
        if seed % 2:
            run.close()
        del run
    gc.collect()

    assert len(os.listdir("/proc/self/fd")) <= before


def test_an_exception_of_a_callback_ends_a_sweep_and_frees_its_run(tmp_path: Path):
    def refuse(_: Run) -> None:
        raise ZeroDivisionError("of the user")

    with pytest.raises(ZeroDivisionError):
        list(sweep({"one": SPEC}, opened=refuse, store=tmp_path))

    gc.collect()
    [run] = sweep({"one": SPEC}, store=tmp_path)  # nobody holds its lock
    assert run.finished is not None


def test_two_processes_with_one_store_refuse_each_others_run_and_read_it(tmp_path: Path):
    store = Store(tmp_path)
    run = store.open(SPEC)
    run.advance()
    program = (
        "import json, sys; from gpexplorer import Spec, Store; from gpexplorer.errors import StoreError\n"
        "store = Store(sys.argv[1]); spec = Spec.from_json(sys.argv[2])\n"
        "try:\n    store.open(spec); said = ''\nexcept StoreError as error:\n    said = str(error)\n"
        "store.annotate(spec.key(), 'from the other one')\n"
        "print(json.dumps([said, len(store.kept(spec.key()).records), len(store.table())]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), SPEC.to_json()], capture_output=True, text=True, check=True
    )
    said, records, rows = json.loads(done.stdout)
    assert "is being written elsewhere" in said
    assert (records, rows) == (1, 1)
    assert store.note(SPEC.key()) == "from the other one"
    run.close()
