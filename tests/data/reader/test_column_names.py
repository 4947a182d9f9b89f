"""The columns of new rows are found by name, or taken by position with a word, at every door."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from typer.testing import CliRunner

import gpexplorer as gpx
from gpexplorer.cli import app
from gpexplorer.data.in_memory import table_of
from gpexplorer.data.reader.column_names import named_as
from gpexplorer.data.reader.column_reader import column_reader
from gpexplorer.errors import DataError
from gpexplorer.runs.studies.prediction_table import predictions_of_file


@pytest.fixture(scope="module")
def model() -> Any:
    """A linear model of x, a word and a day."""
    rng = np.random.default_rng(0)
    days = pd.date_range("2021-01-01", periods=60, freq="5D").strftime("%m/%d/%Y")
    frame = pd.DataFrame({"x": rng.uniform(0, 5, 60).round(3), "wood": rng.choice(["oak", "elm"], 60), "when": days})
    run = gpx.Spec("ml", kernel="linear", budget={"steps": 1}).open(data=gpx.load(frame.assign(y=rng.uniform(size=60))))
    run.finish()
    return run.posterior(of="y")


def predicted(model: Any, folder: Path, text: str) -> pd.DataFrame:
    (folder / "new.csv").write_text(text, "utf-8")
    return next(predictions_of_file(model, folder / "new.csv"))


def numbers(a: float, b: float) -> pa.Table:
    """Rows of two columns around these numbers."""
    return pa.table({"left": np.linspace(a, a + 1.0, 30), "right": np.linspace(b, b + 1.0, 30)})


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        (0.0, 50.0, r'columns were taken by position: "left" as "a", "right" as "b"\.$'),
        (50.0, 0.0, r'look like those of another order \("right" like "a", "left" like "b"\): write the names'),
        (-7.0, 50.0, r'not among those of training: "a" \(100%\)\. Is the order that of training\?$'),
        (50.0, 50.0, r'not among those of training: "a" \(100%\)'),  # in both orders one of them is not
    ],
)
def test_a_table_that_is_taken_by_position_is_compared_with_training(a: float, b: float, says: str) -> None:
    trained = numbers(0.0, 50.0).rename_columns(["a", "b"])
    readers = [column_reader(name, trained[name]) for name in ("a", "b")]
    table, notes = named_as(readers, numbers(a, b), "new.csv")
    assert table.column_names == ["a", "b"]
    assert re.search(says, *notes)
    assert named_as(readers, trained.select(["b", "a"]), "new.csv")[1] == ()


def test_names_with_units_that_differ_by_a_factor_are_two_columns() -> None:
    readers = [column_reader(name, numbers(0, 1)["left"]) for name in ("MAX_mW", "b")]
    for title, is_same in (("max_mW", True), ("Max_mw", True), ("MAX_MW", False), ("max_MW", True)):
        table = numbers(0.0, 50.0).rename_columns([title, "b"])
        if is_same:
            assert named_as(readers, table, "new.csv")[0].column_names == ["MAX_mW", "b"]
        else:
            with pytest.raises(DataError, match='no column "MAX_mW" but "MAX_MW"'):
                named_as(readers, table, "new.csv")


def test_words_in_the_column_of_numbers_are_said_to_be_in_another_order(model: Any, tmp_path: Path) -> None:
    rows = "day,tree,length\n03/01/2021,oak,1.5\n03/02/2021,elm,2.5\n"
    says = 'another order ("length" like "x", "day" like "when")'
    assert says in predicted(model, tmp_path, rows).attrs["notes"][0]
    model.save(tmp_path / "m.safetensors")
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "m.safetensors"), str(tmp_path / "new.csv")])
    assert done.stderr.count("taken by position") == done.stderr.count(says) == 1


def test_frames_are_found_by_name_or_taken_by_position_with_a_warning(model: Any) -> None:
    new = pa.table({"when": ["03/02/2021"], "wood": ["elm"], "x": ["2.5"]})
    right = model(new).mean
    for frame in (new.rename_columns(["WHEN", "Wood", "X"]), new.to_pandas()):
        assert torch.equal(model(frame).mean, right)
    for frame in (new, new.to_pandas()):
        renamed = table_of(frame).select(["x", "wood", "when"]).rename_columns(["a", "b", "c"])
        with pytest.warns(UserWarning, match='taken by position: "a" as "x", "b" as "wood", "c" as "when"'):
            assert torch.equal(model(renamed).mean, right)
        with pytest.raises(DataError, match='no column "x" but "when", "wood"'):
            model(table_of(frame).select(["when", "wood"]))
    with pytest.warns(UserWarning, match='row 1 and 1 more: unit not in training: x "2.5 mm"'):
        mean = model(pa.table({"when": ["03/02/2021"] * 3, "wood": ["elm"] * 3, "x": ["2.5 mm", "2.5", "2 m"]})).mean
    assert torch.allclose(mean[:2], right)


def test_a_frame_for_a_model_of_plain_numbers_is_found_by_name(tmp_path: Path) -> None:
    """Such a model has no reader: columns of polars and Arrow were taken by position, whatever their names."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(0, 1, 20), "b": rng.uniform(5, 9, 20)})
    posterior = gpx.Estimator("ml", kernel="linear", budget={"steps": 1}).fit(X, X["a"]).posterior_
    for frame in (pa.table({"b": X["b"], "a": X["a"]}), X[["b", "a"]]):
        assert torch.equal(posterior(frame).mean, posterior(X.to_numpy()).mean)
    with pytest.warns(UserWarning, match='taken by position: "p" as "a", "q" as "b"'):
        posterior(X.rename(columns={"a": "p", "b": "q"}))
    X.set_axis(["p", "q"], axis=1).to_csv(tmp_path / "n.csv", index=False)
    assert "taken by position" in next(predictions_of_file(posterior, tmp_path / "n.csv")).attrs["notes"][0]
