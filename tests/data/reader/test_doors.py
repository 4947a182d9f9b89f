"""What a table meant in training, it means at every door: files, frames, saved models, the estimator, `recommend`."""

from __future__ import annotations

import io
import json
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
from gpexplorer.data.files.inputs_by_name import ModelInputs
from gpexplorer.data.in_memory import table_of
from gpexplorer.data.reader.table_reader import NO_GAPS, reader_from
from gpexplorer.errors import DataError, PosteriorError
from gpexplorer.recommendation.arguments import rows_of
from gpexplorer.runs.studies.prediction_table import predictions_of_file

N = 60
EFFECT = {"oak": 0.0, "elm": 5.0, "fir": 10.0}


def table(seed: int = 0) -> pd.DataFrame:
    """y = x + the effect of a word + day / 10, with little noise."""
    rng = np.random.default_rng(seed)
    x, words = rng.uniform(0, 5, N).round(3), rng.choice(list(EFFECT), N)
    days = pd.date_range("2021-01-01", periods=N, freq="5D")
    y = x + [EFFECT[word] for word in words] + np.arange(N) / 10 + rng.normal(0, 0.05, N)
    return pd.DataFrame({"x": x, "wood": words, "when": days.strftime("%m/%d/%Y"), "y": y})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A linear exact GP of the table, saved and loaded, with the folder of its file."""
    folder = tmp_path_factory.mktemp("doors")
    table().to_csv(folder / "train.csv", index=False)
    run = gpx.Spec("ml", kernel="linear", budget={"steps": 30}).open(data=gpx.load(folder / "train.csv", split="all"))
    run.finish()
    run.posterior(of="y").save(folder / "model.safetensors")
    return gpx.load_posterior(folder / "model.safetensors")


def predicted(model: Any, folder: Path, text: str) -> pd.DataFrame:
    (folder / "new.csv").write_text(text, "utf-8")
    return pd.concat(list(predictions_of_file(model, folder / "new.csv")))


def truth(x: float, word: str, day: str) -> float:
    return x + EFFECT[word] + (pd.Timestamp(day) - pd.Timestamp("2021-01-01")).days / 50


@pytest.mark.parametrize(
    "row",
    [
        "2.5,elm,03/02/2021",
        "2.5, ELM ,3/2/2021",
        '"2.50","elm",2021-03-02',
        "$2.50,Elm,2 Mar 2021",
        "2.5,elm,2021-03-02T00:00:00Z",
    ],
)
def test_a_new_row_in_any_spelling_is_the_same_row(model: Any, tmp_path: Path, row: str) -> None:
    answer = predicted(model, tmp_path, f"x,wood,when\n{row}\n")
    assert answer["mean"][0] == pytest.approx(truth(2.5, "elm", "2021-03-02"), abs=0.1)
    assert answer["why"].tolist() == ['unit not in training: x "$2.50"' if "$" in row else "predicted"]


def test_every_row_has_an_answer_or_a_reason(model: Any, tmp_path: Path) -> None:
    rows = [
        "2.5,elm,06/05/2021", ",elm,06/05/2021", "2.5,yew,06/05/2021", "2.5,,06/05/2021", "two,elm,06/05/2021",
        "2.5,elm,25/25/2021", "2.5,elm,06/05/2031",
    ]  # fmt: skip
    answer = predicted(model, tmp_path, "x,wood,when\n" + "\n".join(rows) + "\n")
    assert answer["why"].tolist() == [
        "predicted", "filled: x", 'word not seen: wood "yew"; far', f"no value: wood, which {NO_GAPS}",
        'unreadable: x "two"', 'unreadable: when "25/25/2021"', "far",
    ]  # fmt: skip
    assert answer["mean"].isna().tolist() == [False, False, False, True, True, True, False]
    assert answer["mean"][0] == pytest.approx(truth(2.5, "elm", "2021-06-05"), abs=0.1)
    shares = table()["wood"].map(EFFECT)  # the law of total variance over the words of training
    assert answer["mean"][2] == pytest.approx(truth(2.5, "oak", "2021-06-05") + shares.mean(), abs=0.1)
    assert answer["sd"][2] == pytest.approx(shares.std(ddof=0), rel=0.05)
    assert answer["sd"][1] == pytest.approx(table()["x"].std(), rel=0.15)
    assert answer["sd"][0] < 0.1
    inside = (answer["lower_95"] < answer["mean"]) & (answer["mean"] < answer["upper_95"])
    assert inside[[0, 1, 2, 6]].all()


def test_the_command_counts_what_it_says_of_rows(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "m.safetensors")
    (tmp_path / "n.csv").write_text(
        "x,wood,when\n1,elm,03/02/2021\n,oak,03/02/2021\n,oak,03/02/2021\n1,yew,03/02/2021\n2 mm,elm,3/2/2021\n"
    )
    done = CliRunner().invoke(
        app, ["predict", str(tmp_path / "m.safetensors"), str(tmp_path / "n.csv"), "--out", str(tmp_path / "p.csv")]
    )
    assert done.exit_code == 0, done.output
    assert "5 of 5 rows predicted: 2 filled: x; 1 far; 1 unit not in training: x; 1 word not seen: wood." in done.stderr
    assert pd.read_csv(tmp_path / "p.csv")["why"].tolist()[::4] == ["predicted", 'unit not in training: x "2 mm"']


def test_a_posterior_reads_frames_by_its_reader(model: Any) -> None:
    new = pd.DataFrame({"when": pd.to_datetime(["2021-03-02"]), "wood": pd.Categorical(["elm"]), "x": ["2.5"]})
    assert float(model(new).mean) == pytest.approx(truth(2.5, "elm", "2021-03-02"), abs=0.1)
    assert torch.equal(model(new).mean, model(new.assign(when="3/2/2021")).mean)
    with pytest.raises(
        DataError, match=r'1 row of 2 cannot be predicted, the first of them row 2 \(unreadable: x "two"'
    ):
        model(pd.concat([new, new.assign(x="two")]))


def test_the_reader_survives_its_text_and_is_shown(model: Any) -> None:
    reader = model.columns.reader
    assert reader_from(reader.to_json()) == reader
    text = repr(reader)
    assert "month/day/year" in text
    assert "elm (" in text
    assert "<table>" in reader._repr_html_()
    for wrong in (
        "{}",
        "[]",
        '{"version": 9}',
        reader.to_json().replace('"elm"', "3"),
        reader.to_json().replace("mdy", "myd"),
    ):
        with pytest.raises(DataError):
            reader_from(wrong)


def test_a_model_whose_reader_makes_other_inputs_is_refused(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "m.safetensors")
    data = (tmp_path / "m.safetensors").read_bytes()
    broken = data.replace(b'\\\\\\"source\\\\\\": \\\\\\"x\\\\\\"', b'\\\\\\"source\\\\\\": \\\\\\"z\\\\\\"')
    assert broken != data
    (tmp_path / "m.safetensors").write_bytes(broken)
    with pytest.raises(PosteriorError):
        gpx.load_posterior(tmp_path / "m.safetensors")


def test_all_rows_serve_from_every_door(tmp_path: Path) -> None:
    frame = table()
    frame.to_csv(tmp_path / "t.csv", index=False)
    doors = [(str(tmp_path / "t.csv"), None), (frame, None), (frame.drop(columns="y"), frame["y"])]
    rows = [rows_of(X, y, {}) for X, y in doors]
    assert [len(split.train) for split in rows] == [N] * 3
    assert len({split.train.names for split in rows}) == 1
    assert torch.equal(rows[0].train.X, rows[1].train.X)
    split = gpx.load(tmp_path / "t.csv")  # a test part where a split is asked for
    assert (len(split.train), len(split.test)) == (54, 6)
    assert len(rows_of(*(frame[["x"]].to_numpy(), frame["y"].to_numpy()), {}).train) == N


def test_the_estimator_reads_frames_as_files_are_read(tmp_path: Path) -> None:
    frame = table()
    X = frame.drop(columns="y")
    estimator = gpx.Estimator("ml", kernel="linear", budget={"steps": 30}).fit(X, frame["y"])
    typed = X.assign(when=pd.to_datetime(X["when"], format="%m/%d/%Y"), wood=X["wood"].str.upper())
    np.testing.assert_allclose(estimator.predict(X), estimator.predict(typed[["wood", "when", "x"]]))
    assert np.abs(estimator.predict(X) - frame["y"]).max() < 0.3
    estimator.posterior_.save(tmp_path / "m.safetensors")
    answer = predicted(gpx.load_posterior(tmp_path / "m.safetensors"), tmp_path, X[:3].to_csv(index=False))
    np.testing.assert_allclose(answer["mean"], estimator.predict(X[:3]))


def test_the_estimator_widens_the_band_of_a_word_that_training_does_not_have(tmp_path: Path) -> None:
    frame = table()
    X = frame.drop(columns="y")
    estimator = gpx.Estimator("ml", kernel="linear", budget={"steps": 30}).fit(X, frame["y"])
    new = X[:3].assign(wood=["yew", *X["wood"][1:3]])
    mean, sd = estimator.predict(new, return_std=True)
    assert sd[0] > 3.0 > 1.0 > sd[1:].max()  # the words have effects of 0, 5 and 10
    np.testing.assert_allclose(estimator.predict(new), mean)
    np.testing.assert_allclose(estimator.predict(X[1:3], return_std=True)[1], sd[1:])
    estimator.posterior_.save(tmp_path / "m.safetensors")
    answer = predicted(gpx.load_posterior(tmp_path / "m.safetensors"), tmp_path, new.to_csv(index=False))
    np.testing.assert_allclose(answer["mean"], mean)
    np.testing.assert_allclose(answer["sd"], sd)


def test_gaps_of_training_are_filled_in_new_rows_as_in_training(tmp_path: Path) -> None:
    frame = table()
    frame.loc[::4, "x"], frame.loc[::6, "wood"] = np.nan, None
    split = gpx.load(frame, split="all")
    reader = split.train.reader
    new = reader.read(pd_table({"x": ["", "2"], "wood": ["elm", ""], "when": ["03/02/2021"] * 2}))
    assert new.answered.all()
    assert new.X[0, split.train.names.index("x")] == frame["x"].median()
    assert new.X[1, split.train.names.index("wood is missing")] == 1.0
    assert new.why == ("filled: x", "no value: wood")


def pd_table(columns: dict[str, list[str]]) -> Any:
    from gpexplorer.data.in_memory import table_of

    return table_of(pd.DataFrame(columns))


def test_a_flag_of_gaps_is_an_input_only_where_it_explains_the_target() -> None:
    rng = np.random.default_rng(1)
    x, gap = rng.normal(size=200), rng.random(200) < 0.3
    for effect, names in ((0.0, ("x", "z")), (2.0, ("x", "x is missing", "z"))):
        frame = pd.DataFrame(
            {"x": np.where(gap, np.nan, x), "z": rng.normal(size=200), "y": rng.normal(size=200) + effect * gap}
        )
        assert gpx.load(frame, split="all").train.names == names


def test_parts_of_a_date_are_inputs_where_they_explain_the_target() -> None:
    hours = pd.date_range("2021-01-01", periods=500, freq="h")
    noise = np.random.default_rng(0).normal(0, 0.3, 500)
    wave = np.sin(2 * np.pi * hours.hour / 24) + noise
    assert gpx.load(pd.DataFrame({"t": hours, "y": wave}), split="all").train.names == (
        "t",
        "t: hour sin",
        "t: hour cos",
    )
    assert gpx.load(pd.DataFrame({"t": hours, "y": noise}), split="all").train.names == ("t",)


@pytest.mark.parametrize("others", [0, 1])
def test_a_time_of_day_is_an_input_whether_or_not_it_explains_the_target(others: int) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{k}": rng.normal(size=60) for k in range(others)})
    frame["at"] = [f"{k % 24:02d}:{7 * k % 60:02d}" for k in range(60)]
    frame["y"] = rng.normal(size=60)
    assert gpx.load(frame, split="all").train.names == (*frame.columns[:others], "at: clock sin", "at: clock cos")


def test_a_file_without_names_loses_no_row(model: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'first line \("1.5", "oak", "03/01/2021"\) reads as a row'):
        predicted(model, tmp_path, "1.5,oak,03/01/2021\n2.5,elm,03/02/2021\n")
    with pytest.raises(DataError, match="reads as a row"):
        predicted(model, tmp_path, ",yew,03/01/2021\n2.5,elm,03/02/2021\n")  # a gap and a new word
    other_names = predicted(model, tmp_path, "length,tree,day\n1.5,oak,03/01/2021\n")
    assert other_names["mean"].tolist() == pytest.approx([truth(1.5, "oak", "2021-03-01")], abs=0.3)
    capitals = predicted(model, tmp_path, "\"'When'\",_X,WOOD \n03/01/2021,1.5,oak\n")
    assert capitals["mean"].tolist() == other_names["mean"].tolist()
    with pytest.raises(DataError, match="has the names of columns and no rows below them"):
        predicted(model, tmp_path, "x,wood,when\n")
    with pytest.raises(DataError, match='no column "wood" but "X", "when", "Wood", "WOOD"'):
        predicted(model, tmp_path, "X,when,Wood,WOOD\n1.5,03/01/2021,oak,elm\n")


def test_new_rows_in_utf16_are_those_of_utf8(model: Any, tmp_path: Path) -> None:
    text = "x,wood,when\n1.5,oak,03/01/2021\n2.5,elm,03/02/2021\n"
    plain = predicted(model, tmp_path, text)
    (tmp_path / "wide.csv").write_bytes(text.encode("utf-16"))
    wide = pd.concat(list(predictions_of_file(model, tmp_path / "wide.csv")))
    pd.testing.assert_frame_equal(wide, plain)


def test_many_words_have_the_mean_of_the_other_rows_and_new_rows_that_of_all() -> None:
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 30, 900)
    effect = rng.normal(0, 2, 30)
    frame = pd.DataFrame(
        {"city": [f"c{k}" for k in levels], "x": rng.normal(size=900), "y": effect[levels] + rng.normal(size=900)}
    )
    train = gpx.load(frame, split="all").train
    assert train.names == ("city: mean of y", "x")
    column = train.X[:, 0].numpy()
    assert np.corrcoef(column, effect[levels])[0, 1] > 0.95
    own = [abs(np.corrcoef(column[levels == k], train.y[levels == k])[0, 1]) for k in range(30)]
    assert np.mean([column[levels == k].std() > 0 for k in range(30)]) > 0.9  # parts without the own row
    assert np.mean(own) < 0.6
    means = frame.groupby("city")["y"].mean()
    new = train.reader.read(pd_table({"city": list(means.index), "x": ["0"] * 30})).X[:, 0]
    assert np.abs(new - means).max() < 0.35  # shrunk towards the mean of all
    # A word that training does not have: what x says of the means is used, and what it does not say widens the band.
    told = frame.assign(x=effect[levels] + 0.5 * rng.normal(size=900))
    reader = gpx.load(told, split="all").train.reader
    unseen = reader.read(pd_table({"city": ["new", "new"], "x": ["2", "-2"]}))
    assert unseen.X[0, 0] - unseen.X[1, 0] > 2.0
    weights, variants = reader.variants(["city"])
    shifts = np.array([variant.of(unseen.X)[0, 0] for variant in variants]) - unseen.X[0, 0]
    assert weights.sum() == pytest.approx(1.0)
    assert 0.3 < shifts.std() < 0.9
    assert abs(shifts.mean()) < 0.2
    noise = frame.assign(y=rng.normal(size=900))
    assert gpx.load(noise, split="all").train.X[:, 0].std() < 0.2  # words that say nothing have nearly one mean


@pytest.mark.parametrize("last", ["id", "row_number", "Unnamed: 0", "customer_id"])
def test_what_numbers_the_rows_is_no_target_by_itself(last: str) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(size=40), "price": rng.uniform(size=40), last: rng.permutation(40) + 100})
    split = gpx.load(frame)
    assert split.train.target == "price"
    assert f'"{last}", looks like a name of the row, so "price" is the target' in split.notes[0]
    assert gpx.load(frame, target=last).train.target == last


@pytest.mark.usefixtures("uploads_here")
@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (["kg", *map(str, range(9))], "row 1 seems to have titles, units or a second header: remove that row"),
        ([*map(str, range(9)), "Total"], "row 10 seems to have a total or a remark: remove that row"),
    ],
)
def test_a_row_of_units_or_totals_is_to_be_removed(cells: list[str], says: str) -> None:
    text = "x,y\n" + "\n".join(f"{cell},{i * i}" for i, cell in enumerate(cells))
    with pytest.raises(DataError, match=says) as error:
        gpx.data.read_upload("t.csv", text.encode())
    assert "drop=" not in str(error.value)


def test_inputs_that_explain_nothing_are_left_out_with_a_word() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "rownames": range(1, 41), "a": rng.normal(size=40), "flat": 3, "name": [f"Item {i}" for i in range(40)],
        "y": rng.normal(size=40),
    })  # fmt: skip
    frame.insert(2, "b", frame["a"])
    split = gpx.load(frame)
    assert split.train.names == ("a",)
    for why in ('"rownames" (only counts', '"b" (the same as "a")', '"flat" (always 3)', '"name" (a different text'):
        assert why in split.notes[0]
    assert gpx.load(frame, inputs=["a", "b", "flat"], target="y").train.names == ("a", "b", "flat")


def test_an_upload_and_its_new_rows_are_read_in_a_child() -> None:
    buffer = io.StringIO()
    table().to_csv(buffer, index=False)
    split = gpx.data.read_upload("t.csv", buffer.getvalue().encode(), split="all")
    inputs = ModelInputs(reader=split.train.reader)
    rows = gpx.data.read_rows("n.csv", b"x,wood,when\n2.5,ELM,06/05/2021\n1,yew,06/05/2021\n", inputs)
    assert (
        rows.X[0].tolist()
        == split.train.reader.read(pd_table({"x": ["2.5"], "wood": ["elm"], "when": ["2021-06-05"]})).X[0].tolist()
    )
    assert rows.why[1] == 'word not seen: wood "yew"'
    assert list(rows.unknown) == ["wood"]


@pytest.mark.parametrize(("offset", "factor"), [(0.0, 1.0), (1e6, 1e-3)])
def test_a_gap_gets_what_the_other_columns_suggest_where_they_explain_it(offset: float, factor: float) -> None:
    rng = np.random.default_rng(5)
    a, own = rng.normal(size=(2, 300))
    height = offset + factor * (2.0 * a + 0.1 * rng.normal(size=300))
    rows = pd.DataFrame({"a": a, "height": height, "own": own, "y": a + own})
    rows.loc[::5, "height"] = np.nan
    rows.loc[::7, "own"] = np.nan  # which nothing explains
    split = gpx.load(rows, target="y", split="all")
    X, reader = split.train.X.numpy(), split.train.reader
    assert reader is not None
    height_at, own_at = (reader.names.index(name) for name in ("height", "own"))
    assert (X[::5, height_at] - height[::5]).std() < 0.3 * factor  # the standard deviation of a height is 2
    assert np.unique(X[::7, own_at]).tolist() == pytest.approx([np.nanmedian(rows["own"])])
    new = pd.DataFrame({"a": [1.5, -1.5, 0.0], "height": [None, None, offset], "own": [0.0, None, 1.0]})
    for reads in (reader, reader_from(reader.to_json())):
        read = reads.read(table_of(new))
        assert read.X[:2, height_at] == pytest.approx([offset + 3.0 * factor, offset - 3.0 * factor], abs=0.3 * factor)
        assert read.X[1, own_at] == pytest.approx(np.nanmedian(rows["own"]))
        assert read.why == ("filled: height", "filled: height; filled: own", "")
        assert read.answered.all()
    assert "from the other columns" in repr(reader)


@pytest.mark.parametrize("kind", ["number missing -999", "number 1.234,5 missing -999"])
def test_a_number_can_stand_for_a_gap_in_training_and_in_new_rows(kind: str) -> None:
    decimal = "," if "," in kind else "."
    cells = ["-999" if k % 9 == 4 else f"{k * 37 % 50 / 4:.2f}".replace(".", decimal) for k in range(60)]
    frame = pd.DataFrame({"a": cells, "y": [float(k * k % 23) for k in range(60)]})
    reader = gpx.load(frame, target="y", kinds={"a": kind}, split="all").train.reader
    assert reader.column("a").low == 0.0
    assert reader.decisions == {"a": kind if decimal == "," else "number 1,234.5 missing -999"}
    again = reader_from(reader.to_json())
    read = again.read(pa.table({"a": ["-999", f"-999{decimal}0", f"3{decimal}5"]}))
    assert read.why == ("filled: a", "filled: a", "")
    assert read.X[2, 0] == 3.5
    old = json.loads(reader.to_json())
    for column in old["columns"]:
        del column["numbers"]["missing"]  # as earlier versions wrote it
    assert reader_from(json.dumps(old)).column("a").numbers.missing is None
    with pytest.raises(DataError, match="number missing -999"):
        gpx.load(frame, target="y", kinds={"a": "number missing x"})
