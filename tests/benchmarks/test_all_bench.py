"""The table of all families: ratios to the floor, and which lines moved since a former day."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest
from typer.testing import CliRunner

from benchmarks import all as all_bench
from benchmarks.__main__ import app, main
from benchmarks.timing import limits
from gpexplorer import methods


def test_it_names_methods_that_exist():
    assert set(all_bench.SETTINGS) <= set(methods)


def test_a_line_has_moved_only_beyond_the_spread_of_both_days_and_a_twentieth():
    before = [1.00, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06]

    assert all_bench.moved([1.3 * ratio for ratio in before], before) == "+30%"
    assert all_bench.moved([0.5 * ratio for ratio in before], before) == "-50%"
    assert all_bench.moved([1.02 * ratio for ratio in before], before) == "within noise"
    assert all_bench.moved([1.04 * ratio for ratio in [1.0] * 7], [1.0] * 7) == "within noise"  # sure, but small
    assert all_bench.moved([0.5, 0.6, 1.0, 1.3, 1.6, 1.8, 2.0], before) == "within noise"


def test_a_table_is_written_and_compared_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(limits, "SQUARE", 1500)  # ratios are judged here, and short products have no steady rate
    # With 200 rows the first block of gbcd solved all, and a call that found this out was timed as a step.
    for name, value in {"ROWS": 600, "DENSE_ROWS": 60, "QUICK": 4}.items():
        monkeypatch.setattr(all_bench, name, value)
    (tmp_path / "before.json").write_text(json.dumps({"gbcd": [0.01, 0.011, 0.012, 0.013]}))
    files = ["--before", str(tmp_path / "before.json"), "--out", str(tmp_path / "day.json")]

    done = CliRunner().invoke(app, ["all", "--quick", "--only", "gbcd,ml", *files])
    ratios = json.loads((tmp_path / "day.json").read_text())

    assert done.exit_code == 0
    assert {key: len(values) for key, values in ratios.items()} == {"gbcd": 4, "ml": 4}
    assert min(map(median, ratios.values())) > 1.0  # one floor may be measured while another program takes the core
    title, gbcd, ml = done.output.splitlines()
    assert title.split() == ["method", "ms", "per", "step", "over", "floor", "quartiles", "and", "calls", "since"]
    assert gbcd.split()[0] == "gbcd"
    assert int(gbcd.split()[-1].strip("+%")) > 7_000
    assert 0.0 < float(gbcd.split()[-2]) <= float(gbcd.split()[2])  # rounded
    assert ml.split()[-1] == "new"


def test_an_error_is_a_sentence(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        main(["cholqr", "--data", "nowhere"])
    assert end.value.code == 2
    assert "Error: " in (said := capsys.readouterr().err)
    assert "nowhere" in said
