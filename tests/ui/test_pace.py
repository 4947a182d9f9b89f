"""Steps and pictures of a playing run are evenly spaced."""

from __future__ import annotations

import time

import pytest

from gpexplorer import Spec
from gpexplorer.ui.playback.open_run import OpenRequest
from gpexplorer.ui.playback.player import Pace, Player

LATE = 0.0004  # seconds by which a thread wakes after the time it waited for


def played(pace: Pace, step: float, computing: float, seconds: float) -> tuple[list[float], list[float]]:
    """Begin times of the steps, and of the pictures, of a run that plays; both take `computing` seconds."""
    clock, steps, pictures = 100.0, [], []
    while clock < 100.0 + seconds:
        clock += pace.seconds_to_step(clock, step) + LATE
        steps.append(clock)
        pace.step(clock, step)
        due = pace.picture_due(clock)
        clock += computing
        if due:
            pictures.append(clock)
            pace.picture(clock, clock + computing)
            clock += computing
    return steps, pictures


def test_a_step_each_tenth_of_a_second_gives_as_many_pictures():
    steps, pictures = played(Pace(1 / 12), 0.1, 0.015, 10.0)

    assert len(steps) == pytest.approx(100, abs=1)
    assert len(pictures) == len(steps)


def test_fast_steps_give_no_more_pictures_than_asked_for():
    steps, pictures = played(Pace(1 / 12), 0.001, 0.002, 10.0)

    assert len(pictures) == pytest.approx(120, abs=10)
    assert len(steps) > 2000


def test_slow_pictures_leave_half_of_the_time_to_steps():
    steps, pictures = played(Pace(1 / 12), 0.001, 0.5, 20.0)

    assert len(pictures) == pytest.approx(len(steps) / 2, abs=1)


def test_steps_that_take_long_are_not_caught_up():
    pace = Pace(1 / 12)
    pace.step(100.0, 0.1)

    assert pace.seconds_to_step(103.0, 0.1) == 0
    pace.step(103.0, 0.1)
    assert pace.seconds_to_step(103.0, 0.1) == pytest.approx(0.1)


def test_the_first_pictures_of_a_short_run_wait_for_a_page_that_is_slow():
    player, shown = Player(), list[int]()
    player.open(OpenRequest(Spec("cholqr", {"num_inducing": 5, "max_epochs": 1}, {"name": "snelson-like", "n": 40})))
    while player.take(0.1) is None:
        pass
    player.play()
    end = time.monotonic() + 60.0
    while player.playing and time.monotonic() < end:
        time.sleep(0.4)  # the page draws its pictures for the first time; the whole run takes less
        frame = player.take()
        if frame is not None and frame.numbers is not None and frame.numbers.at not in shown:
            shown.append(frame.numbers.at)
    run = player.run
    assert run is not None
    assert len([at for at in shown if 0 < at < len(run.trace) - 1]) >= 2
    player.close()


def test_a_run_that_nobody_looks_at_goes_on():
    player = Player()
    player.open(
        OpenRequest(Spec("cholqr", {"num_inducing": 5, "max_epochs": 1}, {"name": "snelson-like", "n": 40})), play=True
    )
    end = time.monotonic() + 60.0
    while (player.run is None or player.run.outcome is None) and time.monotonic() < end:
        time.sleep(0.05)
    assert player.run is not None
    assert player.run.outcome is not None
    player.close()
