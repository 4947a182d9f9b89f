"""Values of new rows that training does not have, where it has one value alone or learned from other rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpexplorer as gpx
from gpexplorer.data.files.inputs_by_name import ModelInputs
from gpexplorer.runs.studies.prediction_table import predictions_of_file


def predicted(model: Any, path: Path, text: str) -> pd.DataFrame:
    path.write_text(text, "utf-8")
    return pd.concat(list(predictions_of_file(model, path)))


def test_another_value_than_the_only_one_of_training_is_named_at_every_door(tmp_path: Path) -> None:
    """Where training ticks rows by a 2 and leaves the others blank, a 0 and a 5 were predicted as the tick."""
    rng = np.random.default_rng(3)
    ticks, x, n = rng.integers(0, 2, 60), rng.uniform(0, 1, 60), "depth,tick,pump,site,since,y\n"
    rows = [f"{a:.3f},{2 * t or ''},7,north,2021-05-04,{a + 3 * t:.4f}\n" for a, t in zip(x, ticks, strict=True)]
    (tmp_path / "train.csv").write_text(n + "".join(rows))
    run = gpx.Spec("ml", kernel="linear", budget={"steps": 9}).open(data=gpx.load(tmp_path / "train.csv", split="all"))
    run.finish()
    run.posterior(of="y").save(tmp_path / "m.safetensors")
    model = gpx.load_posterior(tmp_path / "m.safetensors")
    assert run.problem.train.names == ("depth", "tick is missing")
    text = "depth,tick,pump,site,since\n.5,2.0,7,North,4 May 2021\n.5,,,,\n.5,0,7.0,north,2021-05-04\n.5,5,7,north,\n"
    answer = predicted(model, tmp_path / "new.csv", text)
    says = ["predicted", "filled: tick", 'value not seen: tick "0"; far', 'value not seen: tick "5"; far']
    assert (answer["why"].tolist(), answer["far"].tolist()) == (says, [0, 0, 1, 1])
    assert answer.attrs["notes"] == []
    child = gpx.data.read_rows("n.csv", text.encode(), ModelInputs(reader=run.problem.train.reader))
    assert child.beyond is not None
    assert child.beyond.tolist() == [False, False, True, True]
    with pytest.warns(UserWarning, match='row 1 and 0 more: value not seen: tick "5"'):
        model(pd.DataFrame({"depth": [0.5], "tick": [5]}))
    others = predicted(model, tmp_path / "new.csv", "depth,tick,pump,site,since\n.5,2,9.5,South,2022-05-04\n")
    assert others["why"].tolist() == ["predicted"]
    assert [note.partition(" in new rows: the model does not know")[0] for note in others.attrs["notes"]] == [
        '"pump" is always 7 in training and 9.5', '"site" is always "north" in training and South',
        '"since" is always 2021-05-04 in training and 2022-05-04',
    ]  # fmt: skip
