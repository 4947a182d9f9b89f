"""Solvers on rows in a memory-mapped file: a run that is stopped, stored and continued equals an uninterrupted one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from gpexplorer import Spec
from gpexplorer.errors import NotPositiveDefinite
from gpexplorer.problem import Problem
from gpexplorer.runs import Store
from oracles_gbcd import quick, wavy

SETTINGS = {"learn": False, "block": 15, "chunk": 5, "coarse": 20, "mixed": True, "cache": 0.0, "tolerance": 0.0}


def written(folder: Path, n: int, shift: float) -> Path:
    rng = np.random.default_rng(1)
    X = rng.random((n, 2))
    y = np.sin(9 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(n)
    pq.write_table(pa.table({"a": shift + X[:, 0], "b": X[:, 1], "y": shift + y}), folder / "rows.parquet")
    return folder / "rows.parquet"


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_a_run_on_mapped_rows_continues_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: float):
    monkeypatch.setenv("GPEXPLORER_MAPPED_DIR", str(tmp_path / "mapped"))
    rows = {"name": str(written(tmp_path, 200, shift)), "target": "y", "memory": "mapped"}
    spec = Spec("gbcd", SETTINGS, data=rows, kernel={"name": "se-ard", "theta": [0.0, -0.5, 0.0, -2.0]})
    whole, store = spec.open(), Store(tmp_path / "store")
    whole.finish(steps=9)

    for until in (4, 9):  # opened twice: the second time from the stored records
        run = store.open(spec)
        assert run.done == (0 if until == 4 else 4)
        run.finish(steps=until)
        run.close()

    kept = store.kept(spec.key()).records
    assert len(kept) == len(whole.trace) == 10
    for stored_record, record in zip(kept, whole.trace, strict=True):
        torch.testing.assert_close(stored_record.step.state.alpha, record.step.state.alpha, rtol=1e-6, atol=1e-6)
        assert stored_record.step.info.active.tolist() == record.step.info.active.tolist()
    assert kept[-1].cost.entries > whole.trace[-1].cost.entries  # the coarse columns are computed twice


def test_a_signal_too_strong_for_float32_columns_is_solved_in_float64_and_refused_in_float32_with_a_way_out():
    task = wavy(n=400)
    strong = Problem(task.train, task.kernel, torch.tensor([5.0, 1.5, 1.5, -2.0], dtype=torch.float64))
    sized = {"coarse": 100, "block": 100, "chunk": 50, "tolerance": 1e-2}

    for mixed in (False, True):
        *_, last = quick("gbcd", mixed=mixed, **sized).steps(strong)
        assert last.info.largest <= 1e-2
        assert last.state.float64_from == mixed  # the first factor of float32 columns does not exist
    train = replace(task.train, X=task.train.X.float(), y=task.train.y.float())
    with pytest.raises(NotPositiveDefinite, match="Use dtype float64"):
        list(quick("gbcd", **sized).steps(Problem(train, strong.kernel, strong.theta.float())))
