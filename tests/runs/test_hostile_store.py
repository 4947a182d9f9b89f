"""Every run of a store stands alone, and a run's directory that someone else wrote reads and changes no other file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpexplorer import Spec, Store
from gpexplorer.errors import StoreError
from gpexplorer.methods.base import registry
from gpexplorer.problem import Step
from gpexplorer.runs.storage import codec, json_lines
from gpexplorer.runs.storage.json_lines import Lines
from gpexplorer.runs.studies import comparison
from gpexplorer.runs.trace import tensors
from toy_method import Toy, same, toy_spec

SECRET = b"root:x:0:0: a secret of another file, without a newline at its end"


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry, "toy", Toy)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """The directory of a run of three steps in a store."""
    return stored_run(Store(tmp_path / "store"), 0)


def stored_run(store: Store, seed: int) -> Path:
    spec = Spec("toy", {}, toy_spec().data, seed=seed)
    run = store.open(spec)
    run.finish(steps=3)
    run.close()
    return store.path / spec.key()


def checksummed(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode() + b" " + text + b"\n"


def with_record(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Change record 2 of a journal, with a correct checksum."""

    def spoil(directory: Path) -> None:
        path = directory / "journal.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        [place] = [k for k, line in enumerate(lines) if json.loads(line[17:]).get("index") == 2]
        entry = json.loads(lines[place][17:])
        change(entry)
        lines[place] = checksummed(json.dumps(entry).encode())
        path.write_bytes(b"".join(lines))

    return spoil


def with_line(text: bytes) -> Callable[[Path], None]:
    """Add a line to a journal, with a correct checksum."""

    def spoil(directory: Path) -> None:
        with (directory / "journal.jsonl").open("ab") as file:
            file.write(checksummed(text))

    return spoil


def instead(name: str, make: Callable[[Path], Any]) -> Callable[[Path], None]:
    """Put something else in the place of a file."""

    def spoil(directory: Path) -> None:
        (directory / name).unlink()
        make(directory / name)

    return spoil


def place_on(device: str) -> Callable[[dict[str, Any]], Any]:
    return lambda entry: entry["state"]["fields"]["alpha"].update(on=device)


READABLE = {"a GPU": with_record(place_on("cuda:0")), "no device": with_record(place_on("meta"))}
SPOILT = {
    "deep nesting": with_line(b'{"index":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
    "not JSON": with_line(b"no JSON"),
    "bad UTF-8": with_line(b'{"index": "\xff\xfe"}'),
    "a huge integer": with_line(b'{"index": ' + b"9" * 5000 + b"}"),
    "infinite entries": with_record(lambda entry: entry.update(entries=float("inf"))),
    "a list": with_line(b"[1, 2]"),
    "scores of no record": with_line(b'{"at": -99, "scores": {"smse": 1}}'),
    "an info of text": with_record(lambda entry: entry["info"]["fields"].update(objective="much")),
    "a directory for the journal": instead("journal.jsonl", Path.mkdir),
    "a directory for the spec": instead("spec.json", Path.mkdir),
    "a spec of bad UTF-8": instead("spec.json", lambda path: path.write_bytes(b'{"method": "\xff"}')),
    "a spec that is a pipe": instead("spec.json", os.mkfifo),
    "a journal that is a pipe": instead("journal.jsonl", os.mkfifo),
    "a spec that is a link": instead("spec.json", lambda path: path.symlink_to("/etc/hostname")),
    "a note that is a pipe": lambda directory: os.mkfifo(directory / "note.txt"),
}


def test_every_bad_run_is_named_and_hides_no_other(tmp_path: Path):
    store = Store(tmp_path)
    good, bad = stored_run(store, 0), {}
    for name, spoil in {**SPOILT, **READABLE}.items():
        bad[name] = tmp_path / hashlib.sha256(name.encode()).hexdigest()[:16]
        shutil.copytree(good, bad[name])
        spoil(bad[name])

    table = store.table()
    runs, unreadable = comparison.read_store(store)

    assert len(table) == len(SPOILT) + len(READABLE) + 1
    named = {name for name in SPOILT if table.loc[bad[name].name, "outcome"] == "unreadable"}
    assert named == set(SPOILT) - {"a note that is a pipe", "an info of text"}  # which the table does not read
    assert all(str(message).endswith(".") for message in table["message"])
    assert table.loc[[good.name, *(bad[name].name for name in READABLE)], "outcome"].eq("budget").all()
    assert set(unreadable) == {bad[name].name for name in SPOILT}
    assert set(runs) == {good.name, *(bad[name].name for name in READABLE)}
    assert set(store.recent(99)) >= set(runs)


@pytest.mark.parametrize(
    ("before", "head"),
    [(b"", b""), (b"", b'0123456789abcdef {"index": 1'), (checksummed(b'{"memory": 1.0}'), b"{")],
)
def test_a_sparse_journal_of_a_gigabyte_takes_no_memory_and_is_named(tmp_path: Path, before: bytes, head: bytes):
    store = Store(tmp_path)
    good, bad = stored_run(store, 0), stored_run(store, 1)
    with (bad / "journal.jsonl").open("wb") as file:
        file.write(before + head)
        file.truncate(2**30)
    tracemalloc.start()
    try:
        table = store.table()
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()

    assert table.loc[good.name, "steps"] == 3
    assert table.loc[bad.name, "outcome"] == "unreadable"
    assert f"Line {1 + bool(before)} of" in table.loc[bad.name, "message"]
    assert store.repair(bad.name) == bool(before)
    assert store.kept(bad.name).records == []


def test_long_lines_are_read_and_longer_ones_than_the_limit_are_named(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    store = Store(run_dir.parent)
    records = store.kept(run_dir.name).records
    monkeypatch.setattr(json_lines, "PIECE", 100)
    assert same(store.kept(run_dir.name).records[-1].step, records[-1].step)
    monkeypatch.setattr(json_lines, "LONGEST", 300)
    with pytest.raises(StoreError, match=r"has more than .* MB"):
        store.kept(run_dir.name)


@pytest.mark.parametrize("limit", ["MOST_OF_LINE", "MOST_OF_FILE"])
def test_lines_of_many_small_values_take_no_memory_and_are_named(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, limit: str
):
    """A list of empty objects took 24 times its bytes: a file of a gigabyte, which an archive of a megabyte holds."""
    store = Store(run_dir.parent)
    lines = len((run_dir / "journal.jsonl").read_bytes().splitlines())
    monkeypatch.setattr(json_lines, limit, 10_000)
    for _ in range(1 if limit == "MOST_OF_LINE" else 100):
        with_line(b'{"index": 3, "a": [' + b"{}," * (300_000 if limit == "MOST_OF_LINE" else 3_000) + b"0]}")(run_dir)
    tracemalloc.start()
    try:
        with pytest.raises(StoreError, match=r"has more than 10,000 numbers and texts\.") as caught:
            store.kept(run_dir.name)
        assert tracemalloc.get_traced_memory()[1] < 6e6
    finally:
        tracemalloc.stop()
    assert f"Line {lines + (1 if limit == 'MOST_OF_LINE' else 2)} of" in str(caught.value)
    assert store.table().loc[run_dir.name, "outcome"] == "unreadable"


def test_a_state_moves_to_the_device_that_is_there(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    store, name = Store(run_dir.parent), run_dir.name
    before = store.kept(name).records[2].step
    with_record(place_on("cuda:0"))(run_dir)

    after = store.kept(name).records[2].step

    assert same(before, after)
    on_cpu = "cuda" if torch.cuda.is_available() else "cpu"
    assert {part.device.type for part in tensors(after)} <= {"cpu", on_cpu}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    stored_places = ("cpu", "cuda:1", "cuda:7", "cuda", "meta", "cuda:-1", "cuda:x", 3)
    places = [str(codec.device_here(place)) for place in stored_places]
    assert places == ["cpu", "cuda:1", "cuda", "cuda", "cpu", "cpu", "cpu", "cpu"]


def test_a_state_that_is_nested_without_end_is_refused():
    state: Any = 1
    for _ in range(5000):
        state = {"tuple": [state]}

    with pytest.raises(StoreError, match="does not fit its method"):
        codec.decode({"state": state, "info": 1, "tensors": codec.encode(Step(1, 1))["tensors"]}, {})


def test_a_link_in_a_run_shows_no_other_file(run_dir: Path, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    store = Store(run_dir.parent)
    (run_dir / "note.txt").symlink_to(secret)

    with pytest.raises(StoreError, match=r"note.txt is a link") as failure:
        store.note(run_dir.name)
    assert "secret of" not in str(failure.value)
    store.annotate(run_dir.name, "mine")
    assert store.note(run_dir.name) == "mine"
    assert secret.read_bytes() == SECRET


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to, lambda path, _: path.write_bytes(SECRET)])
def test_a_journal_that_is_not_ours_is_never_mended(run_dir: Path, tmp_path: Path, plant: Callable[..., Any]):
    secret, journal = tmp_path / "secret", run_dir / "journal.jsonl"
    secret.write_bytes(SECRET)
    journal.unlink()
    plant(journal, secret)
    store = Store(run_dir.parent)

    for read in (lambda: store.open(store.spec(run_dir.name)), lambda: store.kept(run_dir.name)):
        with pytest.raises(StoreError, match=r"journal.jsonl (is a link|has 2 names|does not match its checksum)"):
            read()
    assert journal.read_bytes() == SECRET
    if journal.is_symlink():
        with pytest.raises(StoreError, match=r"journal\.jsonl is a link"):
            store.repair(run_dir.name)
    else:
        assert store.repair(run_dir.name) == 0
    assert secret.read_bytes() == SECRET


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to, lambda path, _: os.mkfifo(path)])
def test_a_note_replaces_what_stands_in_its_place(run_dir: Path, tmp_path: Path, plant: Callable[..., Any]):
    """A pipe would be waited for without end."""
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    plant(run_dir / "note.txt", secret)
    store = Store(run_dir.parent)

    store.annotate(run_dir.name, "mine")

    assert store.note(run_dir.name) == "mine"
    assert secret.read_bytes() == SECRET
    assert stat.S_ISREG((run_dir / "note.txt").lstat().st_mode)


def test_a_planted_link_is_not_written_through(run_dir: Path, tmp_path: Path):
    secret, store = tmp_path / "secret", Store(run_dir.parent)
    secret.write_bytes(SECRET)
    for name in ("note.txt", "spec.json"):
        (run_dir / f"{name}.{os.getpid()}.new").symlink_to(secret)
    (run_dir / "lock").unlink(missing_ok=True)
    (run_dir / "lock").symlink_to(secret)

    store.annotate(run_dir.name, "a note")
    with pytest.raises(StoreError, match="cannot keep a run"):
        store.open(store.spec(run_dir.name))

    assert secret.read_bytes() == SECRET


@pytest.mark.parametrize("name", ["\0", "a" * 300, "\ud800", "a\nb"])
def test_a_name_that_no_run_can_have_gets_a_sentence(run_dir: Path, name: str):
    store = Store(run_dir.parent)
    for read in (store.spec, store.kept, store.note, store.repair):
        with pytest.raises(StoreError, match=r"is no run"):
            read(name)


def test_a_second_append_after_a_full_disk_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, real = tmp_path / "journal.jsonl", os.write
    lines = Lines(path)
    lines.append({"a": 1})

    def full(file: int, raw: bytes) -> int:
        if len(raw) > 20:
            return real(file, raw[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json_lines.os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        lines.append({"b": "x" * 20})
    monkeypatch.undo()
    lines.append({"c": 3})
    lines.close()

    assert json_lines.read_whole(path).lines == [{"a": 1}, {"c": 3}]
    assert b"\0" not in path.read_bytes()


def test_no_file_of_an_interrupted_write_stays(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    store, fsync = Store(run_dir.parent), os.fsync

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        store.annotate(run_dir.name, "a note")
    monkeypatch.setattr(os, "fsync", fsync)
    assert not list(run_dir.glob("*.new*"))

    for name, age in (("spec.json.7.new", 0.0), ("note.txt.7.new", 3600.0), ("note.txt.8.new", 0.0)):
        (run_dir / name).write_text("half")
        os.utime(run_dir / name, (time.time() - age,) * 2)
    store.open(store.spec(run_dir.name)).close()
    assert [path.name for path in run_dir.glob("*.new")] == ["note.txt.8.new"]  # it may be being written just now


def test_a_store_that_is_deleted_under_a_run_is_noticed(tmp_path: Path):
    store, spec = Store(tmp_path / "store"), toy_spec()
    run = store.open(spec)
    assert run.advance() is not None
    shutil.rmtree(store.path)

    run.advance()

    assert run.outcome is not None
    assert run.outcome.reason == "failed"
    journal = store.path / spec.key() / "journal.jsonl"
    assert run.outcome.message == f"{journal} was deleted while the run was writing to it: keep the run again."
    assert len(run.trace) == 2  # in memory


def test_a_store_that_cannot_be_written_is_reported_before_anything_runs(tmp_path: Path):
    with pytest.raises(StoreError, match=r"/dev/null .*choose a directory"):
        Store("/dev/null").require_writable()
    Store(tmp_path / "new").require_writable()
    assert (tmp_path / "new").is_dir()
