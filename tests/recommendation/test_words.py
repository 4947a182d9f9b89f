"""A function of the other inputs for each word of a column, beside the mean of the targets of the word."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import gpexplorer as gpx
from gpexplorer import kernels
from gpexplorer.data.edits import edited
from gpexplorer.data.in_memory import table_of
from gpexplorer.problem import Dataset, RowGroups
from gpexplorer.recommendation import held_out_score
from gpexplorer.recommendation.candidates import of_words
from gpexplorer.runs.studies.prediction_table import predictions_of_file

EACH_CLINIC = "matern32-ard[all but clinic: mean of y] * same[clinic: mean of y]"
TARGET = {"target": "y"}


def clinics(n: int = 400, clinics: int = 40, seed: int = 0) -> pd.DataFrame:
    """Each clinic has its own slope, and levels that say nothing about it."""
    random = np.random.default_rng(seed)
    names = np.array([f"clinic {k:02d}" for k in range(clinics)])
    clinic, dose = random.integers(0, clinics, n), random.uniform(-2.0, 2.0, n)
    slope, level = random.normal(0.0, 2.0, clinics), random.normal(0.0, 1.0, clinics)
    y = level[clinic] + slope[clinic] * dose + random.normal(0.0, 0.1, n)
    return pd.DataFrame({"clinic": names[clinic], "dose": dose, "age": random.uniform(20.0, 80.0, n), "y": y})


def solved(split: object, kernel: str) -> gpx.Run:
    run = gpx.Spec("ml", kernel=kernel).open(data=split)
    while len(run.trace) < 40 and run.advance() is not None:
        pass
    return run


def test_training_rows_are_also_known_as_new_rows_would_be_read():
    table = clinics()
    train = gpx.load(table, split="all", **TARGET).train
    again = train.reader.read(table_of(table)).X
    place = train.names.index("clinic: mean of y")
    assert np.array_equal(train.as_new.numpy(), again)
    X = train.X.numpy()
    assert not np.array_equal(X[:, place], again[:, place])  # the mean of the other rows
    assert np.array_equal(np.delete(X, place, 1), np.delete(again, place, 1))

    assert len(train.as_new[:, place].unique()) == table["clinic"].nunique()
    some = train.rows([5, 2])
    assert torch.equal(some.as_new, train.as_new[[5, 2]])
    compared = some.read_as_new(["clinic: mean of y"])
    assert torch.equal(compared.X, some.as_new)
    assert some.read_as_new([]) is some
    numbers = gpx.load(table.drop(columns="clinic"), split="all", **TARGET).train
    assert numbers.as_new is None


def test_an_added_row_is_compared_by_the_number_that_it_has():
    split = gpx.load(clinics(160, 20), split="all", **TARGET)
    rows = edited(split, [[1.0, 33.0, -1.5, 2.0], [3]]).train
    assert len(rows.as_new) == len(rows) == 160
    assert rows.as_new[-1].tolist() == rows.X[-1].tolist() == [1.0, 33.0, -1.5]
    assert torch.equal(rows.as_new[3], split.train.as_new[4])


def test_words_with_equal_means_and_words_not_seen_have_numbers_of_their_own():
    random = np.random.default_rng(0)
    dose = np.repeat(np.linspace(-1.0, 1.0, 60), 3)
    stars = np.clip(np.round(2.0 + 2.0 * dose), 0, 4)  # few values, and three rows of each word: many equal means
    table = pd.DataFrame({"shop": [f"shop {k // 3}" for k in range(180)], "dose": dose, "y": stars})
    train = gpx.load(table.sample(frac=1.0, random_state=0), split="all", **TARGET).train
    place = train.names.index("shop: mean of y")
    assert len(train.as_new[:, place].unique()) == 60
    new = pd.DataFrame({"shop": "another", "dose": random.uniform(-9.0, 9.0, 50)})  # its mean would be beyond all
    numbers = train.reader.read(table_of(new)).X[:, place]
    assert not np.isin(numbers, train.as_new[:, place]).any()


def test_a_score_of_tuning_compares_words_as_well():
    split = gpx.load(clinics(240, 24), split="all", **TARGET)
    by_means, by_words = (
        held_out_score(gpx.Spec("ml", kernel=kernel, budget={"steps": 25}), data=split, metric="smse")
        for kernel in ("matern32-ard", EACH_CLINIC)
    )
    assert by_words < 0.3 * by_means


def test_a_kernel_that_compares_words_learns_what_means_cannot_say(tmp_path: Path):
    table = clinics()
    split = gpx.load(table, split={"test": 0.25, "seed": 1}, **TARGET)
    by_means, by_words = solved(split, "matern32-ard"), solved(split, EACH_CLINIC)
    assert by_words.scores()["smse"] < 0.1 * by_means.scores()["smse"]
    assert by_words.scores()["nlpd"] < by_means.scores()["nlpd"] - 0.5
    assert 0.88 <= by_words.scores()["coverage95"] <= 1.0

    posterior = by_words.posterior(of="y")  # read again from a file, it knows the words of new files
    posterior.save(tmp_path / "model.safetensors")
    new = clinics(seed=1)[:30].assign(clinic=[*(["Clinic 07"] * 29), "another"]).drop(columns="y")
    new.to_csv(tmp_path / "new.csv", index=False)
    (answer,) = predictions_of_file(gpx.load_posterior(tmp_path / "model.safetensors"), tmp_path / "new.csv")
    known = posterior.columns.reader.read(table_of(new)).X
    assert np.allclose(answer["mean"][:29], posterior.mean(torch.from_numpy(known))[:29], rtol=1e-9)
    assert answer["sd"].iloc[-1] > 3.0 * answer["sd"][:29].median()
    assert "word not seen" in answer["why"].iloc[-1]


def test_the_candidates_are_the_columns_whose_words_have_rows_enough():
    table = clinics(300, 20).assign(city=[f"town {k % 90}" for k in range(300)])
    rows = gpx.load(table, split="all", **TARGET).train
    names = [candidate.name for candidate in of_words(rows, 100.0)]
    assert names == ["ml, matern32-ard for each clinic", "ml, matern32-ard for each city"]
    rare = table.assign(city=[f"town {k}" for k in range(300)], clinic=table["clinic"])
    rows = gpx.load(rare, split="all", kinds={"city": "words"}, **TARGET).train
    assert [candidate.name for candidate in of_words(rows, 100.0)] == names[:1]  # each town has one row

    grouped = Dataset(rows.X, rows.y, rows.names, groups=RowGroups(torch.arange(300), False))
    assert of_words(grouped, 100.0) == []
    assert of_words(gpx.load(table[["dose", "y"]], split="all", **TARGET).train, 100.0) == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers_are_the_same_if_only_rounding_parts_them(dtype: torch.dtype):
    kernel = kernels.make("same", 1)
    theta = torch.tensor([0.0, -3.0, 0.0], dtype=dtype)
    codes = torch.tensor([[1e6], [1e6 + 1.0], [0.0], [-0.3]], dtype=dtype)
    center, sd = codes.mean(), codes.std()
    here, there = (codes - center) / sd, torch.stack([(row - center) / sd for row in codes.flip(0)])
    assert torch.allclose(kernel(theta, codes, codes), torch.eye(4, dtype=dtype))
    assert torch.allclose(kernel(theta, here, there)[:2], torch.eye(4, dtype=dtype).flip(1)[:2])
