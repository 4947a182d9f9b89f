"""The arena: verdicts on known cells, other programs that learn, and a small run that continues where it stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from benchmarks import environment
from benchmarks.__main__ import app
from benchmarks.arena import kept_cells, other_programs
from benchmarks.arena.contenders import CONTENDERS, GP
from benchmarks.arena.verdicts import frame_of, markdown, verdicts
from gpexplorer import data


def cells(name, seed=0, **nlpd):
    return {
        (name, seed, 5.0, contender.replace("_", " ")): {
            "smse": 0.1, "nlpd": value, "coverage95": 0.95, "seconds": 5.0, "megabytes": 10.0,
        }
        for contender, value in nlpd.items()
    }  # fmt: skip


def test_the_verdict_compares_the_best_of_ours_with_the_best_other_gp_by_the_mean_over_seeds():
    scores = {
        **cells("won", recommend=0.5, cholqr=0.1, GPyTorch_SGPR=0.3, boosted_trees=0.2),
        **cells("won", 1, recommend=0.0, cholqr=0.5, GPyTorch_SGPR=0.3, boosted_trees=0.3),
        **cells("close", recommend=0.31, GPyTorch_SGPR=0.3, boosted_trees=0.1),
        **cells("lost", recommend=0.4, GPyTorch_SGPR=0.3, ridge=0.9),
    }
    judged = verdicts(frame_of(scores)).set_index("set")
    assert judged["verdict"].to_dict() == {"won": "first", "close": "close, trees", "lost": "behind"}
    assert judged.loc["won", "ours"] == "recommend"
    assert judged.loc["won", "NLPD of ours"] == pytest.approx(0.25)


def test_a_contender_without_an_answer_in_one_seed_has_no_score_and_is_counted():
    scores = {
        **cells("set", recommend=0.4, GPyTorch_exact=-1.0),
        **cells("set", 1, recommend=0.4),
        ("set", 1, 5.0, "GPyTorch exact"): {"failed": "It gave no answer within 60 s.", "seconds": 60.0},
    }
    assert verdicts(frame_of(scores))["verdict"].tolist() == ["first"]
    assert "| GPyTorch exact | 0 of 1 |" in markdown(scores)


def test_the_picture_shows_every_set_by_its_escaped_name(tmp_path):
    cells_file, drawn = tmp_path / "cells.jsonl", tmp_path / "arena.svg"
    for key, cell in cells("<b>set", recommend=0.5, ridge=2.5).items():
        kept_cells.keep(cells_file, key, cell)
    command = [sys.executable, "-m", "benchmarks.arena.picture", str(cells_file), str(drawn)]
    subprocess.run(command, check=True, env=environment())
    assert "&lt;b&gt;set" in drawn.read_text()


@pytest.mark.parametrize(
    "name", [name for name, each in CONTENDERS.items() if each.group == GP and "greedy" not in name]
)
def test_other_programs_learn_from_the_training_rows(name, monkeypatch):
    def sixty_steps(step, deadline):
        for _ in range(60):
            step()

    monkeypatch.setattr(other_programs, "_repeat", sixty_steps)
    split = data.load({"name": "snelson-like", "n": 80})
    cell = kept_cells.measured(split, lambda: CONTENDERS[name].predict(split, 0.5, 0))
    assert cell["smse"] < 0.9, cell
    assert 0.5 < cell["coverage95"] <= 1


def _end_at_once(number):
    os._exit(number)


def _never_end(number):
    time.sleep(60 * number)


def test_a_process_that_dies_or_does_not_end_is_a_cell_with_a_sentence(monkeypatch):
    assert "without an answer" in kept_cells.in_own_process(_end_at_once, 3, seconds=1.0)["failed"]
    monkeypatch.setattr(kept_cells, "LEAST_PATIENCE", 0.5)
    assert kept_cells.in_own_process(_never_end, 1, seconds=0.1)["failed"] == "It gave no answer within 0.5 s."


def test_the_command_continues_where_it_was_stopped(tmp_path):
    out = str(tmp_path / "arena")
    command = ["arena", "--sets", "friedman1", "--seconds", "0.2", "--seeds", "1", "--out", out, "--only", "ridge"]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    assert "| ridge | 1 of 1 |" in first.output
    kept = (tmp_path / "arena" / "cells.jsonl").read_text()
    CliRunner().invoke(app, command)
    assert (tmp_path / "arena" / "cells.jsonl").read_text() == kept
    assert "friedman1" in (tmp_path / "arena" / "arena.md").read_text()


def test_a_set_that_is_not_here_is_named():
    answer = CliRunner().invoke(app, ["arena", "--sets", "no-such-set"])
    assert "no-such-set" in str(answer.exception)
