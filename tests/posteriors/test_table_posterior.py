"""Posteriors read frames, and arrays of dates and words, as the table of training was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpexplorer as gpx
from gpexplorer.errors import DataError
from gpexplorer.posteriors import AveragePosterior, table_posterior
from gpexplorer.runs.studies.prediction_table import predictions_of_file

EFFECT = {"oak": 0.0, "elm": 5.0, "fir": 10.0}


def table() -> pd.DataFrame:
    """y = x + the effect of a word + day / 10, with little noise."""
    rng = np.random.default_rng(0)
    x, words, days = (
        rng.uniform(0, 5, 60),
        rng.choice(list(EFFECT), 60),
        pd.date_range("2021-01-01", periods=60, freq="5D"),
    )
    y = x + [EFFECT[word] for word in words] + np.arange(60) / 10 + rng.normal(0, 0.05, 60)
    return pd.DataFrame({"x": x, "wood": words, "when": days.strftime("%m/%d/%Y"), "y": y})


@pytest.fixture(scope="module")
def model() -> Any:
    run = gpx.Spec("ml", kernel="linear", budget={"steps": 30}).open(data=gpx.load(table(), split="all"))
    run.finish()
    return run.posterior(of="y")


def predicted(model: Any, folder: Path, text: str) -> pd.DataFrame:
    (folder / "new.csv").write_text(text, "utf-8")
    return pd.concat(list(predictions_of_file(model, folder / "new.csv")))


def test_a_posterior_averages_words_of_a_frame_that_are_not_known_like_the_table_of_predictions(
    model: Any, tmp_path: Path
) -> None:
    new = pd.DataFrame({
        "x": [2.5, 2.5, 4.0], "wood": ["elm", "yew", "yew"], "when": ["03/02/2021", "03/02/2021", "06/05/2021"],
    })  # fmt: skip
    lines = predicted(model, tmp_path, new.to_csv(index=False))
    for posterior in (model, AveragePosterior([model, model], [0.3, 0.7])):
        mean, var = posterior(new)
        assert mean.numpy() == pytest.approx(lines["mean"].to_numpy(), rel=1e-9)
        assert var.sqrt().numpy() == pytest.approx(lines["sd"].to_numpy(), rel=1e-9)
        assert posterior.mean(new).numpy() == pytest.approx(mean.numpy(), rel=1e-12)
        assert posterior.sd(new)[1] > 20 * posterior.sd(new)[0]
        ends = posterior.quantile(new, [0.025, 0.975])
        assert ends.numpy() == pytest.approx(lines[["lower_95", "upper_95"]].to_numpy().T, abs=1e-6)
        marginals = posterior.marginals(new)
        assert marginals.cdf(ends[1]).numpy() == pytest.approx(0.975, abs=1e-6)
        step = 1e-5
        slope = (marginals.cdf(mean + step) - marginals.cdf(mean - step)) / (2 * step)
        assert posterior.log_density(new, mean).exp().numpy() == pytest.approx(slope.numpy(), rel=1e-3, abs=1e-9)
        with pytest.warns(UserWarning, match='row 2: word not seen: wood "yew".*take a value in the middle'):
            posterior.cov(new)


def test_an_array_of_dates_has_the_same_meaning_in_any_unit() -> None:
    days = np.arange(60)
    y = np.sin(days / 9)
    dates = (np.datetime64("2021-01-01") + days)[:, None]
    model = gpx.Estimator("ml", kernel="se", budget={"steps": 10}).fit(dates, y)
    posterior = gpx.Spec("ml", kernel="se", budget={"steps": 10}).open(data=(dates, y))
    posterior.finish()
    for unit in ("D", "s", "ns"):
        new = dates[10:14].astype(f"datetime64[{unit}]")
        assert model.predict(new) == pytest.approx(y[10:14], abs=0.02), unit
        assert posterior.posterior().mean(new).numpy() == pytest.approx(y[10:14], abs=0.02), unit
    took = days[:, None].astype("timedelta64[h]")
    timed = gpx.Estimator("ml", kernel="se", budget={"steps": 10}).fit(took, y)
    assert timed.predict(took[10:14].astype("timedelta64[ns]")) == pytest.approx(y[10:14], abs=0.02)


@pytest.mark.parametrize("as_rows", [lambda rows: rows, lambda rows: np.array(rows, object), np.array])
def test_an_array_with_words_is_read_like_a_table(as_rows: Any) -> None:
    frame = table()
    rows = as_rows(frame[["x", "wood"]].to_numpy().tolist())
    y = frame["x"] + frame["wood"].map(EFFECT)
    run = gpx.Spec("ml", kernel="linear", budget={"steps": 20}).open(data=(rows, y.to_numpy()))
    run.finish()
    model = gpx.Estimator("ml", kernel="linear", budget={"steps": 20}).fit(rows, y)
    assert run.posterior().mean(rows[:4]).numpy() == pytest.approx(y[:4].to_numpy(), abs=0.05)
    assert model.predict(rows[:4]) == pytest.approx(y[:4].to_numpy(), abs=0.05)
    assert model.n_features_in_ == 2
    assert not hasattr(model, "feature_names_in_")
    yew = as_rows([[2.5, "yew"]])
    assert model.predict(yew, return_std=True)[1][0] > 3.0


@pytest.mark.parametrize("kernel", ["se-ard * category[wood]", "se-ard + se-ard * category"])
def test_words_that_a_kernel_compares_are_those_of_training_in_any_spelling(kernel: str, tmp_path: Path) -> None:
    """A new ELM was another word than elm, and one that training does not have was said to be predicted."""
    frame = table()
    model = gpx.Estimator("ml", kernel=kernel, budget={"steps": 15}).fit(frame[["x", "wood"]], frame.y)
    model.posterior_.save(tmp_path / "m.safetensors")
    answer = predicted(gpx.load_posterior(tmp_path / "m.safetensors"), tmp_path, "x,wood\n2,elm\n2, ELM\n2,yew\n2,\n")
    assert answer["mean"][1] == answer["mean"][0]
    assert answer["why"].tolist() == ["predicted", "predicted", 'word not seen: wood "yew"; far', "no value: wood"]
    assert answer["far"][:3].tolist() == [0, 0, 1]
    capitals = model.predict(pd.DataFrame({"x": [2.0, 2.0], "wood": ["elm", "Elm"]}))
    assert capitals[0] == capitals[1]


def test_new_texts_of_a_kernel_on_strings_are_not_said_to_be_unseen(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    text = rng.choice(["abba", "baba", "aabb", "bbaa"], 40)
    frame = pd.DataFrame({"x": rng.uniform(size=40), "text": text})
    model = gpx.Estimator("ml", kernel="se-ard + spectrum[text]", budget={"steps": 3}).fit(frame, frame.x)
    answer = predicted(model.posterior_, tmp_path, "x,text\n0.5,abab\n0.5,ABBA\n")
    assert not answer["why"].str.contains("not seen").any()
    assert answer["mean"][1] == float(predicted(model.posterior_, tmp_path, "x,text\n0.5,abba\n")["mean"][0])


def written_in_many_ways() -> pd.DataFrame:
    """Cells of every kind whose meaning only the rows of training tell."""
    rng, n = np.random.default_rng(7), 90
    a, when = rng.uniform(1.0, 9.0, n), pd.date_range("2019-11-20", periods=n, freq="D")
    return pd.DataFrame({
        "share": [f"{x:.2f} %" for x in a], "level": np.where(np.arange(n) % 7 == 3, -999.0, rng.uniform(size=n)),
        "day": when.strftime("%Y%m%d").astype(int), "at": when + pd.to_timedelta(rng.uniform(size=n), unit="h"),
        "lasts": pd.to_timedelta(rng.uniform(0.0, 50.0, n), unit="h"), "code": rng.integers(0, 3, n),
        "wood": rng.choice(list(EFFECT), n), "weight": [f"{x:.1f} kg" for x in rng.uniform(5.0, 9.0, n)],
        "price": [f"{x:.3f} EUR" for x in np.sin(a) + 3.0],
    })  # fmt: skip


@pytest.mark.parametrize("rows", [16, 1000])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_file_is_read_as_the_table_of_training_was(
    kind: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, path = written_in_many_ways(), tmp_path / f"rows.{kind}"
    if kind == "csv":  # whose durations have no type
        table = table.drop(columns="lasts")
    getattr(table, f"to_{kind}")(path, index=False)
    options = {"kinds": {"level": "number missing -999"}, "encode": ["code"], "target": "price"}
    spec = gpx.Spec("sgpr", {"num_inducing": 9}, kernel="se-ard", split="all", data={"name": str(path), **options})
    run = spec.open()
    run.finish(steps=3)
    whole = run.posterior(of="y")
    monkeypatch.setattr(table_posterior, "STRIP_BYTES", 8 * rows * (whole.columns.d + 1))
    for posterior in (whole, AveragePosterior([whole, whole], [0.3, 0.7])):
        again = posterior.without_rows().with_file(path)
        assert again.mean(table[:20]).numpy() == pytest.approx(whole.mean(table[:20]).numpy(), rel=1e-6)
        assert again.var(table[:20]).numpy() == pytest.approx(whole.var(table[:20]).numpy(), rel=1e-6)


@pytest.mark.parametrize("rows", [16, 1000])
def test_doubts_about_cells_of_a_file_are_one_warning_and_errors_count_its_rows(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = written_in_many_ways()[["share", "wood", "weight", "price"]]
    run = gpx.Spec("sgpr", {"num_inducing": 9}, kernel="se-ard", split="all").open(data=table)
    run.finish(steps=3)
    prior = run.posterior(of="y").without_rows()
    monkeypatch.setattr(table_posterior, "STRIP_BYTES", 8 * rows * (prior.columns.d + 1))

    bare = table.assign(share=[f"{float(cell[:-2]) if k >= 40 else cell}" for k, cell in enumerate(table["share"])])
    bare.to_parquet(tmp_path / "bare.parquet")
    with pytest.warns(UserWarning, match=r"row 41: without the unit.*; and 49 more rows") as told:
        prior.with_file(tmp_path / "bare.parquet")
    assert len(told) == 1
    assert told[0].filename == __file__
    for column, cell, why in (
        ("weight", "heavy", 'unreadable: weight "heavy"'),
        ("weight", None, "filled: weight"),
        ("price", "much", "no number: price"),
        ("price", None, "no number: price"),
    ):
        wrong = table.astype(object)
        wrong.loc[52, column] = cell
        wrong.to_parquet(tmp_path / "wrong.parquet")
        if why.startswith("filled"):
            with pytest.warns(UserWarning, match=r"row 53: filled: weight; and 0 more rows"):
                prior.with_file(tmp_path / "wrong.parquet")
        else:
            with pytest.raises(DataError, match=rf"row 53 cannot be learned \({why}\)"):
                prior.with_file(tmp_path / "wrong.parquet")
    table.drop(columns="wood").to_parquet(tmp_path / "short.parquet")
    with pytest.raises(DataError, match='no column "wood"'):
        prior.with_file(tmp_path / "short.parquet")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_numbers_that_look_like_dates_are_numbers_for_a_model_of_arrays(kind: str, tmp_path: Path) -> None:
    rng, days = np.random.default_rng(2), pd.date_range("2021-02-20", periods=50).strftime("%Y%m%d").astype(int)
    X = np.column_stack([rng.uniform(size=50), days])
    y = np.sin(4 * X[:, 0]) + 0.01 * (X[:, 1] - 20210220)
    posterior, path = gpx.Estimator("cholqr", num_inducing=9).fit(X, y).posterior_, tmp_path / f"rows.{kind}"
    getattr(pd.DataFrame({"x0": X[:, 0], "x1": days, "y": y}), f"to_{kind}")(path, index=False)
    expected = pytest.approx(posterior.mean(X).numpy(), rel=1e-6)
    assert pd.concat(list(predictions_of_file(posterior, path)))["mean"].to_numpy() == expected
    assert posterior.without_rows().with_file(path).mean(X).numpy() == expected
