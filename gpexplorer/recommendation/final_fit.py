"""The model of an answer: the run of the chosen lane goes on until the time is used, or is fitted again to all rows."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..runs.run import Run
from .arguments import NO_ROWS
from .candidates import EXACT
from .lanes import Lane, by_density, chosen, step_until
from .stages import TimedSearch

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
SOLVE_TIMES = 1.3  # the same of the seconds after learning, where theta is kept and a system is solved with all rows


class FinalModel(NamedTuple):
    """The chosen lane, its run, whether that was fitted to all training rows, and what went wrong if something did."""

    lane: Lane
    run: Run
    refitted: bool
    note: str


def final_model(search: TimedSearch, winner: Lane, finalists: list[Lane], lanes: list[Lane]) -> FinalModel:
    """The model of the winner after the time that is left, or that of another finalist if it is better then."""
    if search.should_stop():
        return FinalModel(winner, winner.first_run, False, "")
    enough_time = search.end - search.clock() >= least_seconds(winner)
    if len(search.parts) > 1 or (len(search.split.train) <= REFIT_UP_TO and enough_time):
        run, note = refit_to_all_rows(search, winner)
        return FinalModel(winner, run, not note, note)
    return _continued(search, winner, finalists, lanes)


def least_seconds(lane: Lane) -> float:
    """The seconds that a fit of a lane to all rows needs at least."""
    steps, seconds = lane.after_learning
    whole = REFIT_TIMES[lane.is_factored] * lane.seconds_of_a_run
    return min(whole, SOLVE_TIMES * seconds) if steps else whole


def _continued(search: TimedSearch, winner: Lane, finalists: list[Lane], lanes: list[Lane]) -> FinalModel:
    """Step the winner's run until the time is used. If a finalist is still better then, it is the winner.

    If the run fails, the record that was scored last is the answer, and the note says so.
    """
    run = winner.first_run
    scored, note = run.done, ""
    search.report(f"Going on with {winner.name}.")
    step_until(run, search.end - winner.scoring, search.should_stop, search.clock)
    scores = winner.scored(run, search.parts[0])
    if run.error is None and scores.usable:
        winner.scores = scores
    else:
        note = _failure(f"going on with {winner.name}", run)
        run.close()
        winner.runs = {part: own_run.fork(scored) for part, own_run in winner.runs.items()}
    best = chosen(sorted(finalists, key=by_density), lanes)
    run = best.first_run
    run.close()
    return FinalModel(best, run, False, note)


def refit_to_all_rows(search: TimedSearch, lane: Lane, end: float | None = None) -> tuple[Run, str]:
    """A run of a lane on all training rows until this moment of the clock, or for the rest of the time.

    It begins with the theta that the lane has learned. An exact GP learns from its initial values again, if there
    is time, because the theta of some rows may lie near a poorer optimum of all rows. A GP that learns first and then
    solves a system keeps theta, if the time suffices for no more than the system. If it fails, or has taken too
    few steps when the time is used, so that it may be worse, the result is the lane's run on the rows of the
    search, and a sentence that says so.
    """
    end = search.end if end is None else end
    seconds_left = end - search.clock()
    from_initial_values = lane.group == EXACT and seconds_left >= ANEW_TIMES * lane.seconds_of_a_run
    theta = None if from_initial_values else lane.learned_theta()
    keeps_theta = bool(lane.after_learning[0]) and seconds_left < REFIT_TIMES[False] * lane.seconds_of_a_run
    needed = lane.after_learning[0] if keeps_theta else lane.first_run.done
    all_rows = replace(search.split, test=search.split.train.rows(NO_ROWS), key=f"{search.split.key}/all")
    candidate = lane.candidate
    if keeps_theta:
        candidate = replace(candidate, settings={**candidate.settings, "learn": False})
    spec = candidate.spec(len(all_rows.train), lane.seed, theta)
    lane.give_up(lane.sentence)
    search.report(f"Fitting {lane.name} to all {len(all_rows.train):,} rows.")
    run = spec.open(data=candidate.prepared(all_rows))
    step_until(run, end, search.should_stop, search.clock)
    run.close()
    if run.error is None and len(run.trace):
        enough = 1 if lane.is_factored and theta is not None else needed
        if run.outcome is not None or run.done >= enough:
            return run, ""
        return lane.first_run, TOO_SHORT.format(steps=run.done, needed=needed)
    return lane.first_run, _failure(f"fitting {lane.name} to all rows", run)


def _failure(activity: str, run: Run) -> str:
    """Why the last piece of work gave no answer."""
    reason = "Its predictions were not finite." if run.error is None else str(run.error)
    if not len(run.trace) and run.error is None:
        reason = "It was stopped."
    return f"The answer is that of the search on fewer rows or steps, because {activity} failed: {reason}"
