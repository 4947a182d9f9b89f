"""A lane: one candidate with its runs, its scores on held-out rows, and why it was given up, if it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..data import Split
from ..errors import GPExplorerError
from ..methods.base import registry
from ..posteriors import Marginals, MixtureMarginals, Widening
from ..problem import Problem
from ..runs.run import Run
from ..runs.studies import machine_speed
from .candidates import EXACT, GROUPS, NEIGHBOURS, Candidate, log_units
from .held_out import RowScores, held_out_marginals
from .horizon_widening import scores_of_parts
from .relevance_pursuit import models_of

LONGEST_FIRST_STEP = 3.0  # shares: a lane whose step needs longer, by its formula, is not begun

Clock = Callable[[], float]


@dataclass(eq=False)
class Lane:
    """One candidate.

    Attributes
    ----------
    candidate : Candidate
        What it runs.
    runs : dict of int to Run
        One run per part of the held-out rows, on the rows of the present stage.
    rows : int
        The number of rows that the runs are fitted to.
    scores : RowScores or None
        The latest scores on held-out rows.
    sentence : str
        Why the lane takes no further part; empty while it does.
    seconds : float
        Wall-clock seconds that it has used.
    curve : list of tuple of float
        Seconds used and held-out NLPD after each stage.
    start : list of float or None
        Logarithms of the hyperparameters to begin with, in the units of the file, as an exact GP with the same kernel
        has learned them on some rows.
    scoring : float
        Seconds of the latest scoring, which a share of time has to contain.
    time_name : str
        The input that is the time of the rows, if later rows are held out.
    widening : Widening or None
        By how much its variances after the last row have to be wider: of the runs, or of one on all rows after them.
    """

    candidate: Candidate
    seed: int
    memory: float
    runs: dict[int, Run] = field(default_factory=dict)
    rows: int = 0
    scores: RowScores | None = None
    sentence: str = ""
    seconds: float = 0.0
    curve: list[tuple[float, float]] = field(default_factory=list)
    start: list[float] | None = None
    scoring: float = 0.0
    time_name: str = ""
    widening: Widening | None = None

    @property
    def name(self) -> str:
        """The name of the candidate."""
        return self.candidate.name

    @property
    def known_scores(self) -> RowScores:
        """The scores of a lane that has some."""
        assert self.scores is not None
        return self.scores

    def work(self, parts: list[Split], seconds: float, stopped: Callable[[], bool], clock: Clock) -> None:
        """Step the run of each part, in equal shares of the time, and score the answers.

        An error of the method ends this lane only, with the sentence of the error.
        """
        begin = clock()
        try:
            self._open(parts, seconds)
            scored = self.scores and [(run.done, run.error) for run in self.runs.values()]
            for number, run in enumerate(self.runs.values()):
                share = (begin + seconds - self.scoring - clock()) / (len(self.runs) - number)
                step_until(run, clock() + share, stopped, clock)
            if stopped():  # score only the parts whose run has taken a step
                begun = {k: run for k, run in self.runs.items() if len(run.trace) or run.error is not None}
                self.runs = begun or self.runs
            if scored != [(run.done, run.error) for run in self.runs.values()]:
                scoring_began = clock()
                self._score(parts)
                self.scoring = clock() - scoring_began
        except GPExplorerError as error:
            self.give_up(str(error))
        self.seconds += clock() - begin
        if self.scores is not None:
            self.curve.append((self.seconds, self.scores.nlpd))

    def forecast(self, seconds: float) -> float:
        """The NLPD at this time in seconds, extrapolated linearly in the logarithm of time from the last two stages."""
        if len(self.curve) < 2:
            return self.curve[-1][1] if self.curve else np.inf
        (t1, v1), (t2, v2) = self.curve[-2:]
        return v2 + min(v2 - v1, 0.0) * np.log(max(seconds, t2) / t2) / np.log(t2 / t1)

    def give_up(self, sentence: str) -> None:
        """Take no further part, and free the memory of the runs."""
        self.sentence = sentence
        for run in self.runs.values():
            run.close()

    @cached_property
    def group(self) -> str:
        """The group of the candidate."""
        return self.candidate.group

    @property
    def is_factored(self) -> bool:
        """Whether it is an exact GP by a factor, whose answer is complete for every theta that it evaluates."""
        return self.group in (EXACT, GROUPS) and not self.candidate.all_rows

    def learned_theta(self) -> list[float] | None:
        """Theta as the first run has learned it; None if the method uses no kernel or has taken no step."""
        if registry[self.candidate.method].own_kernel or not self.runs:
            return None
        return theta_of(self.first_run)

    def learned_logs(self) -> list[float] | None:
        """Logarithms of the hyperparameters that the first run has learned, in the units of the file; or None."""
        theta = self.learned_theta()
        return None if theta is None else logs_of(theta, self.first_run.problem)

    @property
    def after_learning(self) -> tuple[int, float]:
        """Steps and seconds of the first run since theta was learned; none unless it learns first and then solves.

        Near rows have nothing to solve: any theta is complete at one step, whose seconds are those of the longest one.
        """
        if self.group == NEIGHBOURS and self.runs and self.first_run.outcome is not None:
            ends = [record.seconds for record in self.first_run.trace]
            return 1, max((after - before for before, after in pairwise(ends)), default=0.0)
        method = registry[self.candidate.method]
        solves = self.group == EXACT and self.candidate.all_rows and "learn" in method.param
        last = self.learned_theta() if solves else None
        if last is None:
            return 0, 0.0
        records = list(self.first_run.trace)
        moved = [k for k, record in enumerate(records) if record.step.state.theta.tolist() != last]
        if not moved:
            return 0, 0.0
        learned = moved[-1] + 1
        return len(records) - 1 - learned, records[-1].seconds - records[learned].seconds

    @property
    def first_run(self) -> Run:
        """The run on the rows of the first part."""
        return next(iter(self.runs.values()))

    @property
    def seconds_of_a_run(self) -> float:
        """Seconds of the first run's own work."""
        run = next(iter(self.runs.values()), None)
        return run.trace[-1].seconds if run is not None and len(run.trace) else 0.0

    def marginals(self, run: Run, part: Split) -> Marginals:
        """The distributions of the held-out targets; where rows got a noise of their own, new rows may be like them."""
        marginals = held_out_marginals(run, part)
        (_, own), *others = models_of(run, self.candidate.pursues)
        if not others:
            return marginals
        [(like_chosen, share)] = others
        return MixtureMarginals([marginals, like_chosen.marginals(part.test.X)], [own, share])

    def rescored(self, parts: list[Split]) -> tuple[RowScores, Widening | None]:
        """The scores of the runs on the rows that these parts hold out, and the widening that they ask for."""
        own = [parts[k] for k in self.runs]
        marginals = [self.marginals(run, part) for run, part in zip(self.runs.values(), own, strict=True)]
        return scores_of_parts(own, marginals, self.time_name)

    def _open(self, parts: list[Split], seconds: float) -> None:
        rows, logs = len(parts[0].train), self.start
        if rows != self.rows:
            logs = self.learned_logs() or logs
            for run in self.runs.values():
                run.close()
            self.runs, self.rows, self.scores = {}, rows, None
        for k, part in enumerate(parts):
            if k not in self.runs:
                run = self.candidate.opened(part, self.seed, logs)
                if logs is None and not registry[self.candidate.method].own_kernel:
                    logs = logs_of(run.problem.theta.tolist(), run.problem)  # where the race of the first part ended
                self._refuse_too_large(run, seconds / len(parts))
                self.runs[k] = run

    def _refuse_too_large(self, run: Run, seconds: float) -> None:
        cost = run.method.cost(run.problem)
        if cost.memory > self.memory:
            raise GPExplorerError(
                f"It would hold {cost.memory / 1e9:.2g} GB, and {self.memory / 1e9:.2g} GB are allowed."
            )
        predicted = machine_speed.machine().seconds(cost)
        if predicted > LONGEST_FIRST_STEP * seconds:
            raise GPExplorerError(
                f"One step would take about {predicted:.2g} s, and its share of the time is {seconds:.2g} s."
            )

    def _score(self, parts: list[Split]) -> None:
        for run in self.runs.values():
            if run.error is not None:
                raise GPExplorerError(str(run.outcome.message if run.outcome else run.error))
            if not len(run.trace):
                raise GPExplorerError("It had no time for its first step.")
        scores, widening = self.rescored(parts)
        if not scores.usable:
            raise GPExplorerError("Its predictions are not finite.")
        self.scores, self.widening = scores, widening


def theta_of(run: Run) -> list[float] | None:
    """Theta as a run has learned it; None if there is none that can be used."""
    theta = getattr(run.trace[-1].step.state, "theta", None) if len(run.trace) else None
    values = None if theta is None else [float(value) for value in theta]
    usable = values is not None and np.isfinite(values).all() and max(map(abs, values)) < 100
    return values if usable else None


def logs_of(theta: Sequence[float], problem: Problem) -> list[float]:
    """Logarithms of hyperparameters in the units of the file; see `Candidate.opened`."""
    units = log_units(problem.kernel, problem.train)
    return [entry + unit for entry, unit in zip(theta, units, strict=True)]


def step_until(run: Run, deadline: float, stopped: Callable[[], bool], clock: Clock = time.perf_counter) -> None:
    """Step a run until a moment of the clock. A step that is expected to end too late is not begun.

    A step is expected to take as long as the one before it. The first two records are always taken, because there is
    no answer without them.
    """
    last_seconds = 0.0
    while not stopped() and run.outcome is None:
        begin = clock()
        if run.done >= 1 and begin + 0.5 * last_seconds > deadline:
            return
        if run.advance() is None:
            return
        last_seconds = clock() - begin


def by_density(lane: Lane) -> float:
    return lane.scores.nlpd if lane.scores is not None else np.inf


def chosen(finalists: list[Lane], lanes: list[Lane]) -> Lane:
    """The lane with the lowest NLPD, or the first of all lanes among those within one standard error of it.

    The first candidates suit most data: a small difference on few held-out rows says less than that.
    """
    best = finalists[0].known_scores

    def is_close(lane: Lane) -> bool:
        lower, error = best.better_by(lane.known_scores)
        return lower <= error

    return min(filter(is_close, finalists), key=lanes.index)


def comparable(lane: Lane, winner: Lane) -> bool:
    """Whether a lane was fitted to as many rows as the winner, and scored on the same held-out rows."""
    if lane.scores is None or winner.scores is None:
        return False
    return (lane.rows, len(lane.scores.targets)) == (winner.rows, len(winner.scores.targets))
