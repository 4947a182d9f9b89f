"""The bench of limits: a line per method, which says what is predicted after a limit, or why nothing is."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from benchmarks import limits
from benchmarks.__main__ import app


def test_a_method_has_its_numbers_and_one_that_does_not_fit_its_sentence():
    fit, over, predict, error, share, steps = limits.measured("random", 1500, 0.5)

    assert float(fit) > 0.0
    assert float(over) == pytest.approx(float(fit) / 0.5, abs=0.2)
    assert float(predict) >= 0.0
    assert 0.9 < float(error) < 3.0  # the noise is 1, and the mean of all targets has 5
    assert 70 <= int(share.removesuffix("%")) <= 100
    assert int(steps) > 0
    assert limits.measured("states", 100, 0.5)[0].startswith("States needs one input")
    trees = limits.measured(limits.TREES, 1500, 0.5)
    assert 0.9 < float(trees[3]) < 3.0
    assert trees[4:] == ["", ""]


def test_a_process_that_does_not_end_is_a_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "PATIENCE", 0.5)
    monkeypatch.setattr(limits, "TREES", "random")  # the only one

    printed = CliRunner().invoke(app, ["limits", "--rows", "300", "--seconds", "0.1", "--methods", "random"])

    assert printed.exit_code == 0
    lines = printed.output.splitlines()
    assert lines[0].startswith("300 rows, a limit of 0.1 s, load")
    assert lines[4:] == ["| random | more than 0.05 | | | | | |"] * 2


def test_a_process_that_breaks_off_is_a_line():
    assert limits.line("nothing of this name", 300, 5.0).startswith("| nothing of this name | ")
    assert limits.line("random", -limits.NEW_ROWS - 1, 5.0) == "| random | ended with 1 | | | | | |"
