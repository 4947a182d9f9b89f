"""Values of new rows that training does not have, where it has one value alone or learned from other rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import gpexplorer as gpx
from gpexplorer.data.files.inputs_by_name import ModelInputs
from gpexplorer.data.in_memory import table_of
from gpexplorer.posteriors.marginals import NormalMarginals
from gpexplorer.posteriors.table_posterior import marginals_of_part
from gpexplorer.runs.studies.prediction_table import predictions_of_file


def rows(n: int, seed: int) -> pd.DataFrame:
    """Words of three kinds and of twenty, numbers with gaps and days; y is their sum."""
    rng = np.random.default_rng(seed)
    few, many, load = rng.integers(0, 3, n), rng.integers(0, 20, n), rng.uniform(2, 9, n).round(3)
    days = rng.integers(0, 900, n)
    return pd.DataFrame({
        "roof": np.array(["tar", "tin", "zinc"])[few], "site": [f"S{k}" for k in many],
        "load": np.where(rng.uniform(size=n) < 0.1, np.nan, load), "since": np.datetime64("2017-03-01") + days,
        "crew": np.where(rng.uniform(size=n) < 0.2, None, np.array(["day", "night"])[rng.integers(0, 2, n)]),
        "y": 4.0 * few + many + load + days / 300 + rng.normal(0, 0.1, n),
    })  # fmt: skip


def others(n: int, seed: int) -> pd.DataFrame:
    """Such rows with words, numbers and days of their own."""
    late = rows(n, seed).assign(roof="slate", crew="weekend", y=99.0)
    return late.assign(site=[f"T{k % 2}" for k in range(n)], load=late["load"] + 500, since=np.datetime64("2031-05-06"))


@pytest.mark.parametrize("door", ["file", "frame", "upload"])
@pytest.mark.parametrize("missing", [None, "drop"])
def test_rows_that_are_left_out_say_nothing_of_words_numbers_and_days(door: str, missing: Any, tmp_path: Path) -> None:
    """Words of rows without a target were words of training: predicted with a small band, and not far."""
    known, blank = rows(60, 4), others(6, 5).assign(y=np.nan)
    if missing:  # so are those of rows with a gap
        blank = others(6, 5).assign(load=np.nan)
    options = {"target": "y", "missing": missing}

    def loaded(frame: pd.DataFrame) -> Any:
        if door == "frame":
            return gpx.load(frame, split="all", **options).train
        text = frame.to_csv(index=False)
        if door == "upload":
            return gpx.data.read_upload("t.csv", text.encode(), gpx.data.Choice(**options), split="all").train
        (tmp_path / "t.csv").write_text(text)
        return gpx.load(tmp_path / "t.csv", split="all", **options).train

    alone, both = loaded(known), loaded(pd.concat([known.iloc[:30], blank, known.iloc[30:]]))
    assert json.loads(both.reader.to_json()) == json.loads(alone.reader.to_json())
    assert both.names == alone.names
    assert both.X.tolist() == alone.X.tolist()
    flat = pd.concat([known.assign(pump=4), others(6, 5).assign(pump=9, y=np.nan)])
    assert "pump" not in gpx.load(flat, split="all", **options).train.names


def test_a_gap_in_new_rows_is_no_gap_that_training_lacks_where_rows_with_gaps_were_left_out() -> None:
    table = rows(60, 4)
    split = gpx.load(table, target="y", missing="drop", split="all")
    assert split.notes == (f"{table.isna().any(axis=1).sum()} rows of 60 had a missing value and were left out.",)
    read, gaps = split.train.reader.read(table_of(table)), table["load"].isna()
    says = {why.partition(";")[0] for why, is_gap in zip(read.why, gaps, strict=True) if is_gap}
    assert says == {"no value: load, which all rows that were learned from have"}


def split_of(table: pd.DataFrame) -> tuple[Any, dict[str, pd.DataFrame]]:
    """A split all of whose rows with a target of 99 are test rows, and its rows as tables; other targets differ."""
    for seed in range(300):
        split = gpx.load(table, target="y", split={"test": 0.3, "seed": seed})
        if not (split.train.y == 99.0).any():
            break
    by_target = table.set_index("y", drop=False)
    known = {"train": split.train.y, "test": split.test.y[split.test.y != 99.0]}
    return split, {name: by_target.loc[y.tolist()] for name, y in known.items()}


@pytest.mark.parametrize("seed", [2, 3])
def test_test_rows_say_nothing_of_words_numbers_and_days(seed: int) -> None:
    """Words of test rows alone were words of training, which had no row with them."""
    split, known = split_of(pd.concat([rows(90, seed), others(3, 9)], ignore_index=True))
    alone = gpx.load(known["train"], target="y", split="all").train
    assert json.loads(split.train.reader.to_json()) == json.loads(alone.reader.to_json())
    assert split.train.X.tolist() == alone.X.tolist()
    is_other = split.test.y == 99.0
    assert split.test.X[~is_other].tolist() == alone.reader.read(table_of(known["test"])).X.tolist()
    assert split.test.unknown is not None
    assert all(split.test.unknown[name].tolist() == is_other.tolist() for name in ("roof", "crew"))
    assert split.test.rows(is_other.nonzero()[:, 0]).unknown["site"].all()


def test_test_rows_with_new_words_are_scored_by_the_average_over_words() -> None:
    new = others(3, 9).assign(load=5.0, since=np.datetime64("2018-01-01"))
    split, known = split_of(pd.concat([rows(90, 2), new], ignore_index=True))
    run = gpx.Spec("ml", kernel="linear", budget={"steps": 9}).open(data=split)
    run.finish()
    is_other = split.test.y == 99.0
    marginals = marginals_of_part(run.posterior(of="y"), run.split.test)
    mean, var = run.posterior(of="y")(new)
    assert marginals.moments[0][is_other].tolist() == pytest.approx(mean.tolist(), rel=1e-9)
    assert marginals.moments[1][is_other].tolist() == pytest.approx(var.tolist(), rel=1e-9)
    assert float(var.sqrt().min()) > 2.0  # of 0.1 for known words
    density = -NormalMarginals(mean, var).log_density(torch.full_like(mean, 99.0)).sum()
    read = run.posterior(of="y")(known["test"])
    density -= NormalMarginals(*read).log_density(torch.tensor(known["test"]["y"].to_numpy())).sum()
    assert run.scores()["nlpd"] == pytest.approx(float(density) / len(split.test), rel=1e-6)


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
