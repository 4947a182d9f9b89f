"""The bench of distances: times in turns, and errors against exact differences."""

from __future__ import annotations

from typer.testing import CliRunner

from benchmarks.__main__ import app


def test_the_bench_prints_ratios_and_the_errors_of_both_formulas() -> None:
    options = ["squared-distances", "--lengthscale", "1e-4", "--repetitions", "3", "--largest", "300000"]
    result = CliRunner().invoke(app, options)

    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert [row[:4] for row in rows] == [["float64", "500", "500", "2"], ["float32", "500", "500", "2"]]
    for row in rows:
        assert float(row[5]) > 0.0
        assert float(row[6]) < 0.1 * float(row[7])  # at this lengthscale the plain formula loses digits
