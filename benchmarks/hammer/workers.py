"""A worker of a Dask cluster is killed in the middle of a run, and of a sweep: the numbers are those without a cluster.

The cluster is local. Dask's nannies restart a process that ends.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpexplorer.errors import SettingError
from gpexplorer.runs.spec import Spec
from gpexplorer.runs.studies.cluster import connected, working
from gpexplorer.runs.studies.sweep import grid, sweep

from .measurement import Measurement, Report, cases

STEPS, SEEDS = 12, 24
ROWS = {"name": "friedman1", "n": 400, "seed": 1}
SAME = 1e-9  # relative difference of a score


def measure(share: float, folder: Path, report: Report) -> list[Measurement]:
    """Kill a worker in a run whose folds are on the workers, and in a sweep."""
    with cluster() as address:
        return [_run(address, cases(STEPS, share, 4)), _sweep(address, cases(SEEDS, share, 4))]


def _run(address: str, steps: int) -> Measurement:
    """GPCV-ADMM, whose folds are pieces of work, with a kill between two steps."""
    spec = Spec("gpcv-admm", {"copies": True}, data=ROWS, budget={"steps": steps})
    local, distributed = spec.open(), spec.open()
    local.finish()
    with working(distributed, address):
        distributed.finish(steps=steps // 2)
        kill_a_worker(address)
        distributed.finish(steps=steps)
    difference = abs(local.scores()["smse"] / distributed.scores()["smse"] - 1)
    same_end = local.outcome == distributed.outcome
    return Measurement(
        f"a run of {steps} steps with folds on 2 workers, one of them killed (SIGKILL)",
        f"SMSE differs by {difference:.1e} of it; the run {'ends alike' if same_end else 'ends differently'}",
        f"the numbers of one process, to {SAME:g}",
        bool(same_end and difference <= SAME),
    )


def _sweep(address: str, runs: int) -> Measurement:
    """A sweep over seeds, with a kill when the first run has ended."""
    specs = grid(Spec("random", {"num_inducing": 20}, ROWS, budget={"steps": 5}), {"seed": list(range(runs))})
    local = {swept.name: swept.finished for swept in sweep(specs)}
    distributed: dict[str, Any] = {}
    for swept in sweep(specs, address):
        if not distributed:
            kill_a_worker(address)
        distributed[swept.name] = swept.finished
    missing = [name for name in specs if distributed.get(name) is None]
    pairs = [(a, distributed[name]) for name, a in local.items() if a is not None and distributed.get(name) is not None]
    largest = max((abs(a.last["smse"] / b.last["smse"] - 1) for a, b in pairs), default=float("nan"))
    return Measurement(
        f"a sweep of {runs} runs on 2 workers, one of them killed (SIGKILL)",
        f"{len(missing)} runs missing; SMSE differs by at most {largest:.1e} of it",
        f"every run, with the numbers of one process, to {SAME:g}",
        not missing and largest <= SAME,
    )


def kill_a_worker(address: str) -> None:
    """End one worker process of the cluster at once. Its nanny starts another."""
    with connected(address) as client:
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


@contextmanager
def cluster(workers: int = 2) -> Iterator[str]:
    """A local cluster of one process per worker, and its address."""
    try:
        from distributed import LocalCluster
    except ImportError:
        raise SettingError("Dask is not installed: pip install gpexplorer[cluster].") from None
    with LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0") as local:
        yield local.scheduler_address
