"""A Parquet file as memory-mapped rows: the numbers and the sentences of a table in memory, without its memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import gpexplorer as gpx
from gpexplorer.data import mapped as mapping
from gpexplorer.data.mapped import safe_name
from gpexplorer.errors import DataError

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and strips so short that every file has several."""
    monkeypatch.setenv("GPEXPLORER_MAPPED_DIR", str(tmp_path / "mapped"))
    monkeypatch.setattr(mapping, "STRIP_BYTES", 7 * 8 * 4)
    return tmp_path


def columns(n: int = 40, shift: float = 0.0) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    columns_by_name: dict[str, Any] = {f"x{i}": shift + rng.random(n) for i in range(3)}
    return {
        **columns_by_name,
        "name": ["a"] * n,
        "y": shift + columns_by_name["x0"] - columns_by_name["x1"] + 0.1 * rng.standard_normal(n),
    }


def written(folder: Path, table: dict[str, Any], name: str = "rows.parquet") -> Path:
    pq.write_table(pa.table(table), folder / name, row_group_size=11)
    return folder / name


@pytest.mark.parametrize("shift", [0.0, 1e6])
@pytest.mark.parametrize("split", [3, {"test": 0.4, "seed": 2}, "all"])
def test_the_rows_are_those_of_a_table_in_memory(folder: Path, shift: float, split: Any):
    table = columns(shift=shift)
    table["x1"][[2, 30]] = np.nan
    table["x2"][:] = 5.0
    path = written(folder, table)

    whole = gpx.data.load(path, split, missing="drop", inputs=["x0", "x1", "x2"], target="y").scaled()
    strips = gpx.data.load(path, split, missing="drop", memory="mapped")

    for first, second in ((whole.train, strips.train), (whole.test, strips.test)):
        torch.testing.assert_close(second.X, first.X, rtol=1e-9, atol=1e-7)
        torch.testing.assert_close(second.y, first.y, rtol=1e-9, atol=1e-7)
        assert (second.names, second.target) == (first.names, first.target)
        assert first.scale
        assert second.scale
        torch.testing.assert_close(second.scale.x_sd, first.scale.x_sd, rtol=1e-9, atol=0)
        assert second.scale.y_mean == pytest.approx(first.scale.y_mean, rel=1e-13)
    assert strips.notes[1:] == whole.notes
    assert len(strips.notes) == 3  # text left out, rows left out, a constant input
    assert strips.scaled() is strips


def spoilt(**cells: Any) -> dict[str, Any]:
    table = columns()
    for column, (rows, value) in cells.items():
        table[column] = np.array(table[column], dtype=float if isinstance(value, float) else object)
        table[column][rows] = value
        table[column] = table[column].tolist()
    return table


BAD: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (spoilt(x1=([20, 31], float("nan")), y=([31, 32], float("nan"))), {"missing": "refuse"}),
    (spoilt(x2=([25, 39], float("inf"))), {}),
    (spoilt(x2=([25, 39], float("inf")), x0=([3], float("nan"))), {"missing": "drop"}),
    ({**columns(), "x1": [str(k) for k in range(38)] + ["1,5", "0.25"]}, {"inputs": ["x0", "x1"]}),
    ({**columns(), "x1": [str(k) for k in range(35)] + ["?"] * 4 + ["red"]}, {"inputs": ["x1"], "target": "y"}),
    ({**columns(), "x1": [None] * 40}, {"inputs": ["x1"], "target": "y"}),
    (columns(), {"target": "z"}),
    (columns(), {"target": "y", "drop": "y"}),
    (columns(), {"target": "name"}),
    ({**columns(), "y": [2.5] * 40}, {"target": "y"}),
    ({**columns(), "y": [float("nan")] * 38 + [1.0, 2.0]}, {"missing": "drop"}),
    ({"y": columns()["y"]}, {}),
    (columns(2), {}),
    (columns(), {"split": 10}),
]


@pytest.mark.parametrize(("table", "options"), BAD)
def test_errors_have_the_same_sentence_as_for_a_table_in_memory(
    folder: Path, table: dict[str, Any], options: dict[str, Any]
):
    path = written(folder, table)

    with pytest.raises(DataError) as whole:
        gpx.data.load(path, **options)
    with pytest.raises(DataError) as strips:
        gpx.data.load(path, **options, memory="mapped")

    assert str(strips.value) == str(whole.value)
    assert not list(folder.glob("mapped/*"))


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("rows.csv", {}, r'rows.csv: memory="mapped" reads Parquet'),
        ("rows.parquet", {"objects": "name"}, "needs columns of numbers"),
        ("rows.parquet", {"split": {"before": 3}}, "not in time"),
        ("rows.parquet", {"dtype": "int8"}, "choose one of float64, float32"),
        ("rows.parquet", {"memory": "half"}, 'choose "whole" or "mapped"'),
        ("rows.parquet", {"edits": [[1]]}, "cannot be edited"),
        ("none.parquet", {}, "There is no file"),
        ("text.parquet", {}, "is not a Parquet file that can be read"),
    ],
)
def test_what_cannot_be_mapped_is_refused(folder: Path, name: str, options: dict[str, Any], sentence: str):
    options = dict(options)
    written(folder, columns())
    (folder / "rows.csv").write_text("a,y\n1,2\n")
    (folder / "text.parquet").write_text("no parquet")

    split = options.pop("split", 0)
    with pytest.raises(DataError, match=sentence):
        gpx.data.load({"name": str(folder / name), "memory": "mapped", **options}, split)


def test_files_are_written_once_with_progress_and_again_for_other_content(folder: Path):
    calls: list[tuple[int, int]] = []
    path = written(folder, columns(), "rows ünd/../more.parquet".replace("/../", "-"))
    ask = {"memory": "mapped", "progress": lambda done, total: calls.append((done, total))}

    first = gpx.data.load(path, **ask)
    assert calls[-1] == (120, 120)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    calls.clear()
    repeated = gpx.data.load(path, **ask)
    assert calls == []
    assert repeated.key == first.key
    second = gpx.data.load(written(folder, columns(shift=1.0), path.name), **ask)

    assert calls
    assert second.key != first.key
    assert {file.name for file in folder.glob("mapped/*")} == {
        safe_name(split.key.removesuffix("/scaled")) for split in (first, second)
    }
    assert all(file.name.isascii() and " " not in file.name for file in folder.glob("mapped/*"))


def test_cancelling_leaves_no_files(folder: Path):
    def cancel(done: int, total: int) -> None:
        if done > 2 * total / 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gpx.data.load(written(folder, columns()), memory="mapped", progress=cancel)

    assert list((folder / "mapped").iterdir()) == []


def test_writing_to_a_mapped_tensor_does_not_change_the_file(folder: Path):
    path = written(folder, columns())
    first = gpx.data.load(path, memory="mapped").train
    before = first.X.clone()

    first.X.zero_()

    torch.testing.assert_close(gpx.data.load(path, memory="mapped").train.X, before, rtol=0, atol=0)


def test_a_full_disk_and_a_read_only_folder_give_a_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch):
    path = written(folder, columns())
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 100}))
    with pytest.raises(DataError, match=r"100 bytes free, and 1.28 kB are needed: set GPEXPLORER_MAPPED_DIR"):
        gpx.data.load(path, memory="mapped")
    monkeypatch.setenv("GPEXPLORER_MAPPED_DIR", str(path / "below"))
    with pytest.raises(DataError, match=r"cannot be written to .*set GPEXPLORER_MAPPED_DIR"):
        gpx.data.load(path, memory="mapped")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_spec_maps_rows_in_its_precision_and_runs_as_in_memory(folder: Path, dtype: str):
    path = written(folder, columns())
    fields = {"method": "grief", "settings": {"num_eigenfunctions": 8, "grid_points": 4, "subset": 30}, "dtype": dtype}
    whole = gpx.Spec(**fields, data=str(path)).open()
    spec = gpx.Spec.from_json(gpx.Spec(**fields, data={"name": str(path), "memory": "mapped"}).to_json())

    run = spec.open()
    for one in (whole, run):
        one.finish(steps=5)

    assert run.problem.train.y.dtype == getattr(torch, dtype)
    rough = 1e-6 if dtype == "float64" else 1e-2
    assert run.scores() == pytest.approx(whole.scores(), rel=rough)
    assert run.table()["objective"].iloc[-1] == pytest.approx(whole.table()["objective"].iloc[-1], rel=rough)


CHILD = """
import json, sys, torch
import gpexplorer as gpx
from gpexplorer.runs.studies.measured_run import high_water

torch.set_num_threads(1)
settings = {"num_eigenfunctions": 18, "grid_points": 4, "subset": 50, "evaluations": 2, "max_rounds": 1}
for path in sys.argv[1:]:  # the first, small, brings what libraries load on first use
    asked = {"name": path, "memory": "mapped"}
    peak = high_water()
    train = gpx.data.load(asked, split={"test": 0.01}, progress=lambda done, total: None).train
    loading, peak = peak(), high_water()
    run = gpx.Spec("grief", settings, data=asked, split={"test": 0.01}).open()
    run.finish(steps=3)
    learning, held = peak(), train.X.nbytes + train.y.nbytes
print(json.dumps([loading, learning, held, run.scores()["smse"]]))
"""


def test_a_file_larger_than_the_memory_limit_is_loaded_and_learned_from(folder: Path, root: Path):
    rng = np.random.default_rng(0)
    paths = []
    for n in (200, 320_000):
        X = rng.random((n, 15), dtype=np.float32)
        table = {f"x{i}": X[:, i] for i in range(15)} | {"y": X[:, 0] - X[:, 1]}
        pq.write_table(pa.table(table), folder / f"{n}.parquet", use_dictionary=False, compression=None)
        paths.append(str(folder / f"{n}.parquet"))

    page = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *paths],
        cwd=root,
        env=os.environ | page,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loading, learning, nbytes, smse = json.loads(done.stdout)

    assert nbytes > 38e6
    assert loading < 25e6
    assert learning < nbytes + 25e6  # the file's own pages, which the system may take back, and little beyond
    assert smse < 0.5
