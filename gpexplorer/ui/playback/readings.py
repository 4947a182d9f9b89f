"""The numbers of one record: the status line's, and the rows of the table of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from ...methods.inducing.dragged import bound, movable
from ...problem import Outcome
from ...runs import Record, Run
from ...runs.counting import jitter_sentence

TERMS = ("fit", "logdet", "trace", "objective")
ROWS = 200  # newest steps in the table


class Facts(NamedTuple):
    """The numbers of one record that the status line shows."""

    at: int
    last: int
    phase: str
    seconds: float
    total: float  # seconds of the whole run
    entries: int
    objective: float
    scores: Mapping[str, float]
    memory: int
    budget: float
    eta: float
    undo: bool  # whether a person changed the run
    split: Mapping[str, tuple[float, float]]  # terms of the objective, and the change the last step brought
    outcome: Outcome | None
    jitter: str = ""  # what factors needed, as a sentence


def facts(run: Run, at: int, limit: int | None, undo: bool) -> Facts:
    """The status of record `at`, with the newest scores taken up to it; `limit` is the step to pause after."""
    record = run.trace[at]
    info = record.step.info
    progress = run.progress({} if limit is None else {"steps": limit})
    first = run.method.channels[0].name if run.method.channels else ""
    return Facts(
        at,
        len(run.trace) - 1,
        str(getattr(info, "phase", "")),
        record.seconds,
        run.trace[-1].seconds,
        record.cost.entries,
        float(getattr(info, first, float("nan"))),
        _scores(run, at),
        run.memory,
        progress.fraction,
        progress.eta,
        undo,
        _split(run, at),
        run.outcome,
        jitter_sentence(run.jitters),
    )


def _split(run: Run, at: int) -> Mapping[str, tuple[float, float]]:
    """Fit, complexity, trace and the objective they add up to; empty where the method does not report them."""
    now, before = (_terms(run, k) for k in (at, max(at - 1, 0)))
    return {name: (now[name], now[name] - before[name]) for name in now}


def _terms(run: Run, at: int) -> dict[str, float]:
    """As reported, or computed for a start from which a person moved a point."""
    state, info = run.trace[at].step
    if not all(hasattr(info, name) for name in TERMS):
        return {}
    found = {name: float(getattr(info, name)) for name in TERMS}
    if at == 0 and len(run.trace) > 1 and run.trace[1].step.info.phase == "forced" and movable(run.method, state):
        terms = bound(run.method, run.problem, state)
        halves = (terms.fit / 2, terms.complexity / 2, terms.trace / 2)
        found = dict(zip(TERMS, (*halves, sum(halves)), strict=True))
    return found


def newest(run: Run, at: int) -> pd.DataFrame:
    """The newest steps up to record `at`, newest first: what moved, and every channel."""
    records = run.trace[max(0, at + 1 - ROWS) : at + 1]
    return pd.DataFrame([_row(run, record) for record in reversed(records)])


def _scores(run: Run, at: int) -> Mapping[str, float]:
    for record in reversed(run.trace[max(0, at - ROWS) : at + 1]):
        if record.scores:
            return record.scores
    return {}


def _row(run: Run, record: Record) -> dict[str, Any]:
    info = record.step.info
    row: dict[str, Any] = {"step": record.index, "phase": str(getattr(info, "phase", ""))}
    for name, label in (("removed", "row out"), ("proposed", "row in")):
        if hasattr(info, name):
            row[label] = getattr(info, name) if getattr(info, name) >= 0 else None
    if hasattr(info, "accepted"):
        row["accepted"] = {True: "yes", False: "no"}[bool(info.accepted)] if row["phase"] == "swap" else ""
    row |= {channel.label: getattr(info, channel.name, float("nan")) for channel in run.method.channels}
    return row | {"seconds": record.seconds, "kernel entries": record.cost.entries}
