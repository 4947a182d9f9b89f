"""The files of the commands `sweep` and `run`: what is wrong in them is named as it is there, and so are lost runs."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commands import call
from gpexplorer import Spec, Store
from gpexplorer.methods.base import registry
from toy_method import ROWS, Toy

SPEC = {"method": "toy", "data": ROWS, "budget": {"steps": 1}}


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        ({"spec": SPEC}, 'The sweep has no "over": give {"spec": {...}, "over": {"num_inducing": [8, 32]}}.'),
        ({"over": {"seed": [0]}}, 'The sweep has no "spec": give'),
        ({"spec": SPEC, "over": {"block": 7}}, "The sweep over block is 7; give a list of values."),
        (
            {"spec": SPEC, "over": {"seed": [1], "block": "3, 4"}},
            "The sweep over block is '3, 4'; give a list of values.",
        ),
        (
            {"spec": SPEC, "over": [8, 32]},
            'over is [8, 32]; give names with lists of values, such as {"seed": [0, 1]}.',
        ),
        ({"spec": SPEC, "over": {}}, "The sweep has 0 runs"),
        ({"spec": SPEC, "over": {"seed": [0]}, "budget": {}}, "The sweep has an entry 'budget', and takes"),
        ({"spec": 3, "over": {"seed": [0]}}, "The spec is 3; it must be one object in braces."),
    ],
)
def test_a_mistake_in_the_file_of_a_sweep_is_named(
    grid: dict[str, Any],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setitem(registry, "toy", Toy)
    monkeypatch.chdir(tmp_path)
    Path("grid.json").write_text(json.dumps(grid))
    assert call("sweep", "grid.json") == 2
    assert f"Error: {sentence}" in capsys.readouterr().err


def test_a_run_that_another_process_writes_is_named_even_if_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(registry, "toy", Toy)
    monkeypatch.chdir(tmp_path)
    Path("grid.json").write_text(json.dumps({"spec": SPEC, "over": {"seed": [0, 1]}}))
    with closing(Store("runs-store").open(Spec.from_json(json.dumps({**SPEC, "seed": 1})))):
        assert call("sweep", "grid.json", "--quiet") == 1
    printed = capsys.readouterr()
    assert "seed=1 · Run" in printed.err
    assert "is being written elsewhere" in printed.err
    assert "seed=0" in printed.out
    assert "seed=0" not in printed.err


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"method": "toy",\n "seed": 3,\n}', " Line 3, column 1: "),
        ('{"method": "toy" "seed": 3}', " Line 1, column 18: Expecting ',' delimiter."),
        ("  \n", "\n"),
    ],
)
def test_json_that_was_edited_by_hand_is_refused_with_the_place(
    text: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Path("spec 1.json").write_text(text)
    for command in ("run", "sweep"):
        assert call(command, "spec 1.json") == 2
        assert f"spec 1.json: The spec is not JSON: it must be one object in braces.{place}" in capsys.readouterr().err
