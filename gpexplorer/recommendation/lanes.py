"""A lane: one candidate with its runs, its scores on held-out rows, and why it was given up, if it was."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..data import Split
from ..errors import GPExplorerError
from ..methods.base import registry
from ..posteriors import Marginals, MixtureMarginals, NormalMarginals
from ..runs.run import Run
from ..runs.studies import machine_speed
from .candidates import EXACT, GROUPS, Candidate
from .held_out import RowScores
from .questions.relevance_pursuit import Pursued, pursuit

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
        The theta to begin with, as an exact GP with the same kernel has learned it on some rows.
    scoring : float
        Seconds of the latest scoring, which a share of time has to contain.
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

    @property
    def name(self) -> str:
        """The name of the candidate."""
        return self.candidate.name

    def work(self, parts: list[Split], seconds: float, stopped: Callable[[], bool], clock: Clock) -> None:
        """Step the run of each part, in equal shares of the time, and score the answers.

        An error of the method ends this lane only, with the sentence of the error.
        """
        begin = clock()
        try:
            self._open(parts, seconds)
            for number, run in enumerate(self.runs.values()):
                share = (begin + seconds - self.scoring - clock()) / (len(self.runs) - number)
                step_until(run, clock() + share, stopped, clock)
            if stopped():  # score only the parts whose run has taken a step
                begun = {k: run for k, run in self.runs.items() if len(run.trace) or run.error is not None}
                self.runs = begun or self.runs
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
        trace = next(iter(self.runs.values())).trace
        theta = getattr(trace[-1].step.state, "theta", None) if len(trace) else None
        values = None if theta is None else [float(value) for value in theta]
        usable = values is not None and np.isfinite(values).all() and max(map(abs, values)) < 100
        return values if usable else None

    @property
    def after_learning(self) -> tuple[int, float]:
        """Steps and seconds of the first run since theta was learned; none unless it learns first and then solves."""
        method = registry[self.candidate.method]
        solves = self.group == EXACT and self.candidate.all_rows and "learn" in method.param
        if not solves or not self.runs:
            return 0, 0.0
        records, last = list(self.first_run.trace), self.learned_theta()
        if last is None:
            return 0, 0.0
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

    def scored(self, run: Run, part: Split) -> RowScores:
        """The scores of a run; where rows got a noise of their own, new rows may be like them."""
        pursued = pursuit(part, self.candidate.kernel) if self.candidate.pursues else None
        return held_out_scores(run, part, pursued)

    def _open(self, parts: list[Split], seconds: float) -> None:
        rows = len(parts[0].train)
        if rows != self.rows:
            theta = self.learned_theta()
            for run in self.runs.values():
                run.close()
            self.runs, self.rows, self.scores = {}, rows, None
        else:
            theta = None
        theta = theta or self.start
        for k, part in enumerate(parts):
            if k not in self.runs:
                spec = self.candidate.spec(len(part.train), self.seed, theta)
                run = spec.open(data=self.candidate.prepared(part))
                if theta is None and not registry[self.candidate.method].own_kernel:
                    theta = run.problem.theta.tolist()  # other parts begin where the race of the first one ended
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
        scores = None
        for k, run in self.runs.items():
            if run.error is not None:
                raise GPExplorerError(str(run.outcome.message if run.outcome else run.error))
            if not len(run.trace):
                raise GPExplorerError("It had no time for its first step.")
            latest = self.scored(run, parts[k])
            scores = latest if scores is None else scores.joined(latest)
        if scores is None or not scores.usable:
            raise GPExplorerError("Its predictions are not finite.")
        self.scores = scores


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


def held_out_scores(run: Run, part: Split, pursued: Pursued | None = None) -> RowScores:
    """The scores of a run's latest answer on the held-out rows of its part, in the units of the file.

    With pursued rows, the density of y is a mixture: a share of new rows has their noise.
    """
    posterior = run.posterior(of="y")
    marginals: Marginals = posterior.marginals(part.test.X)
    if pursued is not None and len(pursued.rows):
        mean, var = marginals.moments
        wide = NormalMarginals(mean, var + pursued.sd**2)
        marginals = MixtureMarginals([marginals, wide], [1.0 - pursued.share, pursued.share])
    return RowScores.of_marginals(part.test.y.numpy(), marginals, part.test.groups)


def by_density(lane: Lane) -> float:
    return lane.scores.nlpd if lane.scores is not None else np.inf


def chosen(finalists: list[Lane], lanes: list[Lane]) -> Lane:
    """The lane with the lowest NLPD, or the first of all lanes among those within one standard error of it.

    The first candidates suit most data: a small difference on few held-out rows says less than that.
    """
    best = finalists[0]
    assert best.scores is not None

    def is_close(lane: Lane) -> bool:
        assert best.scores is not None and lane.scores is not None
        lower, error = best.scores.better_by(lane.scores)
        return lower <= error

    return min(filter(is_close, finalists), key=lanes.index)


def comparable(lane: Lane, winner: Lane) -> bool:
    """Whether a lane was fitted to as many rows as the winner, and scored on the same held-out rows."""
    if lane.scores is None or winner.scores is None:
        return False
    return (lane.rows, len(lane.scores.targets)) == (winner.rows, len(winner.scores.targets))
