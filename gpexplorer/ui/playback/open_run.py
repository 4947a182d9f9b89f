"""What the player's thread works on: the open run, its scores, and the layers of the pictures on the screen."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd
import torch

from ... import data as data_sets
from ... import views as pictures
from ...data.standardising import inputs, scaled_targets
from ...errors import GPExplorerError
from ...hyperparameters import Hyperparameters
from ...methods.capabilities import HasMovablePoints
from ...posteriors import InUnits
from ...posteriors.base import Of
from ...problem import Cost, Problem
from ...runs import Run, Spec
from ...runs.budget import long_step_note
from ...runs.learned_values import QUICK_FLOPS
from ...runs.studies import machine_speed
from ...runs.studies.comparison import Finished
from ...runs.studies.memory_need import Rows
from ...views import View
from ...views.runs.convergence import Convergence
from ..shared_limits import Shares
from ..text import sentence
from .readings import StatusNumbers, newest_steps, status_numbers

MOST_EARLIER = 12  # runs; of more, the oldest is forgotten
MOST_ROWS_TO_DRAG = 20_000  # rows of a run whose points can be dragged: the bound is computed at every move
SCORING_SHARE = 0.25  # part of the thread's time that scores may take
PATIENCE = 0.25  # seconds per call for a picture that is drawn in parts; requests are looked at between the parts
Layers = Mapping[str, pd.DataFrame]


class EarlierRuns:
    """The tables of the runs that were open before, of which the best one is drawn behind the open run."""

    def __init__(self) -> None:
        self._runs: deque[Finished] = deque(maxlen=MOST_EARLIER)

    def add(self, run: Run | None) -> None:
        """Keep the numbers of a run that has taken steps and that a spec describes."""
        if run is not None and isinstance(run.spec, Spec) and not run.changes and run.done > 0:
            self._runs.append(Finished.of(run))

    def show(self, views: Iterable[View]) -> None:
        """Let these pictures draw the best of the runs behind their own."""
        for view in views:
            if isinstance(view, Convergence):
                view.earlier = tuple(self._runs)


class RunWithRow(Run):
    """The records of a run up to one of them, with one more training row. It takes no steps.

    A person who adds a row sees its effect at once, at the hyperparameters and inducing points of the step on the
    screen, for the cost of one row (`Posterior.with_rows`). The run is then repeated on all rows, which is what a link
    describes.

    Parameters
    ----------
    at : int
        Index of the record.
    row : sequence of float
        Inputs and target of the new row, in the units of the file.

    Raises
    ------
    DataError
        If the row has another number of inputs.
    """

    def __init__(self, run: Run, at: int, row: Sequence[float]) -> None:
        X, y = torch.tensor([row[:-1]], dtype=torch.float64), torch.tensor(row[-1:], dtype=torch.float64)
        train = run.problem.train
        scaled, target = inputs(X, train), scaled_targets(y, train).to(train.y)
        grown = replace(train, X=torch.cat([train.X, scaled]), y=torch.cat([train.y, target]))
        problem = replace(run.problem, train=grown)
        super().__init__(run.method, problem, run.split, spec=run.spec, resume=run.trace[: at + 1])
        self._run, self._row = run, (X, y)

    def posterior(self, at: int = -1, of: Of = "f") -> InUnits:
        """The posterior of the run before, updated by the row.

        Raises
        ------
        PosteriorError
            If a posterior of this kind cannot be updated.
        """
        return self._run.posterior(at, of).with_rows(*self._row)


class Change(NamedTuple):
    """What a person changed by hand.

    Attributes
    ----------
    at : int
        Index of the last record before it.
    problem : Problem
        The problem before it.
    kernel : str or dict
        The kernel of the next run before it, as a spec has it.
    of_theta : bool
        Whether hyperparameters were set.
    """

    at: int
    problem: Problem
    kernel: Any
    of_theta: bool = False


class OpenRequest(NamedTuple):
    """What to open.

    Attributes
    ----------
    spec : Spec
        The run.
    read : callable or None
        Reads the rows of a split, where no data set name in the spec brings them; None otherwise.
    row, at : tuple of float, int
        The row that a person has added to the open run, and the record that was on the screen; see `run_with_row`.
    given : Run, optional
        A run that exists already, which is shown where it is. It belongs to someone else, who can go on with it.
    """

    spec: Spec
    read: Callable[[Any], Any] | None = None
    row: tuple[float, ...] = ()
    at: int = 0
    given: Run | None = None


class RunSummary(NamedTuple):
    """What the page needs to know of a run. It does not keep the run's memory alive.

    Attributes
    ----------
    spec : Spec
        What was opened.
    key : str
        The name of the run in the store.
    data : str
        The name of the data.
    rows, test_rows, inputs : int
        Numbers of training rows, test rows and input columns.
    target : str
        The name of the predicted column.
    views : tuple of View
        The pictures that apply, in the order of the page.
    cost : Cost
        Work and memory per step, by formula.
    seconds : float
        What a step should take, by formula and the measured speed of this machine.
    notes : tuple of str
        What should be known about the data set.
    can_drag : bool
        Whether its inducing points can be dragged.
    can_edit : bool
        Whether rows can be added and removed: a link must be able to repeat it.
    kernel : str or dict
        The kernel of the next run, as a spec has it: that of this run, with what a person has fixed by hand.
    """

    spec: Spec
    key: str
    data: str
    rows: int
    test_rows: int
    inputs: int
    target: str
    views: tuple[View, ...]
    cost: Cost
    seconds: float
    notes: tuple[str, ...]
    can_drag: bool
    can_edit: bool
    kernel: Any


class Frame(NamedTuple):
    """Everything that the page needs to show one moment. A later frame replaces an earlier one whole.

    Attributes
    ----------
    opening : int
        Counts the runs opened so far: a new number means another run.
    run : RunSummary or None
        The open run; None before the first one.
    playing : bool
        Whether the run takes steps by itself.
    busy : str
        What is being waited for; empty where nothing is.
    notice : tuple of int and str
        Number and text of the newest message for the person.
    numbers : StatusNumbers or None
        The numbers of the record shown.
    layers : mapping of str to Layers
        Key of each picture on the screen -> its layers.
    failures : mapping of str to str
        Key of each picture that raised -> a sentence about it.
    table : DataFrame or None
        The newest steps, newest first.
    failed : str
        Why the newest opening failed; empty where it did not. The pictures are then those of the run before.
    answered : int
        How many requests of the page were carried out before it.
    hyperparameters : Hyperparameters or None
        Those of the record shown, where the page asks for them; without rows for a method with features of its own.
    """

    opening: int
    run: RunSummary | None
    playing: bool
    busy: str
    notice: tuple[int, str]
    numbers: StatusNumbers | None = None
    layers: Mapping[str, Layers] = {}
    failures: Mapping[str, str] = {}
    table: pd.DataFrame | None = None
    failed: str = ""
    answered: int = 0
    hyperparameters: Hyperparameters | None = None


class OpenRun:
    """The open run. All methods belong to the player's thread, except `halt`.

    Parameters
    ----------
    shares : Shares, optional
        Where the run reserves its memory before it is opened.

    Attributes
    ----------
    run : Run or None
        The run; None where none is open.
    summary : RunSummary or None
        What the page knows of it.
    failures : dict of str to str
        Key of each picture that raised -> a sentence about it. It is not drawn again until another run is opened.
    unfinished : bool
        Whether one of the pictures drawn last was drawn in part and has more to show.
    wall_seconds : float
        Seconds of playing on the clock: steps, scores and pictures together.
    """

    def __init__(self, shares: Shares | None = None) -> None:
        self._shares = shares or Shares()
        self._memory = self._shares.reservation()
        self.run: Run | None = None
        self.summary: RunSummary | None = None
        self.failures: dict[str, str] = {}
        self.unfinished = False
        self._split: tuple[Any, Any] | None = None  # which rows were read last, and the rows
        self._step_seconds, self._score_seconds = 0.0, 0.0
        self._pause_after: int | None = None  # number of steps
        self._pause_seconds: float | None = None
        self.wall_seconds = 0.0
        self._changes: list[Change] = []  # what a person changed by hand
        self._given: Run | None = None  # the run that belongs to someone else, and whether it is to take no step
        self._halted = False
        self._earlier = EarlierRuns()

    def open(self, request: OpenRequest) -> None:
        """Read the data (kept from one opening to the next), open the run and take its start record.

        The run before stays open if this raises before the new one is open. Where the start record fails, none is.
        """
        spec, memory = request.spec, self._shares.reservation()
        run = request.given or self._opened(request, memory)
        # Of an upload, the run's own spec has the content of the rows, which a program made from it checks.
        summary = summary_of(run.spec if isinstance(run.spec, Spec) else spec, run)._replace(kernel=spec.kernel)
        self._earlier.add(self.run)
        self._earlier.show(summary.views)
        self.close()
        self._memory, self._given, self._halted = memory, request.given, False
        self.run, self.summary, self.failures, self._changes = run, summary, {}, []
        self._step_seconds, self._score_seconds = 0.0, 0.0
        budget = spec.budget if request.given is None else {}
        self._pause_after, self._pause_seconds = budget.get("steps"), budget.get("seconds")
        self.wall_seconds = 0.0
        if not len(run.trace):
            self.advance()
            if run.error is not None and not len(run.trace):  # such as a method that these rows do not suit
                self.close()
                raise run.error
        can_drag = len(run.trace) > 0 and isinstance(run.method, HasMovablePoints)
        can_drag &= isinstance(run.problem.train.X, torch.Tensor)  # texts have no place in the plane
        self.summary = summary._replace(can_drag=can_drag and summary.rows <= MOST_ROWS_TO_DRAG)

    def _opened(self, request: OpenRequest, memory: Any) -> Run:
        """Read the rows and open a run of them, within the memory that the sessions of a server share."""
        spec = request.spec
        memory.take(spec, instead_of=self._memory)
        split = self._read(request)
        memory.take(spec, Rows(len(split.train), split.train.d), instead_of=self._memory)
        run = spec.open(data=split)
        if request.read is None:
            run.spec = spec  # names the data, which need not be identified by their content then
        return run

    def advance(self) -> bool:
        """Take one step, and its scores while these take less than their share of the time.

        Returns False when the run is over.
        """
        run = self._require_run()
        halted, self._halted = self._halted, False
        if halted:
            return False
        begin = time.perf_counter()
        record = run.advance()
        stepped = time.perf_counter()
        self._step_seconds += stepped - begin
        if record is None:
            if len(run.trace) and run.outcome is not None and run.outcome.reason != "failed":
                run.score_unless_stopped()
            return False
        if self._score_seconds <= SCORING_SHARE * (self._step_seconds + self._score_seconds):
            run.scores()
            self._score_seconds += time.perf_counter() - stepped
        return True

    def score(self, at: int) -> None:
        """Compute the scores of a record that is being looked at, where it has none yet."""
        run = self._require_run()
        if run.outcome is None or run.outcome.reason != "failed":
            run.scores(at)

    @property
    def last(self) -> int:
        """Index of the newest record."""
        return len(self._require_run().trace) - 1

    @property
    def over_budget(self) -> str:
        """Message that says why the run should pause now; empty while it should not."""
        if self._pause_seconds is not None and self.wall_seconds >= self._pause_seconds:
            work = self._require_run().trace[-1].seconds
            return (
                f"Paused after {self.wall_seconds:.3g} s on the clock, as set by “or after” ({work:.3g} s of work; the "
                "rest was scoring and drawing). Press Play to continue for as long again."
            )
        if self._pause_after is None or self.last < self._pause_after:
            return ""
        return f"Paused after {self.last:,} steps, as set by “Pause after”. Press Play to continue for as many again."

    def extend_budget(self) -> None:
        """Let the run continue for as many steps, or for as long, again."""
        if self.summary is None:
            return
        budget = self.summary.spec.budget
        if self._pause_after is not None:
            self._pause_after = self.last + budget["steps"]
        if self._pause_seconds is not None:
            self._pause_seconds = self.wall_seconds + budget["seconds"]

    def layers(self, at: int, wanted: Collection[str]) -> dict[str, Layers]:
        """Compute the layers of these pictures at a record; one that raises is noted in `failures`."""
        run, self.unfinished = self._require_run(), False
        layers: dict[str, Layers] = {}
        for view in self._working_views(wanted):
            try:
                layers[view.key] = view.data(run, at)
                self.unfinished |= view.unfinished(run, at)
            except Exception as error:
                self.failures[view.key] = sentence(error, f"the picture “{view.title}” was being drawn")
        return layers

    def layers_with_row(self, at: int, row: Sequence[float], wanted: Collection[str]) -> dict[str, Layers]:
        """Compute the layers of a record after one more training row, in the pictures that rows can be added in.

        There are none where the posterior cannot be updated.
        """
        at = min(at, self.last)
        try:
            grown = RunWithRow(self._require_run(), at, row)
            return {view.key: view.data(grown, at) for view in self._working_views(wanted) if view.editable}
        except GPExplorerError:
            return {}

    def numbers(self, at: int) -> StatusNumbers:
        """Return the numbers of a record, with the newest scores up to it and the step that these belong to."""
        return status_numbers(self._require_run(), at, self._pause_after, bool(self._changes), self.wall_seconds)

    def hyperparameters(self, at: int, with_gradient: bool = False) -> Hyperparameters:
        """Return the hyperparameters of a record, with derivatives if one is quick; none for features of a method."""
        run = self._require_run()
        if run.method.own_kernel:
            return Hyperparameters([], "")
        gradient = with_gradient and run.method.cost(run.problem).flops < QUICK_FLOPS
        return run.hyperparameters_at(at, curvature=False, gradient=gradient)

    @property
    def first_step_too_long(self) -> str:
        """Message that says, before the first step, that it takes longer than the budget's seconds, or very long."""
        if self.summary is None or self.last > 0:
            return ""
        note = long_step_note(self.summary.seconds, self._pause_seconds)
        return note and f"{note} Press Play to take it all the same."

    def table(self, at: int) -> pd.DataFrame:
        """Return the newest steps up to a record, newest first."""
        return newest_steps(self._require_run(), at)

    def click(self, key: str, at: int, x: float, y: float) -> None:
        """Take the step that a click on this picture asks for. It replaces the records after `at`."""
        run, at = self._require_run(), min(at, self.last)
        view = next(iter(self._working_views([key])), None)
        if view is None:
            return
        values, step = view.hyperparameters_clicked(run, at, x, y), view.clicked(run, at, x, y)
        if values:
            self.set_hyperparameters(at, values=values)
        elif step is not None:
            self._continue_with(run.fork(at, step), at)

    def drag(self, at: int, slot: int, position: tuple[float, ...]) -> None:
        """Move inducing point `slot` of record `at` to this position, in the units of the file.

        Nothing changes where the method refuses the position.
        """
        run, at = self._require_run(), min(at, self.last)
        method = run.method
        if not isinstance(method, HasMovablePoints):
            return
        scaled = inputs(torch.tensor([position], dtype=torch.float64), run.problem.train)[0]
        try:
            step = method.move_point(run.problem, run.trace[at].step.state, slot, scaled)
        except GPExplorerError:
            return
        self._continue_with(run.fork(at, step), at)

    def set_hyperparameters(self, at: int, kernel: Any = None, **options: Any) -> None:
        """Give hyperparameters of record `at` other values or restrictions; see `Run.with_hyperparameters`.

        Where `at` was set by hand itself, the new values take its place: a slider that moves makes one record. An `at`
        below 0 is the newest record, and `kernel` that of the next run, where it changes.
        """
        run, at = self._require_run(), self.last if at < 0 else min(at, self.last)
        change = next((change for change in self._changes if change.of_theta and change.at == at - 1), None)
        after = at if change is None else change.at
        self._continue_with(run.with_hyperparameters(at, after, **options), after, of_theta=True)
        if kernel is not None and self.summary is not None:
            self.summary = self.summary._replace(kernel=kernel)

    def undo(self) -> None:
        """Return to the record before the last change by hand; the records after it are dropped."""
        if self._changes and self.summary is not None:
            run, change = self._require_run(), self._changes.pop()
            self.run, self.summary = (
                run.fork(change.at, problem=change.problem),
                self.summary._replace(kernel=change.kernel),
            )
            self._free(run)

    def halt(self) -> None:
        """Ask the run to end before its next step; any thread may call this. One that was given can be continued."""
        run = self.run
        if run is not None and run is self._given:
            self._halted = True
        elif run is not None:
            run.stop()

    def close(self) -> None:
        """Free the run and its pictures; the data stay for the next run."""
        run, self.run, self.summary = self.run, None, None
        self._memory.give_back()
        if run is not None:
            self._free(run)

    def _free(self, run: Run) -> None:
        """Free the memory of a run, unless it belongs to someone else."""
        if run is not self._given:
            run.close()

    def _read(self, request: OpenRequest) -> Any:
        spec = request.spec
        rows_key = (request.read or repr(spec.data), repr(spec.split))
        if self._split is None or self._split[0] != rows_key:
            self._split = None  # frees the rows of the run before, so that the machine need not have room for both
            read = request.read or (lambda split: data_sets.load(spec.data, split=split))
            self._split = (rows_key, read(spec.split))
        return self._split[1]

    def _working_views(self, wanted: Collection[str]) -> list[View]:
        views = self.summary.views if self.summary else ()
        return [view for view in views if view.key in wanted and view.key not in self.failures]

    def _continue_with(self, other: Run, at: int, of_theta: bool = False) -> None:
        """Put this run, which shares the records up to `at`, in the place of the open one."""
        run, summary = self._require_run(), self.summary
        before = next((change for change in self._changes if change.at >= at), None)
        before = before or Change(at, run.problem, summary and summary.kernel)
        self._changes = [change for change in self._changes if change.at < at]
        self._changes.append(before._replace(at=at, of_theta=of_theta))
        self.run = other
        self._free(run)

    def _require_run(self) -> Run:
        if self.run is None:
            raise RuntimeError("no run is open")
        return self.run


def summary_of(spec: Spec, run: Run) -> RunSummary:
    """Return what the page needs to know of a run that was opened from this spec."""
    cost, train, split = run.method.cost(run.problem), run.problem.train, run.split
    views = tuple(pictures.for_run(run))
    for view in views:
        view.patience = PATIENCE
    return RunSummary(
        spec=spec,
        key=run.spec.key() if run.spec is not None else "",
        data=split.name if split else "",
        rows=len(train),
        test_rows=len(split.test) if split else 0,
        inputs=train.d,
        target=train.target,
        views=views,
        cost=cost,
        seconds=machine_speed.machine().seconds(cost),
        notes=split.notes if split else (),
        can_drag=False,
        can_edit=data_sets.is_named(spec.data) and isinstance(train.X, torch.Tensor),
        kernel=spec.kernel,
    )
