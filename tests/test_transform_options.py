"""Transforms of the target on the command line: in a run, in a sweep, and in an answer of `recommend`."""

from __future__ import annotations

import functools
import json
import shlex
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import call
from gpexplorer import Run, Spec, Store, data, recommend, recommendation
from gpexplorer.methods.base import registry
from gpexplorer.recommendation.candidates import Candidate
from toy_method import ROWS, Toy


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(registry, "toy", Toy)
    monkeypatch.chdir(tmp_path)
    x = np.linspace(0.0, 6.0, 60)
    pd.DataFrame({"x": x, "price": np.exp(6.0 + np.sin(x))}).to_csv("rows.csv", index=False)


def write(**fields: Any) -> str:
    Path("spec.json").write_text(json.dumps({"gpexplorer": 1, "method": "toy", "data": ROWS, **fields}))
    return "spec.json"


@pytest.mark.parametrize("words", [["--target-transform", "yeo-johnson 0.50"], ["--set", "target_transform=log"]])
def test_a_run_learns_a_transformed_target_and_scores_the_target(words: list[str], capsys: pytest.CaptureFixture[str]):
    name = write(method="cholqr", settings={"num_inducing": 8}, data="rows.csv", target_transform="yeo-johnson")

    assert call("run", name, *words, "--set", "budget.steps=3", "--json", "--quiet") == 0

    [key] = Store("runs-store").names()
    spec = Store("runs-store").spec(key)
    assert spec.target_transform == {"--target-transform": "yeo-johnson 0.5", "--set": "log"}[words[0]]
    run = spec.open()
    run.finish()
    assert json.loads(capsys.readouterr().out)["scores"]["nlpd"] == pytest.approx(run.scores()["nlpd"], rel=1e-9)
    test = data.load("rows.csv").test
    density = run.posterior(of="y").log_density(test.X, test.y)
    assert run.scores()["nlpd"] == pytest.approx(-float(density.mean()), rel=1e-6)
    assert call("run", name, "--target-transform", "", "--set", "budget.steps=1", "--quiet") == 0
    assert "" in {Store("runs-store").spec(key).target_transform for key in Store("runs-store").names()}


def test_an_interrupted_run_with_a_transform_is_continued_by_the_command_that_it_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    name = write(budget={"steps": 5})
    with monkeypatch.context() as patch:
        finish = Run.finish
        patch.setattr(Run, "finish", lambda run: (signal.raise_signal(signal.SIGINT), finish(run)))
        assert call("run", name, "--target-transform", "yeo-johnson 0.5", "--quiet") == 130
    command = capsys.readouterr().err.strip().splitlines()[-1]

    assert call(*shlex.split(command)[3:]) == 0

    [key] = Store("runs-store").names()
    assert Store("runs-store").spec(key).target_transform == "yeo-johnson 0.5"
    assert len(Store("runs-store").kept(key).records) == 6


def test_a_sweep_compares_transforms_by_scores_of_the_target(capsys: pytest.CaptureFixture[str]):
    spec = {"method": "cholqr", "settings": {"num_inducing": 8}, "data": "rows.csv", "budget": {"steps": 3}}
    over = {"target_transform": ["", "log", "yeo-johnson 0.5"]}
    Path("grid.json").write_text(json.dumps({"spec": spec, "over": over}))

    assert call("sweep", "grid.json", "--json", "--quiet") == 0

    rows = {row["run"]: row for row in json.loads(capsys.readouterr().out)}
    assert len(rows) == 3
    log = next(row for name, row in rows.items() if "log" in name)
    run = Spec.from_json(json.dumps({**spec, "target_transform": "log"})).open()
    run.finish()
    assert "target_transform=log" in log["differs"]
    assert log["smse"] == pytest.approx(run.scores()["smse"], rel=1e-8)
    Path("grid.json").write_text(json.dumps({"spec": spec, "over": {"target_transform": ["box-cox"]}}))
    assert call("sweep", "grid.json") == 2
    assert "target_transform is 'box-cox'; give" in capsys.readouterr().err


@pytest.mark.parametrize("transform", ["log", ""])
def test_an_answer_shows_and_saves_the_transform_of_its_model(
    transform: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    settings = {"num_inducing": 12, "learn": False}
    among = [Candidate("twelve", "inducing points", "random", "se-ard", settings, target_transform=transform)]
    monkeypatch.setattr(recommendation, "recommend", functools.partial(recommend, among=among))

    assert call("recommend", "rows.csv", "--seconds", "1", "--quiet", "--json", "--out", "answer.json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert call("recommend", "rows.csv", "--seconds", "1", "--quiet") == 0
    printed = capsys.readouterr().out

    assert answer["target_transform"] == transform
    assert answer["spec"].get("target_transform", "") == transform
    assert Spec.from_json(Path("answer.json").read_text()).target_transform == transform
    assert ("of the logarithm of the target" in printed) == bool(transform)
