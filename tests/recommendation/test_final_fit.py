"""Which model an answer has: one fitted to all rows, or the run of the search, by the time that is left."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from gpexplorer.data import Split
from gpexplorer.recommendation import final_fit
from gpexplorer.recommendation.candidates import EXACT, NEIGHBOURS, Candidate
from gpexplorer.recommendation.final_fit import FinalModel, final_model, refit_to_all_rows
from gpexplorer.recommendation.lanes import Lane
from search_by_hand import FakeRun, lane, scores, search_of


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
    own = final_model(search, winner, [winner, near], [winner, near])
    assert own == FinalModel(near, near.first_run, False, "")  # the better one
    solver = lane("solver", EXACT, scores(0.0), method="gbcd", candidate={"all_rows": True})
    monkeypatch.setattr(Lane, "after_learning", property(lambda self: (4, 2.0)))
    assert not final_model(search, solver, [solver], [solver]).refitted  # which may be far from its end


def test_a_stop_leaves_the_run_of_the_search_and_a_failure_the_record_that_was_scored(monkeypatch: pytest.MonkeyPatch):
    winner = lane()
    stopped = search_of(should_stop=lambda: True)
    note = f"The search was stopped, so that {winner.name} is fitted to {winner.rows} rows only."
    assert final_model(stopped, winner, [winner], [winner]) == FinalModel(winner, winner.first_run, False, note)

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
