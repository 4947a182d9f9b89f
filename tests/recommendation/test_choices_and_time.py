"""What a search does with its time, by a clock moved by hand: who is fitted again, who goes on, who is given up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gpexplorer.data import Split
from gpexplorer.errors import GPExplorerError
from gpexplorer.problem import Dataset, RowGroups
from gpexplorer.recommendation import averaging, final_fit, halving, lanes
from gpexplorer.recommendation.averaging import average_of_lanes, better_member, used_models, weighed, weights_of_means
from gpexplorer.recommendation.candidates import EXACT, NEIGHBOURS, Candidate
from gpexplorer.recommendation.final_fit import FinalModel, final_model, refit_to_all_rows
from gpexplorer.recommendation.halving import Halving
from gpexplorer.recommendation.held_out import RowScores
from gpexplorer.recommendation.lanes import Lane, by_density, chosen, comparable, step_until
from gpexplorer.recommendation.simple_members import Member
from gpexplorer.recommendation.stages import TimedSearch, lanes_for, parts_of_stages, shares_for

Y = np.random.default_rng(0).standard_normal(60)


def scores(error: float, rows: int = 60, sd: float = 1.0) -> RowScores:
    """Scores of a model that is too high by this much in each row."""
    return RowScores.of(Y[:rows], Y[:rows] + error, np.full(rows, sd**2))


@dataclass(eq=False)
class Clock:
    """A clock that stands still until it is moved."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class FakeRun:
    """A run that takes as many seconds per step as it is told."""

    clock: Clock = field(default_factory=Clock)
    step_seconds: list[float] = field(default_factory=list)
    done: int = 0
    error: Any = None
    outcome: Any = None
    trace: list[Any] = field(default_factory=list)
    closed: bool = False
    forked: int | None = None

    def advance(self) -> Any:
        if self.done == len(self.step_seconds):
            return None
        self.clock.now += self.step_seconds[self.done]
        self.done += 1
        self.trace.append(SimpleNamespace(seconds=self.clock.now))
        return self.done

    def close(self) -> None:
        self.closed = True

    def fork(self, at: int) -> FakeRun:
        return FakeRun(done=at, forked=at)

    def posterior(self, of: str) -> Any:
        return SimpleNamespace(run=self, of=of, widened=lambda: None)


def split_of(n: int) -> Split:
    rows = Dataset(torch.arange(float(n))[:, None], torch.zeros(n))
    return Split(rows, rows.rows(torch.arange(0)), "rows", key="rows")


def lane(name: str = "a", group: str = "inducing points", own: RowScores | None = None, **fields: Any) -> Lane:
    """A lane with a run that has taken ten steps in ten seconds."""
    run = fields.pop("run", None) or FakeRun(done=10, trace=[SimpleNamespace(seconds=10.0)])
    candidate = Candidate(name, group, fields.pop("method", "cholqr"), "se", **fields.pop("candidate", {}))
    return Lane(candidate, 3, 1e9, runs={0: run}, rows=40, scores=own or scores(0.1), **fields)


def search_of(n: int = 50, parts: int = 1, seconds: float = 100.0, **fields: Any) -> TimedSearch:
    said = fields.pop("said", [])
    options = {"should_stop": lambda: False, "clock": Clock()} | fields
    return TimedSearch(split_of(n), 0.0, seconds, [split_of(n)] * parts, said.append, **options)


# -- the model of the answer -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "parts", "left", "is_fitted_again"),
    [(10_000, 1, 20.0, True), (10_000, 1, 19.9, False), (10_001, 1, 99.0, False), (10_001, 2, 0.0, True),
     (50, 3, 0.0, True)],
)  # fmt: skip
def test_a_model_is_fitted_again_to_few_rows_if_the_time_left_is_twice_that_of_its_run(
    monkeypatch: pytest.MonkeyPatch, n: int, parts: int, left: float, is_fitted_again: bool
):
    fitted, winner = FakeRun(), lane(scoring=2.0)
    monkeypatch.setattr(final_fit, "refit_to_all_rows", lambda *_: (fitted, ""))
    monkeypatch.setattr(Lane, "rescored", lambda self, _: (scores(0.05), "wide"))
    ends: list[float] = []
    monkeypatch.setattr(final_fit, "step_until", lambda run, end, *_: ends.append(end))
    search = search_of(n, parts)
    search.clock.now = 100.0 - left

    final = final_model(search, winner, [winner], [winner])

    if is_fitted_again:
        assert final == FinalModel(winner, fitted, True, "")
        monkeypatch.setattr(final_fit, "refit_to_all_rows", lambda *_: (fitted, "failed"))
        assert final_model(search, winner, [winner], [winner]) == FinalModel(winner, fitted, False, "failed")
    else:
        assert final == FinalModel(winner, winner.first_run, False, "")
        assert ends == [98.0]  # scoring takes its time
        assert (winner.scores.rmse, winner.widening) == (pytest.approx(0.05), "wide")
        assert winner.first_run.closed


def test_near_rows_are_fitted_again_to_many_rows_even_if_another_lane_had_won(monkeypatch: pytest.MonkeyPatch):
    steps = [SimpleNamespace(seconds=each) for each in (0.0, 10.0)]
    near = lane("near", NEIGHBOURS, scores(0.0), run=FakeRun(done=1, trace=steps, outcome="converged"))
    winner, fitted = lane(own=scores(0.5)), FakeRun()
    monkeypatch.setattr(final_fit, "refit_to_all_rows", lambda _, lane: (fitted, lane.name))
    search = search_of(10_001)

    assert final_model(search, winner, [winner, near], [winner, near]) == FinalModel(near, fitted, False, "near")
    near.first_run.outcome = None  # it still learns
    monkeypatch.setattr(final_fit, "step_until", lambda *_: None)
    monkeypatch.setattr(Lane, "rescored", lambda self, _: (scores(0.5), None))
    assert final_model(search, winner, [winner, near], [winner, near]).lane is near  # the better one


def test_a_stop_leaves_the_run_of_the_search_and_a_failure_the_record_that_was_scored(monkeypatch: pytest.MonkeyPatch):
    winner = lane()
    stopped = search_of(should_stop=lambda: True)
    assert final_model(stopped, winner, [winner], [winner]) == FinalModel(winner, winner.first_run, False, "")

    def fail(run: FakeRun, *_: Any) -> None:
        run.done, run.error = 14, ValueError("K is not positive definite")

    monkeypatch.setattr(final_fit, "step_until", fail)
    monkeypatch.setattr(Lane, "rescored", lambda self, _: (scores(0.05), "wide"))
    final = final_model(search_of(20_000), winner, [winner], [winner])
    assert (final.run.forked, final.refitted, winner.widening) == (10, False, None)
    assert final.note.endswith("because going on with a failed: K is not positive definite")
    again = lane()
    monkeypatch.setattr(final_fit, "step_until", lambda *_: None)
    monkeypatch.setattr(Lane, "rescored", lambda self, _: (scores(math.nan), None))
    assert "Its predictions were not finite." in final_model(search_of(20_000), again, [again], [again]).note


@dataclass(eq=False)
class Opened:
    """What a candidate was asked to open."""

    rows: int = 0
    logs: Any = None
    anew: bool = False
    learns: bool = True
    end: float = 0.0


def refitted(monkeypatch: pytest.MonkeyPatch, own: Any, run: FakeRun, left: float) -> tuple[Opened, tuple[Any, str]]:
    """Fit a lane to all rows with so many seconds left, and tell what was opened."""
    seen = Opened()

    def opened(self: Candidate, split: Split, seed: int, logs: Any = None, anew: bool = False) -> FakeRun:
        seen.rows, seen.logs, seen.anew = len(split.train), logs, anew
        seen.learns = self.settings.get("learn", True)
        return run

    monkeypatch.setattr(Candidate, "opened", opened)
    monkeypatch.setattr(Lane, "learned_logs", lambda self: [0.5])
    monkeypatch.setattr(final_fit, "step_until", lambda run, end, *_: setattr(seen, "end", end))
    monkeypatch.setattr(final_fit, "final_widening", lambda *_: "wide")
    search = search_of(70)
    search.clock.now = 100.0 - left
    return seen, refit_to_all_rows(search, own)


@pytest.mark.parametrize(
    ("time_name", "left", "logs", "end"),
    [("", 50.0, None, 100.0), ("", 49.9, [0.5], 100.0), ("day", 99.0, [0.5], 1.0)],
)
def test_an_exact_model_learns_again_with_much_time_and_keeps_its_theta_with_less_and_in_time(
    monkeypatch: pytest.MonkeyPatch, time_name: str, left: float, logs: Any, end: float
):
    own = lane(group=EXACT, method="ml", time_name=time_name)
    run = FakeRun(done=1, trace=[None, None])

    seen, (result, note) = refitted(monkeypatch, own, run, left)

    assert (seen.rows, seen.logs, seen.anew, seen.learns, seen.end) == (70, logs, True, True, end)
    kept_theta = logs is not None  # then one evaluation is a whole answer
    assert (result is run, own.widening) == (kept_theta, "wide" if kept_theta else None)
    assert run.closed
    if not kept_theta:
        assert "(1 steps of about 10)" in note
        assert result is own.first_run


@pytest.mark.parametrize(("done", "outcome", "is_used"), [(9, None, False), (10, None, True), (2, "converged", True)])
def test_a_run_on_all_rows_has_as_many_steps_as_that_of_the_search_or_has_ended(
    monkeypatch: pytest.MonkeyPatch, done: int, outcome: str | None, is_used: bool
):
    own, run = lane(), FakeRun(done=done, outcome=outcome, trace=[None])

    _, (result, note) = refitted(monkeypatch, own, run, 50.0)

    assert (result is run) == is_used == (note == "")
    failed = FakeRun(error=ValueError("no"), trace=[None], done=20)
    assert "fitting a to all rows failed: no" in refitted(monkeypatch, lane(), failed, 50.0)[1][1]
    assert "It was stopped." in refitted(monkeypatch, lane(), FakeRun(), 50.0)[1][1]


@pytest.mark.parametrize(("time_name", "left", "learns"), [("", 20.0, True), ("", 19.9, False), ("day", 50.0, False)])
def test_a_model_that_learns_and_then_solves_only_solves_where_time_is_short(
    monkeypatch: pytest.MonkeyPatch, time_name: str, left: float, learns: bool
):
    own = lane(group=EXACT, method="gbcd", candidate={"all_rows": True}, time_name=time_name)
    monkeypatch.setattr(Lane, "after_learning", property(lambda self: (4, 2.0)))

    seen, (_, note) = refitted(monkeypatch, own, FakeRun(done=3, trace=[None]), left)

    assert seen.learns == learns
    assert f"of about {10 if learns else 4})" in note


# -- averages ----------------------------------------------------------------------------------------------------------


def member(name: str, own: RowScores, models: int = 3) -> Member:
    return Member(name, [SimpleNamespace(name=f"{name} {k}") for k in range(models)], own)  # type: ignore[misc]


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
        return [f"{own.name} 1", f"{own.name} 2"]

    monkeypatch.setattr(averaging, "_models_of", models_of)
    monkeypatch.setattr(averaging, "AveragePosterior", lambda models, weights: list(zip(models, weights, strict=True)))
    final = FinalModel(winner, winner.first_run, True, "")

    average = average_of_lanes(search, final, [winner, other, third], [trees])

    assert average is not None
    assert set(average.weights) == {"a", "b", "c", "trees"}
    expected = {}
    for name, weight in average.weights.items():
        names = [model.name for model in trees.models[:most_models]] if name == "trees" else [f"{name} 1", f"{name} 2"]
        expected |= dict.fromkeys(names, weight / len(names))
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
    monkeypatch.setattr(averaging, "_models_of", lambda *_: ["model"])
    monkeypatch.setattr(averaging, "AveragePosterior", lambda models, weights: (models, weights))
    final = FinalModel(winner, winner.first_run, True, "")

    assert average_of_lanes(search_of(), final, [winner, other]) is None
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
    monkeypatch.setattr(averaging, "widened", lambda posterior, _: posterior.run)
    monkeypatch.setattr(averaging, "refit_to_all_rows", lambda *_: (fitted, ""))
    final, search = FinalModel(winner, FakeRun(), True, ""), search_of(most_models=None)
    models = averaging._models_of

    assert models(search, winner, final, 100.0) == [final.run]
    assert models(search, other, final, 20.0) == [fitted]
    assert models(search, other, final, 19.9) == list(runs.values())
    assert models(search, other, final._replace(refitted=False), 50.0) == list(runs.values())
    assert models(search_of(most_models=1), other, final, 1.0) == [runs[0]]
    monkeypatch.setattr(averaging, "refit_to_all_rows", lambda *_: (fitted, "too short"))
    assert models(search, other, final, 50.0) == list(runs.values())

    def fail(posterior: Any, _: Any) -> None:
        raise GPExplorerError("not finite")

    monkeypatch.setattr(averaging, "widened", fail)
    assert models(search, other, final, 50.0) == []


# -- lanes and stages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "deadline", "done"),
    [([5.0, 5.0, 5.0], 0.0, 1), ([1.0] * 9, 4.4, 4), ([1.0] * 9, 4.5, 5), ([1.0, 1.0], 9.0, 2),
     ([1.0, 8.0, 1.0], 5.5, 2)],
)  # fmt: skip
def test_a_step_is_taken_if_half_of_it_is_expected_in_time(steps: list[float], deadline: float, done: int):
    clock = Clock()
    run = FakeRun(clock, steps)
    step_until(run, deadline, lambda: False, clock)  # type: ignore[arg-type]
    assert run.done == done
    step_until(run, 1e9, lambda: True, clock)  # type: ignore[arg-type]
    assert run.done == done
    run.outcome = "converged"
    step_until(run, 1e9, lambda: False, clock)  # type: ignore[arg-type]
    assert run.done == done


def test_the_first_of_the_lanes_within_a_standard_error_of_the_best_is_chosen():
    rng = np.random.default_rng(4)
    noise = rng.standard_normal(60)
    best, close, far = (
        lane(name, own=RowScores.of(Y, Y + error * noise, np.ones(60)))
        for name, error in (("best", 1.0), ("close", 1.02), ("far", 2.0))
    )
    lower, error = best.scores.better_by(close.scores)
    assert (lower <= error) == (chosen([best, close, far], [close, far, best]) is close)
    assert chosen([best, far], [far, best]) is best
    assert by_density(best) == best.scores.nlpd
    best.scores = None
    assert by_density(best) == math.inf


def work(monkeypatch: pytest.MonkeyPatch, own: Lane, clock: Clock, seconds: float, stopped: Callable[[], bool]) -> Lane:
    monkeypatch.setattr(Lane, "_open", lambda self, parts, seconds: None)
    monkeypatch.setattr(Lane, "rescored", lambda self, parts: (scores(0.2), None))
    own.work([split_of(40)] * 2, seconds, stopped, clock)
    return own


def test_a_lane_shares_its_time_among_its_runs_and_scores_what_has_changed(monkeypatch: pytest.MonkeyPatch):
    clock = Clock(50.0)
    own = lane()
    own.runs, own.scores, own.scoring = {k: FakeRun(clock, [1.0] * 90) for k in range(2)}, None, 3.0

    work(monkeypatch, own, clock, 23.0, lambda: False)

    assert [run.done for run in own.runs.values()] == [10, 10]
    assert own.seconds == 20.0
    assert own.curve == [(20.0, own.scores.nlpd)]
    assert (own.scoring, own.sentence) == (0.0, "")
    for run in own.runs.values():
        run.step_seconds = run.step_seconds[:10]  # which have ended
    monkeypatch.setattr(Lane, "_score", lambda self, parts: pytest.fail("nothing has changed"))
    own.work([split_of(40)] * 2, 20.0, lambda: False, clock)


def test_a_lane_that_is_stopped_keeps_the_parts_that_have_begun_and_errors_are_its_sentence(
    monkeypatch: pytest.MonkeyPatch,
):
    clock, own = Clock(), lane()
    begun, waiting = FakeRun(clock, trace=[SimpleNamespace(seconds=1.0)], done=1), FakeRun(clock)
    own.runs, own.scores = {0: begun, 1: waiting}, None
    work(monkeypatch, own, clock, 10.0, lambda: True)
    assert own.runs == {0: begun}

    for run, words in (
        (FakeRun(clock), "It had no time for its first step."),
        (
            FakeRun(clock, error=ValueError("K"), trace=[None], outcome=SimpleNamespace(message="K is singular")),
            "K is singular",
        ),
        (FakeRun(clock, error=ValueError("plain"), trace=[None]), "plain"),
    ):
        failing = lane(run=run)
        failing.scores = None
        assert work(monkeypatch, failing, clock, 1.0, lambda: False).sentence == words
        assert run.closed
        assert failing.curve == []
    monkeypatch.setattr(Lane, "rescored", lambda self, parts: (scores(math.inf), None))
    infinite = lane(run=FakeRun(clock, trace=[None]))
    infinite.scores = None
    infinite.work([split_of(40)], 1.0, lambda: False, clock)
    assert infinite.sentence == "Its predictions are not finite."


def test_a_lane_whose_step_is_too_long_or_too_large_is_not_begun(monkeypatch: pytest.MonkeyPatch):
    cost = SimpleNamespace(memory=2e9)
    run: Any = SimpleNamespace(method=SimpleNamespace(cost=lambda _: cost), problem=None)
    own = lane()
    monkeypatch.setattr(lanes.machine_speed, "machine", lambda: SimpleNamespace(seconds=lambda _: 30.0))
    with pytest.raises(GPExplorerError, match="would hold 2 GB, and 1 GB are allowed"):
        own._refuse_too_large(run, 1e9)
    cost.memory = 1e9
    own._refuse_too_large(run, 10.0)
    with pytest.raises(GPExplorerError, match="about 30 s, and its share of the time is 9"):
        own._refuse_too_large(run, 9.9)


def test_a_short_time_has_few_lanes_and_fewer_stages():
    assert [lanes_for(1000, seconds) for seconds in (1.0, 4.0, 10.0, 60.0)] == [2, 2, 5, 31]
    assert lanes_for(4000, 60.0) == int(60.0 * 0.12 / (0.03 + 0.4))
    assert [lanes_for(1000, 60.0, parts) for parts in (3, 4)] == [31, 10]
    assert [len(shares_for(count)) for count in (1, 2, 3, 4, 5, 8, 9, 16, 99)] == [1, 1, 2, 2, 3, 3, 4, 4, 4]
    assert shares_for(2) == (0.5,)
    [part] = [split_of(6000)]
    assert [[len(each.train) for each in stage] for stage in parts_of_stages([part], 4)] == [
        [1000],
        [5000],
        [6000],
        [6000],
    ]
    assert [[len(each.train) for each in stage] for stage in parts_of_stages([part], 2)] == [[6000], [6000]]
    assert [len(stage) for stage in parts_of_stages([part] * 3, 4)] == [1, 2, 3, 3]
    assert [len(stage) for stage in parts_of_stages([part] * 3, 2)] == [3, 3]
    assert [len(stage) for stage in parts_of_stages([part] * 10, 4)] == [3, 5, 8, 10]


def test_the_fraction_of_the_time_is_reported_and_what_is_reserved_ends_it_earlier():
    said: list[Any] = []
    search = search_of(said=said, reserved=15.0)
    search.clock.now = 25.0
    search.report("At work.")
    search.clock.now = 130.0
    search.report("Late.")
    assert [tuple(each) for each in said] == [(0.25, 75.0, "At work."), (1.0, 0.0, "Late.")]
    assert search.end == 85.0


def halving_of(n: int = 50, parts: int = 1, **fields: Any) -> Halving:
    options = {"should_stop": lambda: False, "clock": Clock()} | fields
    return Halving(split_of(n), 0.0, 100.0, [split_of(n)] * parts, None, **options)


def test_the_better_half_the_least_error_the_choice_the_forecast_and_each_group_are_kept():
    own = [lane(f"{k}", f"group {k // 3}", scores(0.1 * k), curve=[(1.0, 1.0 + 0.1 * k)]) for k in range(6)]
    search = halving_of()
    assert search._kept(own, own[::-1], False) == own[:3]
    assert search._kept(own, own[::-1], True) == own[:4]  # the best one of the other group
    own[5].curve = [(1.0, 9.0), (2.0, 0.5)]  # which falls fast
    assert search._kept(own, own, False) == [*own[:3], own[5]]
    own[4].scores = RowScores.of(Y, Y, np.full(60, 9.0))  # the least squared error, with poor bands
    own[0].scores = scores(0.01)
    assert search._kept(own, own, False) == [*own[:3], own[4], own[5]]
    assert search._kept(own[:2], own, False) == own[:2]
    assert search._pair(own[:4], own) == [own[0], own[1]]
    assert search._pair(own, own) == [own[0], own[5]]
    assert search._pair(own[:1], own) == own[:1]


def test_with_few_rows_the_choice_decides_and_with_many_the_forecast():
    best, falling = lane("best", own=scores(0.0)), lane("falling", own=scores(0.5), curve=[(1.0, 9.0), (2.0, 0.1)])
    best.curve = [(1.0, 1.0)]
    assert halving_of(10_000).choose([best, falling], [best, falling]) is best
    assert halving_of(10_001).choose([best, falling], [best, falling]) is falling


def test_lanes_share_the_time_of_a_stage_and_exact_ones_have_more_of_the_first(monkeypatch: pytest.MonkeyPatch):
    given: list[tuple[str, float, int]] = []
    clock = Clock()

    def work(self: Lane, parts: list[Split], share: float, *_: Any) -> None:
        given.append((self.name, share, len(parts)))
        clock.now += share

    monkeypatch.setattr(Lane, "work", work)
    monkeypatch.setattr(Lane, "learned_logs", lambda self: [self.seconds])
    exact = lane("exact", EXACT, method="ml", seconds=7.0)
    fast, of_all = lane("fast"), lane("of all", candidate={"all_rows": True})
    search = halving_of(parts=1, clock=clock)
    search.shares = shares_for(8)

    search._try([exact, fast, of_all], [split_of(9)], 50.0, 0)
    assert given == [("exact", 30.0, 1), ("fast", 10.0, 1), ("of all", 10.0, 1)]
    assert search.starts == {("se", ""): [7.0]}
    assert fast.start is None or fast.start == [7.0]
    assert of_all.start == [7.0]

    given.clear()
    search._try([exact, fast], [split_of(9)], 60.0, 1)
    assert given == [("exact", 5.0, 1), ("fast", 5.0, 1)]
    given.clear()
    search.shares = shares_for(2)  # a single stage: the first lane has half as much again
    clock.now = 0.0
    search._try([fast, exact], [split_of(9)], 30.0, 0)
    assert given == [("fast", 15.0, 1), ("exact", 15.0, 1)]
    given.clear()
    search._try([fast, exact], [split_of(9)], 0.0, 1)  # no time is left
    assert given[0][1] == pytest.approx(1.5 * 2.0 / 2.5)
    search.should_stop = lambda: True
    given.clear()
    exact.scores = None
    search._try([fast, exact], [split_of(9)], 90.0, 1)
    assert [name for name, *_ in given] == ["exact"]  # which has no answer yet


def test_a_lane_that_fails_on_more_rows_keeps_its_scores_for_the_table(monkeypatch: pytest.MonkeyPatch):
    own = lane()
    before = own.scores

    def fail(self: Lane, *_: Any) -> None:
        self.scores, self.rows, self.sentence = None, 99, "It failed."

    monkeypatch.setattr(Lane, "work", fail)
    halving_of()._try([own], [split_of(9)], 10.0, 0)
    assert (own.scores, own.rows, own.sentence) == (before, 40, "It failed.")


def test_lanes_that_were_given_up_are_completed_while_there_is_time(monkeypatch: pytest.MonkeyPatch):
    given: list[tuple[str, float]] = []
    clock = Clock()

    def work(self: Lane, parts: list[Split], share: float, *_: Any) -> None:
        given.append((self.name, share))
        self.scores = RowScores.of(np.tile(Y, 2)[:100], np.tile(Y, 2)[:100] + 0.3, np.ones(100))
        clock.now += share

    monkeypatch.setattr(Lane, "work", work)
    best = lane("best")
    early = [lane(name, own=scores(error), sentence="given up") for name, error in (("b", 0.4), ("a", 0.2))]
    unscored = lane("unscored", sentence="failed")
    unscored.scores = None
    search = halving_of(50, 2, clock=clock)
    search.parts = [Split(part.train, part.train, "part") for part in search.parts]  # which hold out fifty rows each
    all_lanes = [best, *early, unscored]

    finalists = search.complete(all_lanes, [best])

    assert [name for name, _ in given] == ["a", "b"]
    assert [share for _, share in given] == pytest.approx([20.0, 20.0])  # two fifths of the time
    assert finalists[0] is best  # by its density
    assert set(finalists) == {best, *early}
    assert {each.sentence for each in early} == {"given up"}
    assert search.complete(all_lanes, []) == []
    assert halving_of(parts=1).complete(all_lanes, [best]) == [best]
    given.clear()
    clock.now = 96.0  # ten seconds for one more part of such a lane are too many
    search.complete(all_lanes, [best])
    assert given == []


def test_a_lane_has_more_time_if_no_other_gave_an_answer(monkeypatch: pytest.MonkeyPatch):
    given: list[tuple[str, float]] = []
    clock = Clock(40.0)

    def work(self: Lane, parts: list[Split], share: float, *_: Any) -> None:
        given.append((self.name, share))
        clock.now += share
        self.scores = scores(0.1) if self.name == "c" else None

    monkeypatch.setattr(Lane, "work", work)
    own = [lane(name, sentence="no time") for name in "abcd"]
    assert halving_of(clock=clock).tried_again(own) == [own[2]]
    assert given == [("a", 30.0), ("b", 25.0), ("c", 25.0)]
    given.clear()
    clock.now = 101.0  # late is better than none, but only once
    assert halving_of(clock=clock).tried_again([own[0], own[2]]) == []
    assert given == [("a", 25.0)]
    assert halving_of(should_stop=lambda: True).tried_again(own) == []


def test_time_that_is_left_goes_to_lanes_like_the_best_one(monkeypatch: pytest.MonkeyPatch):
    given: list[tuple[str, float]] = []
    clock = Clock(20.0)

    def work(self: Lane, parts: list[Split], share: float, *_: Any) -> None:
        given.append((self.name, share))
        clock.now += 10.0
        self.scores = scores({"same group": 0.4, "a": 0.5, "b": 0.6, "c": 0.7}.get(self.name, 0.0))

    monkeypatch.setattr(Lane, "work", work)
    best = lane("best", "group", scores(0.3), seconds=10.0)
    best.first_run.outcome = "converged"
    spare = [lane(name, group) for name, group in (("a", "x"), ("same group", "group"), ("b", "x"), ("c", "x"))]
    tried = [best]

    finalists = halving_of(clock=clock).try_spare(tried, [best], spare)

    assert given == [("same group", 40.0), ("a", 35.0)]  # after two that are not the best it ends
    assert [each.name for each in finalists] == ["best", "same group", "a"]
    assert [each.name for each in tried] == ["best", "same group", "a"]
    for search, finalist in (
        (halving_of(parts=2, clock=Clock(20.0)), best), (halving_of(clock=Clock(90.1)), best),
        (halving_of(clock=Clock(20.0), should_stop=lambda: True), best),
        (halving_of(clock=Clock(20.0)), lane("going on")),
    ):  # fmt: skip
        given.clear()
        assert search.try_spare([finalist], [finalist], spare) == [finalist]
        assert given == []
    clock.now = 20.0
    near = lane("near", NEIGHBOURS, scores(0.3))
    halving_of(clock=clock).try_spare([near], [near], spare[:1])
    assert given == [("near", 40.0)]  # which has still to converge


def test_stages_give_up_half_of_the_lanes_and_the_last_two_remain(monkeypatch: pytest.MonkeyPatch):
    ends: list[tuple[int, float, int]] = []
    clock = Clock()

    def attempt(self: Halving, running: list[Lane], parts: list[Split], end: float, stage: int) -> None:
        ends.append((stage, end, len(running)))
        clock.now = end

    monkeypatch.setattr(Halving, "_try", attempt)
    own = [lane(f"{k}", own=scores(0.1 * k), curve=[(1.0, float(k))]) for k in range(5)]
    search = halving_of(clock=clock)
    assert search.halve(own) == own[:2]
    assert [(stage, count) for stage, _, count in ends] == [(0, 5), (1, 3), (2, 2)]
    assert [end for _, end, _ in ends] == pytest.approx([16.0, 36.0, 61.0])
    assert own[4].sentence == "Others were better on the same held-out rows, fitted to 40 rows."
    own[0].sentence = "It failed."
    assert search.halve(own[:2]) == [own[1]]
    stopped = halving_of(clock=clock, should_stop=lambda: True)
    fewer = lane("fewer", own=scores(0.1, 30))
    assert stopped.halve([own[1], fewer]) == [own[1]]
    assert fewer.sentence.startswith("The search was stopped before this was tried on as many held-out rows")


def test_groups_and_blocks_count_as_one_observation_each():
    groups = RowGroups(torch.arange(60) // 5, are_folds=False)
    y, mean = Y, Y + np.repeat(np.linspace(0.0, 1.0, 12), 5)
    own = RowScores.of(y, mean, np.ones(60), groups)
    other = RowScores.of(y, y, np.ones(60), groups)
    lower, error = other.better_by(own)
    means = (own.density - other.density).reshape(12, 5).mean(1)
    assert lower == pytest.approx(means.mean())
    assert error == pytest.approx(means.std() / math.sqrt(12))
    assert halving.BLOCKS == 4
