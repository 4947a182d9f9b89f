"""The lines of the benchmark on a small set: every figure is printed, and no figure is judged."""

from __future__ import annotations

import re

import pytest

from benchmarks import mapped_rows
from benchmarks.grief import report


def test_every_figure_is_printed_with_its_name():
    lines = list(report("sin-product", p=30, rows=60, chains=3, iterations=100, large=300))

    text = "\n".join(lines)
    for word in ("GEMM", "Phi", "of the limit", "type II", "derivatives", "MALA iterations", "chain steps per second"):
        assert word in text
    flat = [line for line in lines if re.match(r"n = +\d+: first pass", line)]
    assert len(flat) == 3


def test_time_and_memory_of_rows_in_a_file_are_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GPEXPLORER_MAPPED_DIR", "restored after the test")

    text = "\n".join(mapped_rows.report(n=400, d=3, p=20, slopes=True))

    assert "396 rows to train on" in text
    assert len(re.findall(r"MB at most|at most \d+ MB", text)) == 2
    assert re.search(r"NLML and gradient at p = 20: .* of the limit at", text)
