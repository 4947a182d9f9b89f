"""Scores on held-out rows by their definitions, their intervals, and how many rows are held out."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

import gpexplorer as gpx
from gpexplorer.data import Split
from gpexplorer.problem import Dataset, RowGroups
from gpexplorer.recommendation.candidates import of_groups
from gpexplorer.recommendation.held_out import RowScores, first_rows, parts
from gpexplorer.recommendation.simple_members import cross_fitting_folds
from search_by_hand import Y, scores


def test_scores_are_those_of_their_definitions():
    mean, var = Y + np.linspace(-1, 1, 60), np.linspace(0.5, 2.0, 60)
    own = RowScores.of(Y, mean, var)
    assert own.rmse == pytest.approx(math.sqrt(np.square(Y - mean).mean()))
    assert own.smse == pytest.approx(np.square(Y - mean).mean() / Y.var())
    assert own.nlpd == pytest.approx((0.5 * np.log(2 * np.pi * var) + np.square(Y - mean) / (2 * var)).mean())
    inside = np.abs(Y - mean) <= 1.959964 * np.sqrt(var)
    assert own.inside(0.95) == pytest.approx(inside.mean())
    assert own.usable
    assert not scores(math.nan).usable
    assert scores(1.0).described("rmse").startswith("1 (95 % interval 1 to 1)")


def test_the_interval_of_groups_is_that_of_a_t_distribution_of_their_means():
    groups = RowGroups(torch.arange(60) // 15, are_folds=False)
    mean = Y + np.repeat([0.5, 1.0, 1.5, 2.0], 15)
    own = RowScores.of(Y, mean, np.ones(60), groups)
    t = 3.182446  # of three degrees of freedom
    densities = own.density.reshape(4, 15).mean(1)
    value, low, high = own.interval("nlpd")
    assert high - value == pytest.approx(value - low)
    assert high - value == pytest.approx(t * densities.std(ddof=1) * math.sqrt(1 / 4 + 3 / 4), rel=1e-5)
    squares = np.array([0.25, 1.0, 2.25, 4.0])
    factor = math.exp(t * squares.std(ddof=1) / squares.mean())
    assert own.interval("smse").high == pytest.approx(own.smse * factor, rel=1e-5)
    assert own.interval("rmse").low == pytest.approx(own.rmse / math.sqrt(factor), rel=1e-5)
    far = RowScores.of(Y, Y + np.repeat([0.0, 0.0, 0.0, 9.0], 15), np.ones(60), groups)
    assert far.interval("smse").high == pytest.approx(far.smse * math.exp(5.0))
    two = RowScores.of(Y, mean, np.ones(60), RowGroups(torch.arange(60) // 30, are_folds=False))
    assert (own.is_clustered, two.is_clustered) == (True, False)


@pytest.mark.parametrize(
    ("n", "alone", "in_groups"), [(1000, 200, 300), (1999, 200, 600), (5000, 500, 1500), (30_000, 2000, 4000)]
)
def test_of_many_rows_a_tenth_is_held_out_and_of_groups_a_third_within_limits(n: int, alone: int, in_groups: int):
    X = torch.arange(n)[:, None].double()
    [part] = parts(Split(Dataset(X, X[:, 0]), Dataset(X[:0], X[:0, 0]), "rows"), 0)
    assert (len(part.test), len(part.train)) == (alone, n - alone)
    groups = RowGroups(torch.arange(n) // 10, are_folds=False)
    [part] = parts(Split(Dataset(X, X[:, 0], groups=groups), Dataset(X[:0], X[:0, 0]), "rows"), 0)
    assert abs(len(part.test) - in_groups) <= 20
    assert not set(part.test.groups.number.tolist()) & set(part.train.groups.number.tolist())


def test_the_first_rows_keep_their_groups_and_the_rows_that_are_held_out():
    X = torch.arange(9)[:, None].double()
    groups = RowGroups(torch.arange(9) // 2, are_folds=False)
    split = Split(Dataset(X, X[:, 0], ("a",), "b", groups=groups), Dataset(X[:2], X[:2, 0]), "rows", key="key")
    few = first_rows(split, 4)
    assert few.train.X[:, 0].tolist() == few.train.y.tolist() == [0, 1, 2, 3]
    assert few.train.groups.number.tolist() == [0, 0, 1, 1]
    assert (few.train.names, few.train.target, few.key) == (("a",), "b", "key/first-4")
    assert few.test is split.test
    assert first_rows(split, 9) is first_rows(split, 20) is split


def test_where_a_few_drawn_targets_are_equal_an_interval_has_no_upper_end() -> None:
    targets = np.array([0.0] * 9 + [1.0, 2.0, 2.0])
    own = RowScores.of(targets, targets + 1.0, np.ones(len(targets)))
    value, low, high = own.interval("smse")
    assert 0.0 < low < value < high == math.inf
    assert own.described("smse") == f"{value:.3g} (95 % interval from {low:.3g} on)"


def test_an_interval_holds_its_score_beside_a_row_far_from_all_others() -> None:
    targets = np.arange(60.0) % 7
    targets[11] = 1e6
    own = RowScores.of(targets, np.full(60, targets.mean()), np.ones(60))
    for value, low, high in own.intervals.values():
        assert low <= value <= high


@pytest.mark.parametrize(("groups", "in_parts", "folds"), [(2, 2, None), (3, 3, 2), (4, 3, 2), (5, 3, 3), (6, 3, 4)])
def test_few_groups_are_held_out_in_fewer_parts_and_folds(groups: int, in_parts: int, folds: int | None) -> None:
    number, draw = torch.arange(5 * groups) // 5, torch.Generator().manual_seed(0)
    X = torch.randn(5 * groups, 2, generator=draw, dtype=torch.float64)
    rows = Dataset(X, X[:, 0].clone(), ("a", "b"), groups=RowGroups(number, are_folds=False))
    divided = parts(Split(rows, rows.rows(torch.arange(0)), "rows"), 0)
    assert len(divided) == in_parts
    assert sum(len(part.test) for part in divided) == len(rows)

    used = {own.settings.get("folds", 4) for own in of_groups(rows, 1.0)}
    assert used == ({folds} if folds else set())
    for part in divided:
        assert folds is None or part.train.groups.distinct >= folds
        drawn = cross_fitting_folds(part.train, part.train.X.numpy(), "")
        assert len(np.unique(drawn)) >= 2


def test_a_table_of_four_groups_gets_an_answer() -> None:
    rng = np.random.default_rng(0)
    of_group = np.repeat(np.arange(4), 5)
    table = pd.DataFrame({"patient": [f"p{k}" for k in of_group], "x": rng.normal(size=20)})
    table["y"] = table["x"] + rng.normal(size=4)[of_group]
    answer = gpx.recommend(table, target="y", groups="patient", seconds=0.5)
    assert answer.held_out_by == "groups"
    assert answer.predict(table.drop(columns="y")).mean.isfinite().all()
