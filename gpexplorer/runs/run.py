"""A `Run` takes a method's steps one after another. It is the only place that asks for a step and reads the clock."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..display import RunDisplay
from ..errors import SettingError, StoreError, function, not_written
from ..hyperparameters import Hyperparameters
from ..kernels.row_scaled import plain_rows
from ..linalg.denormals import flushed_to_zero
from ..linalg.interruption import Interrupted, interruptible
from ..methods.base import Method, Steps
from ..methods.capabilities import EstimatesNoise, NotesVariance
from ..posteriors import InUnits, Of, as_posterior, in_units
from ..posteriors.table_posterior import marginals_of_part
from ..problem import Outcome, Problem, Step
from . import outcomes, scores
from .budget import Budget, Progress, ScoringClock, ScoringTime, StopRequest, scheduled
from .counting import Counted, Counter, device_time, recording_jitter
from .description import Changes, Description, changes_in_words
from .learned_values import changed_problem, hyperparameters_of, inducing_points_of, log_prior_of, with_priors
from .rounding import MonotoneWatch, Rise
from .setting_checks import of_kind
from .trace import Record, Spent, Trace

Watcher = Callable[[Record], object]

if TYPE_CHECKING:
    import pandas as pd

    from ..data import Split
    from .storage.journal import Journal

if hasattr(os, "register_at_fork"):  # torch's threads stay behind: a fork would wait for them for ever
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


class Run(RunDisplay):
    """One method on one problem, with one record per step.

    Most runs are opened from a spec (`Spec.open`). A method and a problem at hand make a run as well.

    Parameters
    ----------
    method : Method
        The algorithm with its settings.
    problem : Problem
        Training rows, kernel and initial theta, in the scaled space.
    split : Split, optional
        The scaled rows to score on. Without test rows a run has no scores.
    spec : Spec, optional
        The spec that the run was opened from.
    store : Journal, optional
        Receives every record.
    resume : iterable of Record
        Records of an earlier run. The method continues from the state of the last one.
    outcome : Outcome, optional
        Why the earlier run ended.
    start_note : str
        What the starts reached between which the initial theta was chosen. The outcome repeats it.
    clock : callable
        Gives seconds. Tests pass a clock of their own.
    changes : Changes, optional
        What a person has changed in the earlier run; by default nothing.

    Attributes
    ----------
    changes : Changes
        What a person has changed, in this run or in one that it was forked from: hyperparameters, or a step. It is
        true if the run is not the one that its spec describes, and its text says why. Such a run is not kept under the
        name of its spec.
    trace : Trace
        The records so far. It may be read from any thread.
    outcome : Outcome or None
        Why the run ended, or None while it has not.
    error : Exception or None
        What the method or a callback raised, for the log; None again once the run has gone on, or ended otherwise.
    rises : list of Rise
        Every rise of a channel that the method declares monotone. It shows that the computation went wrong.
    scoring : ScoringClock
        How far the scores are that are being taken.
    jitters : dict of str to float
        The largest jitter that each matrix needed since the run was opened, by the matrix's name.
    test_errors : tuple of int, Tensor and Tensor, or None
        Index of the newest record that was scored, and its squared errors [t] and negative log predictive densities [t]
        on the test rows.

    Notes
    -----
    `advance`, `finish` and `scores` belong to one thread at a time (a second thread waits). `stop` and `close` may be
    called from any thread. Seconds and kernel entries count the method's own work: scoring is not included.

    Examples
    --------
    >>> run = Spec("cholqr", {"num_inducing": 16}).open()
    >>> run.finish(steps=20)
    >>> run.scores()["smse"], run.posterior(of="y")(X)
    """

    def __init__(  # noqa: PLR0913 - the parts of a run, which callers pass by name
        self,
        method: Method,
        problem: Problem,
        split: Split | None = None,
        *,
        spec: Description | None = None,
        store: Journal | None = None,
        resume: Iterable[Record] = (),
        outcome: Outcome | None = None,
        start_note: str = "",
        clock: Callable[[], float] = time.perf_counter,
        changes: Changes | None = None,
    ) -> None:
        for value, kind in ((method, Method), (problem, Problem)):
            of_kind("A run takes a Method and a Problem; this", value, kind, "both, or open a Spec: spec.open()")
        self.method, self.problem, self.split, self.spec = method, problem, split, spec
        self.changes = Changes(problem) if changes is None else changes
        self.trace = Trace(resume)
        self.outcome, self.closed = outcome, False
        self.error: Exception | None = None
        self.jitters: dict[str, float] = {}
        self._watchers: list[Watcher] = []
        self._stop_reason: Outcome | None = None  # of a callback
        prior = partial(log_prior_of, problem)  # not a method of the run: nothing may keep a run that nobody holds
        self._watch = MonotoneWatch(method.channels, problem.train.y.dtype, method.learned_channel, prior)
        self.test_errors: tuple[int, Tensor, Tensor] | None = None
        self.rises: list[Rise] = [rise for record in self.trace for rise in self._watch.check(record)]
        last = self.trace[-1] if len(self.trace) else None
        self._seconds = last.seconds if last else 0.0
        self.start_note, self.scoring = start_note, ScoringClock()
        self.counter = Counter(last.cost.entries if last else 0)  # of kernel entries, also of workers
        self._clock, self._journal = clock, store
        self._stop, self._busy = StopRequest(), threading.RLock()
        self._limits = Budget()  # of the call of `finish` in progress
        self._steps: Steps | None = None

    def __repr__(self) -> str:
        return f"<Run of {self.method.key} on {len(self.problem.train):,} rows: {self.done:,} steps>"

    @torch.inference_mode(False)
    def advance(self, score: bool = False) -> Record | None:
        """Take one step.

        Parameters
        ----------
        score : bool
            Whether to score the record on the test rows.

        Returns
        -------
        Record or None
            The new record, or None if the run has ended (`outcome` says why).

        Notes
        -----
        If the method raises an error, the outcome is "failed" and the records before it stay. An interrupt
        (KeyboardInterrupt) is raised again and leaves the run as it was, ready to continue.
        """
        with self._busy:
            try:
                return self._next(score)
            except Exception as error:
                self._end(outcomes.failed(error, self.done, self.method, self.problem), error)
                return None
            except BaseException:
                self._close_method()
                raise
            finally:
                if self.closed:
                    self._release()

    def finish(
        self, steps: int | None = None, seconds: float | None = None, callback: Watcher | None = None
    ) -> Outcome:
        """Take steps until the method ends, `stop` is called, or a budget is used up.

        Parameters
        ----------
        steps, seconds : int, float, optional
            Limits on the whole run, counted from record 0 also if it is resumed; without them the spec's budget holds.
        callback : callable, optional
            Called with each new record, as by `watch`, until this call returns.

        Returns
        -------
        Outcome
            Why the run ended.

        Notes
        -----
        Records 0, 1, 2, 5, 10, 20, 50, ... and the last one are scored; with a limit in seconds, see `ScoringTime`. A
        step that takes the run half as long again as that limit is given up, and begins again later. The first one,
        without which nothing is learned, is given up half a minute after three times that limit.
        """
        if callback is not None:
            stop_watching = self.watch(callback)
            try:
                return self.finish(steps, seconds)
            finally:
                stop_watching()
        budget = self._budget if steps is None and seconds is None else Budget(steps, seconds)
        before = self._seconds
        scoring, self._limits = ScoringTime(budget, before), budget
        try:
            while True:
                # where a callback has failed, the run ends with that
                goes_on = not len(self.trace) or self._stop_reason or self._final  # record 0 comes before any work
                if not goes_on and (message := budget.spent(self.done, self._seconds)):
                    self._end(Outcome("budget", message + budget.overrun(self._seconds, before)))
                    break
                if self.advance(score=scheduled(len(self.trace)) and scoring.allowed(self._seconds)) is None:
                    break
            if len(self.trace) and self.outcome and self.outcome.reason != "failed":
                self.score_unless_stopped()
                if scoring.allowed(self._seconds):  # of a run with a limit in seconds: the others have this score
                    self.score_unless_stopped(0)
                self._stop.forget()
        finally:
            self._limits = Budget()
        if self.closed and (self.outcome is None or self.outcome.reason == "budget"):
            return outcomes.closed(self.done)
        return self.outcome or outcomes.stopped(self.done)

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Call a function with every new record, after it is kept and while the clock is stopped.

        Parameters
        ----------
        callback : callable
            Takes a record. If it returns True, also NumPy's, the run stops after this record, as by `stop`. If it
            raises an error, the run stops with a sentence that names it and keeps its records; `error` has the error.

        Returns
        -------
        callable
            Without arguments; it ends the watch.
        """
        function("What watches a run", callback, "of a record")
        self._watchers.append(callback)
        return lambda: self._watchers.remove(callback) if callback in self._watchers else None

    @contextmanager
    def using_mapper(self, mapper: Callable[..., Iterable[Any]]) -> Iterator[None]:
        """Do the independent pieces of the method's steps by another mapper inside a `with` block.

        Parameters
        ----------
        mapper : callable
            It is called as the builtin `map` is (see `Method.with_mapper`).

        Notes
        -----
        The method's generator is closed at both ends of the block. The next step continues from the last record.
        """
        original, mapper = self.method, function("The mapper", mapper, "that is called as the builtin map is")
        self._exchange_method(original.with_mapper(mapper))
        try:
            yield
        finally:
            self._exchange_method(original)

    def stop(self) -> None:
        """Ask the run to end before its next step. `finish` or `advance` can continue it later.

        A step, or scores, that would take longer than a second from now are given up at the next block of rows.
        """
        self._stop.ask()

    def close(self) -> None:
        """Free the method's memory and the store without waiting: a step in progress ends first, or is given up.

        The trace stays.
        """
        self.closed = True
        self._stop.hurry()
        if self._busy.acquire(blocking=False):
            try:
                self._release()
            finally:
                self._busy.release()

    def fork(self, at: int = -1, step: Step | None = None, problem: Problem | None = None, what: str = "") -> Run:
        """Make a second run, not stored, that shares the records up to one of them and continues from there.

        Parameters
        ----------
        at : int, default -1
            The index of the last shared record.
        step : Step, optional
            A step to continue from, which becomes the record after them.
        problem : Problem, optional
            The same rows with other hyperparameters to begin with, or other restrictions of them; see
            `with_hyperparameters`.
        what : str
            What the step or the problem changes, in words for `changes`.

        Notes
        -----
        Without a step or a problem, the fork is still the run of its spec. Else `changes` says what was changed.
        """
        records = self.trace[: self.trace.at(at).index + 1]
        problem, last_shared = self.problem if problem is None else problem, records[-1].index
        if step is not None:
            of_kind("The step of a fork", step, Step, "what a method yields, such as run.trace[3].step")
            records.append(records[-1]._replace(index=len(records), step=step, scores=None))
        kept: dict[str, Any] = {"spec": self.spec, "start_note": self.start_note, "clock": self._clock}
        kept["changes"] = self.changes.forked(last_shared, step is not None, self.problem, problem, what)
        return Run(self.method, problem, self.split, resume=records, **kept)

    def within_budget(self) -> Run:
        """The run itself or, where a store has more of it, a fork that ends where the budget of its spec was reached.

        Returns
        -------
        Run
            A fork is not stored, and the records of the store stay as they are. Its `finish` takes no step.
        """
        budget = self._budget
        reached = (record.index for record in self.trace if budget.spent(record.index, record.seconds))
        at = next(reached, self.done)
        return self.fork(at) if at < self.done else self

    def with_hyperparameters(self, at: int = -1, after: int | None = None, **options: Any) -> Run:
        """Make a second run in which hyperparameters have other values, or other restrictions, from one record on.

        Parameters
        ----------
        at : int, default -1
            The index of the record whose hyperparameters are changed.
        after : int, optional
            The index of the last record that both runs share, by default `at`.
        **options : object
            "values", "fixed", "bounds", "tied" or "priors", as `Hyperparameters.kernel` takes them.

        Returns
        -------
        Run
            Its last record has the new values; what does not depend on them, such as inducing points, is as before,
            and learning goes on from there.

        Raises
        ------
        SettingError
            If there is no such hyperparameter, the method has no kernel of its own to change, or a value is refused.
        """
        if self.method.own_kernel:
            raise SettingError(f"Method {self.method.key!r} learns features of its own in place of the kernel.")
        theta = getattr(self.trace.at(at).step.state, "theta", self.problem.theta)
        problem = changed_problem(self.method, self.problem, self.hyperparameters_at(at, False), theta, options)
        after = self.trace.at(at).index if after is None else after
        step = self.method.set_by_hand(problem, self.trace.at(after).step.state)
        return self.fork(after, step, problem, changes_in_words(options))

    def __getstate__(self) -> dict[str, Any]:
        """A copy has the trace and the answers, and continues by itself, also if this run is closed.

        It has no store and no running generator.
        """
        left_out = ("_steps", "_journal", "_stop", "_busy", "error", "_watchers")
        return {name: value for name, value in self.__dict__.items() if name not in left_out} | {"closed": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # a copy of an earlier version has no changes
        self.__dict__.update({"changes": Changes(state["problem"])} | state, _steps=None, _journal=None, error=None)
        self._watchers, self._stop, self._busy = [], StopRequest(), threading.RLock()

    @torch.inference_mode(False)
    def posterior(self, at: int = -1, of: Of = "f") -> InUnits:
        """The predictive distribution at one record, rebuilt from the state that the record keeps.

        Parameters
        ----------
        at : int, default -1
            The index of the record.
        of : {"f", "y"}
            The function without noise, or a new observation of it.

        Returns
        -------
        InUnits
            In the units of the file. A call with inputs [t, d] gives mean and variance [t]; see `Posterior` for more.
        """
        state, guard = self.trace.at(at).step.state, partial(outcomes.answering, self.trace.at(at).index)
        with guard():
            model = self.method.posterior(self.problem, state)
            inner = as_posterior(model, getattr(state, "theta", self.problem.theta))
            if inner is not model and isinstance(self.method, EstimatesNoise):
                inner = inner.changed(of="f", noise_variance=self.method.noise_variance(self.problem, state))
            return in_units(inner, self.problem, guard).asked_for(of)

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The hyperparameters at the latest record, in the units of the file; see `hyperparameters_at`."""
        return self.hyperparameters_at(-1)

    def hyperparameters_at(
        self, at: int = -1, curvature: bool | None = None, gradient: bool | None = None
    ) -> Hyperparameters:
        """The hyperparameters at one record, as a table in the units of the file.

        Parameters
        ----------
        at : int, default -1
            The index of the record; before the first one, the table is that of the start.
        curvature : bool, optional
            Whether standard errors are computed, by two gradients of the objective per parameter. Without it, where
            these take less than about a second.
        gradient : bool, optional
            Whether derivatives are computed, by one gradient of the objective; by default with the standard errors.
        """
        state = self.trace.at(at).step.state if len(self.trace) else None
        first = self.trace[0].step.state if len(self.trace) else None
        return hyperparameters_of(self.method, self.problem, state, first, curvature, gradient)

    def inducing_points(self, at: int = -1) -> NDArray[np.float64]:
        """The inducing points [m, d] of one record, in the units of the file, as the setting `start` takes them.

        Raises
        ------
        SettingError
            If the method has no inducing points, or they are not rows of numbers.
        """
        return inducing_points_of(self.method, self.problem, self.trace.at(at).step.state)

    def scores(self, at: int = -1) -> dict[str, float]:
        """Score one record on the test rows, for observations y in the units of the file.

        Parameters
        ----------
        at : int, default -1
            The index of the record.

        Returns
        -------
        dict of str to float
            smse, snlp, rmse, nlpd, coverage68 and coverage95. The dict is empty if the run has no test rows. Scores
            are computed once and then kept with the record. `variance_note` says whether the variances behind snlp,
            nlpd and the coverages are exact.
        """
        index = self.trace.at(at).index
        with self._busy:
            values = self.trace[index].scores
            if values is None and self.split is not None and len(self.split.test):
                train, test = plain_rows(self.problem), self.split.test
                with self.scoring:
                    marginals = marginals_of_part(self.posterior(index, "y"), test)
                    errors, values = scores.errors_and_scores(marginals, test, train)
                    if self.test_errors is None or index >= self.test_errors[0]:
                        self.test_errors = (index, *errors)
                self.trace.score(index, values)
                self._write(lambda journal: journal.score(index, self.trace[index].scores or {}))
        return dict(values or {})

    def score_unless_stopped(self, at: int = -1) -> None:
        """Score one record as `scores` does, but give up a second after `stop` was called; the record then has none."""
        with suppress(Interrupted), interruptible(lambda: self._stop.is_overdue):
            self.scores(at)

    @property
    def variance_note(self) -> str:
        """What the predictive variances are if they are not exact, to print beside snlp, nlpd and the coverages.

        Such as "upper bound from 2000 rows"; empty if the variances are those of the method's model. It concerns the
        latest record, or the result that is to be expected if there is none.
        """
        if not isinstance(self.method, NotesVariance):
            return ""
        return self.method.variance_note(self.problem, self.trace[-1].step.state if len(self.trace) else None)

    def table(self) -> pd.DataFrame:
        """One row per record: index, seconds, kernel entries, the method's channels, and scores if they were taken.

        In a run that was continued, seconds and entries have also what was computed again in order to go on.

        With priors, the method's `learned_channel`, such as the objective, is that of the data alone, `log_prior` the
        log density of the hyperparameters, and `map_objective`, which is minimised, their difference.
        """
        table = self.trace.table(self.method.channels)
        return with_priors(table, self.problem, self.trace[: len(table)], self.method.learned_channel)

    def progress(self, budget: Mapping[str, float] | None = None) -> Progress:
        """How much of a budget is used, and the seconds to go; all of it and none after an end that is final.

        Parameters
        ----------
        budget : mapping, optional
            May hold "steps" and "seconds". Without one, the budget of the spec holds.
        """
        limits = self._budget if budget is None else Budget.of(budget)
        is_over = self.outcome is not None and self.outcome.reason in outcomes.FINAL
        return Progress(1.0, 0.0) if is_over else limits.progress(self.done, self._seconds)

    @property
    def done(self) -> int:
        """The number of steps taken after record 0."""
        return max(len(self.trace) - 1, 0)

    @property
    def memory(self) -> int:
        """The bytes that the trace holds."""
        return self.trace.memory

    @property
    def _budget(self) -> Budget:
        return Budget.of(self.spec.budget) if self.spec else Budget()

    @property
    def _final(self) -> bool:
        """Whether no further step can follow."""
        return self.closed or (self.outcome is not None and self.outcome.reason in outcomes.FINAL)

    def _next(self, score: bool) -> Record | None:
        """Ask the method for one step. Time it, keep it and write it to the store."""
        if requested := self._stop.is_asked:
            self._end(self._stop_reason or outcomes.stopped(self.done), self.error if self._stop_reason else None)
        if requested or self._final:
            return None
        if self._steps is None:  # the method begins, or goes on from the last state
            outcomes.check_cost(self.method, self.problem)
            counted = replace(self.problem, kernel=Counted(self.problem.kernel, self.counter))
            last_state = self.trace[-1].step.state if len(self.trace) else None
            self._steps = recording_jitter(self.method.steps(counted, last_state), self.jitters)
        self._stop.forget(answered=False)
        begin, entries = device_time(self._clock, self.problem.train.y), self.counter.entries
        try:
            with flushed_to_zero(), interruptible(partial(self._is_too_late, time.monotonic())):
                step = next(self._steps)
        except Interrupted:
            self._close_method()
            self.counter.entries = entries
            if not self.closed:
                spent = "" if self._stop.is_asked else self._limits.spent(self.done, math.inf)
                self._end(outcomes.given_up(self.done, spent))
            return None
        except StopIteration as end:
            self._steps = None  # it is exhausted: a later call begins again from the last state, and ends the same way
            self._end(end.value)
            return None
        self._seconds += device_time(self._clock, self.problem.train.y) - begin
        self.outcome = self.error = None
        record = self.trace.append(Record(len(self.trace), self._seconds, Spent(self.counter.entries), step))
        self.rises += self._watch.check(record)
        self._write(lambda journal: journal.extend(self.trace[len(journal) :]))
        if score:
            self.score_unless_stopped()
        self._call_watchers()
        return self.trace[-1]

    def _is_too_late(self, begun: float) -> bool:
        """Whether a step that began at this moment is given up. By a limit in seconds, what makes record 0 is not."""
        taken = self._seconds + time.monotonic() - begun
        by_limit = len(self.trace) > 0 and self._limits.is_overrun(taken, in_first_step=self.done == 0)
        return by_limit or self._stop.is_overdue

    def _call_watchers(self) -> None:
        """Call those that watch with the newest record; stop if one says so or raises an error."""
        for callback in list(self._watchers):
            try:
                wish = callback(self.trace[-1])
                if isinstance(wish, (bool, np.bool_)) and wish:
                    self.stop()
            except Exception as error:
                self.error, self._stop_reason = error, outcomes.callback_failed(error, self.done)
                self._stop.ask()
                return

    def _end(self, outcome: Outcome, error: Exception | None = None) -> None:
        """Keep why the run ended, with sentences on rounding, and the error that ended it, if one did.

        Only a used-up budget leaves the generator open.
        """
        self.error = error
        self._stop.answer()
        self._stop_reason = None
        notes = (self.start_note, self.rises)
        self.outcome = outcome = outcomes.with_notes(outcome, self.method, self.problem, self.trace[-1:], *notes)
        self.trace.why_none = outcome.message
        if outcome.reason != "budget":
            self._close_method()
        self._write(lambda journal: journal.end(outcome))

    def _write(self, entry: Callable[[Journal], object]) -> None:
        """Write to the store if there is one. If it fails it is closed, and the run fails with a StoreError.

        After an interrupt the journal stays open: what it lacks is written together with the next record.
        """
        journal = self._journal
        if journal is None:
            return
        try:
            entry(journal)
        except OSError as error:
            self._journal = None
            journal.close()
            if isinstance(error, StoreError):  # it has its own sentence
                raise
            way_out = not_written(error, "choose another store")
            kept = f"The store has {len(journal)} of its {len(self.trace)} records."
            raise StoreError(f"The run could not be stored {way_out} {kept}") from error

    def _exchange_method(self, method: Method) -> None:
        with self._busy:
            self._close_method()
            self.method = method

    def _close_method(self) -> None:
        """Close the method's generator. The next step starts a new one from the last state kept."""
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()

    def _release(self) -> None:
        self._close_method()
        if self._journal is not None:
            self._journal.close()
            self._journal = None
