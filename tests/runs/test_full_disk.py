"""A disk on which nothing more fits: each file is refused in a sentence, and nothing is left of it."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import call, write
from gpexplorer import Spec, Store
from gpexplorer.errors import GPExplorerError
from gpexplorer.methods.base import registry
from gpexplorer.runs import Run
from gpexplorer.views.saved_page import page_file
from toy_method import Toy

resource = pytest.importorskip("resource", reason="needs a limit on the size of files")


@contextmanager
def full_disk(room: int = 0) -> Iterator[None]:
    """No file can become longer than this inside the context; what is printed is not kept in a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="module")
def run() -> Run:
    data = {"name": "friedman1", "n": 30}
    run = Spec("cholqr", {"num_inducing": 4}, kernel="se", data=data, budget={"steps": 1}).open()
    run.finish()
    return run


WRITERS: dict[str, Callable[[Run, Path], Any]] = {
    "a model": lambda run, folder: run.posterior(of="y").save(folder / "model.safetensors"),
    "a stored run": lambda run, folder: Store(folder / "store").put(run),
    "a new run": lambda run, folder: Store(folder / "store").open(run.spec),
    "a page": lambda run, folder: page_file.save_page(run, folder / "run.html"),
}


@pytest.mark.parametrize("what", WRITERS)
def test_a_full_disk_is_a_sentence_that_says_what_to_do(
    what: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_file, "page_of", lambda *_, **__: "the text of a page")
    with full_disk(), pytest.raises(GPExplorerError, match="free space on its disk, or choose a") as refused:
        WRITERS[what](run, tmp_path)
    assert "Errno" not in str(refused.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size] == []


def test_a_run_that_fills_the_disk_says_how_much_of_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(registry, "toy", Toy)
    monkeypatch.chdir(tmp_path)
    with full_disk(room=8_000):
        assert call("run", write(budget={"steps": 40}), "--out", "store", "--quiet") == 1
    printed = capsys.readouterr()
    [name] = Store("store").names()
    stored = len(Store("store").kept(name).records)
    assert 1 < stored < 40
    assert f"choose another store. The store has {stored} of its {stored + 1} records." in printed.err
    assert "in memory" not in printed.err
    assert "kept in" not in printed.out
    assert call("run", "spec.json", "--out", "store") == 0  # once there is room
    assert len(Store("store").kept(name).records) == 41


def test_predictions_that_do_not_fit_leave_no_file(run: Run, tmp_path: Path) -> None:
    run.posterior(of="y").save(tmp_path / "model")
    pd.DataFrame(np.zeros((3, 10))).to_csv(tmp_path / "rows.csv", index=False)
    said = io.StringIO()
    for out in ("p.csv", "p.parquet"):
        words = ("predict", str(tmp_path / "model"), str(tmp_path / "rows.csv"), "--out", str(tmp_path / out))
        with redirect_stdout(said), redirect_stderr(said), full_disk():
            assert call(*words) == 2
    assert said.getvalue().count("free space on its disk, or choose another --out.") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "rows.csv"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("command", ["methods", "kernels", "schema"])
def test_what_is_printed_on_a_full_disk_ends_with_a_sentence(command: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gpexplorer", command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.stderr.startswith("Error: Cannot print (No space left on device): free space on its disk")
    assert done.stderr.count("\n") == 1
    assert done.returncode == 2
