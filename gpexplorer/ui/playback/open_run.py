"""What the player's thread works on: the open run, its scores, and the layers of the pictures that can be seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import pandas as pd
import torch

from ... import data as data_sets
from ... import views as pictures
from ...errors import GPExplorerError
from ...methods.inducing.dragged import dragged, movable
from ...problem import Channel, Cost, Dataset, Step
from ...runs import Run, Spec
from ...runs.studies import machine_speed
from ...runs.units import inputs
from ..text.error_sentences import sentence
from .readings import Facts, facts, newest

MOST_ROWS = 20_000  # of a run whose points may be dragged: the bound is computed at every move
SCORING_SHARE = 0.25  # of the thread's time
PATIENCE = 0.25  # seconds for a picture that can be drawn in parts: orders are looked at between them
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
    moves: bool = False  # whether its inducing points can be dragged
    key: str = ""  # the run's name
    edits: bool = False  # whether rows can be added and taken out, and a link bring that back


class Stage:
    """The open run; every method belongs to the player's thread, but `halt`."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.opened: Opened | None = None
        self._loaded: tuple[Any, Any] | None = None
        self._spent, self._scoring = 0.0, 0.0
        self._limit: int | None = None  # steps after which to pause
        self._failed: set[str] = set()  # views that raised, left out from then on
        self._changes: list[int] = []  # records at which a person stepped in

    def open(self, job: Job) -> None:
        """Load the data (kept from one opening to the next), open the run and take its start record."""
        split = self._split(job)
        run = job.spec.open(data=split)
        if job.read is None:
            run.spec = job.spec  # which names the data, where they need not be told by their content
        opened = _opened(job.spec, run)
        self.close()
        self.run, self.opened, self._failed, self._changes = run, opened, set(), []
        self._spent, self._scoring, self._limit = 0.0, 0.0, job.spec.budget.get("steps")
        self.advance()
        moves = movable(run.method, run.trace[0].step.state) if len(run.trace) else False
        self.opened = opened._replace(moves=moves and opened.rows <= MOST_ROWS)

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

    def score(self, at: int) -> None:
        """Scores of the record that is being looked at, where it has none yet."""
        run = self._open_run()
        if run.outcome is None or run.outcome.reason != "failed":
            run.scores(at)

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

    def unfinished(self, at: int, wanted: Collection[str]) -> bool:
        """Whether one of these views was drawn in part, and has more to show."""
        views, run = self.opened.views if self.opened else (), self._open_run()
        return any(view.unfinished(run, at) for view in views if view.key in wanted and view.key not in self._failed)

    def facts(self, at: int) -> Facts:
        """The status of record `at`, with the newest scores taken up to it."""
        return facts(self._open_run(), at, self._limit, bool(self._changes))

    def table(self, at: int) -> pd.DataFrame:
        """The newest steps up to record `at`, newest first: what moved, and every channel."""
        return newest(self._open_run(), at)

    def click(self, key: str, at: int, x: float, y: float) -> None:
        """Take the step that a click on this view at record `at` asks for, in place of what came after it."""
        run = self._open_run()
        at = min(at, self.last)
        view = next((view for view in self.opened.views if view.key == key), None) if self.opened else None
        step = view.clicked(run, at, x, y) if view is not None else None
        if step is not None:
            self._go_on(at, step)

    def drag(self, at: int, slot: int, to: tuple[float, ...]) -> None:
        """From record `at`, put inducing point `slot` there (units of the file); where it cannot be, it stays."""
        run = self._open_run()
        at = min(at, self.last)
        place = inputs(torch.tensor([to], dtype=torch.float64), run.problem.train)[0]
        try:
            step = dragged(run.method, run.problem, run.trace[at].step.state, slot, place)
        except GPExplorerError:
            return
        self._go_on(at, step)

    def _go_on(self, at: int, step: Step) -> None:
        run = self._open_run()
        self._changes = [*(change for change in self._changes if change < at), at]
        self.run = run.fork(at, step)
        run.close()

    def undo(self) -> None:
        """Go back to before the last click; what came after it is dropped."""
        if self._changes:
            run = self._open_run()
            self.run = run.fork(self._changes.pop())
            run.close()

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
    views = tuple(pictures.for_run(run))
    for view in views:
        view.patience = PATIENCE
    return Opened(
        spec,
        run.method.title,
        split.name if split else "",
        len(train),
        len(split.test) if split else 0,
        train.d,
        train.target,
        tuple(run.method.channels),
        views,
        cost,
        machine_speed.machine().seconds(cost),
        split.notes if split else (),
        key=run.spec.key() if run.spec is not None else "",
        edits=data_sets.is_named(spec.data),
    )
