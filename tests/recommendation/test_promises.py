"""Which rows are held out, as asked for or as the rows suggest, and how long the scores between rows may take."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import f_oneway, norm

from gpexplorer.data import Split
from gpexplorer.data.quoting import about
from gpexplorer.errors import SettingError
from gpexplorer.posteriors.marginals import NormalMarginals
from gpexplorer.problem import Dataset, RowGroups
from gpexplorer.recommendation import promises
from gpexplorer.recommendation.held_out import RowScores, parts
from gpexplorer.recommendation.promises import BetweenRows, between_rows, known_groups_in_words, planned
from gpexplorer.recommendation.row_order import (
    Plan,
    linear_residuals,
    plan_in_time,
    plan_of_groups,
    share_between_groups,
    time_column,
)
from gpexplorer.recommendation.row_questions import sets_of_rows
from gpexplorer.recommendation.skewness import Transforms
from search_by_hand import FakeRun, search_of


def rows(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Rows in no order, of no groups."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 2)), rng.standard_normal(n)


@pytest.mark.parametrize(
    ("folds", "before", "groups", "words"),
    [(None, 1.0, "groups", "give it alone"), ("random", 1.0, None, "give it alone"),
     ("groups", 1.0, None, "give it alone"),
     ("random", None, "groups", "give one of them"), ("weeks", None, None, "folds is"),
     ("groups", None, None, "found no column of groups")],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(folds: Any, before: Any, groups: Any, words: str):
    X, y = rows()
    with pytest.raises(SettingError, match=words):
        planned(X, y, {}, folds, before, np.arange(60) // 6 if groups else None)


def test_what_is_asked_for_is_held_out_whatever_the_rows_say():
    X, y = rows()
    days = np.arange(60.0)[:, None]

    split, plan = planned(X, y, {}, None, None, np.arange(60) // 6)
    assert (plan.kind, plan.column, plan.pairs) == ("groups", "", ())  # although groups are not alike
    assert split.train.groups is not None
    assert planned(X, y, {}, "random", None, None)[1].kind == "random"
    _, plan = planned(days, y, {}, None, 50.0, None)
    assert plan.kind == "time"
    [pair] = plan.pairs
    assert pair.test.tolist() == list(range(50, 60))
    assert planned(days, y, {}, "time", 50.0, None)[1].pairs[0].train.tolist() == list(range(50))
    assert planned(X, y, {}, [(np.arange(9), np.arange(9, 60))], None, None)[1].kind == "random"


def test_groups_of_one_row_each_are_said_to_be_single_rows():
    X, y = rows()
    split, plan = planned(X, y, {}, None, None, np.arange(len(y)))

    assert plan.kind == "groups"
    assert split.train.groups is not None
    assert plan.sentence.startswith("Each row is a group of its own, so single rows were held out")


def test_groups_are_sought_in_tables_and_not_in_inputs_beside_their_targets():
    rng = np.random.default_rng(1)
    patient = np.arange(60) // 6
    frame = pd.DataFrame({"dose": rng.random(60), "patient": patient, "pulse": patient % 5 + 0.01 * rng.random(60)})
    assert planned(frame, None, {"target": "pulse"}, None, None, None)[1].column == "patient"
    inputs, pulse = frame[["patient", "dose"]], frame["pulse"].to_numpy()
    assert planned(inputs, pulse, {}, None, None, None)[1].kind == "random"
    weight = rng.random(60)
    split, plan = planned(frame, weight, {}, None, None, None)  # whose last input would be a target with groups
    assert plan.kind == "random"
    assert split.train.y.tolist() == weight.tolist()


def dataset(column: np.ndarray, name: str = "reading") -> Dataset:
    X = torch.tensor(np.column_stack([column, np.random.default_rng(0).random(len(column))]))
    return Dataset(X, X[:, 1], (name, "other"))


@pytest.mark.parametrize(
    ("steps", "is_time"),
    [([1.0], True), ([1.0, 2.0], True), ([1.0, 9.0], True), ([1.0, 1.0, 1.0, 9.0], False), ([0.5], False)],
)
def test_a_column_that_rises_evenly_by_whole_numbers_is_a_time(steps: list[float], is_time: bool):
    column = np.cumsum(np.resize(steps, 60))
    assert (time_column(dataset(column)) == 0) == (
        is_time and np.std(np.resize(steps, 60)[1:]) < 0.8 * np.mean(np.resize(steps, 60)[1:])
    )
    assert time_column(dataset(column, "x0")) is None  # a column of an array
    assert time_column(dataset(column, "day")) == 0
    assert time_column(dataset(column[::-1], "day")) == 0  # the newest row first
    assert time_column(dataset(column[:29], "day")) is None


def plan_of(frame: pd.DataFrame, folds: Any = None, **options: Any) -> Any:
    return planned(frame, None, {"target": "level"} | options, folds, None, None)[1]


def river(n: int = 240) -> tuple[np.ndarray, pd.DataFrame]:
    """Irregular moments in seconds, and a walk in time beside an input that says nothing."""
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"rain": rng.standard_normal(n), "level": 20.0 + np.cumsum(rng.standard_normal(n))})
    return 7e5 + np.cumsum(rng.exponential(40.0, n)), frame


@pytest.mark.parametrize("name", ["Zeit", "elapsed_s", "UnixTime", "epoch", "sec", "temps", "heure", "timeOfDay"])
@pytest.mark.parametrize("step", [1, -1])
def test_the_time_of_irregular_rows_may_have_other_names_and_the_newest_row_may_be_first(name: str, step: int):
    moments, frame = river()
    plan = plan_of(frame.assign(**{name: moments})[::step])
    assert (plan.kind, plan.column) == ("time", name)
    assert min(moments[::step][plan.pairs[0].test]) > max(moments[::step][plan.pairs[0].train])


def test_rows_in_an_order_that_may_be_that_of_time_are_asked_about_and_others_are_not():
    moments, frame = river()
    days = pd.date_range("2020-11-20", periods=240)
    shuffled = np.random.default_rng(7).permutation(240)
    parts = frame.assign(Year=days.year, Month=days.month, Day=days.day)
    for table, named, way in (
        (frame.assign(reading=moments), '"reading"', 'folds="time" holds out the last ones'),
        (frame.assign(day=np.arange(240)).iloc[shuffled], '"day"', 'folds="time" holds out the last ones'),
        (parts.iloc[shuffled], '"Year", "Month", "Day"', 'make them one column of dates: then folds="time"'),
        (frame.assign(id=np.arange(240)), '"id"', 'once kinds={"id": "number"} makes it an input'),
    ):
        plan = plan_of(table)
        assert (plan.kind, plan.pairs) == ("random", ())
        assert (
            f'In the order of {named}, what a linear regression leaves of "level" is correlated by 0.9' in plan.sentence
        )
        assert way in plan.sentence
        assert plan_of(table, "random").sentence == ""
        noise = table.assign(level=np.random.default_rng(8).standard_normal(240))
        assert plan_of(noise).sentence == ""
    assert plan_of(frame.assign(reading=moments), "time").column == "reading"
    assert plan_of(frame.assign(id=np.arange(240)), kinds={"id": "number"}).kind == "time"
    assert plan_of(frame.assign(id=np.arange(240)).sort_values("level").assign(id=np.arange(240))).sentence == ""
    assert plan_of(frame).sentence == ""


def plots(effect: float = 4.0) -> pd.DataFrame:
    """Nine rows of each of 30 plots of land, with their height and slope, in a random order."""
    rng = np.random.default_rng(9)
    plot = rng.permutation(np.repeat(np.arange(30), 9))
    height, slope = rng.uniform(100.0, 900.0, 30).round(), rng.uniform(0.0, 30.0, 30).round(1)
    water = rng.random(270)
    level = 3.0 * water + (effect * rng.standard_normal(30))[plot] + rng.standard_normal(270)
    return pd.DataFrame({
        "Feld": 17 * plot % 31 + 4, "height": height[plot], "slope": slope[plot], "water": water, "level": level
    })  # fmt: skip


def test_groups_without_a_name_of_groups_are_asked_about():
    frame = plots()
    words = frame.assign(Feld=[f"F{number:03d}" for number in frame.Feld])
    each = frame.assign(Feld=[f"F{number:03d}_v{row}" for row, number in enumerate(frame.Feld)])
    for table, named, way in (
        (frame, '"Feld" has 30 values with 9 rows each', 'groups="Feld" holds out whole ones'),
        (frame[["Feld", "water", "level"]], '"Feld" has 30 values', 'groups="Feld"'),
        (words, '"Feld" has 30 values', 'groups="Feld"'),
        (words[["Feld", "water", "level"]], '"Feld" has 30 values', 'groups="Feld"'),
        (
            frame.drop(columns="Feld"),
            '"height", "slope" have together 30 values',
            "give the group of each row as groups=",
        ),
        (each, '"height", "slope" have together 30 values', "give the group of each row as groups="),
    ):
        plan = plan_of(table)
        assert (plan.kind, plan.pairs) == ("random", ())
        assert named in plan.sentence
        assert way in plan.sentence
        assert "% of the variance that a linear regression leaves lies between them" in plan.sentence
        assert plan_of(table, "random").sentence == ""
    assert plan_of(plots(effect=0.0)).sentence == ""
    assert plan_of(frame.rename(columns={"Feld": "PatientNo"})).kind == "groups"


def test_designed_experiments_copies_and_colours_are_no_groups():
    rng = np.random.default_rng(10)
    a, b = divmod(rng.permutation(210), 15)
    odd = rng.standard_normal(14)[a] + rng.standard_normal(15)[b] + 0.1 * rng.standard_normal(210)
    assert plan_of(pd.DataFrame({"speed": a, "load": b, "level": odd})).sentence == ""
    number, water = rng.integers(0, 12, 240), rng.random(240)
    level = 3.0 * rng.standard_normal(12)[number] + water + 0.1 * rng.standard_normal(240)
    colour = np.array(
        [f"{shade} {name}" for shade in ("light", "dark") for name in ("red", "blue", "tan", "grey", "lime", "teal")]
    )
    assert plan_of(pd.DataFrame({"colour": colour[number], "water": water, "level": level})).sentence == ""
    metres = rng.uniform(0.0, 9.0, 30).round(2)[np.arange(240) % 30]
    copies = dataset(metres)
    copies = Dataset(torch.tensor(np.column_stack([metres, metres / 0.3048])), copies.y, ("metres", "feet"))
    assert sets_of_rows(copies)[0] == []


def test_what_a_regression_leaves_is_that_of_its_normal_equations_far_from_the_origin():
    rng = np.random.default_rng(2)
    X, y = 1e3 + rng.random((30, 2)), 50.0 + rng.standard_normal(30)
    Z = (X - X.mean(0)) / X.std(0)
    left = y - y.mean() - Z @ np.linalg.solve(Z.T @ Z + np.eye(2), Z.T @ (y - y.mean()))
    np.testing.assert_allclose(linear_residuals(X, y), left)


def test_the_share_between_groups_is_that_of_an_analysis_of_variance():
    rng = np.random.default_rng(3)
    number = np.repeat(np.arange(8), [3, 4, 5, 6, 3, 4, 5, 6])
    residuals = rng.standard_normal(8)[number] + rng.standard_normal(36)
    groups = [residuals[number == k] for k in range(8)]
    sizes = np.bincount(number)

    share, errors = share_between_groups(number, residuals)

    ratio = f_oneway(*groups).statistic
    within = sum(((each - each.mean()) ** 2).sum() for each in groups) / 28
    size = (36 - (sizes**2).sum() / 36) / 7
    variance = (ratio - 1) * within / size
    assert share == pytest.approx(variance / (variance + within))
    assert errors == pytest.approx((ratio - 1) / np.sqrt(2 / 7 + 2 / 28))


@pytest.mark.parametrize(
    ("sizes", "is_plan"), [([10] * 6, True), ([10] * 5, False), ([25, 7, 7, 7, 7, 7], False), ([1] * 60, False)]
)
def test_groups_are_several_with_rows_of_their_own_and_none_has_most(sizes: list[int], is_plan: bool):
    number = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(4)
    y = torch.tensor(3.0 * rng.standard_normal(len(sizes))[number] + 0.1 * rng.random(len(number)))
    X = torch.tensor(rng.random((len(number), 1)))
    plan = plan_of_groups(Dataset(X, y, ("a",), groups=RowGroups(torch.tensor(number), are_folds=False)), "who", False)
    assert (plan is not None) == is_plan


def test_the_rows_held_out_in_time_are_counted_with_their_blocks():
    X = np.cumsum(np.random.default_rng(5).standard_normal(120))
    rows = Dataset(torch.arange(120.0)[:, None].double(), torch.tensor(X), ("day",))
    plan = plan_in_time(rows, False)
    assert plan is not None
    assert [len(pair.test) for pair in plan.pairs] == [12] * 4
    assert "The last 48 rows in 4 blocks were held out in turn" in plan.sentence
    one = plan_in_time(rows, True, 100.0)
    assert one is not None
    assert "The last 20 rows were held out" in one.sentence


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize(("seed", "n"), [(0, 240), (3, 1600)])
def test_the_error_for_rows_of_known_groups_is_said_where_the_answer_does_not_know_them(
    seed: int, n: int, offset: float
):
    """Only that of an answer without the group was there, and read as what is possible."""
    rng = np.random.default_rng(11)
    number = rng.permutation(np.arange(n) % 12)
    targets = torch.tensor(offset + 4.0 * rng.standard_normal(12)[number] + 0.5 * rng.standard_normal(n))
    train = Dataset(torch.tensor(rng.random((n, 2))), targets, groups=RowGroups(torch.tensor(number) + 7, False))
    split, plan = Split(train, train.rows(torch.arange(0)), "t", key="t"), Plan("groups", "site")

    def said(mean: Any, plan: Plan = plan) -> tuple[str, ...]:
        part = parts(replace(split, train=replace(train, groups=None)), seed)[0]
        y = part.test.y.numpy()
        return known_groups_in_words(split, seed, plan, RowScores.of(y, mean(part, y), np.ones(len(y))))

    [sentence] = said(lambda part, y: np.full(len(y), offset))
    error = float(sentence.partition("can be about ")[2].partition(" or lower")[0])
    assert error == pytest.approx(0.5, rel=0.15)
    assert 'With "site" as an input' in sentence
    assert sentence.endswith(
        'folds="random" in place of whole groups, with kinds={"site": "words"}, makes it an input.'
    )
    assert said(lambda part, y: y + 0.5 * rng.standard_normal(len(y))) == ()  # the other inputs say what a group is
    assert said(lambda part, y: np.full(len(y), offset), Plan("time", "site")) == ()
    [of_numbers] = said(lambda part, y: np.full(len(y), offset), Plan("groups"))
    assert "folds=" not in of_numbers
    assert known_groups_in_words(split, seed, plan, None) == ()
    alone = replace(split, train=replace(train, groups=RowGroups(torch.arange(n), False)))
    part = parts(replace(split, train=replace(train, groups=None)), seed)[0]
    of_rows = RowScores.of(part.test.y.numpy(), np.full(len(part.test), offset), np.ones(len(part.test)))
    assert known_groups_in_words(alone, seed, plan, of_rows) == ()  # one row each


def lane_of(name: str, run: FakeRun, mean: float = 0.0) -> Any:
    """A lane whose runs are this one, and predict this mean with a variance of 1."""
    return SimpleNamespace(
        name=name, seed=0, learned_logs=lambda: [0.5], marginals=lambda run, part: normal(part, mean),
        candidate=SimpleNamespace(opened=lambda part, seed, logs: run),
    )  # fmt: skip


def normal(part: Split, mean: float) -> NormalMarginals:
    return NormalMarginals(torch.full_like(part.test.y, mean), torch.ones_like(part.test.y))


def test_models_take_a_twentieth_of_the_time_between_rows_and_groups_do_not_count(monkeypatch: pytest.MonkeyPatch):
    ends: list[float] = []
    monkeypatch.setattr(promises, "step_until", lambda run, end, *_: ends.append(end))
    search, runs = search_of(60), [FakeRun(trace=[None]), FakeRun(trace=[None])]
    search.clock.now = 30.0
    lanes = [lane_of("a", runs[0]), lane_of("b", runs[1], 3.0)]

    drawn = between_rows(search, lanes, ("mean",), Transforms())

    assert ends == [32.5, 35.0]
    assert drawn is not None
    assert drawn.marginals.keys() == {"a", "b", "mean"}
    assert all(run.closed for run in runs)
    runs[0].trace.clear()
    drawn = between_rows(search, lanes, (), Transforms())
    assert drawn is not None
    assert drawn.scores({"a": 1.0}) is None
    runs[1].trace.clear()
    assert between_rows(search, lanes, (), Transforms()) is None


def test_the_promise_between_rows_is_that_of_the_average_that_predicts():
    split, _ = planned(*rows(), {}, "random", None, None)
    part = parts(split, 0)[0]
    drawn = BetweenRows(part, {name: normal(part, mean) for name, mean in (("gp", 0.1), ("far", 3.1))})
    plan, y = Plan("time"), part.test.y.numpy()

    for weight in (0.25, 0.9):
        weights = {"gp": weight, "far": 1.0 - weight}
        found = drawn.scores(weights)
        assert found is not None
        assert found.rmse == pytest.approx(np.sqrt(np.square(y - 0.1 - 3.0 * (1.0 - weight)).mean()))
        density = weight * norm.pdf(y, 0.1) + (1.0 - weight) * norm.pdf(y, 3.1)
        assert found.nlpd == pytest.approx(-np.log(density).mean())
    alone = drawn.scores({"gp": 1.0})
    assert alone is not None
    [said] = drawn.in_words({"gp": 0.25, "far": 0.75}, "gp", plan)
    assert f"Between your rows, gp alone is better: its error is {about(alone.rmse)} there." in said
    assert 'prefer="gp"' in said
    assert drawn.in_words({"gp": 0.99, "far": 0.01}, "gp", plan) == drawn.in_words({"gp": 1.0}, "gp", plan) == ()
    assert drawn.in_words({"gp": 0.5, "far": 0.5}, "far", plan) == ()
    assert drawn.scores({"gp": 0.5, "trees": 0.5}) is None
    [said] = drawn.in_words({"gp": 0.5, "trees": 0.5}, "gp", plan)
    assert f"gp alone has an error of {about(alone.rmse)} between your rows" in said
    assert BetweenRows(part, {"gp": normal(part, np.nan)}).scores({"gp": 1.0}) is None
