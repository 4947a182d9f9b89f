"""The thread of a sweep: one run after another to the end of its budget, each left for the page to take."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from typing import Any

from ...runs import Run, Spec
from ...runs.studies.sweep import Swept, sweep
from ..playback.background_worker import BackgroundWorker
from ..text.error_sentences import sentence


class Sweeper(BackgroundWorker):
    """One sweep. `close` ends it after the step under way."""

    def __init__(self, specs: Mapping[str, Spec], read: Callable[[Any], Any] | None) -> None:
        """`read` gives the rows of a split where no name in the specs brings them."""
        super().__init__("gpexplorer-sweep")
        self.specs, self.over, self._closed = dict(specs), False, False
        self._read, self._run = read, None
        self._done: queue.SimpleQueue[Swept] = queue.SimpleQueue()
        self.start()

    def take(self) -> Swept | None:
        """The next run that has ended, if there is one."""
        try:
            return self._done.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        """Ask the run under way to end; returns at once."""
        self._closed, run = True, self._run
        if run is not None:
            run.stop()

    def _opened(self, run: Run) -> None:
        self._run = run
        if self._closed:
            run.stop()

    def work(self) -> None:
        """Run one spec after another to the end of its budget, or until `close`."""
        for name, spec in self.specs.items():
            if self._closed:
                break
            try:
                rows = None if self._read is None else self._read(spec.split)
                for swept in sweep({name: spec}, data=rows, opened=self._opened):
                    self._done.put(swept)
            except Exception as error:
                self._done.put(Swept(name, None, sentence(error, "a run of the sweep was under way")))
            self._run = None
        self.over = True
