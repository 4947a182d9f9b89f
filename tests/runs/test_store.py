"""A stored run continues where it stopped, is kept to the last bit, and has one writer."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from gpexplorer import Spec, Store
from gpexplorer.errors import StoreError
from gpexplorer.methods.base import registry
from gpexplorer.runs.opening import reopened
from gpexplorer.runs.trace import tensors
from toy_method import ROWS, Toy, same, toy_spec


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry, "toy", Toy)


@pytest.mark.parametrize("method", ["toy", "cholqr"])
def test_a_stored_run_continues_as_if_it_had_not_stopped(tmp_path: Path, method: str):
    spec = Spec(method, {"num_inducing": 6} if method == "cholqr" else {}, ROWS)
    whole = spec.open()
    whole.finish(steps=12)

    for steps in (0, 1, 5, 12):
        run = Store(tmp_path).open(spec)
        run.finish(steps=steps)
        run.close()
    stored = Store(tmp_path).kept(spec.key()).records

    assert [r.index for r in stored] == list(range(13))
    for first, second in zip(stored, whole.trace, strict=True):
        for a, b in zip(tensors(first.step.state), tensors(second.step.state), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)
    assert stored[12].scores == pytest.approx(whole.scores(), rel=1e-8)
    assert all(a.seconds <= b.seconds and a.cost <= b.cost for a, b in pairwise(stored))


def test_a_stored_record_equals_the_record_in_memory_to_the_last_bit(tmp_path: Path):
    spec = toy_spec()
    run = Store(tmp_path).open(spec)
    run.finish(steps=5)
    run.close()

    kept = Store(tmp_path).kept(spec.key())

    assert kept.outcome == run.outcome
    for first, second in zip(kept.records, run.trace, strict=True):
        assert same(first.step, second.step)
        assert first[:3] == second[:3]
        assert first.scores == second.scores


def test_a_run_has_one_writer(tmp_path: Path):
    run = Store(tmp_path).open(toy_spec())

    with pytest.raises(StoreError, match="is being written elsewhere"):
        Store(tmp_path).open(toy_spec())

    Store(tmp_path / "other").open(toy_spec()).close()
    Store(tmp_path).open(toy_spec(limit=7)).close()
    run.close()
    Store(tmp_path).open(toy_spec()).close()


def test_a_run_that_is_garbage_collected_closes_its_files(tmp_path: Path):
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        Store(tmp_path).open(toy_spec()).advance()
    gc.collect()

    assert len(os.listdir("/dev/fd")) <= before
    assert len(Store(tmp_path).kept(toy_spec().key()).records) == 3


def test_closing_releases_the_lock_and_a_converged_run_stays_converged(tmp_path: Path):
    spec = toy_spec(limit=4)
    first = Store(tmp_path).open(spec)
    first.finish()
    first.close()
    first.close()
    before = (tmp_path / spec.key() / "journal.jsonl").read_bytes()

    reopened = Store(tmp_path).open(spec)

    assert reopened.outcome is not None
    assert reopened.outcome.reason == "converged"
    assert reopened.advance() is None
    assert reopened.finish().message == "All 4 steps are done."
    reopened.close()
    assert (tmp_path / spec.key() / "journal.jsonl").read_bytes() == before


def test_a_larger_budget_is_the_same_run_and_is_remembered(tmp_path: Path):
    store, spec = Store(tmp_path), replace(toy_spec(), budget={"steps": 3})
    for budget in (3, 7):
        run = store.open(replace(spec, budget={"steps": budget}))
        run.finish()
        run.close()

    assert store.names() == [spec.key()]
    assert store.spec(spec.key()).budget == {"steps": 7}
    assert len(store.kept(spec.key()).records) == 8
    assert store.kept(spec.key()).outcome == run.outcome
    longer = store.open(spec)  # with 3 steps as its budget: opening it shows all
    assert "The budget of 3 steps is used up (the run has 7)" in longer.finish().message
    assert longer.done == 7
    longer.close()


def test_rows_of_a_file_that_was_changed_are_not_those_of_the_run(tmp_path: Path):
    file, store = tmp_path / "mine.csv", Store(tmp_path / "store")
    rows = pd.DataFrame({"x": np.linspace(0.0, 1.0, 30), "y": np.sin(np.linspace(0.0, 5.0, 30))})
    rows.to_csv(file, index=False)
    spec = replace(toy_spec(), data=str(file))
    run = store.open(spec)
    run.finish(steps=2)
    run.close()
    rows.assign(y=rows["y"] + rows["x"]).to_csv(file, index=False)
    other = spec.open()
    other.finish(steps=3)
    for call in (
        lambda: store.open(spec),
        lambda: reopened(store.spec(spec.key()), store.kept(spec.key())),
        lambda: store.put(other),
    ):
        with pytest.raises(StoreError, match=r"kept with the rows 'mine-.*choose another store"):
            call()
    assert len(store.kept(spec.key()).records) == 3
    rows.to_csv(file, index=False)
    again = store.open(spec)
    assert again.done == 2
    again.close()


@pytest.mark.parametrize("name", ["..", ".", "../elsewhere", "/etc", "a/b", "", "link"])
def test_a_name_cannot_lead_out_of_the_store(tmp_path: Path, name: str):
    (tmp_path / "store").mkdir()
    (tmp_path / "store-2").mkdir()
    (tmp_path / "store" / "link").symlink_to(tmp_path / "store-2")

    with pytest.raises(StoreError, match="is no run"):
        Store(tmp_path / "store").kept(name)


def test_unknown_runs_are_answered_with_the_known_ones(tmp_path: Path):
    with pytest.raises(StoreError, match="has no run 'abc'; it has none"):
        Store(tmp_path).spec("abc")


def test_the_table_has_a_row_a_run(tmp_path: Path):
    store = Store(tmp_path)
    assert store.table().empty
    for seed in (0, 1):
        run = store.open(replace(toy_spec(limit=3), seed=seed))
        run.finish(steps=2 + seed)
        run.close()

    table = store.table()

    assert table.index.tolist() == store.names()
    assert sorted(table["seed"]) == [0, 1]
    assert sorted(table["steps"]) == [2, 3]
    assert set(table["outcome"]) == {"budget"}
    assert table["smse"].between(0, 2).all()
    assert isinstance(table, pd.DataFrame)


def test_a_note_stays_with_its_run_and_never_half_of_it(tmp_path: Path):
    store, spec = Store(tmp_path), toy_spec()
    with pytest.raises(StoreError, match="store the run first"):
        store.annotate(spec.key(), "nothing there yet")
    run = store.open(spec)
    assert store.note(spec.key()) == ""

    store.annotate(spec.key(), "σ² too <b>small</b>?\nlook again")  # while the run is open for writing
    (tmp_path / spec.key() / "note.txt.1.new").write_text("torn")  # a writer that was killed half-way
    run.finish(steps=2)
    run.close()

    assert store.note(spec.key()) == "σ² too <b>small</b>?\nlook again"
    assert len(store.kept(spec.key()).records) == 3
    with pytest.raises(StoreError, match="2001 characters; shorten it to 2000"):
        store.annotate(spec.key(), "x" * 2001)
    with pytest.raises(StoreError, match="no run"):
        store.annotate("../elsewhere", "x")
    (tmp_path / spec.key() / "note.txt").write_bytes(b"\xff" + b"y" * 10**6)
    assert len(store.note(spec.key())) == 2000


def test_a_run_made_outside_the_store_can_be_put_into_it(tmp_path: Path):
    store, spec = Store(tmp_path), toy_spec()
    run = spec.open()
    run.finish(steps=3)
    assert store.put(run) == spec.key()
    run.finish(steps=5)
    store.put(run)
    store.put(run)

    kept = store.kept(spec.key())

    assert [record.index for record in kept.records] == list(range(6))
    assert all(same(first.step, second.step) for first, second in zip(kept.records, run.trace, strict=True))
    assert kept.memory == run.method.cost(run.problem).memory
    assert kept.outcome == run.outcome
    reopened = store.open(spec)
    reopened.finish(steps=7)
    assert len(store.kept(spec.key()).records) == 8
    with pytest.raises(StoreError, match="being written elsewhere"):
        store.put(run)
    reopened.close()


@pytest.mark.parametrize("put", [False, True])
def test_the_outcome_of_a_run_that_was_opened_again_names_its_starts(put: bool, tmp_path: Path):
    """Also where the kernel's own start was taken."""
    store, spec = Store(tmp_path), Spec("sgpr", {"num_inducing": 4}, data="snelson-like", budget={"steps": 6})
    whole = spec.open()
    whole.finish()
    assert "the kernel's own was taken" in whole.start_note
    begun = spec.open(store=None if put else store)
    begun.finish(steps=2)
    if put:
        store.put(begun)
    begun.close()

    again = spec.open(store=store)
    again.finish()
    again.close()

    assert again.start_note == whole.start_note
    assert again.outcome == whole.outcome == store.kept(spec.key()).outcome
