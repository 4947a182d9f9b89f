"""Data from every door: refusals are sentences, folds part the rows, scaling sees the training rows alone."""

from __future__ import annotations

import gzip
import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import gpexplorer as gpx
from gpexplorer.data.files.reading import read_path
from gpexplorer.data.files.size_limits import LOCAL, UPLOAD
from gpexplorer.data.sets.cards import card, fetch_card, names, parse_card
from gpexplorer.data.sets.generators import GENERATORS
from gpexplorer.errors import DataError

GOOD = "a,b,name,price\n1,2,x,3\n2,3,y,5\n5,6,z,7\n4,4,w,1\n"


def written(folder: Path, text: str | bytes, name: str = "my.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (GOOD, {"target": "cost"}, 'no column "cost"|"cost"'),
        ("a,y\n1,2\n2,3\nx,4\n4,6\n", {}, 'column "a" has text in row 3: "x"'),
        (
            "a,y\n1,2\n2,3\nx,4\n4,6\n",
            {},
            r'leave the column out with drop=\["a"\], or use its words with encode=\["a',
        ),
        (GOOD, {"target": "name"}, r'only numbers can be predicted: choose another column with target="\.\.\."'),
        (
            "a,y\n1,\n2,\n3,\n",
            {"target": "y"},
            r'"y" is empty in every row: choose another target with target="\.\.\."',
        ),
        (
            "a,y\n1,2\n2,\n3,4\n5,6\n",
            {"missing": "refuse"},
            '1 missing value in 1 row of 4, the first in column "y", row 2',
        ),
        ("a,y\n1,2\n2,1e999\n3,4\n", {}, 'infinite value in column "y", the first in row 2'),
        ("a,y\n1,2\n", {}, "has 1 row; at least 3 are needed"),
        ("a,y\n1,2\n2,2\n3,2\n", {}, "is 2 in all 3 rows, so there is nothing to learn"),
        ("a,a\n1,2\n2,3\n3,4\n", {}, 'the header "a" more than once'),
        ("a,y\n1,2,3\n1,2\n4,5\n", {}, "Row 1 of my.csv has 3 cells where the first line has 2"),
        ("y\n1\n2\n3\n", {}, "no input column"),
        ("", {}, "is empty"),
        (b"a,y\n\xff\xfe\x81,2\n1,2\n3,4\n", {}, "encod|UTF-8"),
        ("a;y\n1,5;2\n2.5;3\n3;9\n", {}, 'text in row 1: "1,5"'),
        (GOOD, {"colour": "red"}, 'no option "colour"'),
    ],
)
def test_wrong_files_are_refused_with_a_sentence(tmp_path: Path, text: str | bytes, options: dict, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        gpx.data.load(written(tmp_path, text), **options)
    assert str(caught.value).strip()[-1] in ".?)"


def test_ten_gigabytes_are_refused_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "huge.csv"
    with path.open("wb") as file:
        file.truncate(10 * 10**9)  # sparse: no disk is used
    with pytest.raises(DataError, match=r"huge.csv has 10 GB, and the limit is 2 GB"):
        gpx.data.load(path)
    assert LOCAL.file_bytes == 2 * 10**9


def test_an_unknown_source_is_answered_with_similar_names() -> None:
    for source, says in [("kin40", "kin40k"), ("friedman", "friedman1"), (3.5, "float")]:
        with pytest.raises(DataError, match=says):
            gpx.data.load(source)
    with pytest.raises(DataError, match="no split"):
        gpx.data.load("snelson-like", split=10)


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_every_kind_of_source_gives_the_same_numbers(tmp_path: Path, shift: float) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)) + shift, rng.normal(size=40) + shift
    frame = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "price": y})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes()))
    frame.to_parquet(tmp_path / "t.parquet")
    np.savez(tmp_path / "t.npz", X=X, y=y)
    sources = [frame, (X, y), (torch.tensor(X), torch.tensor(y)), *(tmp_path / f"t.{k}" for k in ("csv", "tsv"))]
    sources += [tmp_path / "t.csv.gz", tmp_path / "t.parquet", tmp_path / "t.npz"]
    for source in sources:
        split = gpx.data.load(source, split=3)
        assert len(split.train) == 36
        assert torch.equal(split.train.X, gpx.data.load(frame, split=3).train.X)
        assert torch.equal(split.test.y, gpx.data.load(frame, split=3).test.y)
    assert gpx.data.load(frame).train.names == ("u", "v")
    assert gpx.data.load(frame).key == gpx.data.load(frame.copy()).key
    frame.iloc[7, 0] += 1e-9
    assert gpx.data.load(frame).key != gpx.data.load((X, y)).key


DAYS = pd.date_range("2020-01-01", periods=40, freq="9D")


@pytest.mark.parametrize("digits", ["%Y%m%d", "%Y%m", "%Y%m%d%H%M"])
@pytest.mark.parametrize("form", [np.asarray, list, torch.tensor, pd.Series, lambda x: np.asarray(x, object)])
def test_numbers_of_an_array_stay_numbers_unless_they_are_declared(digits: str, form: Any) -> None:
    column = DAYS.strftime(digits).astype(int).tolist()
    y = np.sin(np.arange(40) / 9.0)
    for X in (form(column), np.c_[column, y**2], np.c_[column].astype(float)):
        split = gpx.load((X, y), split="all")
        assert split.train.names == ("x0", "x1")[: split.train.d]
        assert split.train.X[:, 0].tolist() == column
    assert gpx.load((y[:, None], form(column)), split="all").train.y.tolist() == column  # a target is a number
    assert gpx.load((pd.DataFrame({"a": y}), form(column)), split="all").train.y.tolist() == column
    run = gpx.Spec("cholesky", budget={"steps": 1}, split="all").open(data=(np.c_[column], y))
    run.finish()
    assert run.posterior().mean(np.c_[column[:3]]).shape == (3,)

    frame = pd.DataFrame({"x0": column})
    in_frame = gpx.load((frame, y), split="all").train  # what has names is read as a file is
    for options in ({"dates": ["x0"]}, {"kinds": {"x0": "date"}}):
        declared = gpx.load((np.c_[column], y), split="all", **options)
        assert declared.train.names == in_frame.names
        np.testing.assert_array_equal(declared.train.X, in_frame.X)
        run = gpx.Spec("cholesky", budget={"steps": 1}, split="all").open(data=declared)
        run.finish()
        posterior = run.posterior()
        expected = posterior.mean(declared.train.X[:3])
        for new in (np.c_[column[:3]], np.c_[column[:3]].astype(float), frame[:3], declared.train.X[:3].numpy()):
            np.testing.assert_allclose(posterior.mean(new), expected)


def test_columns_are_chosen_and_incomplete_rows_dropped(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("5,6,z,7", ",6,z,7"))
    split = gpx.data.load(path, target="a", inputs=["price", "b"], missing="drop")
    assert split.train.names == ("price", "b")
    assert len(split.train) + len(split.test) == 3
    assert any("1 row of 4" in note for note in split.notes)
    assert any('"name"' in note for note in gpx.data.load(written(tmp_path, GOOD)).notes)


@pytest.mark.parametrize("shift", [0, 10**9])
def test_an_id_is_left_out_with_a_word_unless_it_was_chosen_by_name(tmp_path: Path, shift: int) -> None:
    ids = shift + np.random.default_rng(0).permutation(40)
    frame = pd.DataFrame({"patient_id": ids, "row": ids[::-1], "age": ids % 7 + 20.0, "dose": ids % 5 + 0.5})
    file = written(tmp_path, frame.to_csv(index=False))
    copies = pd.concat([frame, frame[:9]])

    (note,) = gpx.load(file).notes
    assert gpx.load(file).train.names == ("age",)
    assert note.startswith('Columns that were left out: "patient_id" (looks like a name of the row), "row" (looks')
    assert '"patient_id" (looks like a name of the row' in " ".join(gpx.load(copies, drop=["row"]).notes)
    for options in ({"drop": ["patient_id", "row"]}, {"inputs": ["patient_id", "age"]}):
        assert gpx.load(file, **options).notes == ()
    assert gpx.load(file, drop=["patient_id", "age"]).notes == ()  # where it is the only input, it is meant
    frame["row"] = ids % 9  # no ids, whatever the column is called
    assert gpx.load(frame, drop=["patient_id"]).notes == ()


def test_folds_divide_the_rows_and_do_not_change_the_global_random_state() -> None:
    before = torch.random.get_rng_state()
    frame = pd.DataFrame({"x": np.arange(53.0), "y": np.sin(np.arange(53.0))})
    tests = torch.cat([gpx.data.load(frame, split=fold).test.X for fold in range(10)])
    assert sorted(tests[:, 0].tolist()) == frame.x.tolist()
    split = gpx.data.load(frame, split={"test": 0.25, "seed": 1})
    assert len(split.test) == 13
    assert not set(split.test.X[:, 0].tolist()) & set(split.train.X[:, 0].tolist())
    past = gpx.data.load(frame, split={"before": 40})
    assert float(past.train.X.max()) == 39.0
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_scaling_is_fitted_on_the_training_rows_alone(shift: float) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.normal(3.0, 2.0, 60) + shift, "flat": 7.0, "y": rng.normal(size=60) * 5 + shift})
    split = gpx.data.load(frame, inputs=["x", "flat"])
    scaled = split.scaled()
    assert float(scaled.train.X[:, 0].mean()) == pytest.approx(0.0, abs=1e-8)
    assert float(scaled.train.X[:, 0].std(correction=0)) == pytest.approx(1.0)
    assert abs(float(scaled.test.X[:, 0].mean())) > 1e-3
    assert torch.equal(scaled.train.X[:, 1], torch.zeros(54, dtype=torch.float64))
    by = scaled.train.scale
    assert torch.allclose(scaled.test.X * by.x_sd + by.x_mean, split.test.X)
    assert torch.allclose(scaled.test.y * by.y_sd + by.y_mean, split.test.y)
    assert scaled.scaled() is scaled


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_are_reproducible_and_do_not_change_the_global_random_state(name: str) -> None:
    before = torch.random.get_rng_state()
    first, same = gpx.data.load({"name": name, "n": 60, "seed": 3}), gpx.data.load(name, n=60, seed=3)
    other = gpx.data.load(name, n=60, seed=4)
    assert list(map(str, first.train.X)) == list(map(str, same.train.X))
    assert torch.equal(first.train.y, same.train.y)
    assert not torch.equal(first.train.y, other.train.y)
    assert first.key == same.key != other.key
    assert torch.equal(before, torch.random.get_rng_state())
    truth = gpx.data.truth(name)
    if truth is not None:
        quiet = gpx.data.load(name, n=60, noise=0.0)
        assert torch.allclose(truth(quiet.train.X), quiet.train.y)


def test_the_groups_of_doses_have_the_curves_of_the_formula() -> None:
    quiet = gpx.data.load("doses", n=60, noise=0.0)
    assert quiet.train.names == ("dose", "group")
    for (dose, group), y in zip(quiet.train.X, quiet.train.y.tolist(), strict=True):
        k = ["control", "low", "middle", "high"].index(group)
        assert y == pytest.approx((1 + k / 2) * math.sin(dose + 0.4 * k))


def test_generator_options_are_checked() -> None:
    for options, says in [({"n": 1}, "n="), ({"d": 2}, "d="), ({"noise": math.nan}, "noise="), ({"m": 3}, "no option")]:
        with pytest.raises(DataError, match=says):
            gpx.data.load("snelson-like", **options)


def test_every_card_is_complete_and_its_warnings_are_shown() -> None:
    assert set(names()) == {path.stem for path in (Path(gpx.__file__).parent / "data" / "cards").glob("*.yaml")}
    assert {"bike", "kin40k", "mol_esol"} <= set(names())
    table = gpx.data.available()
    assert {"n", "d", "task", "licence", "notes", "source", "cached"} <= set(table.columns)
    assert "leak the target" in table.loc["bike", "notes"]
    assert pd.isna(table.loc["mol_esol", "d"])
    assert table.loc["kin40k", "d"] == 8
    for name in names():
        entry = card(name)
        assert entry.licence
        assert all(file.url.startswith("https://") and len(file.sha256) == 64 for file in entry.files)
    with pytest.raises(DataError, match="its fields must be"):
        parse_card("odd", "title: x\n")


def test_kin40k_has_ten_folds(data_dir: Path) -> None:
    split = gpx.data.load("kin40k", split=9)
    assert (len(split.train), len(split.test), split.train.d) == (36000, 4000, 8)
    with pytest.raises(DataError, match="10 folds, split=0 to 9"):
        gpx.data.load("kin40k", split=10)


def test_a_wrong_checksum_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPEXPLORER_DATA_DIR", str(tmp_path))
    path = tmp_path / "co2" / "CO2.csv"
    path.parent.mkdir()
    path.write_text("1958,1,2,3\n")
    with pytest.raises(DataError, match=r"has SHA-256 .* so it was not used"):
        gpx.data.load("co2_gpcv_admm")
    path.unlink()
    unreachable = replace(card("co2_gpcv_admm").files[0], url="https://localhost:9/CO2.csv")
    with pytest.raises(DataError, match=r"Connect to the network, or put the file at .* GPEXPLORER_DATA_DIR"):
        fetch_card(replace(card("co2_gpcv_admm"), files=(unreachable,)))


def test_an_upload_is_parsed_in_a_child() -> None:
    seen = gpx.data.preview("../../etc/<b>x.csv", GOOD.encode())
    assert (seen.columns, seen.numbers, seen.rows, seen.target) == (
        ("a", "b", "name", "price"),
        ("a", "b", "price"),
        4,
        "price",
    )
    split = gpx.data.read_upload("x.csv", GOOD.encode(), gpx.data.Choice(target="a", inputs=("b",)))
    assert split.train.names == ("b",)
    assert len(split.train) + len(split.test) == 4
    with pytest.raises(DataError, match=r"x.csv is empty"):
        gpx.data.read_upload("x.csv", b"")
    with pytest.raises(DataError, match=r"of a kind that is not known|spreadsheet"):
        gpx.data.preview("x.xlsx", b"PK")


def test_an_upload_cannot_use_more_than_its_limits() -> None:
    bomb = gzip.compress(b"a,y\n" + b"0,0\n" * 40_000_000, 1)
    assert len(bomb) < UPLOAD.file_bytes
    with pytest.raises(DataError, match="exceeds 100 MB unpacked"):
        gpx.data.preview("bomb.csv.gz", bomb)
    wide = ",".join(f"c{i}" for i in range(5000)) + "\n" + (",".join(["1"] * 5000) + "\n") * 3
    with pytest.raises(DataError, match="5,000 columns and the limit is 1,000"):
        gpx.data.preview("wide.csv", wide.encode())
    with pytest.raises(DataError, match="has 11 MB, and the limit is 10 MB"):
        gpx.data.preview("big.csv", b"1" * 11_000_000)
    small = replace(UPLOAD, memory_bytes=3_000_000)
    rows = ("1.5,2.5\n" * 900_000).encode()
    with pytest.raises(DataError, match="needs more than the 3 MB of memory"):
        gpx.data.preview("rows.csv", b"a,y\n" + rows, small)
    with pytest.raises(DataError, match=r"took more than 0\.01 s"):
        gpx.data.preview("slow.csv", GOOD.encode(), replace(UPLOAD, wall_seconds=0.01))


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, X=np.array([{"a": 1}], dtype=object), y=np.zeros(1))
    with pytest.raises(DataError, match="objects are never unpickled"):
        read_path(written(tmp_path, buffer.getvalue(), "x.npz"))


def test_arrays_beside_x_and_y_are_columns_or_named(tmp_path: Path) -> None:
    """A vector z beside x and y was dropped without a word."""
    rng = np.random.default_rng(3)
    columns = {name: rng.normal(size=30) for name in ("x", "y", "width", "Z")}
    np.savez(tmp_path / "columns.npz", **columns)
    train = gpx.load(tmp_path / "columns.npz", split="all").train
    assert (train.names, train.target) == (("x", "width", "Z"), "y")
    assert train.X[:, 1].tolist() == columns["width"].tolist()

    np.savez(tmp_path / "pair.npz", X=rng.normal(size=(30, 2)), Y=columns["y"], group=np.arange(30) // 3, k=np.eye(2))
    split = gpx.load(tmp_path / "pair.npz", split="all")
    assert (split.train.names, split.train.target) == (("x0", "x1"), "y")
    assert split.notes == ('Arrays beside X and Y were left out: "group", "k".',)
    np.savez(tmp_path / "vectors.npz", x=columns["x"], y=columns["y"], x_test=np.arange(9.0))
    assert gpx.load(tmp_path / "vectors.npz").notes == ('Arrays beside x and y were left out: "x_test".',)
