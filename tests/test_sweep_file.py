"""The file of the command `sweep`: what is wrong in it is named as it is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import call
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
