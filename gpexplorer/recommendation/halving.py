"""Successive halving: all candidates on few rows, the better half on more, and the best one for the rest of the time.

At most four stages try candidates; each lane has an equal share of a stage. With many rows the stages use a growing
random subset of them, and the last two use all; with fewer than 1000 rows every stage uses all and one more of three
held-out parts. The fewer lanes, the fewer stages: each of them is one in which about half of the lanes are given up.
The shorter the time and the more rows, the fewer lanes: a lane needs some time before its answer says anything. If the
likelihood says that a transform of the target suits its skewness (`skewness`), candidates with it are among the lanes.

A method of minibatches and the full GP that is solved by blocks use all rows from the first stage on and are not begun
again. Other runs begin the next stage from the theta that they have learned, if they learn one, and the first stage
from the theta that an exact GP with the same kernel has learned on some rows: bounds on the likelihood have optima at
which everything is noise, and a start near the exact optimum avoids them.

After a stage these lanes continue: the better half by held-out NLPD; the lane with the lowest SMSE; the lane that would
be chosen at this point, which is the first candidate of those within a standard error of the best; the lane with the
lowest forecast of its final NLPD, extrapolated from its last two stages; and, while rows are still to be added, the
best lane of each group, because groups profit from more rows in different ways (an exact GP on a subset of 1000 rows
gains nothing from the other rows). Two lanes reach the last stage: the one that would be chosen, and the one with the
lowest forecast. With several held-out parts, lanes that were given up are then completed if there is time. The lane
that is chosen has the rest of the time; what it leaves is used to fit the other models of an average (`averaging`).

References
----------
Jamieson, K. and Talwalkar, A. (2016). Non-stochastic best arm identification and hyperparameter optimization. AISTATS.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..data import Split
from ..data.quoting import joined
from ..errors import SettingError, function, is_one_of, number, quoted
from ..methods.base import registry
from ..runs.run import Run
from ..runs.spec import Spec
from .arguments import bytes_of, rows_in_spec
from .averaging import PREFERENCES, average_of_lanes, used_models
from .candidates import EXACT, EXACT_UP_TO, NEIGHBOURS, Candidate, candidates
from .final_fit import ANEW_TIMES, ORIGINS_SHARE, REFIT_TIMES, REFIT_UP_TO, final_model, least_seconds, spec_of_rows
from .held_out import first_rows, parts
from .lanes import Lane, by_density, chosen
from .promises import SHARE, between_in_words, between_rows, planned
from .result import (
    REFITTED,
    Recommendation,
    better_simple_model,
    facts_of_rows,
    hardly_differs,
    sentences,
    standing_of,
    table,
    why_not,
)
from .row_order import Plan, in_blocks, is_series
from .row_questions import without_gross_errors
from .simple_members import QUICK, Member, fitted_members, refitted_members
from .skewness import Transforms, suitable_transforms, with_transforms
from .stages import (
    FEWEST_LANES,
    Progress,
    TimedSearch,
    given_candidates,
    lanes_for,
    parts_of_stages,
    refuse_none,
    shares_for,
)

LEAST_SHARE = 0.02  # share of the time that the lanes of a stage have in any case, if earlier stages took too long
LAST_SHARE = 0.25  # of the time, for one lane where no other has given an answer
EXACT_WEIGHT = {True: 1.5, False: 3.0}  # shares of the first stage for an exact GP, if it is the only stage or not
FIRST_WEIGHT = 1.5  # more for the first lane, if there is only one stage and it is chosen between few
BLOCKS = 4  # of time in a single held-out part, whose errors are alike; two in each of several
SIZE_SHARE = 1 / 15  # of the time: what thirty steps of a candidate may take, which decides its size
REFIT_MARGIN, MOST_RESERVED = 1.3, 0.25  # of the seconds of the simple models of a part, for those of all rows
SERIES_ROWS = 1500  # of a long series, of which most candidates use no more, for the number of candidates
OTHERS_MARGIN, MOST_FOR_OTHERS = 1.3, 0.5  # of the seconds to fit other models of an average, and of the time left
SPARE_SHARE, MOST_FAILURES = 0.5, 2  # of the time left, for a further lane; lanes in a row that are not the best
SPARE_BYTES = 2e8  # that a further lane may hold by its formula: near rows, the usual best, hold less
CLOSING_TIMES = 3.0  # of the seconds in which models are weighed, for weighing them again, the table and the sentences
ROWS_AT_ONCE, SECONDS_AT_ONCE = 200, 1.0  # of a candidate that is tried after a stop, if none has an answer
MOST_NAMED = 3  # reasons why there is no answer, and candidates of each
COMPLETE_SHARE = 0.4  # of the time left after the stages, for lanes that were given up early


def recommend(  # noqa: PLR0913 - what to learn from and how long; callers name all but the first two
    X: Any,
    y: Any = None,
    *,
    seconds: float = 60.0,
    memory: str | float | None = None,
    seed: int = 0,
    folds: Any = None,
    before: Any = None,
    groups: Any = None,
    prefer: str = "nlpd",
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
        the memory that is free, and 200 MB for one that is tried in time that others have left.
    seed : int, default 0
        Seed of the held-out rows and of every method.
    folds : {"time", "groups", "random"}, splitter or iterable, optional
        How rows are held out. "time" holds out later rows than those that are fitted, "groups" whole groups, and
        "random" a random draw of rows. Without it, the rows decide: see `row_order`. A splitter of scikit-learn, such
        as GroupKFold(5), or pairs (training rows, held-out rows) are taken as they are.
    before : float or str, optional
        Rows with a time, or a date such as "2020-01-31", before this one are fitted, and the others are held out.
    groups : array [n], optional
        The group of each row, such as a patient: rows of one group are held out together. Of a file or a table also
        the name of a column.
    prefer : {"nlpd", "rmse", "gp"}, default "nlpd"
        What the average of models is for: bands, or the smallest squared error. "gp" leaves trees and other simple
        models out of the answer.
    among : sequence of Candidate, optional
        Other candidates than those that are chosen by the size of the data, the most promising one first. Of candidates
        whose scores hardly differ, the first is chosen.
    on_progress : callable, optional
        Called with a `Progress` before each piece of work.
    should_stop : callable, optional
        Asked before each step. When it returns True, the best answer so far is returned.
    clock : callable, optional
        Gives seconds. Tests pass a clock of their own.
    **options : object
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
    if not is_one_of(prefer, PREFERENCES):
        raise SettingError(f'prefer is {quoted(prefer)}; give "nlpd", "rmse" or "gp".')
    function("should_stop", should_stop, "without arguments that returns whether to stop")
    if on_progress is not None:
        function("on_progress", on_progress, "of a report")
    all_rows, plan = planned(X, y, options, folds, before, groups)
    split = without_gross_errors(all_rows)
    train = split.train
    possible = [] if among is None else given_candidates(among, len(train), seed)
    held_out = _held_out_parts(split, plan, seed)
    latest = 1 if plan.kind == "time" else None  # models of earlier rows would be behind the times
    search = Halving(split, begin, seconds, held_out, on_progress, should_stop, clock, most_models=latest)
    search.report("Looking at the rows.")
    facts = facts_of_rows(all_rows.train)
    time_name = plan.column if plan.kind == "time" else ""
    suitable = suitable_transforms(search, seed) if among is None else Transforms()
    members, member_seconds = fitted_members(search, suitable, time_name)
    search.reserved = min(REFIT_MARGIN * member_seconds, MOST_RESERVED * seconds)
    if among is None:
        search.report("Choosing candidates.")
        left = max(search.end - clock(), 0.5 * seconds)
        is_long_series = is_series(train, time_name) and len(train) > EXACT_UP_TO
        share = left * SIZE_SHARE / (len(held_out) if is_long_series else 1)
        possible = with_transforms(candidates(split, share, time_name), suitable)
        count = lanes_for(SERIES_ROWS if is_long_series else len(train), left, len(held_out))
    else:
        count = len(possible)
    refuse_none(possible)
    of_spare = limit if memory is not None else min(limit, SPARE_BYTES)
    lanes = [Lane(candidate, seed, limit, time_name=time_name) for candidate in possible[:count]]
    spare = [Lane(candidate, seed, of_spare, time_name=time_name) for candidate in possible[count:]]
    finalists = search.complete(lanes, search.halve(lanes) or search.tried_again(lanes) or search.at_once(lanes))
    finalists = search.try_spare(lanes, finalists, spare)
    column = groups if isinstance(groups, str) else plan.column if plan.kind == "groups" else ""
    rows = rows_in_spec(X, y, {**options, "groups": column or None}, all_rows)
    spec_of = partial(spec_of_rows, split=all_rows, rows=rows)
    return _answer(search, lanes, finalists, members, (suitable, time_name, prefer), plan, facts, spec_of)


def _held_out_parts(split: Split, plan: Plan, seed: int) -> list[Split]:
    """The parts on which lanes are scored; where the rows are in order of time, with blocks of it."""
    held_out = parts(split, seed, plan.pairs)
    if plan.kind != "time":
        return held_out
    blocks = BLOCKS if len(held_out) == 1 else 2
    return [in_blocks(part, plan.column, blocks * k, blocks) for k, part in enumerate(held_out)]


def _answer(  # noqa: PLR0913 - what the search has found
    search: Halving,
    lanes: list[Lane],
    finalists: list[Lane],
    members: list[Member],
    how: tuple[Transforms, str, str],
    plan: Plan,
    facts: tuple[str, ...],
    spec_of: Callable[[Run], Spec],
) -> Recommendation:
    """Choose among the finalists, use the time that is left, and describe the result."""
    transforms, time_name, prefer = how
    simple = {member.name: member.scores for member in members}
    if not finalists:
        raise SettingError(_no_answer(search, lanes))
    chosen_lane = search.choose(finalists, lanes)
    weighing_began = search.clock()
    used, others = used_models(search, chosen_lane, lanes, members, prefer)
    closing = CLOSING_TIMES * (search.clock() - weighing_began)
    fitting_began = search.clock()
    whole = refitted_members(search, used, transforms, time_name) if used else {}
    names = QUICK if search.clock() - fitting_began > SHARE * search.seconds else ("",)
    simple_names = [member.name for member in used if member.name.startswith(names)]
    drawn = between_rows(search, [chosen_lane, *others], simple_names, transforms) if plan.kind != "random" else None
    needed = OTHERS_MARGIN * sum(map(least_seconds, others))
    needed += ORIGINS_SHARE * search.seconds * (1 + len(others)) if time_name else 0.0
    search.reserved = closing + min(needed, MOST_FOR_OTHERS * max(search.begin + search.seconds - search.clock(), 0.0))
    final = final_model(search, chosen_lane, finalists, lanes)
    search.reserved = closing
    average = average_of_lanes(search, final, lanes, members, whole, prefer)
    winner, run = final.lane, final.run
    predicting = winner.known_scores if average is None else average.scores
    weights = {winner.name: 1.0} if average is None else average.weights
    between = None if drawn is None else drawn.scores(weights)
    facts = (*between_in_words(search, drawn, weights, chosen_lane, plan), *facts)
    others = [lane for lane in finalists if lane is not winner]
    for lane in [*others, *(lane for lane in lanes if lane not in others and hardly_differs(lane, winner))]:
        lane.give_up(why_not(lane, winner))
    spec = spec_of(run)
    note, standing = REFITTED if final.refitted else final.note, standing_of(winner, lanes)
    return Recommendation(
        winner.candidate.method,
        winner.candidate.kernel,
        dict(spec.settings),
        spec,
        run,
        expected=predicting.intervals,
        table=table(lanes, winner, simple, average),
        runner_up=others[0].name if others else "",
        better_simple_model=better_simple_model(winner.known_scores, simple),
        refitted=final.refitted,
        average=average,
        sentences=sentences(
            search.split, winner, others, simple, average, search.time_in_words(), note, plan, between, facts, standing
        ),
        held_out_by=plan.kind,
        between=None if between is None else between.intervals,
        widening=winner.widening,
        pursues=winner.candidate.pursues,
    )


def _no_answer(search: Halving, lanes: list[Lane]) -> str:
    """Why there is no answer: the first reasons, with the candidates that they ended."""
    names = dict[str, list[str]]()
    for lane in lanes:
        names.setdefault(lane.sentence, []).append(lane.name)
    reasons = " ".join(f"{joined(own, MOST_NAMED)}: {reason}" for reason, own in list(names.items())[:MOST_NAMED])
    if search.should_stop():
        elapsed = search.clock() - search.begin
        return f"The search was stopped after {elapsed:.1f} s, before any candidate had an answer. {reasons}"
    return f"No candidate gave an answer within {search.seconds:g} s. {reasons}"


@dataclass
class Halving(TimedSearch):
    """The stages of one recommendation.

    Attributes
    ----------
    starts : dict of (str, str) to list of float
        Logarithms of hyperparameters, in the units of the file, by kernel and transform of the target, as an exact GP
        has learned them.
    shares : tuple of float
        The share of the time of each stage.
    """

    starts: dict[tuple[str, str], list[float]] = field(init=False, default_factory=dict)
    shares: tuple[float, ...] = field(init=False, default=shares_for(FEWEST_LANES))

    def halve(self, lanes: list[Lane]) -> list[Lane]:
        """Take the lanes through the stages; return those of the last stage, the best first."""
        running = list(lanes)
        self.shares = shares_for(len(lanes))
        stages = parts_of_stages(self.parts, len(self.shares))
        for stage, stage_parts in enumerate(stages):
            start, shares_left = self.clock(), 1.0 - sum(self.shares[:stage])  # of this stage and all that follow
            end = start + max(self.end - start, 0.0) * self.shares[stage] / shares_left
            self._try(running, stage_parts, end, stage)
            running = sorted((lane for lane in running if not lane.sentence), key=by_density)
            if self.should_stop() or not running or stage == len(stages) - 1:
                break
            rows_grow = len(stage_parts[0].train) < len(self.parts[0].train)
            kept = self._pair(running, lanes) if stage == len(stages) - 2 else self._kept(running, lanes, rows_grow)
            for lane in running:
                if lane not in kept:
                    lane.give_up(f"Others were better on the same held-out rows, fitted to {lane.rows:,} rows.")
            running = kept
        tried = [lane for lane in running if lane.scores is not None]
        most = max((len(lane.known_scores.targets) for lane in tried), default=0)
        for lane in tried:  # where a stop came between two lanes of a stage, some have been tried on fewer rows
            if len(lane.known_scores.targets) < most:
                lane.give_up("The search was stopped before this was tried on as many held-out rows as others.")
        return [lane for lane in tried if not lane.sentence]

    def complete(self, lanes: list[Lane], finalists: list[Lane]) -> list[Lane]:
        """Try lanes that were given up on the held-out parts that they have not seen, the better ones first.

        Returns
        -------
        list of Lane
            All lanes with scores on all held-out rows, the best first.
        """
        if len(self.parts) == 1 or not finalists:
            return finalists
        now, best = self.clock(), finalists[0]
        final_fit = (ANEW_TIMES if best.is_factored else REFIT_TIMES[False]) * best.seconds_of_a_run
        end = min(now + COMPLETE_SHARE * (self.end - now), self.end - final_fit)
        early = [lane for lane in lanes if lane.sentence and lane.scores is not None and lane not in finalists]
        for position, lane in enumerate(sorted(early, key=by_density)):
            missing = len(self.parts) - len(lane.runs)
            if not missing or self.should_stop() or self.clock() + missing * lane.seconds_of_a_run > end:
                continue
            self.report(f"Completing {lane.name} on all held-out rows.")
            sentence = lane.sentence
            lane.work(self.parts, (end - self.clock()) / (len(early) - position), self.should_stop, self.clock)
            lane.give_up(sentence)
        every_row = sum(len(part.test) for part in self.parts)
        completed = [lane for lane in early if lane.scores is not None and len(lane.scores.targets) == every_row]
        return sorted([*finalists, *completed], key=by_density)

    def try_spare(self, lanes: list[Lane], finalists: list[Lane], spare: list[Lane]) -> list[Lane]:
        """Try lanes for which there seemed to be no time, where the best one has converged before the time is used.

        Those that resemble the best lane come first, and near rows are led to their convergence before it. All lanes
        that are tried are added to `lanes`.

        Returns
        -------
        list of Lane
            The finalists with these lanes among them, the best first.
        """
        finalists = sorted(finalists, key=by_density)
        if len(self.parts) > 1 or not finalists:
            return finalists  # the best lane is fitted again to all rows, for which the time is kept
        first, failures = finalists[0], 0

        def difference(lane: Lane) -> tuple[bool, bool]:
            own, best = lane.candidate, first.candidate
            return own.group != best.group, own.target_transform != best.target_transform

        for lane in sorted(spare, key=difference):
            best, now = finalists[0], self.clock()
            if best.group == NEIGHBOURS and best.first_run.outcome is None:
                self.report(f"Going on with {best.name}.")
                best.work(self.parts, SPARE_SHARE * (self.end - now), self.should_stop, self.clock)
                now = self.clock()
            has_converged = best.first_run.outcome is not None and not best.sentence
            if not has_converged or failures == MOST_FAILURES or self.should_stop() or now + best.seconds > self.end:
                break
            self.report(f"{best.name} has converged. Trying {lane.name} in the time left.")
            lane.start = self.starts.get(lane.candidate.model)
            lane.work(self.parts, SPARE_SHARE * (self.end - now), self.should_stop, self.clock)
            lanes.append(lane)
            if lane.scores is not None and not lane.sentence:
                finalists = sorted([*finalists, lane], key=by_density)
                failures = 0 if finalists[0] is lane else failures + 1
        return finalists

    def tried_again(self, lanes: list[Lane]) -> list[Lane]:
        """The first lane that gives an answer with more time, if none did with its share: late is better than none."""
        for lane in lanes:
            if self.should_stop() or (self.clock() > self.begin + self.seconds and lane is not lanes[0]):
                break
            lane.runs, lane.rows, lane.sentence = {}, 0, ""
            self.report(f"Trying {lane.name} with more time.")
            share = max(0.5 * (self.end - self.clock()), LAST_SHARE * self.seconds)
            lane.work(self.parts, share, self.should_stop, self.clock)
            if lane.scores is not None and not lane.sentence:
                return [lane]
        return []

    def at_once(self, lanes: list[Lane]) -> list[Lane]:
        """The first lane that gives an answer on few rows, where a stop came before any had one."""
        for lane in lanes if self.should_stop() else ():
            lane.runs, lane.rows, lane.sentence = {}, 0, ""
            few = [first_rows(part, ROWS_AT_ONCE) for part in self.parts]
            lane.work(few, SECONDS_AT_ONCE, lambda: False, self.clock)
            if lane.scores is not None and not lane.sentence:
                return [lane]
        return []

    def choose(self, finalists: list[Lane], lanes: list[Lane]) -> Lane:
        """The finalist that would be chosen now; with many rows the one with the lowest forecast."""
        if len(self.split.train) <= REFIT_UP_TO:
            return chosen(finalists, lanes)
        return min(finalists, key=self._forecast)

    def _try(self, lanes: list[Lane], stage_parts: list[Split], end: float, stage: int) -> None:
        """Give each lane an equal share of the time that is left until the end of the stage."""
        # An exact GP has no useful answer before it has learned; later lanes of the same kernel begin with its theta.
        exact = EXACT_WEIGHT[len(self.shares) == 1] if stage == 0 else 1.0
        weights = [exact if lane.group == EXACT else 1.0 for lane in lanes]
        weights[0] *= FIRST_WEIGHT if len(self.shares) == 1 else 1.0
        # Every lane has at least half of its share, even if the steps of earlier lanes took too long.
        least = max(0.5 * (end - self.clock()), LEAST_SHARE * self.seconds) / sum(weights)
        for position, lane in enumerate(lanes):
            if self.should_stop():
                if lane.scores is None:
                    lane.give_up("The search was stopped before this was tried.")
                continue
            share = weights[position] * max((end - self.clock()) / sum(weights[position:]), least)
            own_parts = self.parts if lane.candidate.all_rows and len(self.parts) == 1 else stage_parts
            rows = len(own_parts[0].train)
            self.report(f"Stage {stage + 1} of {len(self.shares)}: {lane.name} on {rows:,} rows.")
            previous = lane.scores, lane.rows
            if not registry[lane.candidate.method].own_kernel:
                lane.start = self.starts.get(lane.candidate.model)
            lane.work(own_parts, share, self.should_stop, self.clock)
            if lane.sentence and previous[0] is not None and lane.scores is None:
                lane.scores, lane.rows = previous  # for the table: what it reached on fewer rows
            if lane.group == EXACT and (logs := lane.learned_logs()) is not None:
                self.starts[lane.candidate.model] = logs

    def _kept(self, ranked: list[Lane], lanes: list[Lane], rows_grow: bool) -> list[Lane]:
        """The better half, the lowest SMSE, the lane to choose now, the best forecast and, if rows grow, each group."""
        kept = ranked[: max(2, (len(ranked) + 1) // 2)]
        kept.append(min(ranked, key=lambda lane: lane.scores.smse if lane.scores else np.inf))
        kept += [chosen(ranked, lanes), min(ranked, key=self._forecast)]
        if rows_grow:
            kept += {lane.group: lane for lane in reversed(ranked)}.values()
        return [lane for lane in ranked if lane in kept]

    def _pair(self, ranked: list[Lane], lanes: list[Lane]) -> list[Lane]:
        """The lane that would be chosen now, and the one that is expected to be the best at the end, or the next."""
        best, expected = chosen(ranked, lanes), min(ranked, key=self._forecast)
        return [best, *[lane for lane in (expected, *ranked) if lane is not best][:1]]

    def _forecast(self, lane: Lane) -> float:
        """The NLPD to expect of a lane if it is chosen and has the rest of the time."""
        return lane.forecast(self.seconds * (1.0 - sum(self.shares)))
