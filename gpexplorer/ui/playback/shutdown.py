"""The end of the process: a thread inside torch when the interpreter goes would end it by abort."""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import Protocol


class Closing(Protocol):
    """What has a thread that must be over first."""

    thread: threading.Thread

    def close(self) -> None:
        """Ask the thread to end; returns at once."""


alive: weakref.WeakSet[Closing] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    held = list(alive)
    for one in held:
        one.close()
    for one in held:
        one.thread.join(timeout=5)
