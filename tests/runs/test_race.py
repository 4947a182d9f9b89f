"""A race: turns are equal, a failure ends only its own lane, and the board shows every lane after every turn."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gpexplorer import Spec
from gpexplorer.errors import SettingError
from gpexplorer.runs.studies.race import Race
from gpexplorer.ui.panels.race_panel import RacePanel, lanes_of_text, standing
from gpexplorer.ui.session import Session

ROWS = {"name": "hypercube", "n": 80, "d": 2, "noise": 0.2, "seed": 1}


def specs(**settings: dict) -> dict[str, Spec]:
    return {
        key: Spec(key, {"num_inducing": 6} if key in ("cholqr", "random") else {"block": 10}, data=ROWS, **settings)
        for key in ("cholqr", "random", "gbcd")
    }


@pytest.fixture(scope="module")
def race() -> Race:
    result = Race(specs(), turn_seconds=0.02)
    result.finish(0.3)
    return result


def test_lanes_get_the_same_time_to_within_a_step(race: Race):
    board = race.board()

    assert set(board["lane"]) == {"cholqr", "random", "gbcd"}
    for _, rows in board.groupby("lane"):
        assert rows["seconds"].is_monotonic_increasing
        assert rows["memory"].gt(0).all()
    assert race.over
    assert all(lane.sentence.endswith(".") for lane in race.lanes.values())


def test_the_lane_furthest_behind_is_next():
    result = Race(specs(), turn_seconds=0.01)
    for _ in range(9):
        lane = result.advance()
        assert lane is not None
        others = [other for other in result.lanes.values() if not other.over and other is not lane]
        assert all(lane.granted <= other.granted + result.turn_seconds + max(lane.seconds, 0.01) for other in others)
    assert all(len(lane.scored) >= 1 for lane in result.lanes.values())


def test_the_scoreboard_is_what_a_lane_had_by_then(race: Race):
    first, late = race.scoreboard("smse", (0.0, 1e9)).T.to_dict("list").items(), race.board()
    for name, (begin, end) in first:
        own = late[late["lane"] == name]
        outcome = race.lanes[name].run.outcome
        assert (outcome is None) == race.lanes[name].can_go_on
        if outcome is not None:
            assert end == own["smse"].iloc[-1]
        else:  # nobody ran for so long
            assert math.isnan(end)
        then = float(own["seconds"].iloc[-1])
        assert race.scoreboard("smse", [then]).loc[name].item() == own["smse"].iloc[-1]
        assert race.lanes[name].seconds > race.lanes[name].run.trace[-1].seconds or race.lanes[name].set_up == 0.0
        assert math.isnan(begin) or own["seconds"].iloc[0] <= 0.0


def test_a_lane_whose_evaluations_are_used_keeps_its_score_on_the_scoreboard():
    result = Race({"short": Spec("ml", {"evaluations": 2}, "snelson-like")}, turn_seconds=0.01)
    result.finish(5.0)

    [end] = result.scoreboard("smse", [1e9]).loc["short"]

    assert result.lanes["short"].run.outcome.reason == "budget"
    assert end == result.board()["smse"].iloc[-1]


def test_time_to_reach_and_winners_agree_with_the_board(race: Race):
    board, matrix = race.board(), race.time_to_reach("snlp")

    for name in race.lanes:
        own = board[board["lane"] == name]
        assert matrix.loc[name, name] == own.loc[own["snlp"].idxmin(), "seconds"]
    newest = {name: board.loc[board["lane"] == name, "snlp"].iloc[-1] for name in race.lanes}
    assert race.winners()["snlp"] == min(newest, key=lambda name: newest[name])


def test_the_winner_has_the_best_newest_score_and_not_the_best_earlier_one():
    race = Race(specs())
    first, second, *others = race.lanes
    scored = {name: [0.9] for name in others} | {first: [0.1, 0.3], second: [0.5, 0.2]}
    for name, lane in race.lanes.items():
        lane.scored = [{"seconds": t, "smse": smse, "snlp": smse} for t, smse in enumerate(scored[name])]

    assert race.winners() == {"smse": second, "snlp": second}


@pytest.mark.parametrize(("rows", "is_told"), [(30, False), (3000, True)])
def test_a_winner_is_named_only_where_the_test_rows_tell_it_from_the_others(rows: int, is_told: bool):
    race = Race(specs())
    random = np.random.default_rng(5)
    errors, noise = random.exponential(size=rows), random.normal(0.0, 0.5, rows)
    squared = np.stack([errors, errors + 0.05 + noise - noise.mean(), errors + 3.0])  # the third is far worse
    density = squared[[1, 0, 2]]  # by which the second is the lowest
    for lane, own, terms in zip(race.lanes.values(), squared, density, strict=True):
        scores = {"seconds": 1.0, "memory": 1e6, "smse": float(own.mean()), "snlp": float(terms.mean())}
        lane.scored, lane.sentence = [scores], "Ended."
        newest = (1, torch.tensor(own), torch.tensor(terms))
        lane.run = SimpleNamespace(test_errors=newest, variance_note="", outcome=None, trace=[])
    first, second, _ = race.lanes
    assert race.winners() == {"smse": first, "snlp": second}
    assert race.not_told_apart("smse") == ([] if is_told else [second])
    assert race.not_told_apart("snlp") == ([] if is_told else [first])
    shown = standing(race)
    assert shown.table.count('class="ahead"') == (1 if is_told else 2)
    if is_told:
        assert race.verdict() == [f"Winner by SMSE: {first}.", f"Winner by SNLP: {second}."]
    else:
        doubt = f"30 test rows cannot tell its SMSE from that of {second}: compare on more rows or splits."
        assert race.verdict()[0] == f"Lowest SMSE: {first}. {doubt}"
        assert "Winner" not in shown.note
        assert doubt in shown.note
    race.lanes[first].sentence = ""
    leading = race.verdict()[0]
    for name in list(race.lanes)[1:]:
        race.lanes[name].scored = []
    assert race.verdict() == [f"Only {first} has a score."]
    assert leading.startswith("Leader by SMSE: " if is_told else "Lowest SMSE: ")


def test_a_lane_that_fails_says_why_and_the_race_continues():
    strings = {**specs(), "broken": Spec("sgpr", {"num_inducing": 6}, data=ROWS)}
    result = Race(strings, turn_seconds=0.01)
    result.lanes["broken"].spec = Spec("sgpr", data={"name": "no-such-set-anywhere"})
    result.finish(0.05)

    assert "no-such-set-anywhere" in result.lanes["broken"].sentence
    assert result.board()["lane"].nunique() == 3
    result.close()


def test_a_lane_whose_method_uses_up_its_own_epochs_ends_and_so_does_the_race():
    spec = Spec("subset-of-data", {"num_rows": 20, "max_epochs": 1}, data="snelson-like")
    race = Race({"short": spec}, turn_seconds=5.0)

    assert [race.advance() is None for _ in range(3)] == [False, True, True]
    assert race.over
    assert "raise max_epochs" in race.lanes["short"].sentence


def test_one_lane_can_be_stopped(race: Race):
    result = Race(specs(), turn_seconds=0.01)
    result.advance()
    result.stop("cholqr")
    result.finish(0.04)

    assert result.lanes["cholqr"].sentence == "Stopped."
    assert result.lanes["cholqr"].seconds < 0.3


def test_a_later_call_with_more_seconds_goes_on_and_a_stopped_lane_does_not():
    race = Race(specs(budget={"steps": 1}), turn_seconds=0.01)
    race.finish(0.02)
    race.stop("random")
    used, turns = {name: lane.seconds for name, lane in race.lanes.items()}, race.turns

    race.finish(0.02)
    assert race.turns == turns
    race.finish(0.2)

    lane = race.lanes["gbcd"]
    assert lane.seconds > used["gbcd"]
    assert lane.sentence == "Its 0.2 seconds are used." or lane.run.outcome.reason == "converged"
    assert race.lanes["random"].seconds == used["random"]
    assert race.over
    assert race.lanes["gbcd"].run.done > 1
    assert "Budgets of the specs do not count" in race.policy
    assert "Budgets" not in Race(specs()).policy


def test_lanes_must_share_what_is_compared():
    unlike = {"a": Spec("cholqr", data=ROWS, seed=0), "b": Spec("cholqr", data=ROWS, seed=1)}
    with pytest.raises(SettingError, match="must share data, split, seed"):
        Race(unlike)
    with pytest.raises(SettingError, match="one at least, and not"):
        Race({})


def test_on_the_page_one_lane_is_stopped_and_the_other_continues():
    spec = Spec("random", data={"name": "hypercube", "n": 300, "d": 2})
    panel = RacePanel(Session(spec))
    panel.methods.value, panel.seconds.value = ["scgd", "minimax"], 600
    assert not panel.out.visible
    panel.toggle()
    assert panel.out.visible
    assert list(panel.out.options) == ["—", "SCGD", "MINIMAX"]

    panel.out.value = "SCGD"
    end = time.monotonic() + 60
    while list(panel.out.options) != ["—", "MINIMAX"] and time.monotonic() < end:
        time.sleep(0.05)
        panel.update()

    assert list(panel.out.options) == ["—", "MINIMAX"]
    assert panel.out.value == ""
    assert "Stopped" in panel.table.object
    assert panel._charts["smse"]._live.figure.name == "Race, SMSE over seconds of computation"
    panel.reset()
    assert not panel.out.visible


def test_a_pause_is_no_time_of_the_race_and_the_button_of_one_that_is_over_says_so():
    spec = Spec("random", data=ROWS)
    session = Session(spec)
    panel = RacePanel(session)
    panel.methods.value, panel.seconds.value = ["scgd", "minimax"], 600
    begin, said = time.monotonic(), []

    def look() -> None:
        panel.update()
        said.extend(re.findall(r"Wall-clock so far: ([.\d]+) s", panel.note.object))

    def wait(holds: Callable[[], object]) -> None:
        while not holds():
            assert time.monotonic() < begin + 60
            time.sleep(0.02)
            look()

    try:
        panel.toggle()
        wait(lambda: len(said))
        panel.toggle()
        assert panel.go.label == "Continue"
        worker = panel._worker
        time.sleep(0.6)  # the turn ends
        look()
        before, paused = said[-1], time.monotonic()
        time.sleep(2.0)
        pause = time.monotonic() - paused
        panel.toggle()
        wait(lambda: said[-1] != before)
        played = time.monotonic() - begin - pause
        for name in list(worker.race.lanes):
            worker.stop(name)
        worker.thread.join(20)
        panel.update()
        over = (panel.go.label, panel.go.disabled)
        panel.reset()
        fresh = (panel.go.label, panel.go.disabled)
    finally:
        session.close()

    assert 0.0 < float(said[-1]) <= played + 0.5
    assert (over, fresh) == (("Over", True), ("Race", False))


def test_a_lane_that_is_there_already_is_a_sentence():
    session = Session(Spec("cholqr", data=ROWS))
    panel = RacePanel(session)
    panel.methods.value = ["cholqr"]
    try:
        for written, lane in (
            ("sgpr num_inducing=8; pcg; sgpr  num_inducing=8", "SGPR, moving inputs, Inducing points m = 8"),
            ("pcg; cholqr", "CholQR swaps"),
        ):
            panel.lanes.value = written
            panel.toggle()
            assert panel.note.object == f"There are two lanes {lane}: leave one out, or give it another setting."
            assert panel._worker is None
        panel.lanes.value = "cholqr num_inducing=8 num_inducing=9"
        panel.toggle()
        assert "num_inducing is there twice in " in panel.note.object
    finally:
        session.close()


def test_a_method_runs_in_several_lanes_with_different_settings():
    base = Spec("cholqr", data=ROWS)
    lanes = lanes_of_text(base, "cholqr num_inducing=8; cholqr num_inducing=16 ; sgpr engine=gpytorch;")
    assert [(spec.method, spec.settings.get("num_inducing")) for spec in lanes.values()][:2] == [
        ("cholqr", 8), ("cholqr", 16),
    ]  # fmt: skip
    endings = ("Inducing points m = 8", "Inducing points m = 16", "Engine = gpytorch")
    assert all(name.endswith(ending) for name, ending in zip(lanes, endings, strict=True))
    for written, says in (("cholqr 8", "no setting"), ("nothing m=3", "nothing"), ("cholqr inducing=8", "inducing")):
        with pytest.raises(SettingError, match=says):
            lanes_of_text(base, written)


def test_the_board_shows_no_figure_for_a_time_that_nobody_ran(race: Race):
    shown = standing(race).table
    assert "SMSE at 1 s" not in shown or max(lane.seconds for lane in race.lanes.values()) >= 1
    assert "SMSE at 30 s" not in shown
