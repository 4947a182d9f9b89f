"""What `recommend` asks about rows, and which it holds out: rows of each kind, and rows that are not of it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import KFold

import gpexplorer as gpx
from gpexplorer.data import load
from gpexplorer.errors import SettingError
from gpexplorer.linalg.cholesky import cholesky
from gpexplorer.linalg.seasons import is_curved
from gpexplorer.problem import Dataset
from gpexplorer.recommendation import relevance_pursuit
from gpexplorer.recommendation.arguments import rows_of
from gpexplorer.recommendation.candidates import EXACT, Candidate, candidates, pursuits, series_kernels
from gpexplorer.recommendation.lanes import Lane
from gpexplorer.recommendation.promises import planned
from gpexplorer.recommendation.relevance_pursuit import models_of, pursuit
from gpexplorer.recommendation.row_order import forward_pairs, pair_before, plan_at_random, plan_in_time
from gpexplorer.recommendation.row_questions import far_rows, findings, outliers

pytestmark = pytest.mark.usefixtures("few_trees")
FAST = [Candidate("ml, matern32-ard", "exact", "ml", "matern32-ard")]


def dataset(columns: dict[str, np.ndarray], y: np.ndarray) -> Dataset:
    return Dataset(torch.tensor(np.column_stack(list(columns.values()))), torch.tensor(y), tuple(columns), "y")


def plain(n=200, seed=0):
    random = np.random.default_rng(seed)
    a, b = random.uniform(0.0, 4.0, (2, n))
    return {"a": a, "b": b}, np.sin(a) + b + random.normal(0.0, 0.2, n)


def walk(n=300, seed=0):
    random = np.random.default_rng(seed)
    return pd.DataFrame({"week": np.arange(n) + 1000, "price": 50.0 + np.cumsum(random.normal(0.0, 2.0, n))})


def test_plain_rows_raise_no_question():
    columns, y = plain()
    rows = dataset(columns, y)
    assert findings(rows) == []
    assert plan_in_time(rows, asked=False) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c, y: (c | {"paid": 1.2 * y + 7.0}, y), '"paid" alone explains'),
        (lambda c, y: (c | {"row": np.arange(1.0, len(y) + 1)}, y), '"row" counts the rows from 1 to 200'),
        (lambda c, y: (c | {"feet": c["a"] * 3.28 + 5.0}, y), '"feet" is a copy of "a"'),
        (lambda c, y: (c, (y > 2.0).astype(float)), '"y" has two values, 0'),
        (lambda c, y: (c, np.where(np.isin(np.arange(len(y)), (7, 90)), y - 300.0, y)), "2 rows (8, 91) lie"),
    ],
)
def test_each_kind_is_a_sentence_with_its_numbers(change, words):
    assert any(words in sentence for sentence in findings(dataset(*change(*plain()))))


def test_whole_numbers_that_may_be_codes_are_asked_about_and_measured_ones_are_not():
    """Of 400 rows in 150 stores, the number of the store explained 7 % of the variance, and the same as words 85 %."""
    random = np.random.default_rng(3)
    place, size = random.integers(0, 90, (2, 360))
    codes = random.permutation(np.arange(40000, 49000, 100))
    own, noise = random.standard_normal(90), 0.3 * random.standard_normal(360)
    says = '"branch" has {} whole numbers with {:.3g} rows each, which may be codes: '
    way = '\nkinds={"branch": "words"} reads it as words, with a mean for each.'

    def asked(branch: np.ndarray, y: np.ndarray, **options: object) -> list[str]:
        frame = pd.DataFrame({"branch": branch, "size": size, "y": 1e3 + y})
        return [own for own in findings(load(frame, split="all", **options).train) if "codes" in own]

    different = len(np.unique(place))
    for branch in (codes[place], codes[place] - 44500.0):
        (question,) = asked(branch, own[place] + 0.02 * size + noise)
        assert question.startswith(says.format(different, 360 / different))
        assert question.endswith(way)
    assert asked(codes[place], own[place] + noise, kinds={"branch": "words"}) == []
    assert asked(place, np.sin(place / 8.0) + noise) == []  # near numbers are alike
    assert asked(place, 3.0 * noise) == []  # nothing depends on it
    assert asked(np.arange(360), noise.cumsum()) == []
    assert asked(codes[place] + 0.5, own[place] + noise) == []
    years = pd.DataFrame({"year": codes[place], "y": own[place] + noise})
    assert not any("codes" in own for own in findings(load(years, split="all").train))


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("units", [
    lambda y: y, lambda y: -y, lambda y: 1.8 * y + 32.0, lambda y: np.round(100.0 * y) / 100.0, lambda y: 1e-8 * y,
    lambda y: (y - y.mean()).astype(np.float32).astype(float),
])  # fmt: skip
def test_the_only_input_is_asked_about_if_it_is_the_target_in_other_units(units, offset):
    y = np.round(50.0 * plain()[1] + offset, 4)
    (question,) = findings(dataset({"paid": units(y)}, y))
    assert question.startswith('"paid" is a copy of "y", up to a factor and a shift')
    assert "drop=" not in question  # no input would be left
    assert gpx.recommend(pd.DataFrame({"paid": units(y), "y": y}), seconds=1.0, among=FAST).sentences.count(question)


@pytest.mark.parametrize("target", [
    lambda x: 2.0 * x + 1.0 + np.random.default_rng(0).normal(0.0, 1e-3, len(x)),  # a calibration with R2 of 0.999999
    np.sin, np.square, np.exp, np.round, lambda x: np.repeat([1.0, 2.0], len(x) // 2),
])  # fmt: skip
def test_the_only_input_that_explains_the_target_by_a_function_is_no_copy(target):
    x = plain()[0]["a"]
    assert not any("copy" in sentence for sentence in findings(dataset({"x": x}, target(x))))


def test_a_number_that_may_be_a_gap_is_asked_about_once_at_every_door(tmp_path: Path):
    columns, y = plain()
    a = np.where(np.arange(len(y)) % 20 == 3, -999.0, columns["a"])
    frame = pd.DataFrame(columns | {"a": a, "y": y})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for X, target, column in (
        (frame, None, "a"), (tmp_path / "t.csv", None, "a"), (load(frame, split="all"), None, "a"),
        (lambda _: load(frame, split="all"), None, "a"), (frame[["a", "b"]].to_numpy(), y, "x0"),
    ):  # fmt: skip
        rows = rows_of(X, target)
        notes = [note for note in (*rows.notes, *findings(rows.train)) if "999" in note]
        assert len(notes) == 1
        assert notes[0].startswith(f'"{column}" is -999 in 10 cells and from ')
        assert notes[0].endswith(f'\nkinds={{"{column}": "number missing -999"}} reads it as a gap.')


def test_a_skewed_target_has_no_outliers():
    columns, y = plain(400)
    skewed = np.exp(2.0 * y + np.random.default_rng(1).normal(0.0, 0.5, 400))
    assert len(outliers(np.column_stack(list(columns.values())), skewed)) == 0


def test_a_walk_in_time_is_held_out_forward_and_white_noise_in_time_is_not():
    split, plan = planned(walk(), None, {"target": "price"}, None, None, None)
    assert (plan.kind, plan.column) == ("time", "week")
    time = split.train.X[:, 0].numpy()
    assert all(time[pair.train].max() < time[pair.test].min() for pair in plan.pairs)
    noise = walk().assign(price=np.random.default_rng(3).normal(size=300))
    assert planned(noise, None, {"target": "price"}, None, None, None)[1].kind == "random"


def test_rows_of_one_time_are_not_divided():
    pairs = forward_pairs(np.repeat(np.arange(60.0), 7))
    assert len(pairs) == 4
    assert sum(len(pair.test) for pair in pairs) == pytest.approx(0.4 * 420, abs=14)
    assert max(pairs[0].test) == 419  # the latest rows come first


def test_a_long_series_is_judged_by_more_than_two_blocks():
    """The best of two blocks of a year of temperatures or of decades of CO2 was often the worst of the next one."""
    pairs = forward_pairs(np.arange(5000.0), is_series=True)
    assert [(pair.test.min(), pair.test.max()) for pair in pairs] == [
        (4500, 4999), (4000, 4499), (3500, 3999), (3000, 3499),
    ]  # fmt: skip
    assert len(forward_pairs(np.arange(5000.0))) == 1  # with other inputs, a model needs more of the rows


def people(seed=0, effect=4.0):
    random = np.random.default_rng(seed)
    person = np.repeat(np.arange(30), 8)
    dose = random.uniform(0.0, 1.0, 240)
    y = 3.0 * dose + random.normal(0.0, effect, 30)[person] + random.normal(0.0, 0.5, 240)
    return pd.DataFrame({"subject_id": person + 501, "dose": dose, "y": y})


def test_an_identifier_whose_rows_are_alike_is_a_group_and_no_input():
    split, plan = planned(people(), None, {"target": "y"}, None, None, None)
    assert (plan.kind, plan.column) == ("groups", "subject_id")
    assert "subject_id" not in split.train.names
    values = len(split.train.groups.number.unique())
    assert f'"subject_id" has {values} values with 8 rows each' in plan.sentence
    assert planned(people(effect=0.0), None, {"target": "y"}, None, None, None)[1].kind == "random"
    assert planned(people(), None, {"target": "y"}, "random", None, None)[1].kind == "random"


def test_the_promise_is_given_twice_and_the_future_is_inside_it():
    table = walk(360, seed=4)
    answer = gpx.recommend(table[:300], target="price", seconds=3.0, among=FAST, prefer="gp")
    future = table[300:]
    mean = answer.predict(torch.tensor(future[["week"]].to_numpy(float))).mean.numpy()
    rmse = np.sqrt(np.mean((mean - future.price) ** 2))
    low, high = (np.sqrt(end) * table.price[-180:].std() for end in answer.expected["smse"][1:])
    text = str(answer)
    assert answer.held_out_by == "time"
    assert "between your rows; " in text
    assert "after the last row (95 % interval" in text
    assert answer.between["smse"].value < answer.expected["smse"].value
    assert 0.3 * low < rmse < 3.0 * high


def test_what_is_asked_for_is_done_and_contradictions_are_sentences():
    table = walk()
    split, plan = planned(table, None, {"target": "price"}, None, 1200, None)
    assert split.train.X[plan.pairs[0].test, 0].min() == 1200.0
    with pytest.raises(SettingError, match="goes from 1000"):
        planned(table, None, {"target": "price"}, None, 1e9, None)
    with pytest.raises(SettingError, match="goes from 2021-01-01 to 2021-03-01"):
        pair_before(np.array([18628.0, 18687.25]), "2099-01-01", "when")
    with pytest.raises(SettingError, match='give "time", "groups", "random"'):
        planned(table, None, {"target": "price"}, "sideways", None, None)
    columns, y = plain()
    with pytest.raises(SettingError, match="needs a column of dates"):
        planned(np.column_stack(list(columns.values())), y, {}, "time", None, None)
    with pytest.raises(SettingError, match="found no column of groups"):
        planned(table, None, {"target": "price"}, "groups", None, None)


def test_rows_that_rise_with_their_one_input_say_how_the_future_is_asked_for():
    x = np.linspace(0.0, 1.0, 60)[:, None]
    y = x[:, 0] + np.random.default_rng(0).normal(size=60)

    plan = planned(x, y, {}, None, None, None)[1]
    assert (plan.kind, plan.pairs) == ("random", ())
    assert 'folds="time" holds out the last ones' in plan.sentence
    in_time = planned(x, y, {}, "time", None, None)[1]
    assert in_time.kind == "time"
    assert all(pair.train.max() < pair.test.min() for pair in in_time.pairs)
    assert planned(x[::-1] % 0.3, y, {}, None, None, None)[1].sentence == ""
    assert planned(x, y, {}, "random", None, None)[1].sentence == ""


def test_a_season_brings_kernels_that_go_on():
    random = np.random.default_rng(0)
    t = np.arange(240.0)
    season = dataset({"month": t}, 0.1 * t + np.sin(2.0 * np.pi * t / 12.0) + random.normal(0.0, 0.2, 240))
    assert all("periodic" in kernel or "lp" in kernel for kernel in series_kernels(season, "month"))
    steps = np.random.default_rng(2).normal(size=240)
    assert series_kernels(dataset({"month": t}, np.cumsum(steps)), "month")[0] == "linear + matern12"
    assert series_kernels(dataset(*plain()), "") == []


@pytest.mark.parametrize("season", [0.0, 3.0])
def test_a_trend_that_bends_goes_on_bending(season: float):
    random = np.random.default_rng(4)
    t = np.arange(300.0)
    growth = 20.0 * (t / 300.0) ** 2 + season * np.sin(2.0 * np.pi * t / 12.0) + random.normal(0.0, 0.3, 300)
    rows = pd.DataFrame({"month": t, "sales": growth})
    answer = gpx.recommend(rows[:240], target="sales", seconds=2.0, clock=time.process_time)
    mean, var = answer.predict(t[240:, None])
    error = np.asarray(mean) - growth[240:]
    assert np.sqrt(np.mean(error**2)) < 1.0  # a line through all rows is 3 too low at the end
    assert np.mean(np.abs(error) < 1.96 * np.sqrt(np.asarray(var))) > 0.8


def test_a_straight_trend_and_random_walks_do_not_bend():
    t = np.arange(300.0)
    draws = [np.random.default_rng(seed).normal(size=300) for seed in range(40)]
    # A season is found first, which takes longest; ten draws show a line that is taken for a curve as well as forty.
    assert not any(is_curved(t, 0.1 * t + np.sin(2.0 * np.pi * t / 12.0) + own) for own in draws[:10])
    assert sum(is_curved(t, np.cumsum(own)) for own in draws) < 10
    assert all(is_curved(t + 5000.0, 1e6 + 5.0 * (t / 300.0) ** 2 + own) for own in draws[:5])


@pytest.mark.parametrize(("shift", "rows"), [(-40.0, (3, 77, 150)), (6.0, (10, 11, 12, 13, 140)), (0.0, ())])
def test_relevance_pursuit_finds_the_rows_that_were_moved_and_no_others(shift, rows):
    columns, y = plain(180, seed=5)
    y[list(rows)] += shift
    split = load((np.column_stack(list(columns.values())), y), split={"test": 0.006, "seed": 0})
    moved = np.flatnonzero(np.isin(split.train.y.numpy(), y[list(rows)]))
    found = pursuit(split, "matern32-ard")
    assert found.rows.tolist() == moved.tolist()
    assert not len(moved) or found.sd == pytest.approx(abs(shift), rel=0.25)


@pytest.mark.parametrize(("transform", "shift"), [("", 0.0), ("", 5000.0), ("yeo-johnson 0.8", 0.0)])
def test_new_rows_like_the_pursued_ones_are_in_the_density_that_is_scored_and_predicts(transform: str, shift: float):
    """One more of each kind than were seen: with their mean ratio of noise variances, in the space that was learned."""
    columns, y = plain(120, seed=5)
    y[[3, 77, 100]] += -40.0
    split = load((np.column_stack(list(columns.values())), y + shift), split={"test": 0.2, "seed": 0})
    far = len(pursuit(split, "se-ard").rows)
    candidate = Candidate("a", EXACT, "ml", "se-ard", pursues=True, target_transform=transform)
    run = candidate.opened(split, 0, None)
    run.finish(steps=5)
    narrow, wide = (model for model, _ in models_of(run, True))
    weights = [weight for _, weight in models_of(run, True)]

    n = len(split.train)
    assert 0 < far <= 3
    assert weights == pytest.approx([(n - far + 1) / (n + 2), (far + 1) / (n + 2)])
    ratio = pursuit(split, "se-ard").ratio
    assert wide.noise_variance == pytest.approx(narrow.noise_variance * float(ratio[ratio > 1.0].mean()))
    X, targets = split.test.X, split.test.y.double()
    scored = Lane(candidate, 0, 10**9).marginals(run, split)
    parts = [weight * model.marginals(X).log_density(targets).exp() for model, weight in models_of(run, True)]
    torch.testing.assert_close(scored.log_density(targets), sum(parts).log())
    assert [model.noise_variance for model, _ in models_of(run, False)] == [narrow.noise_variance]


def test_an_answer_that_gives_rows_a_noise_of_their_own_predicts_and_is_saved_with_rows_like_them(tmp_path: Path):
    columns, y = plain(120, seed=5)
    y[[3, 77, 100]] += -6.0
    table, own = pd.DataFrame({**columns, "y": y}), Candidate("a", EXACT, "ml", "se-ard", pursues=True)
    answer = gpx.recommend(table, target="y", seconds=20.0, among=[own], prefer="gp")
    answer.posterior.save(tmp_path / "a.safetensors")
    new = table[list(columns)][:5]

    density = answer.posterior.marginals(new).log_density(torch.full((5,), -6.0, dtype=torch.float64))
    saved = gpx.load_posterior(tmp_path / "a.safetensors").marginals(new)
    alone = answer.run.posterior(of="y").marginals(new).log_density(torch.full((5,), -6.0, dtype=torch.float64))

    assert (density > -12.0).all()
    assert (alone < -100.0).all()
    torch.testing.assert_close(saved.log_density(torch.full((5,), -6.0, dtype=torch.float64)), density)
    assert "the bands allow for new rows like them" in str(answer)


def test_a_rare_value_of_two_is_no_outlier_and_long_pursuits_are_not_begun():
    columns, y = plain(300, seed=5)
    X = np.column_stack(list(columns.values()))
    rare = (np.arange(300) % 40 == 7).astype(float)
    events = Dataset(torch.tensor(X), torch.tensor(rare), tuple(columns), "event")
    assert len(far_rows(X, rare))
    assert pursuits(events, 4.0) == []
    said = findings(events)
    assert any("has two values" in line for line in said)
    assert not any("from the middle" in line for line in said)

    y[[3, 77, 100]] += -40.0
    rows = Dataset(torch.tensor(X), torch.tensor(y), tuple(columns), "y")
    assert [len(pursuits(rows, seconds)) for seconds in (4.0, 0.3, 0.1)] == [2, 1, 0]


@pytest.mark.parametrize(("large", "small", "rounds"), [(-400.0, 6.0, 5), (-4.0, -4.0, 3), (0.0, 0.0, 1)])
def test_relevance_pursuit_finds_small_outliers_beside_large_ones_and_ends_two_rounds_later(
    monkeypatch: pytest.MonkeyPatch, large: float, small: float, rounds: int
):
    columns, y = plain(180, seed=5)
    y[[3, 77]] += large
    y[[20, 150]] += small
    split = load((np.column_stack(list(columns.values())), y), split={"test": 0.006, "seed": 0})
    moved = np.flatnonzero(np.isin(split.train.y.numpy(), y[[3, 20, 77, 150]])) if large else []
    factors = []
    monkeypatch.setattr(relevance_pursuit, "cholesky", lambda *args: factors.append(args) or cholesky(*args))

    assert pursuit(split, "matern32-ard").rows.tolist() == list(moved)
    assert len(factors) == rounds


@pytest.mark.parametrize("options", [
    {}, {"prefer": "rmse", "folds": KFold(3)}, {"groups": np.arange(150) % 10, "seconds": 3.0}
])  # fmt: skip
def test_wrong_cells_decide_neither_the_answer_nor_what_it_expects(options: dict):
    columns, y = plain(150, seed=6)
    X, wrong = np.column_stack(list(columns.values())), y.copy()
    wrong[[5, 60, 90]] = 1e6, 1e4, 1e8
    answer = gpx.recommend(X, wrong, **{"seconds": 2.0, **options})
    new = np.random.default_rng(9).uniform(0.0, 4.0, (200, 2))
    mean = answer.predict(torch.tensor(new)).mean.numpy()
    assert np.sqrt(np.mean((mean - np.sin(new[:, 0]) - new[:, 1]) ** 2)) < 0.3
    assert answer.expected["rmse"].high < 0.5
    assert "3 rows (6, 61, 91) lie 1e+04 or more from the middle" in str(answer)
    assert "learned from 147 rows" in str(answer)
    assert "noise of" not in str(answer)
    assert len(answer.spec.open(data=(X, wrong)).problem.train) == 150  # a Spec has all rows


@pytest.mark.parametrize(("shift", "words"), [(7.0, "have a noise of their own"), (70.0, "lie 6")])
def test_recommend_learns_beside_outliers_and_names_them(shift: float, words: str):
    columns, y = plain(150, seed=6)
    X, moved = np.column_stack(list(columns.values())), y.copy()
    moved[[5, 60, 90]] -= shift
    tried = candidates(load((X, moved), split="all"), 1.0)
    assert [candidate.pursues for candidate in tried[:3]] == [True, True, False]
    answer = gpx.recommend(
        X, moved, seconds=15.0, among=[tried[0], tried[2]]
    )  # it ends after 3 s where nothing else runs
    new = np.random.default_rng(9).uniform(0.0, 4.0, (200, 2))
    mean = answer.predict(torch.tensor(new)).mean.numpy()
    assert np.sqrt(np.mean((mean - np.sin(new[:, 0]) - new[:, 1]) ** 2)) < 0.25
    assert f"3 rows (6, 61, 91) {words}" in str(answer)


def test_rows_of_one_input_rise_only_if_it_has_many_values() -> None:
    for x, rises in ((torch.arange(60.0), True), (torch.zeros(60), False), (torch.arange(60.0) // 30, False)):
        rows = Dataset(x[:, None].double(), torch.sin(torch.arange(60.0)).double(), ("x0",))
        assert ("rise with" in plan_at_random(rows).sentence) == rises


@pytest.mark.parametrize(("name", "start", "is_asked"), [
    ("sold", "2019-03-01", False),  # a column that is read as dates
    ("week", 12, False), ("Minute", 0, False), ("nr", 12, True), ("timely", 5, True),
])  # fmt: skip
def test_a_column_of_dates_or_times_is_never_called_a_counter(name: str, start: str | int, is_asked: bool):
    n, random = 120, np.random.default_rng(2)
    moments = pd.date_range(start, periods=n).strftime("%Y-%m-%d") if isinstance(start, str) else np.arange(n) + start
    frame = pd.DataFrame({name: moments, "a": random.uniform(size=n), "y": random.normal(size=n)})
    rows = load(frame, split="all", target="y", inputs=[name, "a"]).train
    words = " ".join(findings(rows))
    assert (f'"{name}" counts the rows from {start} to ' in words) == is_asked
    assert ("counts the rows" in words) == is_asked
