"""A small `benchmarks hammer`: every experiment with few cases, and the table that they fill."""

from __future__ import annotations

import builtins
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import hammer
from benchmarks.__main__ import app
from benchmarks.hammer import fuzz, hard_data, hostile_inputs, kills, scarcity
from benchmarks.hammer.measurement import Measurement
from benchmarks.hammer.readers import READERS
from benchmarks.trust.cells import reported_and_dense
from benchmarks.trust.report import TOLERANCE
from gpexplorer import Spec
from gpexplorer.errors import SettingError


@pytest.mark.parametrize("reader", sorted(READERS))
def test_no_hostile_input_breaks_a_reader(tmp_path: Path, reader: str) -> None:
    tried = fuzz.try_cases(reader, 100, tmp_path)

    assert tried.failures == []
    assert tried.answers > 2
    assert tried.sentences > 2 or reader == "link"  # whose answer holds its sentences


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the experiment forks its writers")
def test_killed_writers_lose_no_acknowledged_record(tmp_path: Path) -> None:
    [row] = kills.measure(0.006, tmp_path, print)

    assert row.held, row
    assert row.tried.startswith("6 kills")
    assert int(row.measured.split(" records")[0].replace(",", "")) >= 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the experiment forks")
def test_a_fork_of_a_process_whose_threads_have_worked_ends(tmp_path: Path) -> None:
    here, there = scarcity.answer(scarcity.FORKS, tmp_path / "forks", print)

    assert there == pytest.approx([here] * 4, rel=scarcity.SAME)


def test_a_sample_of_methods_and_hard_data_ends_with_sentences(tmp_path: Path) -> None:
    [row] = hard_data.measure(0.005, tmp_path, print)

    assert row.held, row


@pytest.mark.parametrize(
    ("rows", "method"),
    [(rows, method) for rows in ("no noise", "every row twice") for method in ("greedy-variance", "kmeans", "fitc")],
)
def test_learning_keeps_the_noise_where_the_objective_can_be_computed(rows: str, method: str) -> None:
    assert hard_data.run_cell(method, hard_data.hard_sets()[rows]) == "answered"


def test_the_objective_of_a_subset_is_right_at_every_step_without_noise() -> None:
    run = Spec("subset-of-data").open(data=hard_data.hard_sets()["no noise"])
    errors = []
    while run.advance() is not None:
        if result := reported_and_dense(run):
            errors.append(abs(result["objective"] / result["dense"] - 1.0))

    assert len(errors) > 20
    assert max(errors) < TOLERANCE["float64"]  # it was 3e-4 where a limit of time happened to stop the run


def test_a_wrong_objective_and_an_infinite_answer_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = hard_data.hard_sets()["few rows"]
    assert hard_data.run_cell("cholesky", rows) == "answered"
    monkeypatch.setattr(hard_data, "reported_and_dense", lambda run: {"objective": 1.0, "dense": 1.1})
    assert hard_data.run_cell("cholesky", rows).startswith("failed: the objective is 1, and 1.1 by dense algebra")
    monkeypatch.setattr(hard_data, "_inputs", lambda run: run.split.test.X * float("nan"))
    assert hard_data.run_cell("cholesky", rows).startswith(("failed", "refused"))
    assert hard_data.run_cell("cholesky", (rows[0], rows[1][:3])).startswith("refused: ")


def test_an_error_that_is_no_sentence_and_a_wrong_answer_are_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(text: bytes, _: Path) -> None:
        if len(text) % 2:
            raise KeyError(text)
        raise SettingError("odd")

    monkeypatch.setitem(READERS, "spec", READERS["spec"]._replace(read=broken))

    tried = fuzz.try_cases("spec", 8, tmp_path)

    assert len(tried.failures) == 8
    assert {failure.split(": ")[1] for failure in tried.failures} == {"KeyError", "AssertionError"}


def test_the_table_keeps_the_rows_of_other_experiments_and_a_failure_is_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def imported(name: str) -> Any:
        row = Measurement("3 | cases", f"seen by {name}", "all seen", not name.endswith("kills"))
        return SimpleNamespace(__doc__="Says nothing.", measure=lambda share, folder, report: [row])

    monkeypatch.setattr(hammer, "experiments", lambda: {"fuzz": "there.fuzz", "kills": "there.kills"})
    monkeypatch.setattr(hammer, "_imported", imported)

    good = CliRunner().invoke(app, ["hammer", "--only", "fuzz", "--out", str(tmp_path)])
    bad = CliRunner().invoke(app, ["hammer", "--only", "kills", "--out", str(tmp_path)])

    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert "| fuzz | 3 \\| cases | seen by there.fuzz | all seen | yes |" in bad.stdout
    assert "| kills | 3 \\| cases | seen by there.kills | all seen | **no** |" in (tmp_path / "hammer.md").read_text()


def test_every_experiment_is_found_by_its_file() -> None:
    assert {"fuzz", "hard-data", "kills", "workers"} <= set(hammer.experiments())
    with pytest.raises(SettingError, match=r"'fuz' is not known; did you mean 'fuzz'"):
        hammer.command(only="fuz")


def test_without_hypothesis_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any) -> Any:
        if name == "hypothesis":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(SettingError, match="pip install hypothesis"):
        hostile_inputs.strategies()
