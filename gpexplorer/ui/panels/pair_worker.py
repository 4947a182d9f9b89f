"""The thread that takes the steps of two runs, and then draws both at the same place of one bar."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...errors import GPExplorerError
from ...runs import Run, Spec
from ...runs.studies.comparison import Finished, aligned, what_differs
from ...views.saved_page.page_file import place_name
from ...views.saved_page.recorded_figures import facts
from ..playback.background_worker import BackgroundWorker
from ..playback.open_run import EarlierRuns, Layers, OpenRequest, OpenRun, RunSummary
from ..shared_limits import Shares
from ..text import sentence

MOST_SECONDS = 60.0  # on the clock, for the steps of one of the two runs
PAIR = 2


class Side(NamedTuple):
    """One of two runs that are to be shown beside each other.

    Attributes
    ----------
    name : str
        The heading above it.
    request : OpenRequest
        What to open.
    steps : int
        Up to which record.
    """

    name: str
    request: OpenRequest
    steps: int


class PairFrame(NamedTuple):
    """Both runs at one place.

    Attributes
    ----------
    place : tuple of int and str
        Its number, and what it is called.
    records : tuple of int
        Index of the record of each run.
    facts : tuple of dict of str to str
        Numbers of each run there, as text.
    layers : tuple of mapping of str to Layers
        For each run, key of the picture -> its layers.
    """

    place: tuple[int, str]
    records: tuple[int, ...]
    facts: tuple[dict[str, str], ...]
    layers: tuple[Mapping[str, Layers], ...]


class PairWorker(BackgroundWorker):
    """Two runs in step.

    Parameters
    ----------
    sides : sequence of Side
        What to open.
    shares : Shares
        The memory and the cores that the sessions of a server share.

    Attributes
    ----------
    message : str
        How far it is, or what went wrong.
    summaries : list of RunSummary
        What the page needs to know of each run, once it is open.
    differs : list of str
        For each run, the settings in which it differs from the other.
    is_ready : bool
        Whether both runs have taken their steps.
    """

    def __init__(self, sides: Sequence[Side], shares: Shares) -> None:
        super().__init__("gpexplorer-pair")
        self._sides, self._shares = tuple(sides), shares
        self._open_runs = [OpenRun(shares) for _ in sides]
        self._changed, self._closed = threading.Condition(), False
        self._request: tuple[int, str, tuple[str, ...]] | None = None
        self._frame: PairFrame | None = None
        self._places: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.message, self.is_ready = "", False
        self.summaries: list[RunSummary] = []
        self.differs: list[str] = ["", ""]
        self.start()

    def show(self, place: int, by: str, keys: Sequence[str]) -> None:
        """Draw these pictures of both runs at a place of the bar; the newest request replaces the ones before it."""
        with self._changed:
            self._request = (place, by, tuple(keys))
            self._changed.notify_all()

    def take(self) -> PairFrame | None:
        """Return the newest frame that was not taken yet."""
        with self._changed:
            frame, self._frame = self._frame, None
        return frame

    def places(self, by: str) -> int:
        """Return the number of places of the bar."""
        return len(self._places[by][0])

    def runs(self) -> dict[str, Run]:
        """Return copies of both runs by their names, for another thread."""
        return {
            side.name: open_run.run.fork()
            for side, open_run in zip(self._sides, self._open_runs, strict=True)
            if open_run.run
        }

    def close(self) -> None:
        """End the thread and free both runs."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for open_run in self._open_runs:
            open_run.halt()

    def work(self) -> None:
        """Take the steps of both runs, then draw what is asked for until `close`."""
        try:
            self._prepare()
            while self._draw_next():
                pass
        except GPExplorerError as error:
            self.message = str(error)
        except Exception as error:
            self.message = sentence(error, "two runs were being compared")
        for open_run in self._open_runs:
            open_run.close()

    def _prepare(self) -> None:
        for side, open_run in zip(self._sides, self._open_runs, strict=True):
            self.message = f"Opening {side.name} …"
            open_run.open(side.request)
            assert open_run.summary is not None
            self.summaries.append(open_run.summary)
            self._take_steps(side, open_run)
            if self._closed:
                return
        runs = self.runs()
        for summary, other in zip(self.summaries, reversed(list(runs.values())), strict=True):
            earlier = EarlierRuns()
            earlier.add(other)
            earlier.show(summary.views)
        finished = [Finished.of(run) for run in runs.values()]
        self.differs = _differences([run.spec for run in finished])
        self._places = {by: aligned([run.steps for run in finished], by) for by in ("step", "seconds")}
        self.message, self.is_ready = "", True

    def _take_steps(self, side: Side, open_run: OpenRun) -> None:
        begin = time.monotonic()
        while open_run.last < side.steps and not self._closed:
            with self._shares.turns.turn():
                if not open_run.advance():
                    break
            if time.monotonic() - begin > MOST_SECONDS:
                break
            self.message = f"{side.name}: step {open_run.last} of {side.steps} …"

    def _draw_next(self) -> bool:
        """Wait for a request and draw it; False once the worker is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._request is not None)
            request, self._request = self._request, None
        if self._closed or request is None:
            return False
        number, by, keys = request
        places, rows = self._places[by]
        number = min(max(number, 0), len(places) - 1)
        records = tuple(int(row) for row in rows[number])
        runs_and_records = list(zip(self._open_runs, records, strict=True))
        with self._shares.turns.turn():
            layers = tuple(open_run.layers(at, keys) for open_run, at in runs_and_records)
        numbers = tuple(facts(open_run.run, [at])[0] for open_run, at in runs_and_records if open_run.run is not None)
        with self._changed:
            self._frame = PairFrame((number, place_name(float(places[number]), by)), records, numbers, layers)
        return True


def _differences(specs: Sequence[Spec]) -> list[str]:
    """In which fields and settings each of two runs differs from the other; of two methods, all settings given."""
    if specs[0].method == specs[1].method:
        return list(what_differs({str(number): spec for number, spec in enumerate(specs)}).values())
    return [", ".join([spec.method, *(f"{name}={value}" for name, value in spec.settings.items())]) for spec in specs]
