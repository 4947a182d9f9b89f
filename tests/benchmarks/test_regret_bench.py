"""The regret bench: its arithmetic on known cells, and one real cell of a small set."""

from __future__ import annotations

import json

import pytest

from benchmarks import regret
from benchmarks.arena import kept_cells
from gpexplorer import data


def cells(**smse):
    return {("set", 0, 5.0, name): {"smse": value, "nlpd": value, "coverage95": 0.95, "seconds": 5.0}
            for name, value in smse.items()}  # fmt: skip


def test_regret_is_against_the_best_of_our_own_methods_in_hindsight():
    scores = {
        **cells(recommend=0.11),
        ("set", 0, 5.0, "always cholqr"): {"smse": 0.1, "nlpd": 0.05, "coverage95": 0.9, "seconds": 5.0},
        ("set", 0, 5.0, "boosted trees"): {"smse": 0.05, "nlpd": -1.0, "coverage95": 0.9, "seconds": 1.0},
        ("set", 0, 5.0, "GPyTorch SGPR"): {"failed": "No answer.", "seconds": 5.0},
    }
    table = regret.report(scores)
    rows = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:]] for line in table.splitlines()
            if line.startswith("| ")}  # fmt: skip
    assert rows["recommend"][:3] == ["1", "10.0%", "0.060"]
    assert rows["always cholqr"][1:3] == ["0.0%", "0.000"]
    assert rows["boosted trees"][1:3] == ["-50.0%", "-1.050"]
    assert rows["GPyTorch SGPR"][5] == "1"


def test_a_line_that_was_cut_is_computed_again(tmp_path):
    path = tmp_path / "cells.jsonl"
    kept = json.dumps(["set", 0, 5.0, "recommend", {"smse": 0.1}])
    path.write_text(f"{kept}\n{kept[:20]}")
    assert list(kept_cells.read(path)) == [("set", 0, 5.0, "recommend")]


@pytest.mark.parametrize("name", ["always sgpr, matern32-ard", "boosted trees"])
def test_contenders_learn_from_the_training_rows_and_are_scored_on_the_test_rows(name):
    split = data.load({"name": "snelson-like", "n": 80})
    predict = dict(regret.contenders(split, 1.5, 0))[name]  # seconds of the clock, on a machine that is busy with tests
    cell = kept_cells.measured(split, predict)
    assert cell["smse"] < 0.7
    assert 0.6 < cell["coverage95"] <= 1
