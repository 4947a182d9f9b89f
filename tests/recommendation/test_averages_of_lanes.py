"""What is averaged with which weights, by whom, and how the time is shared among those that are fitted again."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpexplorer.errors import GPExplorerError
from gpexplorer.recommendation import averaging
from gpexplorer.recommendation.averaging import average_of_lanes, better_member, used_models, weighed, weights_of_means
from gpexplorer.recommendation.final_fit import FinalModel
from gpexplorer.recommendation.held_out import RowScores
from gpexplorer.recommendation.lanes import Lane, comparable
from search_by_hand import FakeRun, Y, lane, member, scores, search_of


def test_an_average_has_the_weights_that_are_above_zero_and_the_largest_first():
    rng = np.random.default_rng(1)
    noisy = [RowScores.of(Y, Y + rng.standard_normal(60), np.ones(60)) for _ in range(2)]
    poor = RowScores.of(Y, Y + 9.0, np.ones(60))
    for prefer in ("nlpd", "rmse"):
        weights = weighed({"a": noisy[0], "poor": poor, "b": noisy[1]}, prefer)
        assert set(weights) == {"a", "b"}
        assert list(weights.values()) == sorted(weights.values(), reverse=True)
        assert sum(weights.values()) == pytest.approx(1.0)
    assert weighed({"a": noisy[0]}, "nlpd") == weighed({}, "rmse") == {}
    few = [RowScores.of(Y[:49], Y[:49] + own.squared[:49], np.ones(49)) for own in noisy]
    assert weighed(dict(enumerate(few)), "rmse") == {}
    assert weighed({"a": scores(0.0, sd=0.1), "b": poor}, "nlpd") == {"a": 1.0}


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_the_mean_with_the_least_squared_error_is_that_of_a_search(shift: float):
    rng = np.random.default_rng(2)
    y = Y + shift
    means = [y + shift_of + rng.standard_normal(60) * sd for shift_of, sd in ((0.0, 1.0), (0.0, 1.5), (3.0, 4.0))]
    own = [RowScores.of(y, mean, np.ones(60)) for mean in means]

    weights = weights_of_means(own)

    grid = [(a, b, 1 - a - b) for a in np.linspace(0, 1, 41) for b in np.linspace(0, 1 - a, 41)]
    best = min(np.square(y - np.array(each) @ means).mean() for each in grid)
    assert np.square(y - weights @ means).mean() < 1.02 * best
    assert weights.sum() == pytest.approx(1.0)
    opposite = [RowScores.of(y, 2 * y.mean() - y, np.ones(60)), RowScores.of(y, 3 * y.mean() - 2 * y, np.ones(60))]
    assert weights_of_means(opposite).tolist() == [1.0, 0.0]  # no positive weights help: the better one alone


def test_a_simple_model_is_the_answer_where_it_is_clearly_better():
    winner = scores(1.0)  # an NLPD higher by .5 than without an error
    near, clear = member("near", scores(0.9)), member("clear", scores(0.0))
    assert better_member(winner, [near, clear], "nlpd") is clear
    assert better_member(winner, [near], "nlpd") is None  # by .095 nat
    assert better_member(winner, [member("by .12", scores(0.87))], "nlpd") is not None
    assert better_member(winner, [near, clear], "gp") is None
    assert better_member(winner, [near], "rmse") is near
    assert better_member(winner, [member("worse", scores(1.1))], "rmse") is None
    assert better_member(winner, [member("other rows", scores(0.0, 50))], "nlpd") is None
    assert better_member(winner, [], "rmse") is None


def alike(count: int) -> list[RowScores]:
    """Models with errors of their own, whose average is better than each of them."""
    errors = math.sqrt(60) * np.linalg.qr(np.random.default_rng(3).standard_normal((60, count)))[0].T
    return [RowScores.of(Y, Y + error, np.ones(60)) for error in errors]


def test_what_an_answer_would_use_is_known_before_it_is_fitted():
    own = alike(3)
    winner, other, trees = lane("winner", own=own[0]), lane("other", own=own[1]), member("trees", own[2])
    fewer = lane("fewer rows", own=own[1])
    fewer.rows = 30
    unscored = lane("no scores")
    unscored.scores = None
    all_lanes = [winner, other, fewer, unscored]
    assert used_models(search_of(), winner, all_lanes, [trees], "nlpd") == ([trees], [other])
    assert used_models(search_of(), winner, all_lanes, [trees], "gp") == ([], [other])
    assert used_models(search_of(should_stop=lambda: True), winner, all_lanes, [trees], "nlpd") == ([], [])
    assert used_models(search_of(), winner, [winner], [member("x", own[2].joined(own[2]))], "nlpd") == ([], [])
    assert comparable(other, winner)
    assert not comparable(fewer, winner)
    assert not comparable(unscored, winner)
    assert not comparable(winner, unscored)


@pytest.mark.parametrize("most_models", [None, 1])
def test_the_weight_of_a_lane_is_shared_by_its_models_and_time_by_the_lanes(
    monkeypatch: pytest.MonkeyPatch, most_models: int | None
):
    own = alike(4)
    winner, other, third = (lane(name, own=each) for name, each in zip("abc", own, strict=False))
    third.runs[0] = FakeRun(trace=[SimpleNamespace(seconds=30.0)])
    trees = member("trees", own[3])
    ends: dict[str, float] = {}
    search = search_of(most_models=most_models)
    search.clock.now = 20.0

    def models_of(_: Any, own: Lane, final: Any, end: float) -> list[Any]:
        ends[own.name] = end
        return [(f"{own.name} 1", 0.25), (f"{own.name} 2", 0.75)]

    monkeypatch.setattr(averaging, "_models_of", models_of)
    monkeypatch.setattr(averaging, "AveragePosterior", lambda models, weights: list(zip(models, weights, strict=True)))
    final = FinalModel(winner, winner.first_run, True, "")

    average = average_of_lanes(search, final, [winner, other, third], [trees])

    assert average is not None
    assert set(average.weights) == {"a", "b", "c", "trees"}
    expected = {}
    for name, weight in average.weights.items():
        names = [model.name for model in trees.models[:most_models]]
        shares = dict.fromkeys(names, 1.0 / len(names)) if name == "trees" else {f"{name} 1": 0.25, f"{name} 2": 0.75}
        expected |= {model: weight * share for model, share in shares.items()}
    found = {getattr(model, "name", model): weight for model, weight in average.posterior}
    assert found == pytest.approx(expected)
    assert ends["a"] == 100.0
    order = [name for name in average.weights if name in "bc"]  # the larger weight is fitted first
    seconds = {"b": 20.0, "c": 60.0}  # twice those of their runs
    assert ends[order[0]] == pytest.approx(20.0 + 80.0 * seconds[order[0]] / 80.0)
    assert ends[order[1]] == 100.0
    assert average.gain == averaging.gain_of_average(
        [{"a": own[0], "b": own[1], "c": own[2], "trees": own[3]}[k] for k in average.weights]
    )
    whole = {"trees": SimpleNamespace(name="whole")}
    again = average_of_lanes(search, final, [winner, other, third], [trees], whole)  # type: ignore[arg-type]
    assert "whole" in [getattr(model, "name", "") for model, _ in again.posterior]


def test_no_average_of_one_model_unless_it_is_a_simple_one(monkeypatch: pytest.MonkeyPatch):
    winner, other = lane("a", own=scores(1.0)), lane("b", own=scores(5.0))
    clear = member("clear", scores(0.0))
    monkeypatch.setattr(averaging, "_models_of", lambda *_: [("model", 1.0)])
    monkeypatch.setattr(averaging, "AveragePosterior", lambda models, weights: (models, weights))
    final = FinalModel(winner, winner.first_run, True, "")

    assert average_of_lanes(search_of(), final, [winner, other]) is None
    two = average_of_lanes(search_of(), final, [winner, lane("c", own=scores(-1.0))])
    assert two is not None
    assert sum(two.weights.values()) == pytest.approx(1.0)
    assert len(two.weights) == 2
    average = average_of_lanes(search_of(most_models=2), final, [winner], [clear])
    assert average is not None
    assert average.weights == {"clear": 1.0}
    assert average.posterior == (clear.models[:2], [0.5, 0.5])
    assert average.gain == clear.scores.better_by(winner.scores)
    assert average_of_lanes(search_of(), final, [winner], [clear], prefer="gp") is None


def test_models_of_a_lane_are_those_of_all_rows_if_there_is_time(monkeypatch: pytest.MonkeyPatch):
    runs = {k: FakeRun(trace=[SimpleNamespace(seconds=10.0)]) for k in range(3)}
    winner, other, fitted = lane("a"), lane("b"), FakeRun()
    other.runs = dict(runs)
    monkeypatch.setattr(averaging, "models_of", lambda run, *_: [(run, 0.75), ("wide", 0.25)])
    monkeypatch.setattr(averaging, "refit_to_all_rows", lambda *_: (fitted, ""))
    final, search = FinalModel(winner, FakeRun(), True, ""), search_of(most_models=None)

    def models(*asked: Any) -> list[Any]:
        own = averaging._models_of(*asked)
        shares = [weight * len(own) / 2 for _, weight in own]
        assert shares == pytest.approx([0.75, 0.25] * (len(own) // 2))
        return [model for model, _ in own[::2]]

    assert models(search, winner, final, 100.0) == [final.run]
    assert models(search, other, final, 20.0) == [fitted]
    assert models(search, other, final, 19.9) == list(runs.values())
    assert models(search, other, final._replace(refitted=False), 50.0) == list(runs.values())
    assert models(search_of(most_models=1), other, final, 1.0) == [runs[0]]
    monkeypatch.setattr(averaging, "refit_to_all_rows", lambda *_: (fitted, "too short"))
    assert models(search, other, final, 50.0) == list(runs.values())

    def fail(*_: Any) -> None:
        raise GPExplorerError("not finite")

    monkeypatch.setattr(averaging, "models_of", fail)
    assert models(search, other, final, 50.0) == []
