"""What a person reads in an answer: what is predicted from what, the error in its unit, and whether the bands fit."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import gpexplorer as gpx
from gpexplorer.cli import app
from gpexplorer.cli.recommend_command import _as_options
from gpexplorer.data import Split
from gpexplorer.errors import SettingError
from gpexplorer.problem import Dataset, RowGroups
from gpexplorer.recommendation.candidates import Candidate
from gpexplorer.recommendation.held_out import RowScores
from gpexplorer.recommendation.lanes import Lane
from gpexplorer.recommendation.promises import promise
from gpexplorer.recommendation.result import (
    _gain_in_words,
    _heading,
    _simple_in_words,
    _unused,
    band_sentences,
    better_simple_model,
    facts_of_rows,
    hardly_differs,
    shares,
    table,
    why_not,
)
from gpexplorer.recommendation.row_order import Plan

pytestmark = pytest.mark.usefixtures("few_trees")
TWELVE = [Candidate("twelve points", "inducing points", "random", "se-ard", {"num_inducing": 12, "learn": False})]


def prices(n: int = 60) -> pd.DataFrame:
    """A table whose last column is text, so that the price before it is the last column of numbers."""
    width = np.linspace(0.0, 6.0, n)
    price = 1000.0 + 5.0 * np.sin(width)
    return pd.DataFrame({"width": width, "price": price, "sold": ["yes", "no"] * (n // 2)})


def scores_of(noise: np.ndarray, mean: np.ndarray, sd: float) -> RowScores:
    return RowScores.of(mean + noise, mean, np.full(len(mean), sd**2))


def test_the_answer_names_its_target_its_inputs_and_the_columns_it_did_not_use() -> None:
    frame = pd.DataFrame({"lot": 7.0, **prices().assign(sold=["late", "soon"] * 30)})
    answer = gpx.recommend(frame, seconds=1.0, among=TWELVE, prefer="gp")

    assert answer.sentences[0] == ("Use twelve points: Random rows with the kernel squared exponential, ARD.")
    assert 'It predicts "price" from "width", "sold = soon", and learned from 60 rows.' in answer.sentences
    assert 'The last column, "sold", does not contain numbers ("late"), so "price" is the target' in str(answer)
    assert 'left out: "lot"' in str(answer)
    error = re.search(r'an error \(RMSE\) of ([\d.]+) in the units of "price"', str(answer))
    assert error is not None
    sd = frame["price"].std(ddof=0)
    assert float(error[1]) == pytest.approx(np.sqrt(answer.expected["smse"].value) * sd, rel=0.02)


@pytest.mark.parametrize("kind", ["random", "time"])
def test_the_error_is_in_the_unit_of_the_target(kind: str) -> None:
    frame = prices().drop(columns="sold").assign(price=[f"CHF {1234.5 + 300 * k % 7:,.2f}" for k in range(60)])
    train = gpx.load(frame, target="price", split="all").train
    scores = scores_of(np.full(60, 351_234.0), train.y.numpy(), 1.0)
    words = " ".join(promise(scores, train, Plan(kind), None))
    assert ("an error (RMSE) of 351,000 CHF, SMSE" if kind == "random" else "(RMSE) in CHF: 351,000") in words


def test_a_last_column_of_yes_and_no_is_the_target_and_a_question_of_classification() -> None:
    answer = gpx.recommend(prices(), seconds=1.0, among=TWELVE)

    assert 'It predicts "sold" from "width", "price", and learned from 60 rows.' in answer.sentences
    assert "this is a question of classification" in str(answer)


def test_options_of_load_choose_the_columns() -> None:
    answer = gpx.recommend(prices(), seconds=1.0, among=TWELVE, target="width", inputs="price")

    assert 'It predicts "width" from "price"' in str(answer)
    assert "does not contain numbers" not in str(answer)
    with pytest.raises(SettingError, match=r'no argument "secnds"\. Did you mean "seconds"'):
        gpx.recommend(prices(), secnds=5.0)
    with pytest.raises(SettingError, match='give target="price" instead of y'):
        gpx.recommend(prices(), "price")
    with pytest.raises(SettingError, match=r'give "target" to gpx\.load'):
        gpx.recommend(gpx.load(prices()), target="width")


def test_a_column_of_groups_is_named_like_any_other() -> None:
    frame = prices().assign(patient=np.arange(60) // 6)

    answer = gpx.recommend(frame, seconds=1.0, among=TWELVE, groups="patient", target="price")

    assert 'from "width",' in str(answer)
    assert "patient" not in answer.run.split.train.names


def test_notes_on_a_data_set_of_ours_are_not_repeated() -> None:
    answer = gpx.recommend("snelson-like", seconds=1.0, among=TWELVE)

    assert not set(gpx.load("snelson-like").notes) & set(answer.sentences)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_bands_that_fit_are_said_to_hold_their_share(offset: float) -> None:
    rng = np.random.default_rng(0)
    (sentence,) = band_sentences(scores_of(rng.normal(size=900), rng.uniform(0, 9, 900) + offset, 1.0), "y")

    assert sentence in {f"{percent} % of these rows lie in their 95 % interval." for percent in (94, 95, 96)}


def test_bands_of_one_width_do_not_fit_errors_that_grow() -> None:
    rng = np.random.default_rng(0)
    mean = np.exp(rng.uniform(0.0, 4.0, 600))
    noise = 0.1 * mean * rng.normal(size=600).clip(-3, 3)

    first, second = band_sentences(scores_of(noise, mean, float(noise.std())), "price")

    assert "too wide for the third with the lowest" in first
    assert "too narrow for the third with the highest" in first
    low, high = (float(number) for number in re.findall(r"is ([\d.]+\d)", first))
    assert 10 * low < high
    assert 'logarithm of "price"' in second
    assert len(band_sentences(scores_of(noise, mean - 10.0, float(noise.std())), "price")) == 1  # no logarithm of -9
    (mirrored,) = band_sentences(scores_of(noise, -mean, float(noise.std())), "price")
    assert "too narrow for the third with the lowest" in mirrored


@pytest.mark.parametrize("clusters", [0, 30])
@pytest.mark.parametrize("terms", ["density", "squared"])
def test_a_simple_model_is_better_only_by_more_than_a_standard_error(terms: str, clusters: int) -> None:
    groups = RowGroups(torch.arange(600) % clusters, are_folds=False) if clusters else None
    y, base = np.random.default_rng(0).normal(size=600), RowScores.of(np.zeros(600), np.ones(600), np.ones(600), groups)
    own, noise = (
        base._replace(targets=y, squared=np.full(600, 400.0)),
        np.repeat([1.0, -1.0], 300) if not clusters else np.arange(600) % 30 - 14.5,
    )
    error = float(noise.std()) / np.sqrt(clusters or 600)
    for gain, is_better in ((0.9, False), (1.1, True)):
        simple = own._replace(**{terms: getattr(own, terms) + noise - gain * error})
        words = " ".join(_simple_in_words(own, {"ridge": simple}))
        assert better_simple_model(own, {"ridge": simple}) == ("ridge" if is_better else "")
        assert ("is better here" in words or "alone has the smaller error" in words) == is_better
    assert better_simple_model(own, {"ridge": RowScores.of(y[:9], y[:9], np.ones(9))}) == ""  # on other rows


@pytest.mark.parametrize(("clusters", "is_too_few"), [(0, True), (1, False), (2, False), (30, False)])
def test_rows_of_a_group_count_as_one_observation_for_the_share_in_their_interval(clusters: int, is_too_few: bool):
    """91 % of 1500 rows are too few by four standard errors, but not if those outside are three groups of thirty."""
    noise, mean = np.zeros(1500), np.random.default_rng(0).normal(size=1500)
    noise[:135] = 5.0
    groups = RowGroups(torch.arange(1500) // (1500 // clusters), are_folds=False) if clusters else None
    sentence = band_sentences(RowScores.of(mean + noise, mean, np.ones(1500), groups), "y")[0]
    assert sentence.startswith("91 % of these rows lie in their 95 % interval")
    assert ("too few" in sentence) == is_too_few
    scattered = RowScores.of(mean + np.random.default_rng(1).permutation(noise), mean, np.ones(1500), groups)
    assert ("too few" in band_sentences(scattered, "y")[0]) == (clusters in (0, 30))


def test_bands_that_are_too_narrow_and_of_wrong_widths_are_not_narrow_everywhere() -> None:
    noise, mean = np.zeros(300), np.arange(300.0)
    noise[:100:2], noise[200:] = 4.0, 0.5
    (sentence,) = band_sentences(scores_of(noise, mean, 1.0), "y")
    assert sentence.startswith(
        "83 % of these rows lie in their 95 % interval, which is too few, and the intervals have the wrong widths: "
        "they are too narrow for the third with the lowest predictions, "
    )
    assert "the intervals are too narrow" not in sentence


def test_overconfident_bands_are_said_to_be_too_narrow() -> None:
    rng = np.random.default_rng(0)
    (sentence,) = band_sentences(scores_of(rng.normal(size=300), rng.normal(size=300), 0.5), "y")
    assert "too few: the intervals are too narrow" in sentence
    (few,) = band_sentences(scores_of(np.zeros(20), np.zeros(20), 0.0), "y")
    assert few == "100 % of these rows lie in their 95 % interval."


@pytest.mark.parametrize(("rows", "least"), [(400, 367), (1000, 930)])
def test_too_few_rows_in_their_interval_are_three_standard_errors_too_few(rows: int, least: int) -> None:
    """95 % of 400 rows have a standard error of 1.09 %, so that up to 366 rows, below 91.73 %, are too few."""
    for inside in (least, least - 1):
        noise = np.zeros(rows)
        noise[np.linspace(0, rows - 1, rows - inside).astype(int)] = 5.0
        sentence = band_sentences(scores_of(noise, np.arange(rows) / rows, 1.0), "y")[0]
        assert ("too few" in sentence) == (inside < least)


@pytest.mark.parametrize(
    ("rows", "low", "high", "words"),
    [
        (120, 0.3, 0.3 * 1.59, []),
        (120, 0.3, 0.3 * 1.61, ["they are too wide for the third with the lowest predictions", "too narrow for"]),
        (119, 0.3, 0.3 * 1.61, []),  # 39 rows in a third
        (121, 0.3 * 1.59, 0.3, []),
        (121, 0.3 * 1.61, 0.3, ["they are too narrow for the third with the lowest predictions", "too wide for"]),
        (122, 0.3, 0.3 * 1.99, ["they are too wide"]),
        (122, 0.3, 0.3 * 2.01, ["they are too wide", "errors grow with them"]),
        (122, 0.3 * 2.01, 0.3, ["they are too narrow"]),
    ],
)
def test_widths_are_wrong_from_a_ratio_on_and_the_errors_are_those_of_each_third(
    rows: int, low: float, high: float, words: list[str]
) -> None:
    third, mean = rows // 3, np.arange(1.0, rows + 1)
    noise = np.concatenate([np.full(third, low), np.zeros(rows - 2 * third), np.full(third, -high)])

    sentences = " ".join(band_sentences(scores_of(noise, mean, 1.0), "price"))

    assert sentences.startswith("100 % of these rows lie in their 95 % interval")
    assert all(each in sentences for each in words)
    assert ("wrong widths" in sentences) == bool(words)
    assert ("errors grow" in sentences) == (len(words) == 2 and "grow" in words[1])
    if words:
        assert f"(RMSE) is {low:.3g}, and" in sentences
        assert f"where it is {high:.3g}." in sentences


def test_an_average_names_its_largest_parts_and_what_it_gains() -> None:
    def average(*weights: float, gain: tuple[float, float] = (0.0, 0.0)) -> Any:
        return SimpleNamespace(weights={f"model {k}": weight for k, weight in enumerate(weights)}, gain=gain)

    assert shares(average(0.624, 0.376)) == "62 % of model 0 and 38 % of model 1"
    four = "40 % of model 0; 30 % of model 1; 20 % of model 2 and 10 % of model 3"
    assert shares(average(0.4, 0.3, 0.2, 0.1)) == four
    assert shares(average(0.4, 0.3, 0.2, 0.06, 0.04)) == four.replace("model 3", "2 others")
    assert shares(average(0.2, 0.1, 0.1, 0.3, 0.3)).endswith(" and 60 % of 2 others")
    winner = lane("gp", 200, scores_of(np.linspace(-1.0, 1.0, 50), np.zeros(50), 1.0))
    assert _heading(winner, None)[0].startswith("Use gp: ")
    assert _heading(winner, average(1.0))[0].startswith("Use model 0: it is better on the held-out rows")
    assert _heading(winner, average(0.6, 0.4))[0].startswith("Use the average of 2 models, with which")
    for weights, models in (((1.0,), ["gp"]), ((0.6, 0.4), ["gp", "average of 2 models"])):
        mixed = SimpleNamespace(weights=average(*weights).weights, scores=winner.scores)
        assert sorted(table([winner], winner, {}, mixed)["model"], reverse=True) == models
    for gain, words in ((0.125, "lower by 0.12 nats"), (0.0, "lower by 0 nats"), (-0.031, "higher by 0.031 nats")):
        sentence = _gain_in_words(average(0.5, 0.5, gain=(gain, 0.02)))
        assert f"is {words} than that of the best model, with a standard error of 0.02." in sentence


def test_a_simple_model_is_named_with_its_scores_where_it_is_better_has_the_smaller_error_or_is_the_best_of_its_kind():
    rng = np.random.default_rng(0)
    noise, mean = rng.normal(size=200), rng.normal(size=200)
    answer = scores_of(noise, mean, 1.0)
    better, smaller, worse = (scores_of(k * noise, mean, sd) for k, sd in ((0.5, 0.5), (0.9, 9.0), (2.0, 2.0)))

    (sentence,) = _simple_in_words(answer, {"ridge": better, "mean": worse})
    assert sentence == (
        f"A simple model is better here: ridge has SMSE {better.smse:.3g} and NLPD {better.nlpd:.3g} on the same rows."
    )
    (sentence,) = _simple_in_words(answer, {"ridge": smaller, "mean": worse})
    assert f"Ridge alone has the smaller error (RMSE {smaller.rmse:.3g} against {answer.rmse:.3g})" in sentence
    (sentence,) = _simple_in_words(answer, {"ridge": worse})
    assert sentence == f"The best simple model is ridge, with SMSE {worse.smse:.3g} and NLPD {worse.nlpd:.3g}."
    assert _simple_in_words(answer, {}) == []


def test_a_finalist_lies_within_a_standard_error_or_its_distance_is_written() -> None:
    noise = np.random.default_rng(0).normal(size=300)
    winner = lane("winner", 200, scores_of(noise, np.zeros(300), 1.0))
    for sd in (1.0001, 1.02, 1.5, 3.0):
        other = lane("other", 200, scores_of(noise, np.zeros(300), sd))
        terms = [0.5 * np.log(2 * np.pi * s**2) + noise**2 / (2 * s**2) for s in (sd, 1.0)]
        gap = terms[0] - terms[1]
        mean, error = gap.mean(), gap.std(ddof=1) / np.sqrt(300)
        sentence = why_not(other, winner)
        side = "higher" if mean >= 0.0 else "lower"
        assert f", is {side} by {abs(mean):.2g} nats than that of winner, with a standard error of " in sentence
        assert ("cannot tell the two apart" in sentence) == (abs(mean) <= error)
        assert hardly_differs(other, winner) == (abs(mean) <= error)


@pytest.mark.parametrize(("rows", "words"), [(100, "1 row of 100 repeats"), (101, "")])
def test_copies_are_mentioned_from_one_row_in_a_hundred_on(rows: int, words: str) -> None:
    X = torch.rand(rows, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    X[-1] = X[0]
    y = X.sum(1)
    assert (words or "repeats") in " ".join(facts_of_rows(Dataset(X, y, ("a", "b"), "y"))) or not words
    assert ("repeats" in " ".join(facts_of_rows(Dataset(X, y, ("a", "b"), "y")))) == bool(words)
    assert [_unused(SimpleNamespace(test=range(n))) for n in (0, 1, 2)] == [
        "",
        "; 1 test row was not used",
        "; 2 test rows were not used",
    ]


def lane(name: str, rows: int, scores: RowScores) -> Lane:
    return Lane(Candidate(name, "exact", "ml", "se"), 0, 1e9, rows=rows, scores=scores)


def test_scores_on_fewer_held_out_rows_do_not_stand_above_the_chosen_one() -> None:
    rng = np.random.default_rng(0)
    noise, mean = rng.normal(size=300), rng.normal(size=300)
    chosen = lane("chosen", 200, scores_of(noise, mean, 1.0))
    early = lane("early", 200, scores_of(0.1 * noise[:100], mean[:100], 0.1))
    close = lane("close", 200, scores_of(noise, mean, 1.0001))
    failed = Lane(Candidate("failed", "exact", "ml", "se"), 0, 1e9)

    frame = table([early, failed, chosen, close], chosen, {"ridge": scores_of(2 * noise, mean, 2.0)})

    assert list(frame["model"])[-2:] == ["early", "failed"]
    assert set(frame["model"][:2]) == {"chosen", "close"}
    assert list(frame["held_out"][:4]) == [300, 300, 300, 100]
    assert frame["nlpd"][3] < frame["nlpd"][0]
    assert hardly_differs(close, chosen)
    assert not hardly_differs(early, chosen)
    assert not hardly_differs(failed, chosen)
    assert not hardly_differs(lane("fewer", 100, chosen.scores), chosen)


def test_copies_of_rows_are_said_to_lower_the_expected_error() -> None:
    frame = prices()
    twice = pd.concat([frame, frame.head(12)], ignore_index=True)

    answer = gpx.recommend(twice[["width"]], twice["price"], seconds=1.0, among=TWELVE)
    of_patients = gpx.recommend(
        twice[["width"]], twice["price"], seconds=1.0, among=TWELVE, groups=[*range(60), *range(12)]
    )

    assert "12 rows of 72 repeat an earlier one in every column." in str(answer)
    assert "repeat" not in str(gpx.recommend(frame, seconds=1.0, among=TWELVE))
    assert "repeat" not in str(of_patients)  # a group is held out whole


def test_a_split_says_what_it_predicts() -> None:
    train = Dataset(torch.linspace(0, 1, 30)[:, None].double(), torch.rand(30).double(), ("depth",), "heat")
    split = Split(train, train.rows(torch.arange(1)), "mine", ("A note that its owner has seen.",), key="mine")

    answer = gpx.recommend(split, seconds=0.5, among=TWELVE)

    assert 'It predicts "heat" from "depth", and learned from 30 rows; 1 test row was not used.' in answer.sentences
    assert "its owner" not in str(answer)


def test_the_command_names_a_way_out_that_it_has_itself(tmp_path: Path) -> None:
    file, words = tmp_path / "deutsch.csv", ("rot", "blau", "gelb")
    cells = [f"{i * 37 % 101},5;{words[i % 3]};{1 + i % 28:02d}.03.2004;{i * 53 % 97},25" for i in range(60)]
    file.write_text("\n".join(["Druck;Farbe;Tag;Preis", *cells, ";rot;01.04.2004;3,5"]))

    def answer(*options: str) -> str:
        result = CliRunner().invoke(app, ["recommend", str(file), "--seconds", "1", "--quiet", *options])
        return result.output + str(result.exception or "")

    assert "drop those rows with --missing drop" in answer("--missing", "refuse")
    assert "choose another column with --target NAME" in answer("--target", "Farbe")
    by_default = answer()
    assert "Missing values were filled in with the median of their column, or " in by_default
    assert 'where these explain it: "Druck" (1).' in by_default
    options = ["--decimal", ",", "--missing", "drop", "--encode", "Farbe", "--dates", "Tag"]
    inputs = '"Druck", "Farbe = blau", "Farbe = gelb", "Farbe = rot", "Tag"'
    assert f'It predicts "Preis" from {inputs}, and learned from 60 rows' in answer(*options)
    assert f'It predicts "Preis" from {inputs}, and learned from 61 rows' in by_default
    assert 'It predicts "Preis" from "Druck", and' in answer(*options, "--inputs", "Druck")
    assert '"Farbe = rot", "Tag", "Preis", and learned from 60 rows' in answer(*options[:4], "--target", "Druck")


def test_an_option_with_a_space_in_its_value_is_quoted_for_the_shell() -> None:
    message = 'or leave the column out with drop=["living area", "id"], or give decimal=",", or target="...".'
    options = "--drop 'living area' --drop id, or give --decimal ,, or --target NAME."
    assert _as_options(message) == f"or leave the column out with {options}"
