"""The player: one thread that opens runs, steps them, and leaves the newest frame for the page to take.

Orders go in by plain methods, frames come out by `take`; the newest of each wins. The thread never touches a widget,
and the page never waits for the thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from ...runs import Run
from ..text.error_sentences import sentence
from .background_worker import BackgroundWorker
from .messages import Frame, Orders
from .open_run import Job, Stage

BREATH = 0.001  # seconds the thread stands back after each step, so that the page's thread gets its turn


class Player(BackgroundWorker):
    """Transport of one session. `rate` is the most frames a second."""

    def __init__(self, rate: float = 11.0, stage: Stage | None = None) -> None:
        super().__init__("gpexplorer-player")
        self._pause_between, self._stage = 1.0 / rate, stage or Stage()
        self._changed, self._orders = threading.Condition(), Orders()
        self._opening, self._notice = 0, (0, "")
        self._frame: Frame | None = None
        self._drawn, self._stepped = 0.0, 0.0
        self._last_at = 0
        self.working_since = 0.0  # when the thread began what it does now; 0 while it waits
        self.start()

    def open(self, job: Job, play: bool = False) -> None:
        """Open this run in place of the one before, which stays if that fails; of several asked for the last wins."""
        self._order(job=job, playing=play, steps=0, at=None)

    def play(self) -> None:
        """Step until paused, stopped, over, or the budget is spent; the newest record is shown."""
        self._order(playing=True, at=None, steps=0)

    def pause(self) -> None:
        """Stop stepping after the step under way."""
        self._order(playing=False, steps=0, redraw=True)

    def step(self) -> None:
        """Show the record after this one; where there is none, take a step."""
        with self._changed:
            at = self._orders.at
            kept = at is not None and at < self._last_at
        if kept and at is not None:
            self.seek(at + 1)
        else:
            self._order(playing=False, steps=self._orders.steps + 1, at=None)

    def run_to(self, at: int) -> None:
        """Take steps up to record `at` of the run being opened, and show it."""
        self._order(playing=False, steps=at, at=None)

    @property
    def run(self) -> Run | None:
        """The open run, to be read: only this player's thread takes its steps."""
        return self._stage.run

    def back(self) -> None:
        """Show the record before this one."""
        at = self._orders.at
        self.seek((self._last_at if at is None else at) - 1)

    def seek(self, at: int) -> None:
        """Pause and show this kept record."""
        at = min(max(at, 0), self._last_at)
        self._order(playing=False, steps=0, at=None if at == self._last_at else at, redraw=True)

    def stop(self) -> None:
        """End the run before its next step; Play takes it up again."""
        self._stage.halt()
        self._order(playing=False, steps=1, at=None)

    def change(self, change: Callable[[Stage], None]) -> None:
        """Pause, do this to the open run, and show what came of it."""
        self._order(change=change, playing=False, steps=0, at=None, redraw=True)

    def show(self, visible: Collection[str]) -> None:
        """Draw these views from now on."""
        self._order(visible=frozenset(visible), redraw=True)

    def redraw(self) -> None:
        """Compute the visible layers again."""
        self._order(redraw=True)

    def speed(self, steps_a_second: float) -> None:
        """How fast to play at most."""
        self._order(every=1.0 / steps_a_second)

    @property
    def playing(self) -> bool:
        """Whether it steps by itself now; newer than what a frame on its way says."""
        with self._changed:
            return self._orders.playing

    def take(self, wait: float = 0.0) -> Frame | None:
        """The newest frame if there is one since the last call; a drawn one within `wait` seconds if it comes."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._frame is not None and not self._frame.busy, timeout=wait)
            frame, self._frame = self._frame, None
        return frame

    def close(self) -> None:
        """End the thread after the step under way and free the run; returns at once."""
        self._stage.halt()
        self._order(closed=True)

    def _order(self, **changes: Any) -> None:
        with self._changed:
            for name, value in changes.items():
                setattr(self._orders, name, value)
            self._changed.notify_all()

    def work(self) -> None:
        """Do what was requested, until `close`."""
        while True:
            with self._changed:
                self.working_since = 0.0
                self._changed.wait_for(self._wanted, timeout=self._wait())
                orders = Orders(**vars(self._orders))
                self._orders.job, self._orders.redraw, self._orders.change = None, False, None
                self._orders.steps = 0
            if orders.closed:
                break
            self.working_since = time.monotonic()
            try:
                self._obey(orders)
            except Exception as error:
                self._say(sentence(error, "the run was being worked on"), stop=True)
        self._stage.close()
        self._frame = None

    def _obey(self, orders: Orders) -> None:
        """One round: open, step if it is time, draw if it is time."""
        if orders.job is not None and not self._open(orders.job):
            return
        if self._stage.run is None:
            return
        if orders.change is not None:
            orders.change(self._stage)
            self._last_at = self._stage.last
        moved = self._move(orders)
        asked = orders.redraw or orders.job is not None
        late = time.monotonic() - self._drawn >= self._pause_between or not self._orders.playing
        if asked or (moved and late):
            self._draw()
        elif moved:
            time.sleep(BREATH)

    def _open(self, job: Job) -> bool:
        self._publish(busy=f"Opening {_name(job)} …")
        try:
            self._stage.open(job)
        except Exception as error:
            self._say(sentence(error, "the run was being opened"), stop=True)
            return False
        self._opening, self._last_at = self._opening + 1, 0
        with self._changed:
            if not self._orders.visible and self._stage.opened:
                self._orders.visible = frozenset(view.key for view in self._stage.opened.views[:1])
        return True

    def _move(self, orders: Orders) -> bool:
        """Take the steps that are due."""
        due = orders.playing and time.monotonic() - self._stepped >= orders.every
        if not (due or orders.steps):
            return False
        if orders.steps or not self._spent():
            self._stepped = time.monotonic()
            for _ in range(max(orders.steps, 1)):
                if not self._stage.advance():
                    self._over()
                    break
        self._last_at = self._stage.last
        return True

    def _spent(self) -> bool:
        """Pause at the end of the budget, with a sentence, and let Play go on as long again."""
        reason = self._stage.over_budget
        if reason:
            self._stage.extend()
            self._say(reason, stop=True)
        return bool(reason)

    def _over(self) -> None:
        outcome = self._stage.run.outcome if self._stage.run else None
        if outcome is not None:
            self._say(outcome.message, stop=True)

    def _draw(self) -> None:
        """Leave a new frame; pictures may take half of the thread's time at most."""
        with self._changed:
            at, visible, resting = self._orders.at, self._orders.visible, not self._orders.playing
        begin = time.monotonic()
        last = self._stage.last
        at = last if at is None else min(at, last)
        if resting:
            self._stage.score(at)
        layers, wrong = self._stage.layers(at, visible)
        if wrong:
            self._say(wrong)
        self._publish(facts=self._stage.facts(at), layers=layers, table=self._stage.table(at))
        if self._stage.unfinished(at, visible):
            self._order(redraw=True)
        took = time.monotonic() - begin
        self._drawn = time.monotonic() + max(0.0, took - self._pause_between)

    def _say(self, message: str, stop: bool = False) -> None:
        self._notice = (self._notice[0] + 1, message)
        if stop:
            with self._changed:
                self._orders.playing = False
        self._publish()

    def _publish(self, busy: str = "", **parts: Any) -> None:
        with self._changed:
            before = self._frame
            if not parts and before is not None and before.opening == self._opening:
                parts = {"facts": before.facts, "layers": before.layers, "table": before.table}
            head = (self._opening, self._stage.opened, self._orders.playing, busy, self._notice)
            self._frame = Frame(*head, **parts)
            self._changed.notify_all()

    def _wanted(self) -> bool:
        orders = self._orders
        return bool(orders.closed or orders.job or orders.steps or orders.redraw) or (
            orders.playing and self._wait() <= 0 and self._stage.run is not None
        )

    def _wait(self) -> float | None:
        """Seconds until the next step is due; None while paused."""
        if not self._orders.playing or self._stage.run is None:
            return None
        return max(0.0, self._stepped + self._orders.every - time.monotonic())


def _name(job: Job) -> str:
    held = job.spec.data
    return str(held.get("name", "the data")) if isinstance(held, dict) else held
