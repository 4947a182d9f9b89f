"""The benchmark `load` with few visitors and little time."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.hammer.served_page import served_page
from benchmarks.page import load as page_load
from benchmarks.page.load import Load, Reading, row, summary, under_load

SMALL = "v=1&method=cholqr&set.num_inducing=8&data=hypercube&data.n=200&data.d=2&kernel=se-ard&budget.steps=1000000"


def test_a_short_load_is_read_at_regular_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[Reading] = []
    monkeypatch.setattr(page_load, "RUN", SMALL)  # of the one whose run plays; 20,000 rows would fill a core
    with served_page(tmp_path, max_sessions=20) as served, ThreadPoolExecutor(1) as other_thread:
        load = under_load(served, Load(users=2, players=1, idle=1, seconds=6.0), seen.append)
        readings = other_thread.submit(asyncio.run, load).result()  # a browser's loop may be running in this one

    assert seen == readings
    assert len(readings) == 12
    assert any(reading.p50 <= reading.p95 < 30 for reading in readings)
    assert all(reading.memory > 1e8 and reading.threads > 1 and reading.files > 6 for reading in readings)
    assert row(readings[0]).count("|") == 8
    assert "memory" in summary(readings)
