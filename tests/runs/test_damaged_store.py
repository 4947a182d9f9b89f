"""A torn tail is cut, any changed byte is noticed, and a disk that refuses costs nothing that was computed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from gpexplorer import Spec, Store
from gpexplorer.errors import SettingError, StoreError
from gpexplorer.methods.base import registry
from gpexplorer.runs.storage import json_lines
from toy_method import Toy, toy_spec


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry, "toy", Toy)


def journal(store: Store, spec: Spec) -> Path:
    return store.directory(spec.key()) / "journal.jsonl"


@pytest.mark.parametrize("cut", [1, 2, 17, 18, 200, -1])
def test_a_torn_tail_is_cut_and_the_run_continues(tmp_path: Path, cut: int):
    store, spec = Store(tmp_path), toy_spec()
    run = store.open(spec)
    for _ in range(6):
        run.advance()
    run.close()
    path = journal(store, spec)
    whole = path.read_bytes()
    last = whole[:-1].rindex(b"\n") + 1
    path.write_bytes(whole[: last + cut] if cut > 0 else whole[:cut])

    assert len(store.kept(spec.key()).records) == 5  # a reader sees the whole lines
    reopened = store.open(spec)
    assert len(reopened.trace) == 5
    reopened.advance()
    reopened.close()

    assert len(store.kept(spec.key()).records) == 6
    torch.testing.assert_close(reopened.trace[5].step.state.alpha, run.trace[5].step.state.alpha)


def test_a_spec_that_cannot_be_read_is_named(tmp_path: Path):
    store, spec = Store(tmp_path), toy_spec()
    store.open(spec).close()
    path = store.directory(spec.key()) / "spec.json"
    path.write_text(path.read_text() + "x")
    with pytest.raises(SettingError, match=f"{spec.key()}.*spec.json: The spec is not JSON"):
        store.spec(spec.key())


def test_every_flipped_bit_is_noticed(tmp_path: Path):
    store, spec = Store(tmp_path), toy_spec()
    run = store.open(spec)
    for _ in range(4):
        run.advance()
    run.close()
    path = journal(store, spec)
    whole = path.read_bytes()
    places = [*range(0, len(whole), 97), *range(40), len(whole) - 1, whole.index(b"\n"), whole.index(b"\n") + 1]

    for place in places:
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << (place % 8)
        path.write_bytes(spoilt)
        with pytest.raises(StoreError, match=r"Line \d of .* does not match its checksum"):
            store.open(spec)
        assert path.read_bytes() == spoilt  # nothing is thrown away unasked


def test_repair_keeps_what_is_whole_and_sets_the_rest_aside(tmp_path: Path):
    store, spec = Store(tmp_path), toy_spec()
    run = store.open(spec)
    run.finish(steps=6)
    run.close()
    path = journal(store, spec)
    spoilt = path.read_bytes().replace(b'"index":4', b'"index":5')
    path.write_bytes(spoilt)
    assert store.table()["outcome"].tolist() == ["unreadable"]

    kept = store.repair(spec.key())

    assert path.with_suffix(".damaged").read_bytes() == spoilt
    assert kept == len(path.read_text().splitlines())
    reopened = store.open(spec)
    assert len(reopened.trace) == 4
    reopened.finish(steps=6)
    reopened.close()
    torch.testing.assert_close(reopened.trace[6].step.state.alpha, run.trace[6].step.state.alpha)
    assert store.repair(spec.key()) == len(path.read_text().splitlines())


def test_a_missing_record_is_noticed(tmp_path: Path):
    store, spec = Store(tmp_path), toy_spec()
    run = store.open(spec)
    for _ in range(5):
        run.advance()
    run.close()
    rows = journal(store, spec).read_bytes().splitlines(keepends=True)
    journal(store, spec).write_bytes(b"".join(rows[:3] + rows[4:]))

    with pytest.raises(StoreError, match="has record 3 where 2 is due: lines are missing"):
        store.open(spec)


def test_a_full_disk_ends_the_run_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store, spec = Store(tmp_path), toy_spec()
    run = store.open(spec)
    for _ in range(3):
        run.advance()
    real = os.write

    def full(file: int, raw: bytes) -> int:
        if len(raw) > 100:
            return real(file, raw[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json_lines.os, "write", full)
    outcome = run.finish(steps=9)
    monkeypatch.undo()
    monkeypatch.setitem(registry, "toy", Toy)

    assert outcome.reason == "failed"
    assert "No space left on device" in outcome.message
    assert len(run.trace) == 4  # in memory
    assert len(store.kept(spec.key()).records) == 3  # on disk, whole
    assert len(store.open(spec).trace) == 3


def test_a_store_that_cannot_be_made_is_a_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match=r"The store cannot keep a run in .*Not a directory"):
        Store(tmp_path / "file").open(toy_spec())
