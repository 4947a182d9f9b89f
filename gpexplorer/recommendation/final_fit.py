"""The model of an answer: the run of the chosen lane goes on until the time is used, or is fitted again to all rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from ..data import Split
from ..errors import GPExplorerError
from ..kernels import make
from ..posteriors import Marginals, Widening
from ..runs.run import Run
from ..runs.setting_checks import of_kind
from ..runs.spec import Spec
from .arguments import whole
from .candidates import EXACT, NEIGHBOURS, log_units
from .held_out import parts
from .horizon_widening import after_rows, scores_of_parts
from .lanes import Lane, by_density, chosen, logs_of, step_until, theta_of
from .row_order import origins, times_of
from .stages import TimedSearch

TOO_SHORT = (
    "The time did not suffice to fit it to all training rows ({steps} steps of about {needed}), so the answer is the "
    "model of the search, which is fitted to the rows that were not held out."
)
STOPPED = "The search was stopped, so that {name} is fitted to {rows:,} rows only."
REFIT_UP_TO = 10_000  # rows: with fewer, the chosen method is fitted again to all rows, if there is time
# An exact GP is fitted to all rows from its initial values if the time left is this multiple of the time that its run
# on two thirds of the rows took: 1.5^3, and a margin.
ANEW_TIMES = 5.0
# The winner is fitted to all rows if the time left is this multiple of the time that its run took. With less time, more
# steps of that run gain more than the held-out rows do. An exact GP that is factored (True) needs less time, because
# its answer with the theta of the search is complete at the first evaluation.
REFIT_TIMES = {False: 2.0, True: 0.5}
SOLVE_TIMES = 1.3  # the same of the seconds after learning, where theta is kept and a system is solved with all rows
ORIGINS, ORIGINS_SHARE = 6, 0.05  # past moments to forecast from with the final theta; their share of the time


class FinalModel(NamedTuple):
    """The chosen lane, its run, whether that was fitted to all training rows, and what went wrong if something did."""

    lane: Lane
    run: Run
    refitted: bool
    note: str


def final_model(search: TimedSearch, winner: Lane, finalists: list[Lane], lanes: list[Lane]) -> FinalModel:
    """The model of the winner after the time that is left, or that of another finalist if it is better then."""
    if search.should_stop():
        return FinalModel(winner, winner.first_run, False, STOPPED.format(name=winner.name, rows=winner.rows))
    fits_again = len(search.split.train) <= REFIT_UP_TO
    if len(search.parts) == 1 and not fits_again:
        best = chosen(sorted(finalists, key=by_density), lanes)
        if best.group == NEIGHBOURS and best.after_learning[0]:  # cheap, and each row is the nearest one of new rows
            winner, fits_again = best, True
    enough_time = search.end - search.clock() >= least_seconds(winner)
    if len(search.parts) > 1 or (fits_again and enough_time):
        run, note = refit_to_all_rows(search, winner)
        return FinalModel(winner, run, not note, note)
    # Step the winner's run until the time is used. If a finalist is still better then, it is the winner. If the run
    # fails, the record that was scored last is the answer, and the note says so.
    run = winner.first_run
    scored, note = run.done, ""
    search.report(f"Going on with {winner.name}.")
    step_until(run, search.end - winner.scoring, search.should_stop, search.clock)
    scores, widening = winner.rescored(search.parts)
    if run.error is None and scores.usable:
        winner.scores, winner.widening = scores, widening
    else:
        note = _failure(f"going on with {winner.name}", run)
        run.close()
        winner.runs = {part: own_run.fork(scored) for part, own_run in winner.runs.items()}
    best = chosen(sorted(finalists, key=by_density), lanes)
    run = best.first_run
    run.close()
    return FinalModel(best, run, False, note)


def least_seconds(lane: Lane) -> float:
    """The seconds that a fit of a lane to all rows needs at least."""
    steps, seconds = lane.after_learning
    whole = REFIT_TIMES[lane.is_factored] * lane.seconds_of_a_run
    return min(whole, SOLVE_TIMES * seconds) if steps else whole


def refit_to_all_rows(search: TimedSearch, lane: Lane, end: float | None = None) -> tuple[Run, str]:
    """A run of a lane on all training rows until this moment of the clock, or for the rest of the time.

    It begins with the theta that the lane has learned. An exact GP learns from its initial values again, if there
    is time, because the theta of some rows may lie near a poorer optimum of all rows. A GP that learns first and then
    solves a system keeps theta, if the time suffices for no more than the system. Where rows are in order of time, both
    keep it in any case: how a trend and a season go on depends on the optimum, and it is this one that has forecast
    rows that it had not seen. If it fails, or has taken too few steps when the time is used, so that it may be worse,
    the result is the lane's run on the rows of the search, and a sentence that says so. Otherwise the widening of the
    lane becomes that of this run.
    """
    end = search.end if end is None else end
    seconds_left = end - search.clock()
    in_time = bool(lane.time_name)
    learns_anew = lane.group == EXACT and not in_time and seconds_left >= ANEW_TIMES * lane.seconds_of_a_run
    logs = None if learns_anew else lane.learned_logs()
    steps_to_solve = lane.after_learning[0]
    solves_only = steps_to_solve > 0 and (in_time or seconds_left < REFIT_TIMES[False] * lane.seconds_of_a_run)
    needed = steps_to_solve if solves_only else lane.first_run.done
    all_rows = whole(search.split)
    candidate = lane.candidate
    if solves_only:
        candidate = replace(candidate, settings={**candidate.settings, "learn": False})
    lane.give_up(lane.sentence)
    search.report(f"Fitting {lane.name} to all {len(all_rows.train):,} rows.")
    run = candidate.opened(all_rows, lane.seed, logs, anew=True)
    one_step = in_time and lane.is_factored and logs is not None
    step_until(run, search.clock() if one_step else end, search.should_stop, search.clock)
    run.close()
    if run.error is None and len(run.trace):
        enough = 1 if lane.is_factored and logs is not None else needed
        if run.outcome is not None or run.done >= enough:
            lane.widening = final_widening(search, lane, run)
            return run, ""
        return lane.first_run, TOO_SHORT.format(steps=run.done, needed=needed)
    return lane.first_run, _failure(f"fitting {lane.name} to all rows", run)


def final_widening(search: TimedSearch, lane: Lane, run: Run) -> Widening | None:
    """By how much variances after the last row are wider for a run on all rows.

    If its answer is complete without learning, it forecasts from several moments in the past with its own theta, which
    may be another one than those of the search. But it has learned it from the rows that it forecasts: factors are at
    least those of the search, whose hyperparameters have not seen them.
    """
    rows, begin = search.split.train, search.clock()
    theta = theta_of(run) if lane.is_factored or lane.group == NEIGHBOURS else None
    if not lane.time_name or theta is None:
        return after_rows(lane.widening, rows)
    search.report(f"Measuring how far ahead {lane.name} can forecast.")
    marginals, forecasts = list[Marginals](), list[Split]()
    for part in parts(search.split, lane.seed, origins(times_of(rows, lane.time_name), ORIGINS)):
        if len(forecasts) > 1 and search.clock() > begin + ORIGINS_SHARE * search.seconds:
            break
        with suppress(GPExplorerError):
            past = lane.candidate.opened(part, lane.seed, logs_of(theta, run.problem))
            past.advance()
            past.close()
            marginals.append(lane.marginals(past, part))
            forecasts.append(part)
    if not forecasts:
        return after_rows(lane.widening, rows)
    own = scores_of_parts(forecasts, marginals, lane.time_name)[1]
    assert own is not None
    return after_rows(own if lane.widening is None else own.at_least(lane.widening), rows)


def spec_of_rows(run: Run, split: Split, rows: Mapping[str, Any]) -> Spec:
    """The spec of a run with other rows: all of a split, which `rows` names by the fields of a spec.

    A theta where learning begins keeps its values in the units of the file.
    """
    spec, fitted = of_kind("The run's spec", run.spec, Spec, "a run of a Spec"), run.split
    kernel = spec.kernel
    if fitted is not None and isinstance(kernel, dict) and "theta" in kernel and len(fitted.train) < len(split.train):
        own = make(kernel["name"], split.train.d, split.train.columns)
        scaled = split.scaled(own.inputs != "counts", spec.target_transform, spec.input_transform).train
        units = zip(kernel["theta"], log_units(own, fitted.train), log_units(own, scaled), strict=True)
        kernel = {**kernel, "theta": [value + unit - of_all for value, unit, of_all in units]}
    return replace(spec, kernel=kernel, **rows)


def _failure(activity: str, run: Run) -> str:
    """Why the last piece of work gave no answer."""
    reason = "Its predictions were not finite." if run.error is None else str(run.error)
    if not len(run.trace) and run.error is None:
        reason = "It was stopped."
    return f"The answer is that of the search on fewer rows or steps, because {activity} failed: {reason}"
