"""What the player's thread works on: the open run, its scores, and the layers of the pictures that can be seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import pandas as pd
import torch

from .. import data as data_sets
from .. import views as pictures
from ..problem import Channel, Cost, Dataset, Outcome
from ..runs import Record, Run, Spec
from .sentences import sentence

SCORING_SHARE = 0.25  # of the thread's time
ROWS = 200  # newest steps in the table
Layers = Mapping[str, pd.DataFrame]


class Job(NamedTuple):
    """What to open: a spec, and for data that no name brings back, how to read them for a split."""

    spec: Spec
    read: Callable[[Any], Any] | None = None


class Opened(NamedTuple):
    """A run as the page needs to know it: facts and pictures, nothing that holds memory."""

    spec: Spec
    title: str
    data: str
    rows: int
    test_rows: int
    inputs: int
    target: str
    channels: tuple[Channel, ...]
    views: tuple[Any, ...]
    cost: Cost
    seconds: float  # a step should take, by the formulas and the speed of this machine
    notes: tuple[str, ...]


class Facts(NamedTuple):
    """The numbers of one record that the status line shows."""

    at: int
    last: int
    phase: str
    seconds: float
    total: float  # seconds of the whole run
    entries: int
    objective: float
    scores: Mapping[str, float]
    memory: int
    budget: float
    eta: float
    outcome: Outcome | None


class Stage:
    """The open run; every method belongs to the player's thread, but `halt`."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.opened: Opened | None = None
        self._loaded: tuple[Any, Any] | None = None
        self._spent, self._scoring = 0.0, 0.0
        self._limit: int | None = None  # steps after which to pause
        self._failed: set[str] = set()  # views that raised, left out from then on

    def open(self, job: Job) -> None:
        """Load the data (kept from one opening to the next), open the run and take its start record."""
        split = self._split(job)
        run = job.spec.open(data=split)
        opened = _opened(job.spec, run)
        self.close()
        self.run, self.opened, self._failed = run, opened, set()
        self._spent, self._scoring, self._limit = 0.0, 0.0, job.spec.budget.get("steps")
        self.advance()

    def _split(self, job: Job) -> Any:
        read = job.read or (lambda split: data_sets.load(job.spec.data, split=split))
        wanted = (job.read or repr(job.spec.data), repr(job.spec.split))
        if self._loaded is None or self._loaded[0] != wanted:
            self._loaded = None
            self._loaded = (wanted, read(job.spec.split))
        return self._loaded[1]

    def advance(self) -> bool:
        """One step, and its scores while they take less than their share of the time; False when the run is over."""
        run = self._open_run()
        begin = time.perf_counter()
        record = run.advance()
        stepped = time.perf_counter()
        self._spent += stepped - begin
        if record is None:
            self._score_last(run)
            return False
        if self._scoring <= SCORING_SHARE * (self._spent + self._scoring):
            run.scores()
            self._scoring += time.perf_counter() - stepped
        return True

    @property
    def last(self) -> int:
        """Index of the newest record."""
        return len(self._open_run().trace) - 1

    @property
    def over_budget(self) -> str:
        """Why no further step should be taken; empty while there may be one."""
        if self._limit is None or self.last < self._limit:
            return ""
        return f"Paused after {self.last} steps, as asked by “Pause after”; press Play to go on as long again."

    def extend(self) -> None:
        """Let the run go on for as many steps again."""
        if self.opened is not None and self._limit is not None:
            self._limit = self.last + self.opened.spec.budget["steps"]

    def layers(self, at: int, wanted: Collection[str]) -> tuple[dict[str, Layers], str]:
        """Layers of these views at a record; a view that fails leaves a sentence and the others intact."""
        run, found, wrong = self._open_run(), {}, ""
        for view in self.opened.views if self.opened else ():
            if view.key not in wanted or view.key in self._failed:
                continue
            try:
                found[view.key] = view.data(run, at)
            except Exception as error:
                self._failed.add(view.key)
                wrong = sentence(error, f"drawing the picture “{view.title}”")
        return found, wrong

    def facts(self, at: int) -> Facts:
        """The status of record `at`, with the newest scores taken up to it."""
        run = self._open_run()
        record = run.trace[at]
        info = record.step.info
        progress = run.progress({} if self._limit is None else {"steps": self._limit})
        first = run.method.channels[0].name if run.method.channels else ""
        return Facts(
            at,
            len(run.trace) - 1,
            str(getattr(info, "phase", "")),
            record.seconds,
            run.trace[-1].seconds,
            record.cost.entries,
            float(getattr(info, first, float("nan"))),
            _scores(run, at),
            run.memory,
            progress.fraction,
            progress.eta,
            run.outcome,
        )

    def table(self, at: int) -> pd.DataFrame:
        """The newest steps up to record `at`, newest first: what moved, and every channel."""
        run = self._open_run()
        records = run.trace[max(0, at + 1 - ROWS) : at + 1]
        return pd.DataFrame([_row(run, record) for record in reversed(records)])

    def halt(self) -> None:
        """From any thread: ask the run to end before its next step."""
        run = self.run
        if run is not None:
            run.stop()

    def close(self) -> None:
        """Free the run and its pictures; the data stay for the next one."""
        run, self.run, self.opened = self.run, None, None
        if run is not None:
            run.close()

    def _score_last(self, run: Run) -> None:
        if run.outcome is not None and run.outcome.reason != "failed":
            run.scores()

    def _open_run(self) -> Run:
        if self.run is None:
            raise RuntimeError("no run is open")
        return self.run


def _opened(spec: Spec, run: Run) -> Opened:
    cost = run.method.cost(run.problem)
    train: Dataset = run.problem.train
    split = run.split
    return Opened(
        spec,
        run.method.title,
        split.name if split else "",
        len(train),
        len(split.test) if split else 0,
        train.d,
        train.target,
        tuple(run.method.channels),
        tuple(pictures.for_run(run)),
        cost,
        cost.flops / machine_speed(),
        split.notes if split else (),
    )


def _scores(run: Run, at: int) -> Mapping[str, float]:
    for record in reversed(run.trace[max(0, at - ROWS) : at + 1]):
        if record.scores:
            return record.scores
    return {}


def _row(run: Run, record: Record) -> dict[str, Any]:
    info = record.step.info
    row: dict[str, Any] = {"step": record.index, "phase": str(getattr(info, "phase", ""))}
    for name, label in (("removed", "row out"), ("proposed", "row in")):
        if hasattr(info, name):
            row[label] = getattr(info, name) if getattr(info, name) >= 0 else None
    if hasattr(info, "accepted"):
        row["accepted"] = {True: "yes", False: "no"}[bool(info.accepted)] if row["phase"] == "swap" else ""
    row |= {channel.label: getattr(info, channel.name, float("nan")) for channel in run.method.channels}
    return row | {"seconds": record.seconds, "kernel entries": record.cost.entries}


_speed: list[float] = []


def machine_speed() -> float:
    """Floating-point operations a second of a middling matrix product here; measured once, in about 20 ms."""
    if not _speed:
        a = torch.ones(384, 384, dtype=torch.float64)
        a @ a
        begin = time.perf_counter()
        for _ in range(4):
            a @ a
        _speed.append(4 * 2 * 384**3 / max(time.perf_counter() - begin, 1e-6))
    return _speed[0]
