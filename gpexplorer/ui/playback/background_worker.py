"""Threads of a page: each ends with its session, and is waited for when the process exits.

A thread that is still inside torch when the interpreter exits would abort the process.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from abc import ABC, abstractmethod

JOIN_TIMEOUT = 5  # seconds to wait for each thread when the process exits


class BackgroundWorker(ABC):
    """Work that is done by a thread of its own.

    A subclass calls `start` on the last line of its constructor. Only `work` runs in the thread; all other methods are
    called by the page and return at once.

    Parameters
    ----------
    name : str
        Name of the thread, to recognise it in a debugger.

    Attributes
    ----------
    thread : Thread
        The thread. It is a daemon thread, so it never keeps the process alive.
    closed : Event
        Whether `close` was called.
    """

    def __init__(self, name: str) -> None:
        self.thread, self.closed = threading.Thread(target=self.work, name=name, daemon=True), threading.Event()

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()
        _workers.add(self)

    @abstractmethod
    def work(self) -> None:
        """Do the work until it is finished or `close` was called; runs in the thread."""

    def close(self) -> None:
        """Ask the thread to end after the step that it is computing; returns at once."""
        self.closed.set()


_workers: weakref.WeakSet[BackgroundWorker] = weakref.WeakSet()


def workers() -> list[BackgroundWorker]:
    """Return all workers of this process that something still refers to."""
    return list(_workers)


@atexit.register
def _close_all() -> None:
    running = list(_workers)
    for worker in running:
        worker.close()
    for worker in running:
        worker.thread.join(timeout=JOIN_TIMEOUT)
