"""The benchmark's lines on a small set: every figure is there, none is judged."""

from __future__ import annotations

import re

from gpexplorer.bench.grief import report


def test_every_line_names_its_figure():
    lines = list(report("sin-product", p=30, rows=60, chains=3, iterations=100, large=300))

    said = "\n".join(lines)
    for words in ("GEMM", "Phi", "of the floor", "type II", "slopes", "MALA iterations", "chain steps a second"):
        assert words in said
    flat = [line for line in lines if re.match(r"n = +\d+: set-up", line)]
    assert len(flat) == 3
