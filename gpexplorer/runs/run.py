"""A run: the one place that asks a method for its next step and reads the clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..errors import StoreError
from ..methods.base import Method, Steps
from ..problem import Outcome, Posterior, Problem, Step
from . import scores
from .budget import Budget, Progress, scheduled
from .clock import read
from .counting import Counted, Counter
from .jitters import watched
from .outcomes import FINAL, enough_memory, failed, stopped
from .setting_checks import of_kind
from .trace import Record, Spent, Trace
from .units import Of, in_units, inputs, noise_var, targets

if TYPE_CHECKING:
    from ..data import Split
    from .spec import Spec
    from .storage.journal import Journal


class Run:
    """One method on one problem, a record a step.

    `advance`, `finish` and `scores` belong to one thread at a time (a second one waits); `stop`, `close` and the
    trace may be used from any. Seconds and kernel entries count the method's own work: scoring is off the clock.
    """

    def __init__(  # noqa: PLR0913 - the nouns of a run; a caller names them
        self,
        method: Method,
        problem: Problem,
        split: Split | None = None,
        *,
        spec: Spec | None = None,
        store: Journal | None = None,
        resume: Iterable[Record] = (),
        outcome: Outcome | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`problem` and `split` are in the scaled space; `resume` holds the records of an earlier run to go on from."""
        for given, kind in ((method, Method), (problem, Problem)):
            of_kind("A run takes a Method and a Problem; this", given, kind, "both, or open a Spec: spec.open()")
        self.method, self.problem, self.split, self.spec = method, problem, split, spec
        self.trace = Trace(resume)
        self.outcome, self.closed = outcome, False
        self.error: Exception | None = None  # what the method raised, for the log
        last = self.trace[-1] if len(self.trace) else None
        self._seconds = last.seconds if last else 0.0
        self._counter = Counter(last.cost.entries if last else 0)
        self._clock, self._journal, self._halt, self._busy = clock, store, threading.Event(), threading.RLock()
        self._steps: Steps | None = None
        self.jitters: dict[str, float] = {}  # largest, of each matrix whose factor needed some since the run was opened

    def __repr__(self) -> str:
        return f"<Run of {self.method.key} on {len(self.problem.train):,} rows: {self.done} steps>"

    def advance(self, score: bool = False) -> Record | None:
        """Take one step and return its record, or None when the run is over (`outcome` says why).

        A method's error is the outcome "failed"; an interrupt leaves the run as it was. No record is ever lost.
        """
        with self._busy:
            try:
                return None if self._over() else self._next(score)
            except Exception as error:
                self.error = error
                self._end(failed(error, self.done))
                return None
            except BaseException:
                self._abandon()
                raise
            finally:
                if self.closed:
                    self._release()

    def finish(self, steps: int | None = None, seconds: float | None = None) -> Outcome:
        """Advance until the method ends, `stop` is called, or a budget is spent; the spec's budget where none is given.

        Budgets count from the start of the run, which is not a step; a resumed run goes on to the same end. Scores
        are taken at the indices 0, 1, 2, 5, 10, 20, 50, ... and at the last, whatever the clock says.
        """
        budget = self._budget if steps is None and seconds is None else Budget(steps, seconds)
        while True:
            if (spent := budget.spent(self.done, self._seconds)) and not self._final:
                self._end(Outcome("budget", spent))
                break
            if self.advance(score=scheduled(len(self.trace))) is None:
                break
        if len(self.trace) and self.outcome and self.outcome.reason != "failed":
            self.scores()
        return self.outcome or stopped(self.done)

    @contextmanager
    def using_mapper(self, mapper: Callable[..., Iterable[Any]]) -> Iterator[None]:
        """Do the independent pieces of the method's steps by `mapper` while the context lasts.

        The method's generator is closed at both ends of the context. The next step continues from the last record.
        """
        own = self.method
        self._exchange(own.with_mapper(mapper))
        try:
            yield
        finally:
            self._exchange(own)

    def _exchange(self, method: Method) -> None:
        with self._busy:
            self._abandon()
            self.method = method

    def stop(self) -> None:
        """Ask the run to end before its next step; `finish` or `advance` can take it up again later."""
        self._halt.set()

    def close(self) -> None:
        """Free the method's memory and the store, without waiting: a step under way ends first. The trace stays."""
        self.closed = True
        if self._busy.acquire(blocking=False):
            try:
                self._release()
            finally:
                self._busy.release()

    def fork(self, at: int = -1, step: Step | None = None) -> Run:
        """A second run, not stored, that shares the records up to `at` and goes on from there, or from a step given."""
        kept = self.trace[: self.trace[at].index + 1]
        kept += [kept[-1]._replace(index=len(kept), step=step, scores=None)] if step else []
        return Run(self.method, self.problem, self.split, spec=self.spec, resume=kept, clock=self._clock)

    def __getstate__(self) -> dict[str, Any]:
        """A copy has the trace and the answers, and goes on by itself; the store and the method's memory stay here."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_steps", "_journal", "_halt", "_busy", "error")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _steps=None, _journal=None, error=None)
        self._halt, self._busy = threading.Event(), threading.RLock()

    def posterior(self, at: int = -1, of: Of = "f") -> Posterior:
        """The predictive distribution at record `at`: inputs [t, d] and answers in the units of the file.

        `of="f"` is the function without noise, `of="y"` a new observation of it. Rebuilt from the state kept.
        """
        predict = self._predictive(at, of)
        return lambda X: predict(inputs(X, self.problem.train))

    def scores(self, at: int = -1) -> dict[str, float]:
        """smse, snlp, rmse, nlpd, coverage68 and coverage95 of y on the test rows, in the units of the file.

        Kept once computed; empty where the run has no test rows.
        """
        at = self.trace[at].index
        with self._busy:
            found = self.trace[at].scores
            if found is None and self.split is not None and len(self.split.test):
                found = self._measured(at, self.split)
                self.trace.score(at, found)
                self._write(lambda journal: journal.score(at, self.trace[at].scores or {}))
        return dict(found or {})

    def table(self) -> pd.DataFrame:
        """One row a record: index, seconds, entries, the method's channels, and scores where they were taken."""
        return self.trace.table(self.method.channels)

    def progress(self, budget: Mapping[str, float] | None = None) -> Progress:
        """How far along the budget (`steps`, `seconds`; the spec's where none is given) this run is."""
        limits = self._budget if budget is None else Budget.of(budget)
        return limits.progress(self.done, self._seconds) if self.outcome is None else Progress(1.0, 0.0)

    @property
    def done(self) -> int:
        """Steps taken after the start."""
        return max(len(self.trace) - 1, 0)

    @property
    def memory(self) -> int:
        """Bytes the trace holds."""
        return self.trace.memory

    @property
    def _budget(self) -> Budget:
        return Budget.of(self.spec.budget) if self.spec else Budget()

    @property
    def _final(self) -> bool:
        return self.closed or (self.outcome is not None and self.outcome.reason in FINAL)

    def _over(self) -> bool:
        """Whether no step may be taken now."""
        if halted := self._halt.is_set():
            self._end(stopped(self.done))
        return halted or self._final

    def _next(self, score: bool) -> Record | None:
        """Ask for one step, stamp it, keep it, write it."""
        steps = self._steps = self._steps or self._start()
        before = read(self._clock, self.problem.train.y)
        try:
            step = next(steps)
        except StopIteration as end:
            self._end(end.value)
            return None
        self._seconds += read(self._clock, self.problem.train.y) - before
        self.outcome = None
        self.trace.append(Record(len(self.trace), self._seconds, Spent(self._counter.entries), step))
        self._write(lambda journal: journal.extend(self.trace[len(journal) :]))
        if score:
            self.scores()
        return self.trace[-1]

    def _start(self) -> Steps:
        counted = replace(self.problem, kernel=Counted(self.problem.kernel, self._counter))
        return watched(self.method.steps(counted, self.trace[-1].step.state if len(self.trace) else None), self.jitters)

    def _measured(self, at: int, split: Split) -> dict[str, float]:
        train = self.problem.train
        mean, var = self._predictive(at, "y")(split.test.X)
        return scores.scores(targets(split.test.y, train), mean, var, targets(train.y, train))

    def _predictive(self, at: int, of: Of) -> Posterior:
        """From scaled inputs to answers in the units of the file."""
        at, state, train = self.trace[at].index, self.trace[at].step.state, self.problem.train
        noise = noise_var(of, getattr(state, "theta", self.problem.theta))
        with enough_memory(at):
            return enough_memory(at)(in_units(self.method.posterior(self.problem, state), train, noise))

    def _end(self, outcome: Outcome) -> None:
        """Keep why the run ended; the budget alone leaves the method's memory for going on at once."""
        self._halt.clear()
        self.outcome = outcome
        if outcome.reason != "budget":
            self._abandon()
        self._write(lambda journal: journal.end(outcome))

    def _write(self, entry: Callable[[Journal], object]) -> None:
        """Write to the store if there is one; a store that fails is let go, and the run fails with its sentence."""
        journal, self._journal = self._journal, None
        if journal is None:
            return
        try:
            entry(journal)
        except OSError as error:
            journal.close()
            reason = f"The run could not be stored ({error}); its {len(self.trace)} records are still in memory."
            raise StoreError(reason) from error
        self._journal = journal

    def _abandon(self) -> None:
        """Close the method's generator: the next step starts from the last state kept."""
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()

    def _release(self) -> None:
        self._abandon()
        if self._journal is not None:
            self._journal.close()
            self._journal = None
