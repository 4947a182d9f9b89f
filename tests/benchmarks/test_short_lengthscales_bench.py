"""The bench of short lengthscales: blocks with and without zeros, and a method, beside those of a lengthscale of 1."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from benchmarks import short_lengthscales
from benchmarks.__main__ import app


def test_the_bench_prints_shares_of_zeros_and_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_lengthscales, "METHODS", {"ml": (60, {})})
    options = ["short-lengthscales", "--rows", "50", "--short", "1e-3", "--repetitions", "2", "--only", "se-ard,ml"]
    result = CliRunner().invoke(app, options)

    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert [row[:3] for row in rows] == [
        [*what, scale]
        for what in (["se-ard", "float64"], ["se-ard", "float32"], ["ml", "60"])
        for scale in ("1", "0.001")
    ]
    assert [row[3] for row in rows[:4]] == ["0.00", "1.00", "0.00", "1.00"]
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        assert float(first[-1]) == 1.0
        assert float(second[-1]) > 0.0
