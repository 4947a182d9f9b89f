"""`run --model` writes a model, and `predict` makes a table of predictions from it."""

from __future__ import annotations

import gzip
import io
import json
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import call
from gpexplorer import posteriors, recommendation
from gpexplorer.data.files import reading
from gpexplorer.errors import SettingError
from gpexplorer.methods.base import registry
from gpexplorer.posteriors import InUnits
from gpexplorer.runs import Run, Spec
from gpexplorer.runs.studies import prediction_table as prediction_table_module
from gpexplorer.runs.studies.prediction_table import count_reasons, prediction_table, sentence_of_counts
from messy_table import messy_csv
from toy_method import ROWS, Toy


def test_a_run_writes_a_model_that_predicts_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    x = np.linspace(0.0, 6.0, 50)
    pd.DataFrame({"east": x + 300.0, "north": np.cos(x), "height": np.sin(x) - 70.0}).to_csv("rows.csv", index=False)
    fields = {"gpexplorer": 1, "method": "cholqr", "settings": {"num_inducing": 8}, "data": "rows.csv"}
    Path("spec.json").write_text(json.dumps({**fields, "budget": {"steps": 10}}))
    Path("new.csv").write_text("north,east\n0.5,301.0\n-0.2,304.0\n")

    assert call("run", "spec.json", "--model", "model.safetensors", "--quiet") == 0
    capsys.readouterr()
    assert call("predict", "model.safetensors", "new.csv") == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))

    run = Spec.from_json(Path("spec.json").read_text()).open()
    run.finish()
    mean, var = run.posterior(of="y")(np.array([[301.0, 0.5], [304.0, -0.2]]))
    assert table.columns[:3].tolist() == ["row", "target", "mean"]
    assert table[["row", "target"]].to_numpy().tolist() == [[1, "height"], [2, "height"]]
    np.testing.assert_allclose(table["mean"], mean, rtol=1e-7)
    np.testing.assert_allclose(table["sd"], var.sqrt(), rtol=1e-7)
    np.testing.assert_allclose(table["upper_95"] - table["lower_95"], 2 * 1.959964 * table["sd"], rtol=1e-6)
    assert call("predict", "model.safetensors", "new.csv", "--of", "f", "--out", "f.csv") == 0
    assert (pd.read_csv("f.csv")["sd"] < table["sd"]).all()


@pytest.mark.parametrize("transform", ["log", "yeo-johnson"])
def test_a_saved_model_of_a_transformed_target_has_skewed_intervals(
    transform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 6.0, 80)
    price = np.exp(1.0 + np.sin(x) + rng.normal(scale=0.8, size=80))
    pd.DataFrame({"east": x + 300.0, "price": price}).to_csv("rows.csv", index=False)
    fields = {"gpexplorer": 1, "method": "cholqr", "settings": {"num_inducing": 8}, "data": "rows.csv"}
    Path("spec.json").write_text(json.dumps({**fields, "kernel": "se", "budget": {"steps": 10}}))
    east = np.array([300.0, 302.5, 305.5, 340.0])
    pd.DataFrame({"east": east}).to_csv("new.csv", index=False)

    options = ("--model", "model", "--target-transform", transform, "--quiet")
    assert call("run", "spec.json", *options) == 0
    capsys.readouterr()
    assert call("predict", "model", "new.csv", "--quantiles", "0.1,0.5,0.9") == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert call("predict", "model", "new.csv", "--of", "f", "--quantiles", "0.1", "--out", "f.parquet") == 0
    f = pd.read_parquet("f.parquet")

    run = replace(Spec.from_json(Path("spec.json").read_text()), target_transform=transform).open()
    run.finish()
    posterior, X = run.posterior(of="y"), east[:, None]
    mean, var = posterior(X)
    np.testing.assert_allclose(table["mean"], mean, rtol=1e-7)
    np.testing.assert_allclose(table["sd"], var.sqrt(), rtol=1e-7)
    for column, level in (("lower_95", 0.025), ("q10", 0.1), ("q50", 0.5), ("q90", 0.9), ("upper_95", 0.975)):
        np.testing.assert_allclose(table[column], posterior.quantile(X, level), rtol=1e-7)
    np.testing.assert_allclose(f["q10"], posterior.quantile(X, 0.1, noise=False), rtol=1e-7)
    np.testing.assert_allclose(f["sd"], posterior.var(X, noise=False).sqrt(), rtol=1e-7)
    np.testing.assert_allclose(table["sd_f"], f["sd"], rtol=1e-9)
    assert (table["upper_95"] - table["q50"] > 1.5 * (table["q50"] - table["lower_95"])).all()  # skewed
    assert (table["mean"] > table["q50"]).all()
    assert table["far"].tolist() == [0, 0, 0, 1]
    if transform == "log":
        assert (table["lower_95"] > 0.0).all()
        assert (table["mean"] - 2.0 * table["sd"] < 0.0).any()  # where a normal distribution would go below 0


def test_mistakes_are_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    Path("model").write_text("x")

    assert call("predict", "model", "new.csv") == 2
    assert "model cannot be read as a safetensors file" in capsys.readouterr().err


def test_a_file_without_rows_is_a_sentence_about_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    x = np.linspace(0.0, 6.0, 40)
    run = Spec("cholqr", {"num_inducing": 4}).open(data=pd.DataFrame({"x": x, "y": np.sin(x)}))
    run.finish(steps=1)
    run.posterior(of="y").save(tmp_path / "model")
    files = {
        "zero.csv": (b"", "is empty (0 bytes)"),
        "zero.parquet": (b"", "is empty (0 bytes)"),
        "packed.csv.gz": (gzip.compress(b""), "contains only blank lines"),
        "marked.csv": (b"\xef\xbb\xbf", "contains only blank lines"),
        "wide.csv": ("\n".encode("utf-16"), "contains only blank lines"),
        "lines.csv": (b"\r\n\n", "contains only blank lines"),
        "blanks.csv": (b"  \n \t", "contains only blank lines"),
        "names.csv": (b"x\n", "no rows below"),
        "names in blanks.csv": (b"x z\n", "no rows below"),
        "open names.csv": (b"x,z", "no rows below"),
    }
    for name, (contents, expected) in files.items():
        Path(name).write_bytes(contents)
        assert call("predict", "model", name) == 2, name
        printed = capsys.readouterr()
        assert printed.out == "", name
        assert expected in printed.err, name
        assert "3 rows" not in printed.err, name
    Path("one.csv").write_text("x\n3\n")
    assert call("predict", "model", "one.csv") == 0  # one row is enough


@pytest.mark.parametrize(
    "words",
    [
        ("run", "spec.json", "--model", "nowhere/model"),
        ("recommend", "rows.csv", "--out", "nowhere/spec.json"),
        ("recommend", "rows.csv", "--model", "nowhere/model"),
        ("predict", "model", "rows.csv", "--out", "nowhere/table.csv"),
        # names that say another kind of file than is written
        ("predict", "model", "rows.csv", "--out", "table.xlsx"),
        ("predict", "model", "rows.csv", "--out", "table"),
        ("recommend", "rows.csv", "--out", "predictions.csv"),
        ("run", "spec.json", "--model", "predictions.csv"),
        ("sweep", "spec.json", "--out", "table.csv"),
        ("export", "run", "--page", "run.pdf"),
        # files that are read
        ("predict", "model", "rows.csv", "--out", "./rows.csv"),
        ("predict", "model", "linked.csv", "--out", "rows.csv"),
        ("predict", "model.csv", "rows.csv", "--out", "model.csv"),
        ("run", "spec.json", "--model", "spec.json"),
        ("recommend", "rows.csv", "--model", "rows.csv"),
        ("sweep", "grid.parquet", "--out", "grid.parquet"),
    ],
)
def test_a_file_that_cannot_be_written_is_a_sentence_before_the_work(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("the work began")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Run, "finish", work)
    monkeypatch.setattr(recommendation, "recommend", work)
    monkeypatch.setattr(posteriors, "load_posterior", work)
    pd.DataFrame({"x": range(20), "y": range(20)}).to_csv("rows.csv", index=False)
    Path("spec.json").write_text(json.dumps({"gpexplorer": 1, "method": "cholqr", "data": "rows.csv"}))
    Path("linked.csv").symlink_to("rows.csv")
    for name in ("model.csv", "grid.parquet"):
        Path(name).write_text("kept")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    assert call(*words) == 2
    printed = capsys.readouterr().err
    assert f"Cannot write {Path(words[-1])}" in printed
    assert "choose another" in printed
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_predictions_are_written_as_the_name_says(tmp_path: Path):
    frame = pd.DataFrame({"x": np.linspace(0.0, 1.0, 20)})
    frame["y"] = np.sin(frame["x"])
    run = Spec("cholqr", {"num_inducing": 4}, kernel="se").open(data=frame)
    run.finish(steps=1)
    run.posterior(of="y").save(tmp_path / "model")
    frame.to_csv(tmp_path / "rows.csv", index=False)

    read = {
        ".csv": pd.read_csv, ".csv.gz": pd.read_csv, ".tsv": partial(pd.read_csv, sep="\t"),
        ".TSV.gz": partial(pd.read_csv, sep="\t"), ".parquet": pd.read_parquet,
    }  # fmt: skip
    tables = []
    for ending, reader in read.items():
        out = tmp_path / f"p{ending}"
        assert call("predict", str(tmp_path / "model"), str(tmp_path / "rows.csv"), "--out", str(out)) == 0
        tables.append(reader(out)["mean"].to_numpy())
    np.testing.assert_allclose(tables, [tables[0]] * len(read), rtol=1e-12)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_rows_are_predicted_leaves_no_file(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def tables(*_: Any) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"mean": [1.0], "why": ["predicted"]})
        assert [path.suffix for path in tmp_path.iterdir()] == [".new"]  # the table is being written
        assert signal.getsignal(number) not in (signal.SIG_DFL, signal.default_int_handler)
        signal.raise_signal(number)
        raise AssertionError("the command went on")

    monkeypatch.setattr(posteriors, "load_posterior", lambda *_: None)
    monkeypatch.setattr(prediction_table_module, "predictions_of_file", tables)
    before = signal.getsignal(number)
    assert call("predict", "model", "rows.csv", "--out", str(tmp_path / "table.csv")) == 128 + number
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(number) == before


def test_a_model_is_as_readable_as_other_new_files(tmp_path: Path):
    run = Spec("cholqr", {"num_inducing": 4}, data={"name": "friedman1", "n": 30}).open()
    run.finish(steps=1)
    (tmp_path / "other").touch()
    run.posterior().save(tmp_path / "model")
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_the_command_that_continues_names_the_model_and_a_failed_run_keeps_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(registry, "toy", Toy)
    fields = {"gpexplorer": 1, "method": "toy", "data": ROWS, "budget": {"steps": 5}}
    Path("fails.json").write_text(json.dumps({**fields, "settings": {"fault": "known"}}))
    assert call("run", "fails.json", "--model", "model", "--quiet") == 1
    assert "model was not written" in capsys.readouterr().err

    Path("spec.json").write_text(json.dumps(fields))
    finish = Run.finish
    monkeypatch.setattr(Run, "finish", lambda run: (signal.raise_signal(signal.SIGINT), finish(run)))
    assert call("run", "spec.json", "--model", "model", "--quiet") == 130
    assert "--model model" in capsys.readouterr().err
    assert not Path("model").exists()


def messy_model(folder: Path) -> InUnits:
    """A model of the messy table, saved as model.safetensors."""
    (folder / "messy.csv").write_bytes(messy_csv())
    chosen = {"inputs": ["größe", "colour", "when"], "encode": ["colour"], "dates": ["when"], "decimal": ","}
    spec = Spec("cholqr", {"num_inducing": 20}, data={"name": str(folder / "messy.csv"), "missing": "drop", **chosen})
    run = spec.open()
    run.finish(steps=20)
    run.posterior(of="y").save(folder / "model.safetensors")
    return run.posterior(of="y")


def test_a_messy_new_file_is_predicted_strip_by_strip_with_a_flag_for_far_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    posterior = messy_model(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reading.strips, "__defaults__", (8, ()))  # of 800 bytes
    lines = [
        "when;colour;größe",
        *(f"2020-0{1 + i % 9}-01;red;{100 + 6 * i / 60:.3f}".replace(".", ",") for i in range(60)),
    ]
    lines += ["2020-03-01;blue;900,5", "2020-03-01;blue;", "2020-03-01;violet;103,0"]
    Path("new.csv").write_text("\n".join(lines) + "\n", "cp1252")
    assert call("predict", "model.safetensors", "new.csv", "--quantiles", "0.1,0.9", "--out", "p.parquet") == 0
    assert call("predict", "model.safetensors", "new.csv", "--of", "f", "--out", "p.csv") == 0
    table, f = pd.read_parquet("p.parquet"), pd.read_csv("p.csv")

    day = (
        np.array([f"2020-0{1 + i % 9}-01" for i in range(60)], "datetime64[D]") - np.datetime64("1970-01-01")
    ).astype(int)
    X = np.column_stack([[round(100 + 6 * i / 60, 3) for i in range(60)], np.zeros(60), np.zeros(60), np.ones(60), day])
    mean, var = posterior(X)
    np.testing.assert_allclose(table["mean"][:60], mean, rtol=1e-9)
    np.testing.assert_allclose(table["sd"][:60] ** 2, var, rtol=1e-8)
    np.testing.assert_allclose(f["sd"], table["sd_f"], rtol=1e-9)
    normal = table[:62]  # the last row has a word that training does not have, and is an average over words
    np.testing.assert_allclose(normal["q90"] - normal["mean"], 1.2815515655 * normal["sd"], rtol=1e-6)
    assert (table["sd_f"][:60] < table["sd"][:60]).all()
    assert table["far"][:60].sum() == 0
    assert table["far"][60] == 1
    assert table.drop(columns=["row", "target", "why"]).iloc[61].isna().all()
    assert table["row"].tolist() == f["row"].tolist() == [*range(1, 64)]  # through all strips
    assert table["why"][61].startswith("no value: ")
    assert table["mean"].notna()[62]
    assert len(table) == 63

    # thousands, unless another strip has a point before decimals, or it is a number of training by that alone
    for first, last in (("903.250", "104,5"), ("903.250", "104.5"), ("103.250", "104,5")):
        says = "far" if (first, last) == ("903.250", "104,5") else f'unreadable: größe "{first}"'
        lines[1] = f"2020-01-01;red;{first}"
        Path("new.csv").write_text("\n".join([*lines, f"2020-03-01;red;{last}"]) + "\n", "cp1252")
        assert call("predict", "model.safetensors", "new.csv", "--out", "p.csv") == 0
        assert pd.read_csv("p.csv")["why"][0] == says


def test_the_counts_show_the_first_cell_that_cannot_be_read():
    counts: Counter[str] = Counter()
    for cells in (["5,5", "6,5", "7"], ["9,5"]):  # two strips
        why = ["predicted" if cell == "7" else f'unreadable: x "{cell}"; filled: w' for cell in cells]
        mean = [1.0 if cell == "7" else float("nan") for cell in cells]
        counts.update(count_reasons(pd.DataFrame({"mean": mean, "why": why})))
    assert sentence_of_counts(counts) == '1 of 4 rows predicted: 3 filled: w; 3 unreadable: x, such as "5,5".'


def test_rows_are_far_where_the_posterior_is_the_prior():
    x = np.linspace(0.0, 6.0, 60)[:, None]
    run = Spec("ml", kernel="se", budget={"steps": 5}).open(data=(x, np.sin(x[:, 0])))
    run.finish()
    table = prediction_table(run.posterior(of="y"), np.array([[3.0], [12.0], [1e6]]))
    assert table["far"].tolist() == [0, 1, 1]
    with pytest.raises(SettingError, match="between 0 and 1"):
        prediction_table(run.posterior(of="y"), np.array([[3.0]]), quantiles=[2.0])
