"""The player: one thread that opens runs, takes their steps, and leaves the newest frame for the page.

The page gives requests by plain methods and takes frames by `take`; of both, the newest replaces the ones before it.
The thread never touches a widget, and the page never waits for the thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from ...data.quoting import data_title
from ...runs import Run
from ..shared_limits import Shares
from ..text import sentence
from .background_worker import BackgroundWorker
from .open_run import Frame, OpenRequest, OpenRun

MOST_FRAMES_PER_SECOND = 12.0
FIRST_FRAMES = 3  # steps of a playing run that are each drawn, and wait until the page has taken the one before
PATIENCE = 1.5  # seconds to wait for that at most
YIELD_SECONDS = 0.001  # pause of the thread after each step, so that the page's thread gets its turn


class Pace:
    """Keeps steps and pictures of a playing run evenly spaced.

    Both are counted from the times at which they were due, not from those at which they were done: otherwise steps of
    a tenth of a second come slightly later each time, and every second one falls just before its picture is due.

    Parameters
    ----------
    picture_seconds : float
        The least time between the beginnings of two pictures.
    """

    def __init__(self, picture_seconds: float) -> None:
        self._picture_seconds = picture_seconds
        self._picture_due = self._step_begun = 0.0

    def seconds_to_step(self, now: float, seconds_per_step: float) -> float:
        """Seconds until the next step is due; 0 if it is."""
        return max(0.0, self._step_begun + seconds_per_step - now)

    def step(self, now: float, seconds_per_step: float) -> None:
        """A step begins at this time."""
        due = self._step_begun + seconds_per_step
        self._step_begun = due if now - due < seconds_per_step else now

    def picture_due(self, now: float) -> bool:
        """Whether a picture is due at this time."""
        return now >= self._picture_due

    def picture(self, begin: float, end: float) -> None:
        """A picture was computed between these times; pictures take half of the thread's time at most."""
        self._picture_due = max(begin + self._picture_seconds, end + (end - begin))


@dataclass
class Requests:
    """What the page has asked for and the thread has not done yet.

    Attributes
    ----------
    open : OpenRequest or None
        A run to open.
    playing : bool
        Whether to take steps until paused.
    steps : int
        Single steps to take.
    at : int or None
        Index of the record to show; None for the newest.
    moves : tuple of int
        Records to go forward (1) or back (-1), one after another, once all of the above is done.
    visible : frozenset of str
        Keys of the pictures on the screen.
    redraw : bool
        Whether to draw even though no step was taken.
    seconds_per_step : float
        The least time between two steps while playing.
    changes : tuple of (str, callable)
        What to do to the run itself one after another, such as the step that a click asks for, and of which kind it is.
    closed : bool
        Whether to end the thread.
    prepared : OpenRequest or None
        A run to open when a person first asks for a step.
    hyperparameters : bool
        Whether frames contain the hyperparameters of the record shown.
    """

    open: OpenRequest | None = None
    playing: bool = False
    steps: int = 0
    at: int | None = None
    moves: tuple[int, ...] = ()
    visible: frozenset[str] = frozenset()
    redraw: bool = False
    seconds_per_step: float = 0.0
    changes: tuple[tuple[str, Callable[[OpenRun], None]], ...] = ()
    closed: bool = False
    prepared: OpenRequest | None = None
    hyperparameters: bool = False


class Player(BackgroundWorker):
    """The thread that works on the run of one session.

    Parameters
    ----------
    shares : Shares, optional
        The cores and the memory that the sessions of a server share.

    Attributes
    ----------
    working_since : float
        `time.monotonic()` when the thread began what it does now; 0 while it waits.
    asked : int
        Number of requests so far; a frame says how many of them were carried out before it.
    """

    def __init__(self, shares: Shares | None = None) -> None:
        super().__init__("gpexplorer-player")
        shares = shares or Shares()
        self._pace, self._open_run = Pace(1.0 / MOST_FRAMES_PER_SECOND), OpenRun(shares)
        self._turns = shares.turns
        self._changed, self._requests = threading.Condition(), Requests()
        self._opening, self._notice, self._failed = 0, (0, ""), ""
        self._frame: Frame | None = None
        self._warned = self._is_changing = False
        self._last = self._played = 0
        self.asked = self._answered = 0
        self.working_since = 0.0
        self.start()

    def open(self, request: OpenRequest, play: bool = False) -> None:
        """Open this run in place of the one before, which stays open if that fails.

        Of several requests that arrive while the thread is busy, the last one is carried out. Changes of the run before
        that were not begun are given up.
        """
        self._request(open=request, playing=play, steps=0, at=None, moves=(), prepared=None, changes=())

    def prepare(self, request: OpenRequest, message: str) -> None:
        """Show this message, and open this run when a person first asks for a step."""
        self._request(prepared=request, playing=False, steps=0, at=None)
        self._notify(message)

    def play(self) -> None:
        """Take steps until paused, stopped, over, or the budget is spent; show the newest record."""
        self._request(playing=True, at=None, moves=(), steps=0, **self._take_prepared())

    def pause(self) -> None:
        """Stop taking steps after the step under way."""
        self._request(playing=False, steps=0, redraw=True)

    def step(self) -> None:
        """Show the record after the one shown; where there is none, take a step."""
        at = self._requests.at
        if self._requests.moves:
            self._move(1)
        elif at is not None and at < self._last:
            self.seek(at + 1)
        else:
            self._request(playing=False, steps=self._requests.steps + 1, at=None, **self._take_prepared())

    def run_to(self, at: int) -> None:
        """Take steps up to record `at` of the run that is being opened, and show it."""
        self._request(playing=False, steps=at, at=None, moves=())

    def back(self) -> None:
        """Show the record before the one shown, or before the one that was asked for and is not there yet."""
        at, requests = self._requests.at, self._requests
        if self._is_changing or requests.open or requests.changes or requests.steps or requests.moves:
            self._move(-1)
        else:
            self.seek((self._last if at is None else at) - 1)

    def seek(self, at: int) -> None:
        """Pause and show this record."""
        run = self.run
        last = self._last if run is None else max(self._last, len(run.trace) - 1)  # further while steps are being taken
        at = min(max(at, 0), last)
        self._request(playing=False, steps=0, at=None if at == last else at, moves=(), redraw=True)

    def stop(self) -> None:
        """End the run before its next step; Play continues it."""
        self._open_run.halt()
        self._request(playing=False, steps=1, at=None, moves=())

    def change(self, change: Callable[[OpenRun], None], kind: str = "") -> None:
        """Pause, apply this function to the open run after those that were asked for before, and show the result.

        It replaces the last of them if that is of the same `kind` and has not begun. Without a kind it replaces none.
        """
        with self._changed:
            waiting = self._requests.changes
            kept = waiting[:-1] if kind and waiting and waiting[-1][0] == kind else waiting
            self._request(changes=(*kept, (kind, change)), playing=False, steps=0, at=None, moves=(), redraw=True)

    def show(self, visible: Collection[str]) -> None:
        """Draw the pictures with these keys from now on."""
        self._request(visible=frozenset(visible), redraw=True)

    def show_hyperparameters(self, wanted: bool) -> None:
        """Send the hyperparameters of the record shown with every frame, or no longer."""
        self._request(hyperparameters=wanted, redraw=True)

    def redraw(self) -> None:
        """Compute the layers of the visible pictures again."""
        self._request(redraw=True)

    def speed(self, steps_per_second: float) -> None:
        """Set the greatest speed of playing."""
        self._request(seconds_per_step=1.0 / steps_per_second)

    @property
    def run(self) -> Run | None:
        """The open run, for reading: only the player's thread takes its steps."""
        return self._open_run.run

    @property
    def waits_for_play(self) -> bool:
        """Whether a run is opened when a person first asks for a step."""
        return self._requests.prepared is not None

    @property
    def playing(self) -> bool:
        """Whether steps are taken without being asked for; more recent than the same field of a frame."""
        with self._changed:
            return self._requests.playing

    def take(self, wait: float = 0.0) -> Frame | None:
        """Return the newest frame that has not been taken yet; None where there is none.

        Parameters
        ----------
        wait : float, default 0.0
            Seconds to wait at most for a frame with a picture.
        """
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._frame is not None and not self._frame.busy, timeout=wait)
            frame, self._frame = self._frame, None
            self._changed.notify_all()
        return frame

    def close(self) -> None:
        """End the thread after the step under way and free the run; returns at once."""
        self._open_run.halt()
        self._request(closed=True)

    def work(self) -> None:
        """Carry out requests until `close`; an exception becomes a message, and the thread goes on."""
        while True:
            with self._changed:
                self.working_since, self._is_changing = 0.0, False
                self._changed.wait_for(self._has_work, timeout=self._seconds_to_step())
                requests, answered = self._requests, self.asked
                self._requests = replace(requests, open=None, redraw=False, changes=(), steps=0, moves=())
                self._is_changing = bool(requests.open or requests.changes or requests.steps or requests.moves)
            if requests.closed:
                break
            self.working_since = time.monotonic()
            try:
                self._answered = answered
                self._carry_out(requests)
            except Exception as error:
                self._notify(sentence(error, "the run was being worked on"), pause=True)
        self._open_run.close()
        self._frame = None

    def _take_prepared(self) -> dict[str, Any]:
        """The change of `Requests` that opens the prepared run, if there is one."""
        with self._changed:
            prepared, self._requests.prepared = self._requests.prepared, None
        return {"open": prepared} if prepared is not None else {}

    def _move(self, by: int) -> None:
        """Go on or back by a record, after what was asked for before."""
        with self._changed:
            self._request(playing=False, moves=(*self._requests.moves, by), redraw=True)

    def _request(self, **changes: Any) -> None:
        with self._changed:
            for name, value in changes.items():
                setattr(self._requests, name, value)
            self.asked += 1
            self._changed.notify_all()

    def _carry_out(self, requests: Requests) -> None:
        """One round: open a run, change it, take steps that are due, and draw if it is time."""
        if requests.open is not None and not self._open(requests.open):
            return
        if self._open_run.run is None:
            return
        for _, change in requests.changes:
            try:
                change(self._open_run)
            except Exception as error:  # the run is drawn as it is, so that nothing shows what was refused
                self._notify(sentence(error, "the run was being changed"), pause=True)
            self._last = self._open_run.last
        if requests.playing and self._played <= FIRST_FRAMES:
            self._wait_for_page()
        begin = time.monotonic()
        with self._turns.turn():
            moved = self._take_steps(requests)
            for by in requests.moves:
                moved |= self._go(by)
            is_first = self._played < FIRST_FRAMES
            is_time = is_first or self._pace.picture_due(begin) or not self._requests.playing
            drawn = requests.redraw or requests.open is not None or (moved and is_time)
            if drawn:
                self._draw()
        if moved:
            self._open_run.wall_seconds += time.monotonic() - begin
        if moved and not drawn:
            time.sleep(YIELD_SECONDS)

    def _wait_for_page(self) -> None:
        """Wait until the newest frame is taken, or something else is asked for: a short run would be over unseen."""
        with self._changed:
            self._changed.wait_for(lambda: self._frame is None or self.asked != self._answered, timeout=PATIENCE)

    def _open(self, request: OpenRequest) -> bool:
        if request.row and self._open_run.run is not None:
            # Show the record on the screen updated by a new row, before the run is repeated with it
            run, at = self._open_run, min(request.at, self._open_run.last)
            layers = run.layers_with_row(at, request.row, self._requests.visible)
            if layers:
                self._publish(numbers=run.numbers(at), layers=layers, failures=dict(run.failures), table=run.table(at))
        self._publish(busy=f"Opening {data_title(request.spec.data)} …")
        try:
            self._open_run.open(request)
        except Exception as error:
            self._failed = sentence(error, "the run was being opened")
            self._notify(self._failed, pause=True)
            return False
        if self._failed and self._notice[1] == self._failed:
            self._notice = (self._notice[0], "")  # it is of a run that nobody waits for any more
        self._failed = ""
        self._opening, self._last, self._warned, self._played = self._opening + 1, self._open_run.last, False, 0
        with self._changed:
            if not self._requests.visible and self._open_run.summary:
                self._requests.visible = frozenset(view.key for view in self._open_run.summary.views[:1])
        return True

    def _take_steps(self, requests: Requests) -> bool:
        """Take the steps that are due; returns whether any were."""
        clock = time.monotonic()
        is_due = requests.playing and not self._pace.seconds_to_step(clock, requests.seconds_per_step)
        if not (is_due or requests.steps):
            return False
        if requests.steps or not self._pause_at_budget():
            self._pace.step(clock, requests.seconds_per_step)
            for _ in range(max(requests.steps, 1)):
                if not self._open_run.advance():
                    if self._open_run.run and self._open_run.run.outcome:
                        self._notify(self._open_run.run.outcome.message, pause=True)
                    with self._changed:
                        self._requests.steps = 0  # such as that of `stop`, if it came while a step was given up
                    break
        self._last = self._open_run.last
        return True

    def _go(self, by: int) -> bool:
        """Go on or back by a record; returns whether a step was taken for it."""
        with self._changed:
            last, at = self._open_run.last, self._requests.at
            at = max((last if at is None else min(at, last)) + by, 0)
            self._requests.at = at if at < last else None
        return at > last and self._take_steps(Requests(steps=1))

    def _pause_at_budget(self) -> bool:
        """Pause with a message where the budget is spent; Play then continues for as many steps again."""
        warning = self._open_run.first_step_too_long
        if warning and not self._warned:
            self._warned = True
            self._notify(warning, pause=True)
            return True
        reason = self._open_run.over_budget
        if reason:
            self._open_run.extend_budget()
            self._notify(reason, pause=True)
        return bool(reason)

    def _draw(self) -> None:
        """Publish a new frame. Pictures take half of the thread's time at most."""
        with self._changed:
            at, visible, paused = self._requests.at, self._requests.visible, not self._requests.playing
            with_hyperparameters = self._requests.hyperparameters
        begin, run = time.monotonic(), self._open_run
        if run.last < 0:  # stopped before its first record, which Play takes
            return self._publish(layers={})
        at = run.last if at is None else min(at, run.last)
        if paused:
            run.score(at)
        layers = run.layers(at, visible)
        table = run.hyperparameters(at, with_gradient=paused) if with_hyperparameters else None
        shown: dict[str, Any] = {"numbers": run.numbers(at), "table": run.table(at), "hyperparameters": table}
        self._publish(layers=layers, failures=dict(run.failures), **shown)
        self._played += not paused and at > 0
        if run.unfinished:
            self._request(redraw=True)
        self._pace.picture(begin, time.monotonic())

    def _notify(self, message: str, pause: bool = False) -> None:
        self._notice = (self._notice[0] + 1, message)
        if pause:
            with self._changed:
                self._requests.playing = False
        self._publish()

    def _publish(self, busy: str = "", **parts: Any) -> None:
        """Leave a frame for the page; without `parts`, with the pictures of the frame that was not taken yet."""
        with self._changed:
            untaken = self._frame
            if not parts and untaken is not None and untaken.opening == self._opening:
                carried_over = ("numbers", "layers", "failures", "table")
                parts = {name: getattr(untaken, name) for name in carried_over}
            self._frame = Frame(
                opening=self._opening,
                run=self._open_run.summary,
                playing=self._requests.playing,
                busy=busy,
                notice=self._notice,
                failed=self._failed,
                answered=self._answered,
                **parts,
            )
            self._changed.notify_all()

    def _has_work(self) -> bool:
        requests = self._requests
        is_asked = requests.closed or requests.open or requests.steps or requests.redraw
        return bool(is_asked) or self._seconds_to_step() == 0.0

    def _seconds_to_step(self) -> float | None:
        """Seconds until the next step is due; None while paused."""
        if not self._requests.playing or self._open_run.run is None:
            return None
        return self._pace.seconds_to_step(time.monotonic(), self._requests.seconds_per_step)
