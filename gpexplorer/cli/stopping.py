"""SIGINT and SIGTERM while a command computes: the step in progress ends, all is kept, and the exit code says so.

Three commands share this: `run`, `sweep` and `recommend`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import typer

SIGNALS = (signal.SIGINT, signal.SIGTERM)
BASE = 128  # the exit code of a command that signal n has ended is 128 + n
NOTICE = b"\nStopping after the step in progress. A second signal ends the command at once.\n"


class Stopping:
    """What a signal does at present, and which one has come.

    Attributes
    ----------
    signal : int
        The number of the signal that has come; 0 for none.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._stop: Callable[[], object] | None = None

    def __bool__(self) -> bool:
        return bool(self.signal)

    def stop_by(self, stop: Callable[[], object]) -> None:
        """Call `stop` when a signal comes; it asks for the end and returns. Before, a signal ends the command."""
        self._stop = stop
        if self.signal:
            stop()

    def exit(self) -> None:
        """End the command with the exit code of the signal, if one has come."""
        if self.signal:
            raise typer.Exit(BASE + self.signal)

    def receive(self, number: int, _: FrameType | None) -> None:
        """Handle a signal. A second one has the effect that it has in other programs: the process ends at once."""
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        self.signal = number
        if self._stop is None:
            raise SystemExit(BASE + number)  # nothing has been computed yet
        os.write(2, NOTICE)
        self._stop()


@contextmanager
def stopping() -> Iterator[Stopping]:
    """Handle SIGINT and SIGTERM inside a `with` block, in the main thread; elsewhere signals do not arrive."""
    state = Stopping()
    if threading.current_thread() is not threading.main_thread():
        yield state
        return
    previous = {number: signal.signal(number, state.receive) for number in SIGNALS}
    try:
        yield state
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
