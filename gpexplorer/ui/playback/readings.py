"""The numbers of one record, for the status line, and the rows of the table of steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from ...methods.capabilities import HasMovablePoints
from ...problem import Outcome
from ...runs import Record, Run
from ...runs.counting import jitter_sentence
from ...runs.rounding import rise_sentence
from ...views.runs.steps_table import channel_value, what_was_done
from ...views.saved_page.recorded_figures import with_its_step
from ..text import number

TERMS = ("fit", "logdet", "trace", "objective")  # fields of a method's info: three terms, and their sum
PHASES = {"swap": "swapping", "learn": "learning", "full": "learning on all rows", "choose": "choosing"}
TABLE_ROWS = 200  # steps in the table


class Fact(NamedTuple):
    """One number of the status line.

    Attributes
    ----------
    label, value : str
        What it is, with its unit, and the number as it is shown.
    is_first : bool
        Whether it is one of the three that are always shown.
    about : str
        The label in more words, where there are more.
    """

    label: str
    value: str
    is_first: bool = False
    about: str = ""


class StatusNumbers(NamedTuple):
    """The numbers of one record that the page shows.

    Attributes
    ----------
    at, last : int
        Index of this record and of the newest one.
    cells : list of Fact
        The numbers in the status line.
    total_seconds : float
        Working time of the whole run.
    memory : int
        Bytes of the records kept.
    budget : float
        Part of the budget that is spent, 0 to 1; nan without a budget.
    eta : float
        Seconds of work until the budget is spent; nan where it is not known.
    can_undo : bool
        Whether a person changed the run on this page.
    by_hand : bool
        Whether a person changed the run, on this page or before it was opened: no spec repeats it.
    terms : mapping of str to tuple of float
        Name of each term of the objective -> its value, and its change in this step.
    outcome : Outcome or None
        How the run ended; None while it goes on.
    jitter : str
        A sentence on the jitter that factorisations needed; empty where they needed none.
    rise : str
        A sentence on a channel that rose although it is declared monotone; empty where there is none.
    """

    at: int
    last: int
    cells: list[Fact]
    total_seconds: float
    memory: int
    budget: float
    eta: float
    can_undo: bool
    by_hand: bool
    terms: Mapping[str, tuple[float, float]]
    outcome: Outcome | None
    jitter: str = ""
    rise: str = ""


def status_numbers(
    run: Run, at: int, pause_after: int | None, can_undo: bool, wall_seconds: float = 0.0
) -> StatusNumbers:
    """Collect the numbers of a record.

    Parameters
    ----------
    run : Run
        The run.
    at : int
        Index of the record.
    pause_after : int or None
        The step at which the run pauses; None for no pause.
    can_undo : bool
        Whether a person changed the run on this page.
    wall_seconds : float, default 0.0
        Seconds of playing on the clock.
    """
    progress = run.progress({} if pause_after is None else {"steps": pause_after})
    current, previous = _terms(run, at), _terms(run, max(at - 1, 0))
    return StatusNumbers(
        at=at,
        last=len(run.trace) - 1,
        cells=_cells(run, at, wall_seconds),
        total_seconds=run.trace[-1].seconds,
        memory=run.memory,
        budget=progress.fraction,
        eta=progress.eta,
        can_undo=can_undo,
        by_hand=bool(run.changes),
        terms={name: (current[name], current[name] - previous[name]) for name in current},
        outcome=run.outcome,
        jitter=jitter_sentence(run.jitters),
        rise=rise_sentence([rise for rise in run.rises if rise.index <= at]),
    )


def _cells(run: Run, at: int, wall_seconds: float) -> list[Fact]:
    record, last = run.trace[at], len(run.trace) - 1
    phase = str(getattr(record.step.info, "phase", ""))
    name, objective, about = "", "objective", ""
    for first in run.method.channels[:1]:  # its label is shown up to a comma, and with its unit
        short = first.axis.replace(first.label, first.label.partition(",")[0], 1)
        name, objective, about = first.name, short, first.axis
    rose_at = next((rise.index for rise in run.rises if rise.index <= at and rise.channel.name == name), None)
    if rose_at is not None:
        objective += f" (not trustworthy from step {rose_at} on)"
    variance = f" (variance: {run.variance_note})" if run.variance_note else ""
    return [
        Fact("step", f"{at:,}" if at == last else f"{at:,} of {last:,}"),
        Fact("phase", PHASES.get(phase, phase or "—")),
        Fact(objective, number(channel_value(run, record, name)), is_first=True, about=about),
        Fact("SMSE on test rows", _newest_score(run, at, "smse"), is_first=True),
        Fact(f"SNLP on test rows{variance}", _newest_score(run, at, "snlp")),
        Fact("seconds of work", f"{record.seconds:.2f}", is_first=True),
        Fact("on the clock", f"{wall_seconds:.1f}"),
        Fact("kernel entries", f"{record.cost.entries:,}"),
    ]


def newest_steps(run: Run, at: int) -> pd.DataFrame:
    """Return the newest steps up to record `at`, newest first: what moved, and every channel."""
    records = run.trace[max(0, at + 1 - TABLE_ROWS) : at + 1]
    return pd.DataFrame([_row(run, record) for record in reversed(records)])


def _terms(run: Run, at: int) -> dict[str, float]:
    """The terms as reported. They are computed for a start record (which has none) from which a point was dragged."""
    state, info = run.trace[at].step
    if not all(hasattr(info, name) for name in TERMS):
        return {}
    dragged_from = at == 0 and len(run.trace) > 1 and run.trace[1].step.info.phase == "forced"
    if dragged_from and isinstance(run.method, HasMovablePoints):
        terms = run.method.bound_terms(run.problem, state)
        halves = (terms.fit / 2, terms.complexity / 2, terms.trace / 2)
        return dict(zip(TERMS, (*halves, sum(halves)), strict=True))
    return {name: float(getattr(info, name)) for name in TERMS}


def _newest_score(run: Run, at: int, name: str) -> str:
    """The newest score up to record `at`, with the step that it belongs to if that is an earlier one."""
    has_test_rows = run.split is not None and len(run.split.test) > 0  # else no record has a score, of however many
    records = (run.trace[k] for k in range(at, -1, -1)) if has_test_rows else ()
    scored = ((record.index, (record.scores or {}).get(name, math.nan)) for record in records)
    step, score = next((pair for pair in scored if not math.isnan(pair[1])), (math.nan, math.nan))
    return with_its_step(number(score), step, at)


def _row(run: Run, record: Record) -> dict[str, Any]:
    done = what_was_done(record)
    row: dict[str, Any] = {"step": record.index, "phase": done["phase"]}
    for name, label in (("removed", "row out"), ("proposed", "row in")):
        if name in done:
            row[label] = math.nan if done[name] is None else done[name]
    if "accepted" in done:
        row["accepted"] = {True: "yes", False: "no", None: ""}[done["accepted"]]
    row |= {channel.label: channel_value(run, record, channel.name) for channel in run.method.channels}
    return row | {"seconds": record.seconds, "kernel entries": record.cost.entries}
