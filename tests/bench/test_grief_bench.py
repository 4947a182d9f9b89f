"""The benchmark's lines on a small set: every figure is there, none is judged."""

from __future__ import annotations

import re

import pytest

from gpexplorer.bench import mapped
from gpexplorer.bench.grief import report


def test_every_line_names_its_figure():
    lines = list(report("sin-product", p=30, rows=60, chains=3, iterations=100, large=300))

    said = "\n".join(lines)
    for words in ("GEMM", "Phi", "of the floor", "type II", "slopes", "MALA iterations", "chain steps a second"):
        assert words in said
    flat = [line for line in lines if re.match(r"n = +\d+: set-up", line)]
    assert len(flat) == 3


def test_rows_from_a_file_are_measured_in_time_and_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GPEXPLORER_MAPPED_DIR", "restored after the test")

    said = "\n".join(mapped.report(n=400, d=3, p=20, slopes=True))

    assert "396 rows to train on" in said
    assert len(re.findall(r"MB at most|at most \d+ MB", said)) == 2
    assert re.search(r"NLML and slopes at p = 20: .* of the floor at", said)
