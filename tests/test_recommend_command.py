"""The command `recommend`: the Spec that it writes is one that `run` takes, and its mistakes are sentences."""

from __future__ import annotations

import functools
import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpexplorer as gpx
from commands import call
from gpexplorer import recommendation
from gpexplorer.errors import DataError
from gpexplorer.recommendation.candidates import Candidate

QUICK = Candidate("twelve", "inducing points", "random", "se-ard", {"num_inducing": 12, "learn": False})


def table(rows: int = 80) -> pd.DataFrame:
    random = np.random.default_rng(3)
    dose, age = random.uniform(0, 5, rows), random.uniform(20, 80, rows)
    crop = np.sin(dose) + 0.02 * age + 0.1 * random.normal(size=rows)
    ward = np.arange(rows) % 8
    return pd.DataFrame({"dose": dose, "yield": crop, "age": age, "ward": ward, "noise": crop - dose})


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recommendation, "recommend", functools.partial(gpx.recommend, among=[QUICK]))
    table().round(4).to_csv("trial 1.csv", index=False)


def recommended(*options: str) -> gpx.Spec:
    """The Spec of an answer, as the command has written it."""
    assert call("recommend", *options, "--seconds", "1", "--quiet", "--out", "answer.json") == 0
    return gpx.Spec.from_json(Path("answer.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ((), {}),
        (("--target", "yield"), {"target": "yield"}),
        (("--target", "yield", "--inputs", "age", "--inputs", "dose"), {"target": "yield", "inputs": ["age", "dose"]}),
        (("--drop", "noise", "--kind", "age=words"), {"drop": ["noise"], "kinds": {"age": "words"}}),
        (("--target", "yield", "--groups", "ward"), {"target": "yield", "groups": "ward"}),
    ],
)
def test_the_spec_of_an_answer_runs_on_all_rows_of_the_file_with_its_options(
    options: tuple[str, ...], chosen: dict[str, object]
) -> None:
    spec = recommended("trial 1.csv", *options)
    assert call("run", "answer.json", "--model", "model.safetensors", "--quiet") == 0
    assert {name: value for name, value in spec.data.items() if name != "sha256"} == {"name": "trial 1.csv", **chosen}
    rows = spec.open().split
    read = gpx.load("trial 1.csv", split="all", **chosen)
    assert (len(rows.train), len(rows.test)) == (80, 0)
    assert (rows.train.target, rows.train.names) == (read.train.target, read.train.names)
    assert call("predict", "model.safetensors", "trial 1.csv", "--out", "predicted.csv") == 0
    assert len(pd.read_csv("predicted.csv")) == 80


def test_the_spec_of_an_answer_on_a_registered_set_runs_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    spec = recommended("snelson-like")
    assert (spec.data, spec.split) == ("snelson-like", 0)
    capsys.readouterr()
    assert call("run", "answer.json", "--model", "model.safetensors", "--quiet", "--json") == 0
    assert json.loads(capsys.readouterr().out)["scores"]["smse"] < 1.0


def test_groups_that_the_rows_suggest_are_in_the_spec() -> None:
    random = np.random.default_rng(0)
    patient = np.repeat(np.arange(12), 8)
    dose = random.uniform(size=96)
    response = dose + random.normal(size=12)[patient] + 0.05 * random.normal(size=96)
    pd.DataFrame({"patient": patient, "dose": dose, "response": response}).to_csv("panel.csv", index=False)
    assert recommended("panel.csv").data["groups"] == "patient"
    assert call("run", "answer.json", "--quiet") == 0


def test_a_file_that_has_changed_is_refused_and_the_message_says_how_to_take_it_anyway(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recommended("trial 1.csv", "--target", "yield")
    table(81).round(4).to_csv("trial 1.csv", index=False)
    assert call("run", "answer.json") == 2
    error = capsys.readouterr().err
    assert '"trial 1.csv" has changed' in error
    assert "data.sha256=null" in error
    assert call("run", "answer.json", "--set", "data.sha256=null", "--quiet") == 0


def test_a_part_of_the_rows_of_an_answer_can_be_held_out(capsys: pytest.CaptureFixture[str]) -> None:
    recommended("trial 1.csv")
    capsys.readouterr()
    assert call("run", "answer.json", "--set", 'split={"test": 0.25, "seed": 1}', "--quiet", "--json") == 0
    assert "smse" in json.loads(capsys.readouterr().out)["scores"]


def test_rows_that_were_in_memory_are_asked_for_in_words_of_both_doors(capsys: pytest.CaptureFixture[str]) -> None:
    frame = table()
    spec = gpx.recommend(frame, seconds=1.0, among=[QUICK], target="yield", drop=["noise"]).spec
    run = spec.open(data=frame)
    assert (run.split.train.target, len(run.split.train), "noise" in run.split.train.names) == ("yield", 80, False)
    with pytest.raises(DataError, match="the spec was made for"):
        spec.open(data=frame.iloc[1:])

    Path("answer.json").write_text(spec.to_json())
    assert call("run", "answer.json") == 2
    error = capsys.readouterr().err
    assert "were in memory: pass them again, open(data=...)" in error
    way_out = """--set 'data={"name": "FILE", "target": "yield", "drop": ["noise"]}'"""
    assert way_out in error
    data = way_out.removeprefix("--set '").removesuffix("'").replace("FILE", "trial 1.csv")
    assert call("run", "answer.json", "--set", data, "--quiet") == 0


def test_the_spec_of_an_answer_on_a_split_opens_with_that_split() -> None:
    split = gpx.load(table(), split={"test": 0.25, "seed": 0})
    answer = gpx.recommend(split, seconds=1.0, among=[QUICK])
    run = answer.spec.open(data=split)
    assert (len(run.split.train), len(run.split.test)) == (60, 20)


@pytest.mark.parametrize("first", ["row", "shelf"])
def test_inputs_that_leave_only_a_column_that_counts_the_rows_ask_for_the_target(
    first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = table()[["dose", "yield"]].assign(ward=[f"ward {row % 9}" for row in range(80)])
    counted.insert(0, first, np.arange(5, 85))
    counted.to_csv("counted.csv", index=False)
    inputs = ("recommend", "counted.csv", "--inputs", "dose", "--inputs", "yield", "--seconds", "1", "--quiet")
    assert call(*inputs) == 2
    error = capsys.readouterr().err
    assert f'"{first}" only counts the rows. Name the column to predict, --target NAME.' in error
    with pytest.raises(DataError, match="only counts the rows"):
        gpx.load(counted, inputs=["yield"], drop=["dose"])
    assert call(*inputs, "--target", first) == 0  # it is said, so it is so
    assert recommended("counted.csv", "--inputs", "dose").data["inputs"] == ["dose"]  # "yield" is left


def test_a_time_from_which_rows_are_held_out_needs_a_column_of_times(capsys: pytest.CaptureFixture[str]) -> None:
    needs = "needs a column of dates, or one that rises steadily from row to row: name it with --dates, or sort"
    for options in (("--before", "2.5"), ("--before", "2020-01-31")):
        assert call("recommend", "trial 1.csv", *options, "--seconds", "1", "--quiet") == 2
        assert f"Error: {shlex.join(options)} {needs}" in capsys.readouterr().err
    for options in (("--folds", "time"), ("--folds", "time", "--before", "2.5")):
        assert call("recommend", "trial 1.csv", *options, "--seconds", "1", "--quiet") == 2
        assert f"Error: {shlex.join(options[-2:])} {needs}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--folds", "foo"), '--folds is "foo"; give time, groups or random.'),
        (("--folds", "Time"), '--folds is "Time"; give time, groups or random.'),
        (("--folds", "KFold(5)"), '--folds is "KFold(5)"; give time, groups or random.'),
        (("--folds", "groups"), "--folds groups found no column of groups: name it with --groups."),
        (("--folds", "random", "--groups", "ward"), "--groups holds out whole groups, and --folds random single rows"),
        (
            ("--folds", "random", "--before", "3"),
            "--before holds out the last rows: give it alone or with --folds time",
        ),
        (("--prefer", "foo"), "--prefer is 'foo'; give"),
        (("--memory", "foo"), "--memory is 'foo'; give"),
    ],
)
def test_a_mistake_in_an_option_is_said_in_words_of_the_command_line(
    options: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table().drop(columns="ward").assign(ward=table()["age"].round()).round(4).to_csv("no groups.csv", index=False)
    assert call("recommend", "no groups.csv", *options, "--seconds", "1", "--quiet") == 2
    assert f"Error: {sentence}" in capsys.readouterr().err
