"""A program made from an uploaded file reads the file of that name and prints the number on the screen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpexplorer import Spec, data
from gpexplorer.data import Choice
from gpexplorer.errors import DataError
from gpexplorer.runs.code import notebook, program

NAME = 'my "rows" 2.csv'


def opened(folder: Path) -> tuple[Spec, float]:
    """The spec of three steps on some columns of an upload, and its score."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a b", "c", "price"]).assign(
        id=range(60), other=rng.normal(size=60)
    )
    frame["price"] += 3 * frame["c"]
    frame.to_csv(folder / NAME, index=False)
    choice = Choice(target="price", inputs=("a b", "c"))
    split = data.read_upload(NAME, (folder / NAME).read_bytes(), choice)
    named = {"name": "upload", "file": NAME, "target": "price", "inputs": ["a b", "c"]}
    run = Spec("cholqr", {"num_inducing": 6}, named, kernel="se").open(data=split)
    run.finish(steps=3)
    assert isinstance(run.spec, Spec)
    return run.spec, run.scores()["smse"]


def test_the_program_of_an_upload_prints_the_number_on_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    spec, score = opened(tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}

    exec(program(spec, 3).replace("print(", "result = ("), names)

    assert names["result"] == pytest.approx(score, rel=1e-8)
    assert 'my \\"rows\\" 2.csv' in notebook(spec, 3)


def test_other_rows_under_the_same_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    spec, _ = opened(tmp_path)
    monkeypatch.chdir(tmp_path)
    changed = (tmp_path / NAME).read_text().splitlines()
    (tmp_path / NAME).write_text("\n".join([changed[0], *changed[2:], changed[1]]))

    with pytest.raises(DataError, match="the spec was made for"):
        exec(program(spec, 3), {})
