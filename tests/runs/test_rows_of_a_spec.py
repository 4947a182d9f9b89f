"""Which rows a spec opens: all of a source, those of a file that has not changed, and columns as its data choose."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpexplorer as gpx
from gpexplorer.data import loading
from gpexplorer.errors import DataError, SettingError
from gpexplorer.runs.code import program

PRICES = pd.DataFrame(
    {
        "area": np.linspace(40.0, 160.0, 30) + np.arange(30) % 7,
        "price": np.sqrt(np.arange(30) * 11 % 30) + 0.1,
        "code": [str(1 + row % 3) for row in range(30)],
        "rooms": 1.0 + np.arange(30) * 7 % 5,
        "age": 3.0 * (np.arange(30) * 13 % 30),
    }
)


def opened(data: Any, rows: Any, **fields: Any) -> gpx.Run:
    return gpx.Spec("random", {"num_inducing": 4}, data, kernel="se", **fields).open(data=rows)


@pytest.mark.parametrize(
    ("data", "target", "inputs"),
    [
        ({"target": "price"}, "price", {"area", "code", "rooms", "age"}),
        ({"name": "mine", "target": "price", "inputs": ["age", "area"]}, "price", {"area", "age"}),
        ({"name": "mine", "inputs": "area"}, "age", {"area"}),
        ({"name": "mine", "drop": ["age", "code"]}, "rooms", {"area", "price"}),
        ({"name": "mine", "groups": "rooms"}, "age", {"area", "price", "code"}),
    ],
)
def test_a_table_in_memory_is_read_as_the_data_of_its_spec_say(data: dict[str, Any], target: str, inputs: set[str]):
    run = opened(data, PRICES)
    train = run.split.train
    assert (train.target, {*train.reader.sources}) == (target, inputs)

    again = gpx.Spec.from_json(run.spec.to_json()).open(data=PRICES)  # its own spec opens the same rows
    assert again.spec == run.spec
    with pytest.raises(DataError, match="the spec was made for"):
        run.spec.open(data=PRICES.iloc[2:])
    chosen = {name: value for name, value in data.items() if name != "name"}
    assert all(f"{name}={value!r}" in program(run.spec, 1) for name, value in chosen.items())


def test_kinds_and_gaps_of_a_table_in_memory_are_those_of_the_spec():
    gaps = PRICES.assign(rooms=PRICES["rooms"].where(PRICES["rooms"] > 1.0))
    data = {"name": "mine", "target": "price", "kinds": {"code": "words"}, "missing": "drop"}
    train, test = opened(data, gaps).split.train, opened(data, gaps).split.test
    assert train.reader.column("code").kind == "words"
    assert len(train) + len(test) == 24
    with pytest.raises(DataError, match='no column "cost"'):
        opened({"name": "mine", "target": "cost"}, PRICES)


def test_a_choice_of_the_table_itself_comes_first():
    table = {"name": "snelson-like", "n": 40}
    assert opened({"name": "mine", "n": 50}, table).split.train.target == "y"


@pytest.mark.parametrize("data", [{"target": "age"}, {"inputs": ["area"]}, {"target": "price", "drop": ["rooms"]}])
def test_a_split_with_other_columns_than_the_spec_names_is_refused(data: dict[str, Any]):
    split = gpx.load(PRICES, target="price")
    with pytest.raises(DataError, match=r"The data of the spec say (target|inputs|drop)=.*predicts 'price'"):
        opened({"name": "mine", **data}, split)
    assert opened({"name": "mine", "target": "price"}, split).spec.data == opened("snelson-like", split).spec.data


def test_all_rows_of_any_source_can_be_training_rows(tmp_path: Path):
    PRICES.to_csv(tmp_path / "prices.csv", index=False)
    for data, rows in (({"name": "friedman1", "n": 50}, 50), (str(tmp_path / "prices.csv"), 30)):
        spec = gpx.Spec("random", {"num_inducing": 4}, data, split="all", kernel="se", budget={"steps": 2})
        run = gpx.Spec.from_json(spec.to_json()).open()
        assert (len(run.split.train), len(run.split.test)) == (rows, 0)
        run.finish()
        assert np.isfinite(run.posterior(of="y")(run.split.train.X[:3]).mean.numpy()).all()
    with pytest.raises(SettingError, match='"all" holds out none'):
        gpx.Spec("random", split="every")


def test_a_file_is_refused_if_it_is_not_the_one_with_this_sha256(tmp_path: Path):
    path = tmp_path / "prices.csv"
    PRICES.to_csv(path, index=False)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert gpx.load(path, sha256=digest).key == gpx.load(path).key  # the rows are the same, so runs have their names
    path.write_text(path.read_text().replace("160.0", "161.0") + "1,2,3,4,5\n")
    with pytest.raises(DataError, match=r'"prices.csv" has changed.*SHA-256 is [0-9a-f]{12}…, .* leave sha256 out'):
        gpx.Spec("random", data={"name": str(path), "sha256": digest}).open()
    for wrong in (7, "no digest", [digest]):
        with pytest.raises(DataError, match="has changed"):
            gpx.load(path, sha256=wrong)


def test_a_file_that_is_too_large_is_refused_before_it_is_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loading, "sha256_of", lambda path: pytest.fail("the whole file was read"))
    with (tmp_path / "huge.csv").open("wb") as file:
        file.truncate(3 * 10**9)  # without a block on the disk
    with pytest.raises(DataError, match=r"huge.csv has 3 GB, and the limit is 2 GB"):
        gpx.load(tmp_path / "huge.csv", sha256="a" * 64)


def test_a_pair_of_arrays_has_no_columns_to_choose():
    spec = gpx.Spec("random", {"num_inducing": 3}, data={"name": "mine", "target": "b", "inputs": ["a", "c"]})
    X = np.arange(24.0).reshape(12, 2) ** 0.5
    run = spec.open(data=(X, X[:, 0]))
    assert (run.problem.train.names, run.problem.train.d) == (("x0", "x1"), 2)
