"""SIGINT and SIGTERM while a command computes: what is kept, what is said, and the exit code."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from commands import call, write
from forked_commands import Forked, forked
from gpexplorer import Spec, Store
from gpexplorer.methods.base import registry
from toy_method import Toy

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(registry, "toy", Toy)
    monkeypatch.chdir(tmp_path)


SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


def endless(folder: Path, *options: str) -> tuple[Forked, Store]:
    """A process of `run` that takes steps without end, once it has taken two; and its store."""
    name = write("a spec.json", method="cholqr", data="friedman1", settings={"num_inducing": 8, "tolerance": 0.0})
    run = forked("run", name, "--out", str(folder / "store"), "--set", "seed=4", *options, folder=folder)
    store = Store(folder / "store")
    wait_for(lambda: any(store.kept(key).records[2:] for key in store.names()))
    return run, store


def wait_for(holds: Callable[[], object], seconds: float = 60.0) -> None:
    began = time.monotonic()
    while not holds() and time.monotonic() - began < seconds:
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_ends_a_run_and_keeps_every_step_and_says_how_to_go_on(tmp_path: Path, number: int, code: int):
    run, store = endless(tmp_path)
    run.send_signal(number)
    ended, _, error = run.ended(timeout=60)

    [key] = store.names()
    kept = store.kept(key)
    assert ended == code
    assert kept.outcome is not None
    assert kept.outcome.reason == "stopped"
    assert "Traceback" not in error
    assert f"Interrupted at step {len(kept.records) - 1}; every step is kept." in error
    assert f"python -m gpexplorer run 'a spec.json' --out {tmp_path / 'store'} --set seed=4" in error
    reopened = store.open(store.spec(key))
    assert len(reopened.trace) == len(kept.records)
    reopened.close()


def test_a_second_signal_ends_a_run_at_once_and_the_store_is_whole(tmp_path: Path):
    run, store = endless(tmp_path, "--set", "budget.steps=100000")
    run.send_signal(signal.SIGTERM)
    run.send_signal(signal.SIGTERM)
    ended, _, _ = run.ended(timeout=60)

    assert ended in (-signal.SIGTERM, 143)  # 143: the step had ended before the second one came
    [key] = store.names()
    assert len(store.kept(key).records) > 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_last_step_or_after_it_is_seen_in_the_exit_code(monkeypatch: pytest.MonkeyPatch, number: int):
    """The run has used its budget, and whoever sent the signal learns that it came: the code was 0."""
    from gpexplorer.runs import Run

    finish = Run.finish

    def finish_with_signal(run: Run) -> object:
        outcome = finish(run)
        os.kill(os.getpid(), number)
        return outcome

    monkeypatch.setattr(Run, "finish", finish_with_signal)
    before = signal.getsignal(number)
    assert call("run", write(budget={"steps": 2}), "--out", "store") == 128 + number
    assert signal.getsignal(number) == before
    assert Store("store").kept(Store("store").names()[0]).outcome.reason == "budget"


def test_a_signal_ends_a_recommendation_with_the_best_answer_so_far(tmp_path: Path):
    number, code = SIGNALS[1]  # both are received by the same handler, which the tests of `run` above try with each
    out = tmp_path / "spec.json"
    search = forked("recommend", "snelson-like", "--seconds", "300", "--out", str(out), folder=tmp_path)
    wait_for(lambda: search.error().count("Stage 1") > 1)  # one candidate has been tried
    search.send_signal(number)
    ended, printed, error = search.ended(timeout=120)

    assert ended == code, error
    assert "this is the best answer so far" in error
    assert Spec.from_json(out.read_text()).method in printed


def test_a_signal_ends_a_sweep_with_the_table_of_what_has_ended(tmp_path: Path):
    number, code = SIGNALS[0]
    spec = {"gpexplorer": 1, "method": "cholqr", "data": "friedman1", "settings": {"num_inducing": 8}}
    grid = {"spec": {**spec, "budget": {"steps": 10**6}}, "over": {"tolerance": [1.0, 0.0]}}
    (tmp_path / "grid.json").write_text(json.dumps(grid))
    sweep = forked("sweep", "grid.json", "--out", "table.parquet", "--store", "store", folder=tmp_path)
    store = Store(tmp_path / "store")
    wait_for(lambda: len(store.names()) == 2 and all(store.kept(key).records[2:] for key in store.names()))
    sweep.send_signal(number)
    ended, _, error = sweep.ended(timeout=60)

    assert ended == code, error
    assert "Stopped after 1 of 2 runs; every step is kept." in error
    assert len(pd.read_parquet(tmp_path / "table.parquet")) == 1
    assert {store.kept(key).outcome.reason for key in store.names()} == {"budget", "stopped"}
