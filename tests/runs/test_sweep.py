"""A sweep is a grid of specs, run here or on Dask with the same numbers."""

from __future__ import annotations

import itertools
import operator
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gpexplorer import Spec, Store, data
from gpexplorer.errors import ClusterError, DataError, SettingError
from gpexplorer.runs.run import Run
from gpexplorer.runs.studies import cluster, comparison
from gpexplorer.runs.studies.cluster import connected, mapped
from gpexplorer.runs.studies.sweep import grid, read_table, sweep, with_digest

ROWS = {"name": "hypercube", "n": 60, "d": 2, "noise": 0.2, "seed": 1}
SPEC = Spec("cholqr", {"num_pivots": 4}, ROWS, budget={"steps": 3})


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
        yield cluster.scheduler_address


def test_the_grid_holds_every_combination():
    result = grid(SPEC, {"num_inducing": [4, 8], "seed": [0, 1, 2]})

    assert list(result)[:2] == ["num_inducing=4, seed=0", "num_inducing=4, seed=1"]
    assert len(result) == 6
    assert result["num_inducing=8, seed=2"] == Spec(
        "cholqr", {"num_inducing": 8, "num_pivots": 4}, ROWS, seed=2, budget={"steps": 3}
    )


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({}, "has 0 runs"),
        ({"seed": []}, "has 0 runs"),
        ({"seed": range(201)}, "has 201 runs; give 1 to 200"),
        ({"num_inducing": [-1]}, "num_inducing is -1"),
        ({"num_induced": [5]}, "did you mean 'num_inducing'"),
    ],
)
def test_a_bad_grid_is_refused_before_anything_runs(over: dict[str, list[int]], message: str):
    with pytest.raises(SettingError, match=message):
        grid(SPEC, over)


def test_runs_end_one_after_another_and_compare():
    swept = list(sweep(grid(SPEC, {"num_inducing": [3, 9]})))

    assert [item.name for item in swept] == ["num_inducing=3", "num_inducing=9"]
    assert all("budget of 3 steps" in item.sentence for item in swept)
    runs = {item.name: item.finished for item in swept if item.finished is not None}
    assert comparison.best(runs)["smse"] == "num_inducing=9"


def test_a_run_that_cannot_be_opened_leaves_a_sentence_and_the_rest_go_on():
    specs = {"gone": Spec("cholqr", data="gone-rows", budget={"steps": 1}), "here": SPEC}

    swept = list(sweep(specs))

    assert swept[0].finished is None
    assert "no data set or file" in swept[0].sentence
    assert swept[1].finished is not None


def test_the_row_of_a_run_is_that_of_its_own_budget_also_where_a_store_has_more_of_it(tmp_path: Path):
    specs = grid(SPEC, {"budget": [{"steps": steps} for steps in (6, 4, 0)]})
    wanted = [run.finished for run in sweep(specs)]
    first, *rest = sweep(specs, store=tmp_path)
    kept = Store(tmp_path).kept(SPEC.key())
    seconds = kept.records[4].seconds
    rest += sweep({"seconds": replace(SPEC, budget={"seconds": seconds})}, store=tmp_path)

    sentences = ["budget of 6 steps is", "budget of 4 steps is", "budget of 0 steps is", "is used up after 4 steps"]
    for run, want, sentence in zip([first, *rest], [*wanted, wanted[1]], sentences, strict=True):
        assert run.finished is not None
        assert want is not None
        assert sentence in run.sentence
        assert run.finished.outcome == "budget"
        assert run.finished.last == want.last | {"seconds": run.finished.last["seconds"]}
        assert run.finished.steps["index"].tolist() == want.steps["index"].tolist()
    again = Store(tmp_path).kept(SPEC.key())
    assert ([record.seconds for record in again.records], again.outcome) == (
        [record.seconds for record in kept.records],
        kept.outcome,
    )


def test_a_sweep_that_would_not_end_is_refused():
    with pytest.raises(SettingError, match="has no budget"):
        sweep({"long": Spec("cholqr")})


def test_dask_gives_the_same_numbers(scheduler: str):
    specs = grid(SPEC, {"seed": [0, 1]})
    rows = data.load(ROWS, split=0)

    distributed = {item.name: item.finished for item in sweep(specs, scheduler, rows)}

    for item in sweep(specs, data=rows):
        assert distributed[item.name].last["smse"] == pytest.approx(item.finished.last["smse"], rel=1e-10)


def test_a_map_on_workers_keeps_the_order(scheduler: str):
    with connected(scheduler) as client:
        assert list(mapped(client)(operator.pow, range(6), [2] * 6)) == [0, 1, 4, 9, 16, 25]


def test_a_scheduler_that_is_not_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpexplorer.runs.studies.cluster.TIMEOUT", 0.3)

    with pytest.raises(SettingError, match="No Dask scheduler answers"):
        list(sweep({"one": SPEC}, "tcp://127.0.0.1:9"))


@pytest.fixture
def emptied(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Any]]:
    """A scheduler whose workers can be taken away, and which is given up soon."""
    from distributed import LocalCluster

    monkeypatch.setattr(cluster, "NO_WORKER_SECONDS", 0.5)
    monkeypatch.setattr(cluster, "LOOK_SECONDS", 0.1)
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as local:
        yield local.scheduler_address, local


def test_a_sweep_without_workers_ends_with_a_sentence_for_each_run_that_is_left(
    emptied: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
):
    address, local = emptied
    turns, gone, finish = itertools.count(), threading.Event(), Run.finish

    def first_only(run: Run) -> Any:
        """Finish the first run, and hold the others until the worker is gone."""
        if next(turns):
            gone.wait(30)
        return finish(run)

    monkeypatch.setattr(Run, "finish", first_only)  # the worker is a thread of this process
    try:
        runs = sweep(grid(SPEC, {"seed": [0, 1, 2]}), address)
        first = next(runs)
        local.scale(0)

        rest = list(runs)
    finally:
        gone.set()

    assert first.finished is not None
    assert [item.finished for item in rest] == [None, None]
    assert all("no worker for 0.5 s: start workers" in item.sentence for item in rest)


def test_pieces_without_workers_end_with_a_sentence(emptied: tuple[str, Any]):
    address, local = emptied
    with connected(address) as client:
        assert list(mapped(client)(operator.pow, range(2), [2] * 2)) == [0, 1]
        local.scale(0)
        while client.nthreads():
            time.sleep(0.05)
        with pytest.raises(ClusterError, match=r"no worker for 0\.5 s"):
            list(mapped(client)(operator.pow, range(3), [2] * 3))


SCHEDULER = """
import time
from distributed import LocalCluster
with LocalCluster(n_workers=1, processes=False, protocol="tcp", dashboard_address=":0") as cluster:
    print(cluster.scheduler_address, flush=True)
    time.sleep(600)
"""


def test_a_scheduler_that_is_killed_ends_sweep_and_pieces_with_sentences(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster, "TIMEOUT", 2)  # seconds; also of the attempts to connect again
    process = subprocess.Popen([sys.executable, "-c", SCHEDULER], stdout=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().strip()
        with connected(address) as client:
            pieces = mapped(client, ahead=1)(operator.pow, range(50), [2] * 50)
            assert next(pieces) == 0
            runs = sweep(grid(SPEC, {"seed": list(range(6))}), address)
            first = next(runs)
            process.kill()

            rest = list(runs)
            with pytest.raises(ClusterError, match="scheduler ended before the work was done"):
                list(pieces)
    finally:
        process.kill()
        process.communicate()

    assert first.finished is not None
    assert len(rest) == 5
    ended = [swept.sentence for swept in rest if swept.finished is None]
    assert ended
    assert all("The scheduler ended before the work was done" in sentence for sentence in ended)


def test_the_table_of_a_sweep_is_the_same_again_and_a_changed_one_is_a_sentence(tmp_path: Path):
    runs = {run.name: run.finished for run in sweep(grid(SPEC, {"seed": [0, 1]}))}
    table = comparison.table({name: run for name, run in runs.items() if run is not None})
    path = tmp_path / "sweep.parquet"
    with_digest(table).to_parquet(path)

    pd.testing.assert_frame_equal(read_table(path), table, check_dtype=False, check_column_type=False)
    whole = path.read_bytes()
    sentences = list[str]()
    for place in range(0, len(whole), max(1, len(whole) // 150)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            same = read_table(path)
        except DataError as error:
            sentences.append(str(error))
        else:
            assert same.to_csv() == table.to_csv()  # a byte that nobody reads
    assert len(sentences) > 20
    assert all(str(path) in sentence and "Run the sweep again" in sentence for sentence in sentences)
    path.write_bytes(whole[:100])
    with pytest.raises(DataError, match="Run the sweep again"):
        read_table(path)
    table.to_parquet(path)
    assert read_table(path).to_csv() == table.to_csv()
