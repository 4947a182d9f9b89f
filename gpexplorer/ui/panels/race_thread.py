"""The thread of a race: turns while it plays, and the newest board for the page to take."""

from __future__ import annotations

import threading
from typing import NamedTuple

import pandas as pd

from ...runs.studies.race import METRICS, Race
from ..playback.background_worker import BackgroundWorker
from ..text.error_sentences import sentence

MOMENTS = (1, 3, 10, 30)


class Standing(NamedTuple):
    """The race as the page shows it."""

    board: pd.DataFrame
    scores: dict[str, pd.DataFrame]  # metric -> scoreboard
    reach: pd.DataFrame
    winners: dict[str, str]
    sentences: dict[str, str]
    seconds: dict[str, float]
    over: bool


class Racer(BackgroundWorker):
    """One race, stepped by a thread that ends with it."""

    def __init__(self, race: Race, seconds: float) -> None:
        super().__init__("gpexplorer-race")
        self.race, self._seconds = race, seconds
        self._playing, self._closed = threading.Event(), threading.Event()
        self._standing: Standing | None = None
        self.start()

    @property
    def playing(self) -> bool:
        """Whether turns are being taken."""
        return self._playing.is_set() and not self._closed.is_set()

    def play(self) -> None:
        """Take turns until paused, or over."""
        self._playing.set()

    def pause(self) -> None:
        """Stop after the turn under way."""
        self._playing.clear()

    def stop(self, name: str) -> None:
        """Take one lane out after the step under way; the others go on, and get its turns."""
        self.race.stop(name, "Stopped by hand.")
        run = self.race.lanes[name].run
        if run is not None:
            run.stop()

    def take(self) -> Standing | None:
        """The newest standing, if there is one since the last call."""
        standing, self._standing = self._standing, None
        return standing

    def close(self) -> None:
        """End the thread after the step under way, and free every lane."""
        self._closed.set()
        self._playing.set()
        for lane in self.race.lanes.values():
            if lane.run is not None:
                lane.run.stop()

    def work(self) -> None:
        """Take turns while playing, until the race is over or `close`."""
        while self._playing.wait() and not self._closed.is_set():
            try:
                lane = self.race.advance()
            except Exception as error:  # of a lane's own making: said, and the others go on
                lane = min((held for held in self.race.lanes.values() if not held.over), key=lambda held: held.granted)
                self.race.stop(lane.name, sentence(error, "the lane was running"))
            if lane is not None and lane.seconds >= self._seconds:
                self.race.stop(lane.name, f"Its {self._seconds:g} seconds are used.")
            self._standing = standing(self.race)
            if lane is None:
                break
        self.race.close()
        self._closed.set()


def standing(race: Race) -> Standing:
    """Everything the page shows of a race now."""
    lanes = race.lanes.values()
    return Standing(
        race.board(),
        {metric: race.scoreboard(metric, MOMENTS) for metric in METRICS},
        race.time_to_reach("smse"),
        race.winners(),
        {lane.name: lane.sentence for lane in lanes},
        {lane.name: lane.seconds for lane in lanes},
        race.over,
    )
