"""What a search does with its time: the shares of lanes and stages, who goes on and who is given up."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gpexplorer.data import Split
from gpexplorer.errors import GPExplorerError
from gpexplorer.problem import RowGroups
from gpexplorer.recommendation import halving, lanes
from gpexplorer.recommendation.candidates import EXACT, NEIGHBOURS
from gpexplorer.recommendation.halving import Halving
from gpexplorer.recommendation.held_out import RowScores
from gpexplorer.recommendation.lanes import Lane, by_density, chosen, step_until
from gpexplorer.recommendation.skewness import Transforms
from gpexplorer.recommendation.stages import lanes_for, parts_of_stages, shares_for
from search_by_hand import Clock, FakeRun, Y, halving_of, lane, scores, search_of, split_of


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


@pytest.mark.parametrize(("n", "folds", "parts"), [(60, None, 1), (3100, None, 1), (3100, "time", 4)])
def test_the_time_decides_the_size_of_candidates_and_a_long_series_divides_it_among_its_parts(
    monkeypatch: pytest.MonkeyPatch, n: int, folds: str | None, parts: int
):
    """A candidate may take a fifteenth of the 60 s; a series of 3,100 rows is held out four times."""
    shares = []

    def noted(split: Split, share: float, time_name: str) -> list[Any]:
        shares.append(share)
        return []

    monkeypatch.setattr(halving, "candidates", noted)
    monkeypatch.setattr(halving, "fitted_members", lambda *_: ([], 0.0))
    monkeypatch.setattr(halving, "suitable_transforms", lambda *_: Transforms())
    t = np.arange(float(n))
    with pytest.raises(GPExplorerError, match="at least one Candidate"):
        halving.recommend(t[:, None], np.sin(t), seconds=60.0, folds=folds, clock=Clock())

    assert shares == [pytest.approx(4.0 / parts)]


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
    search.begin, search.clock.now = 10.0, 35.0
    search.report("At work.")
    search.clock.now = 130.0
    search.report("Late.")
    assert [tuple(each) for each in said] == [(0.25, 75.0, "At work."), (1.0, 0.0, "Late.")]
    assert search.end == 95.0


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
    said: list[Any] = []
    search = halving_of(parts=1, clock=clock)
    search.on_progress, search.shares = said.append, shares_for(8)

    search._try([exact, fast, of_all], [split_of(9)], 50.0, 0)
    assert given == [("exact", 30.0, 1), ("fast", 10.0, 1), ("of all", 10.0, 1)]
    assert search.starts == {("se", ""): [7.0]}
    assert said[1].sentence == "Stage 1 of 3: fast on 9 rows."
    assert said[2].sentence == "Stage 1 of 3: of all on 50 rows."
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
    assert given == []  # opening the run of each lane would take longer than the user wants to wait
    assert exact.sentence == "The search was stopped before this was tried."


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
    clock.now = 70.0  # twice the ten seconds of the best lane are kept for its fit to all rows
    waiting = lane("waiting", own=scores(0.3), sentence="given up")
    search.complete([best, waiting], [best])
    assert given == [("waiting", pytest.approx(10.0))]
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
