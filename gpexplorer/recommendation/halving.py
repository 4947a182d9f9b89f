"""Successive halving: all candidates on few rows, the better half on more, and the best one for the rest of the time.

At most four stages try candidates; each lane has an equal share of a stage. With many rows the stages use a growing
random subset of them, and the last two use all; with fewer than 1000 rows every stage uses all and one more of three
held-out parts. The fewer lanes, the fewer stages: each of them is one in which about half of the lanes are given up.
The shorter the time and the more rows, the fewer lanes: a lane needs some time before its answer says anything.

A method of minibatches and the full GP that is solved by blocks use all rows from the first stage on and are not begun
again. Other runs begin the next stage from the theta that they have learned, if they learn one, and the first stage
from the theta that an exact GP with the same kernel has learned on some rows: bounds on the likelihood have optima at
which everything is noise, and a start near the exact optimum avoids them.

After a stage these lanes continue: the better half by held-out NLPD; the lane with the lowest SMSE; the lane that would
be chosen at this point, which is the first candidate of those within a standard error of the best; the lane with the
lowest forecast of its final NLPD, extrapolated from its last two stages; and, while rows are still to be added, the
best lane of each group, because groups profit from more rows in different ways (an exact GP on a subset of 1000 rows
gains nothing from the other rows). Two lanes reach the last stage: the one that would be chosen, and the one with the
lowest forecast. The lane that is chosen has the rest of the time.

References
----------
Jamieson, K. and Talwalkar, A. (2016). Non-stochastic best arm identification and hyperparameter optimization. AISTATS.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ..data import Split
from ..data.given_folds import fold_pairs, groups_of_rows
from ..errors import SettingError
from ..methods.base import registry
from ..runs.run import Run
from ..runs.setting_checks import number, of_kind
from ..runs.spec import Spec
from .arguments import NO_ROWS, bytes_of, rows_of
from .candidates import EXACT, Candidate, candidates
from .held_out import RowScores, first_rows, parts
from .lanes import Lane, held_out_scores, step_until
from .result import Recommendation, better_simple_model, hardly_differs, sentences, table, why_not
from .simple_models import for_inputs, plain_inputs
from .stages import FEWEST_LANES, Progress, lanes_for, parts_of_stages, shares_for

SIMPLE_ROWS_PER_SECOND = 600  # limit of the rows to which simple models are fitted, per second of the time
LEAST_SHARE = 0.02  # share of the time that the lanes of a stage have in any case, if earlier stages took too long
EXACT_WEIGHT = {True: 1.5, False: 3.0}  # shares of the first stage for an exact GP, if it is the only stage or not
SIZE_SHARE = 1 / 15  # of the time: what thirty steps of a candidate may take, which decides its size
TOO_SHORT = (
    "The time did not suffice to fit it to all training rows ({steps} steps of about {needed}), so the answer is the "
    "model of the search, which is fitted to the rows that were not held out."
)
REFIT_UP_TO = 10_000  # rows: with fewer, the chosen method is fitted again to all rows, if there is time
# An exact GP is fitted to all rows from its initial values if the time left is this multiple of the time that its run
# on two thirds of the rows took: 1.5^3, and a margin.
ANEW_TIMES = 5.0
# The winner is fitted to all rows if the time left is this multiple of the time that its run took. With less time, more
# steps of that run gain more than the held-out rows do. An exact GP that is factored (True) needs less time, because
# its answer with the theta of the search is complete at the first evaluation.
REFIT_TIMES = {False: 2.0, True: 0.5}


def recommend(  # noqa: PLR0913 - what to learn from and how long; callers name all but the first two
    X: Any,
    y: Any = None,
    *,
    seconds: float = 60.0,
    memory: str | float | None = None,
    seed: int = 0,
    folds: Any = None,
    groups: Any = None,
    among: Sequence[Candidate] | None = None,
    on_progress: Callable[[Progress], object] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.perf_counter,
    **options: Any,
) -> Recommendation:
    """Find the method, kernel and size to use for some rows, and fit it.

    Parameters
    ----------
    X : array [n, d], list of str, DataFrame, Split, or source
        Inputs if `y` is given. Otherwise anything that `gpx.load` reads: the name of a data set, a file, a table. Only
        its training rows are used.
    y : array [n], optional
        Targets.
    seconds : float, default 60
        Wall-clock time, counted from the call. A step that has begun is not interrupted.
    memory : str or float, optional
        The most that one candidate may hold by its formula, such as "2 GB" or a number of bytes. By default half of
        the memory that is free.
    seed : int, default 0
        Seed of the held-out rows and of every method.
    folds : splitter or iterable, optional
        A splitter of scikit-learn, such as GroupKFold(5), or pairs (training rows, held-out rows), in place of a random
        draw. Candidates are compared on all rows that the folds hold out.
    groups : array [n], optional
        The group of each row, such as a patient: rows of one group are held out together. Of a file or a table also
        the name of a column.
    among : sequence of Candidate, optional
        Other candidates than those that are chosen by the size of the data, the most promising one first. Of candidates
        whose scores hardly differ, the first is chosen.
    on_progress : callable, optional
        Called with a `Progress` before each piece of work.
    should_stop : callable, optional
        Asked before each step. When it returns True, the best answer so far is returned.
    clock : callable, optional
        Gives seconds. Tests pass a clock of their own.
    **options
        Options of `gpx.load` for a file or a table: target, inputs, drop, missing, encode, dates, decimal and others.

    Returns
    -------
    Recommendation
        The choice, what to expect of it, a table of all candidates, and the fitted model.

    Raises
    ------
    DataError
        If there are fewer than 10 rows, or if the rows cannot be read.
    SettingError
        If a parameter cannot be used, or if no candidate gave an answer within the time.

    Notes
    -----
    Held-out rows decide, and never test rows. The expected scores are those of the held-out rows; because the best of
    several candidates was chosen by them, they are slightly optimistic.

    Examples
    --------
    >>> answer = gpx.recommend(X, y, seconds=60, memory="2 GB")
    >>> print(answer)
    >>> mean, var = answer.predict(X_new)
    """
    begin = clock()
    seconds = float(number("seconds", seconds, whole=False, low=0, above=True))
    limit = bytes_of(memory)
    seed = int(number("seed", seed, whole=True, low=0, high=2**31 - 1))
    if isinstance(groups, str):
        options, groups = {**options, "groups": groups}, None
    split = rows_of(X, y, options)
    train = split.train
    if folds is None and groups is not None:
        split = replace(split, train=replace(train, groups=groups_of_rows(groups, len(train))))
    pairs = () if folds is None else fold_pairs(folds, train.X, train.y.numpy(), groups)
    search = _Search(split, begin, seconds, parts(split, seed, pairs), on_progress, should_stop, clock)
    if among is None:
        chosen = list(candidates(split, seconds * SIZE_SHARE))[: lanes_for(len(train), seconds)]
    else:
        chosen = list(of_kind("among", among, Sequence, "candidates"))
    if not chosen:
        raise SettingError("among is empty: give at least one Candidate, or leave it out.")
    lanes = [Lane(candidate, seed, limit) for candidate in chosen]
    finalists = search.halve(lanes)
    simple = search.simple_models()  # after the search, so that a slow one takes no time from it
    return search.answer(lanes, finalists, simple)


class _Search:
    """The rows, the clock and the stages of one recommendation."""

    def __init__(
        self,
        split: Split,
        begin: float,
        seconds: float,
        held_out: list[Split],
        on_progress: Callable[[Progress], object] | None,
        should_stop: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self.split, self.begin, self.seconds, self.parts = split, begin, seconds, held_out
        self.on_progress, self.should_stop, self.clock = on_progress, should_stop, clock
        self.thetas: dict[str, list[float]] = {}  # by kernel, as an exact GP has learned it
        self.shares = shares_for(FEWEST_LANES)

    def report(self, sentence: str) -> None:
        """Report how much of the time is used, with a sentence about the work that begins."""
        if self.on_progress is not None:
            elapsed = self.clock() - self.begin
            self.on_progress(Progress(min(elapsed / self.seconds, 1.0), max(self.seconds - elapsed, 0.0), sentence))

    def simple_models(self) -> dict[str, RowScores]:
        """Fit the simple models, to a random part of the rows if time is short. One that fails is left out."""
        result: dict[str, RowScores] = {}
        most = max(1000, int(SIMPLE_ROWS_PER_SECOND * self.seconds))
        for name, model in for_inputs(self.split).items():
            if self.should_stop():
                break
            self.report(f"Fitting the simple model: {name}.")
            scores: RowScores | None = None
            with suppress(ValueError, FloatingPointError):  # scikit-learn refuses the rows
                for part in (first_rows(part, most) for part in self.parts):
                    X, X_new = (plain_inputs(rows.X) for rows in (part.train, part.test))  # [n, d], or texts [n]
                    mean, var = model(X, part.train.y.numpy(), X_new)
                    of_part = RowScores.of(part.test.y.numpy(), mean, var)
                    scores = of_part if scores is None else scores.joined(of_part)
            if scores is not None and scores.usable:
                result[name] = scores
        return result

    def halve(self, lanes: list[Lane]) -> list[Lane]:
        """Take the lanes through the stages; return those of the last stage, the best first."""
        running = list(lanes)
        self.shares = shares_for(len(lanes))
        stages = parts_of_stages(self.parts, len(self.shares))
        for stage, stage_parts in enumerate(stages):
            start, shares_left = self.clock(), 1.0 - sum(self.shares[:stage])  # of this stage and all that follow
            end = start + max(self.begin + self.seconds - start, 0.0) * self.shares[stage] / shares_left
            self._try(running, stage_parts, end, stage)
            running = sorted((lane for lane in running if not lane.sentence), key=_by_density)
            if self.should_stop() or not running or stage == len(stages) - 1:
                break
            rows_grow = len(stage_parts[0].train) < len(self.parts[0].train)
            kept = self._pair(running, lanes) if stage == len(stages) - 2 else self._kept(running, lanes, rows_grow)
            for lane in running:
                if lane not in kept:
                    lane.give_up(f"Others were better on the same held-out rows, fitted to {lane.rows:,} rows.")
            running = kept
        return running

    def answer(self, lanes: list[Lane], finalists: list[Lane], simple: Mapping[str, RowScores]) -> Recommendation:
        """Choose among the finalists, continue the winner until the time is used, and describe the result."""
        if not finalists:
            reasons = " ".join(f"{lane.name}: {lane.sentence}" for lane in lanes)
            raise SettingError(f"No candidate gave an answer within {self.seconds:g} s. {reasons}")
        small = len(self.split.train) <= REFIT_UP_TO
        winner = _chosen(finalists, lanes) if small else min(finalists, key=self._forecast)
        seconds_left = self.begin + self.seconds - self.clock()
        refitted, note = False, ""
        if self.should_stop():
            run = _first_run(winner)
        elif len(self.parts) > 1 or (
            small and seconds_left >= REFIT_TIMES[winner.is_factored] * winner.seconds_of_a_run
        ):
            run, note = self._refit_to_all_rows(winner)
            refitted = not note
        else:
            winner, run, note = self._continue_winner(winner, finalists, lanes)
        assert winner.scores is not None
        others = [lane for lane in finalists if lane is not winner]
        for lane in [*others, *(lane for lane in lanes if lane not in others and hardly_differs(lane, winner))]:
            lane.give_up(why_not(lane, winner))
        spec = of_kind("The run's spec", run.spec, Spec, "a run of a Spec")
        seconds = self.clock() - self.begin
        return Recommendation(
            winner.candidate.method,
            winner.candidate.kernel,
            dict(spec.settings),
            spec,
            run,
            expected={metric: winner.scores.interval(metric) for metric in ("smse", "nlpd")},
            table=table(lanes, winner, simple),
            runner_up=others[0].name if others else "",
            better_simple_model=better_simple_model(winner.scores, simple),
            refitted=refitted,
            sentences=sentences(self.split, winner, others, simple, refitted, (seconds, self.seconds), note),
        )

    def _try(self, lanes: list[Lane], stage_parts: list[Split], end: float, stage: int) -> None:
        """Give each lane an equal share of the time that is left until the end of the stage."""
        # An exact GP has no useful answer before it has learned; later lanes of the same kernel begin with its theta.
        exact = EXACT_WEIGHT[len(self.shares) == 1] if stage == 0 else 1.0
        weights = [exact if lane.group == EXACT else 1.0 for lane in lanes]
        # Every lane has at least half of its share, even if the steps of earlier lanes took too long.
        least = max(0.5 * (end - self.clock()), LEAST_SHARE * self.seconds) / sum(weights)
        for position, lane in enumerate(lanes):
            if self.should_stop() and lane.scores is not None:
                continue
            share = weights[position] * max((end - self.clock()) / sum(weights[position:]), least)
            own_parts = self.parts if lane.candidate.all_rows and len(self.parts) == 1 else stage_parts
            rows = len(own_parts[0].train)
            self.report(f"Stage {stage + 1} of {len(self.shares)}: {lane.name} on {rows:,} rows.")
            previous = lane.scores, lane.rows
            if not registry[lane.candidate.method].own_kernel:
                lane.start = self.thetas.get(lane.candidate.kernel)
            lane.work(own_parts, share, self.should_stop, self.clock)
            if lane.sentence and previous[0] is not None and lane.scores is None:
                lane.scores, lane.rows = previous  # for the table: what it reached on fewer rows
            if lane.group == EXACT and (theta := lane.learned_theta()) is not None:
                self.thetas[lane.candidate.kernel] = theta

    def _kept(self, ranked: list[Lane], lanes: list[Lane], rows_grow: bool) -> list[Lane]:
        """The better half, the lowest SMSE, the lane to choose now, the best forecast and, if rows grow, each group."""
        kept = ranked[: max(2, (len(ranked) + 1) // 2)]
        kept.append(min(ranked, key=lambda lane: lane.scores.smse if lane.scores else np.inf))
        kept += [_chosen(ranked, lanes), min(ranked, key=self._forecast)]
        if rows_grow:
            kept += {lane.group: lane for lane in reversed(ranked)}.values()
        return [lane for lane in ranked if lane in kept]

    def _pair(self, ranked: list[Lane], lanes: list[Lane]) -> list[Lane]:
        """The lane that would be chosen now, and the one that is expected to be the best at the end, or the next."""
        chosen, expected = _chosen(ranked, lanes), min(ranked, key=self._forecast)
        others = [expected, *ranked]
        return [chosen, *[lane for lane in others if lane is not chosen][:1]]

    def _forecast(self, lane: Lane) -> float:
        """The NLPD to expect of a lane if it is chosen and has the rest of the time."""
        return lane.forecast(self.seconds * (1.0 - sum(self.shares)))

    def _continue_winner(self, winner: Lane, finalists: list[Lane], lanes: list[Lane]) -> tuple[Lane, Run, str]:
        """Step the winner's run until the time is used. If a finalist is still better then, it is the winner.

        If the run fails, the record that was scored last is the answer, and the third part of the result says so.
        """
        run = _first_run(winner)
        scored, note = run.done, ""
        self.report(f"Going on with {winner.name}.")
        step_until(run, self.begin + self.seconds - winner.scoring, self.should_stop, self.clock)
        scores = held_out_scores(run, self.parts[0])
        if run.error is None and scores.usable:
            winner.scores = scores
        else:
            note = _failure(f"going on with {winner.name}", run)
            run.close()
            winner.runs = {part: own_run.fork(scored) for part, own_run in winner.runs.items()}
        best = _chosen(sorted(finalists, key=_by_density), lanes)
        run = _first_run(best)
        run.close()
        return best, run, note

    def _refit_to_all_rows(self, winner: Lane) -> tuple[Run, str]:
        """A run of the winner on all training rows for the rest of the time.

        It begins with the theta that the winner has learned. An exact GP learns from its initial values again, if there
        is time, because the theta of some rows may lie near a poorer optimum of all rows. If it fails, or has taken too
        few steps when the time is used, so that it may be worse, the result is the winner's run on the rows of the
        search, and a sentence that says so.
        """
        seconds_left = self.begin + self.seconds - self.clock()
        from_initial_values = winner.group == EXACT and seconds_left >= ANEW_TIMES * winner.seconds_of_a_run
        theta = None if from_initial_values else winner.learned_theta()
        all_rows = replace(self.split, test=self.split.train.rows(NO_ROWS), key=f"{self.split.key}/all")
        spec = winner.candidate.spec(len(all_rows.train), winner.seed, theta)
        winner.give_up("")
        self.report(f"Fitting {winner.name} to all {len(all_rows.train):,} rows.")
        run = spec.open(data=all_rows)
        step_until(run, self.begin + self.seconds, self.should_stop, self.clock)
        run.close()
        if run.error is None and len(run.trace):
            enough = 1 if winner.is_factored and theta is not None else _first_run(winner).done
            if run.outcome is not None or run.done >= enough:
                return run, ""
            return _first_run(winner), TOO_SHORT.format(steps=run.done, needed=_first_run(winner).done)
        return _first_run(winner), _failure(f"fitting {winner.name} to all rows", run)


def _first_run(lane: Lane) -> Run:
    """The run of a lane on the rows of the first part."""
    return next(iter(lane.runs.values()))


def _failure(activity: str, run: Run) -> str:
    """Why the last piece of work gave no answer."""
    reason = "Its predictions were not finite." if run.error is None else str(run.error)
    if not len(run.trace) and run.error is None:
        reason = "It was stopped."
    return f"The answer is that of the search on fewer rows or steps, because {activity} failed: {reason}"


def _by_density(lane: Lane) -> float:
    return lane.scores.nlpd if lane.scores is not None else np.inf


def _chosen(finalists: list[Lane], lanes: list[Lane]) -> Lane:
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
