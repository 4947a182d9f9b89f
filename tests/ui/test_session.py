"""A session without a page: what panels and pictures ask of it, and what the controls hear of it."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from gpexplorer import Spec
from gpexplorer.errors import SettingError
from gpexplorer.ui.playback.open_run import OpenRequest, OpenRun
from gpexplorer.ui.playback.readings import newest_steps, status_numbers
from gpexplorer.ui.session import MAX_EDITS, Session
from gpexplorer.ui.text import number

SPEC = Spec("cholqr", {"num_inducing": 5}, {"name": "hypercube", "n": 40, "d": 1, "seed": 3}, kernel="se")


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def adopted() -> list[Spec]:
    return []


@pytest.fixture
def session(messages: list[str], adopted: list[Spec]) -> Iterator[Session]:
    session = Session(SPEC, report=messages.append, adopt=adopted.append)
    session.open()
    yield session
    session.close()


def follow(session: Session, holds: Callable[[], bool]) -> None:
    """Take frames until this holds."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        session.take(wait=0.2)


def test_the_screen_follows_the_run(session: Session):
    session.player.run_to(3)
    follow(session, lambda: session.screen.step == 3)

    assert session.screen.spec == SPEC
    assert session.screen.key == SPEC.key()
    assert len(session.table()) == len(session.finished().steps) == 4


def test_the_file_of_steps_says_what_the_table_on_the_page_shows(session: Session):
    session.player.run_to(12)
    follow(session, lambda: session.screen.step == 12)

    shown, written = newest_steps(session.run, 12)[::-1].reset_index(drop=True), session.table()

    start = {fact.label: fact.value for fact in status_numbers(session.run, 0, None, False).cells}["objective F [nat]"]
    assert number(shown["objective F"][0]) == number(written["objective"][0]) == start != "—"
    assert set(session.run.table()) < set(written)  # scripts know these names
    same = {"step": "index", "phase": "phase", "row out": "removed", "row in": "proposed", "kernel entries": "entries"}
    same |= {channel.label: channel.name for channel in session.run.method.channels}
    on_page, in_file = (frame.astype(object).where(frame.notna(), None) for frame in (shown, written))
    for label, name in same.items():
        assert on_page[label].tolist() == in_file[name].tolist(), label
    assert [{"yes": True, "no": False, "": None}[said] for said in shown["accepted"]] == in_file["accepted"].tolist()
    assert "yes" in set(shown["accepted"])
    assert ".0" not in written[["removed", "proposed"]].to_csv(index=False)
    assert pd.read_parquet(io.BytesIO(written.to_parquet(index=False))).equals(written)


def test_a_chosen_spec_reaches_the_controls_and_a_changed_one_does_not(session: Session, adopted: list[Spec]):
    other = Spec("random", data=SPEC.data)
    session.question = "rough"
    session.choose(other, steps=2)
    follow(session, lambda: session.screen.spec == other and session.screen.step == 2)
    assert adopted == [other]
    assert session.question == ""

    session.change(SPEC)
    follow(session, lambda: session.screen.spec == SPEC)
    assert adopted == [other]


@pytest.mark.parametrize("kind", ["hyperparameters", "setting"])
def test_what_is_clicked_at_once_after_a_change_goes_on_from_it(session: Session, kind: str):
    """A click on a step button was read from the record on the screen, before the change."""
    player, waiting = session.player, threading.Event()
    player.run_to(3)
    follow(session, lambda: session.screen.step == 3)
    player.change(lambda _: waiting.wait(20))  # what follows arrives while the thread is busy

    if kind == "setting":
        session.change(replace(SPEC, settings={"num_inducing": 4}))
        player.step()
        player.step()
    else:
        session.set_hyperparameters({"lengthscale": 0.3})  # record 4
    player.back()
    waiting.set()
    follow(session, lambda: not player.working_since and session.run.done == (2 if kind == "setting" else 4))

    follow(session, lambda: session.screen.step == (1 if kind == "setting" else 3))
    player.back()
    player.step()
    player.step()
    player.step()
    follow(session, lambda: session.screen.step == session.run.done == (3 if kind == "setting" else 5))


def test_a_row_is_added_and_taken_back_and_the_step_stays(session: Session):
    session.player.run_to(2)
    follow(session, lambda: session.screen.step == 2)
    rows = len(session.run.problem.train)

    assert session.edit_rows([0.5, 1.0]) == ""
    follow(session, lambda: session.screen.spec != SPEC and session.screen.step == 2)
    assert session.spec.data["edits"] == [[0.5, 1.0]]
    assert len(session.run.problem.train) == rows + 1

    session.edit_rows(None)
    assert session.spec == SPEC


@pytest.mark.parametrize(("method", "kernel"), [("cholqr", "se"), ("grief", "se"), ("gbcd", "matern52")])
def test_the_prediction_is_updated_by_a_new_row_before_the_run_is_repeated(
    method: str, kernel: str, monkeypatch: pytest.MonkeyPatch
):
    row, opened, reopen = [0.5, -7.0], threading.Event(), OpenRun.open
    session = Session(replace(SPEC, method=method, settings={}, kernel=kernel))
    session.open()
    session.player.show(["fit", "convergence"])
    session.player.run_to(60)
    follow(session, lambda: session.screen.step > 0 and not session.player.working_since)
    run, at = session.run, session.screen.step
    monkeypatch.setattr(OpenRun, "open", lambda self, request: [opened.wait(20), reopen(self, request)])

    session.edit_rows(row)

    frames = []  # on a busy machine, one of the run before may still come first

    def shows_the_row() -> bool:
        frames.append(session.player.take(0.2))
        drawn = frames[-1].layers if frames[-1] else {}
        return "fit" in drawn and drawn["fit"]["train"][["x", "observed"]].to_numpy()[-1].tolist() == row

    follow(session, shows_the_row)
    frame, X = frames[-1], torch.tensor([[0.5]], dtype=torch.float64)
    opened.set()
    assert set(frame.layers) == {"fit"}
    assert frame.numbers.at == at
    mean = frame.layers["fit"]["mean"]
    grown = run.posterior(at).with_rows(X, torch.tensor([-7.0]))
    at_grid = grown.mean(torch.tensor(mean[["x"]].to_numpy())).numpy()
    assert mean["y"].to_numpy() == pytest.approx(at_grid, rel=1e-9, abs=1e-9)
    assert float(grown.mean(X) - run.posterior(at).mean(X)) < -0.1
    session.close()


@pytest.mark.parametrize(("target_transform", "target", "is_updated"), [
    ("yeo-johnson", -7.0, True), ("log", 5.0, True), ("log", -7.0, False), ("log", 0.0, False),
])  # fmt: skip
def test_a_new_row_of_a_transformed_target_updates_the_prediction_where_it_has_a_transform(
    target_transform: str, target: float, is_updated: bool
):
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"x": (x := rng.uniform(0.0, 6.0, 50)), "y": np.exp(np.sin(x) + 0.3 * rng.normal(size=50))})
    run = Spec("cholesky", {"learn": False}, kernel="se", target_transform=target_transform).open(data=frame)
    run.finish()
    opened = OpenRun()
    opened.open(OpenRequest(run.spec, given=run))

    layers = opened.layers_with_row(1, (3.0, target), ["fit"])

    assert bool(layers) == is_updated
    if is_updated:
        assert layers["fit"]["train"][["x", "y"]].to_numpy()[-1] == pytest.approx([3.0, target])
        row = torch.tensor([[3.0]], dtype=torch.float64), torch.tensor([target], dtype=torch.float64)
        grown, grid = run.posterior(1).with_rows(*row), layers["fit"]["mean"]["x"].to_numpy()[:, None]
        assert layers["fit"]["mean"]["y"].to_numpy() == pytest.approx(grown.mean(torch.tensor(grid)).numpy())
        assert np.isfinite(layers["fit"]["band_y"]).all(axis=None)


def test_a_logarithm_of_targets_below_0_is_refused_in_a_sentence(session: Session):
    session.change(replace(SPEC, target_transform="log"))

    taken = (session.take(0.2) for _ in range(150))
    failed = next(frame.failed for frame in taken if frame and frame.failed)

    assert "training targets are not above 0 (the smallest is" in failed
    assert "choose 'yeo-johnson'" in failed


def test_other_rows_keep_the_transform_of_the_target(session: Session, adopted: list[Spec]):
    session.change(replace(SPEC, target_transform="yeo-johnson"))
    session.change_rows("snelson-like")
    assert session.spec.target_transform == "yeo-johnson"
    session.change_rows("mol_esol", kernel="tanimoto")
    assert session.spec.target_transform == "yeo-johnson"
    assert adopted[-1] == session.spec


def test_numbers_given_by_hand_stay_with_their_rows(session: Session, adopted: list[Spec]):
    by_hand = replace(SPEC, kernel={"name": "se", "theta": [0.1, -1.4, -1.0]}, data={"name": "snelson-like", "n": 60})
    session.adopt(replace(by_hand, settings={"num_inducing": 5, "learn": False}))

    session.change_rows({"name": "snelson-like", "n": 90})
    assert session.spec.kernel == by_hand.kernel
    assert not session.spec.settings["learn"]

    session.change_rows("friedman1")
    assert session.spec == Spec("cholqr", data="friedman1", kernel="se", seed=SPEC.seed, budget=SPEC.budget)
    assert adopted[-1] == session.spec


def test_numbers_given_by_hand_stay_with_an_edited_file_and_not_with_another(session: Session):
    file, kernel = {"name": "upload", "file": "a.csv", "target": "y"}, {"name": "se", "theta": [0.1, -1.4, -1.0]}
    session.spec = replace(SPEC, data=file, kernel=kernel, settings={"num_inducing": 5, "learn": False})

    session.change_rows({**file, "edits": [[0.1, 0.0]]})
    assert session.spec.kernel == kernel

    session.change_rows({**file, "file": "b.csv"})
    assert session.spec.kernel == "se"
    assert session.spec.settings["learn"]


@pytest.mark.parametrize(
    ("kernel", "others"),
    [
        ({"name": "se", "values": {"noise": 0.5}, "fixed": ["noise"]}, "se"),
        ({"name": "spectrum", "theta": [0.0, -1.0]}, "se-ard"),  # there are no texts in the other rows
        ({"name": "se", "start": "one"}, {"name": "se", "start": "one"}),
    ],
)
def test_a_kernel_for_other_rows(session: Session, kernel: dict, others: object):
    session.spec = replace(SPEC, data="snelson-like", kernel=kernel)

    session.change_rows("friedman1")

    assert session.spec.kernel == others


def test_more_edits_than_a_link_can_carry_are_refused(session: Session):
    for row in range(MAX_EDITS):
        session.change_rows({**SPEC.data, "edits": [[0.1 * row, 0.0]] * (row + 1)})

    assert "the most that a link can carry" in session.edit_rows([0.5, 1.0])
    assert len(session.spec.data["edits"]) == MAX_EDITS


def test_a_study_pauses_a_run_that_plays_and_not_the_steps_that_a_link_has_asked_for(session: Session):
    session.player.run_to(6)
    session.begin_study("a sweep")
    follow(session, lambda: session.screen.step == 6)

    session.player.play()
    session.begin_study("a sweep")
    assert not session.player.playing


def test_a_page_computes_one_study_at_a_time(session: Session):
    ended = threading.Event()
    study = SimpleNamespace(thread=threading.Thread(target=ended.wait))
    study.thread.start()
    session.begin_study("a race")
    session.add_study("the race", study)

    with pytest.raises(SettingError, match="a sweep can start when the race has ended"):
        session.begin_study("a sweep")
    ended.set()
    study.thread.join()
    session.begin_study("a sweep")


def test_rows_that_cannot_be_are_reported_and_change_nothing(session: Session, messages: list[str]):
    session.change_rows({"name": object()})

    assert messages
    assert session.spec == SPEC


def test_play_where_nothing_could_be_opened_waits_for_rows_that_can(messages: list[str]):
    session = Session(SPEC, lambda _: {}["no rows"])
    session.open()
    failures: list[str] = []
    while not any(failures):
        frame = session.take(0.2)
        failures.append(frame.failed if frame is not None else "")
    session.player.play()
    time.sleep(0.1)  # so that the thread looks whether a step is due

    session.change_rows(SPEC.data)
    follow(session, lambda: session.run is not None)
    session.close()


def test_a_run_that_is_stopped_before_its_first_record_is_no_error(monkeypatch: pytest.MonkeyPatch):
    """It said that the run has no record."""
    advance, stopped = OpenRun.advance, [False]

    def stop_first(opened: OpenRun) -> bool:
        if not stopped[0]:
            stopped[0] = True
            opened.halt()
        return advance(opened)

    monkeypatch.setattr(OpenRun, "advance", stop_first)
    session, notices = Session(SPEC), []
    session.open()
    end = time.monotonic() + 30
    while not stopped[0] or session.player.working_since:
        assert time.monotonic() < end
        time.sleep(0.01)
    frame = session.take(0.2)
    assert frame is not None
    notices.append(frame.notice[1])
    assert len(session.run.trace) == 0

    session.player.step()
    follow(session, lambda: len(session.run.trace) == 1 and session.screen.spec == SPEC)
    session.close()
    assert notices == [""]


def test_seconds_pause_a_run_by_the_clock_and_play_continues_for_as_long_again():
    spec = Spec("cholqr", {"num_inducing": 5}, SPEC.data, kernel="se", budget={"steps": 500, "seconds": 3.0})
    opened = OpenRun()
    opened.open(OpenRequest(spec))
    assert opened.over_budget == ""
    opened.wall_seconds = 3.5
    assert "Paused after 3.5 s on the clock" in opened.over_budget
    opened.extend_budget()
    assert opened.over_budget == ""
    opened.wall_seconds = 6.6
    assert "on the clock" in opened.over_budget
    opened.close()


def test_a_first_step_that_is_longer_than_the_time_is_announced_before_it_begins(session: Session):
    assert session.run is None or session.run.spec.budget == {}
    spec = Spec("cholqr", {"num_inducing": 5}, SPEC.data, kernel="se", budget={"seconds": 1e-9})
    session.spec = spec
    session.open(play=True)
    messages: list[str] = []

    def announced() -> bool:
        frame = session.take(0.05)
        messages.append(frame.notice[1] if frame is not None else "")
        return any("one step takes about" in notice for notice in messages)

    end = time.monotonic() + 30
    while not announced():
        assert time.monotonic() < end
    assert session.run is not None
    assert session.run.done == 0
    assert not session.player.playing
