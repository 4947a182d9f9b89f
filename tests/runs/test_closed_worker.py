"""A Dask worker that is closed in the middle of a sweep keeps the step of its run, and another worker goes on."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from gpexplorer import Spec, Store
from gpexplorer.runs.studies.sweep import sweep

SPEC = Spec("cholqr", {"num_inducing": 8, "tolerance": 0.0}, "friedman1", budget={"steps": 300})


def test_a_worker_that_is_closed_stops_its_run_and_another_one_goes_on(tmp_path: Path):
    from distributed import LocalCluster

    store, runs = Store(tmp_path), list[Any]()
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as local:
        work = threading.Thread(
            target=lambda: runs.extend(sweep({"one": SPEC}, local.scheduler_address, store=tmp_path))
        )
        work.start()
        end = time.monotonic() + 60
        while not (store.names() and len(store.kept(SPEC.key()).records) > 3):
            assert time.monotonic() < end
            time.sleep(0.02)
        [busy] = [worker for worker in local.workers.values() if worker.state.executing_count]
        local.sync(busy.close, nanny=False)
        work.join(120)

    [run] = runs
    assert run.finished is not None, run.sentence
    assert run.finished.outcome == "budget"
    kept = store.kept(SPEC.key())
    assert len(kept.records) == 301
    assert (tmp_path / SPEC.key() / "journal.jsonl").read_text().count('"outcome":"stopped"') == 1
    want = SPEC.open()
    want.finish()
    assert kept.records[-1].scores == want.scores()
