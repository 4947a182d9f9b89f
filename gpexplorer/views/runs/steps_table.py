"""The table of a run's steps as people read it: also what each step did, and the objective of the start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import pandas as pd

from ...errors import GPExplorerError
from ...methods.capabilities import HasMovablePoints
from ...runs import Record, Run

MOST_ROWS = 1000  # training rows, at most, for which the objective of the start is computed: n m^2 flops
SWAP = "swap"  # the phase whose steps are accepted or not
_computed: WeakKeyDictionary[Run, float] = WeakKeyDictionary()  # objectives of starts


def objective_of_start(run: Run) -> float:
    """Return the objective of the first record, which no step reports; nan where it is not known or takes long.

    It is computed once per run.
    """
    name, method = getattr(run.method, "objective", None), run.method
    if name is None or not isinstance(method, HasMovablePoints) or len(run.problem.train) > MOST_ROWS:
        return math.nan
    if run not in _computed:
        _computed[run] = float(method.bound_terms(run.problem, run.trace[0].step.state).total(name))
    return _computed[run]


def channel_value(run: Run, record: Record, name: str) -> float:
    """Return what a record reports in the channel with this name, or nan; of the start also its objective."""
    value = float(getattr(record.step.info, name, math.nan))
    if record.index == 0 and name == "objective" and math.isnan(value):
        with suppress(GPExplorerError):  # the picture of convergence says what is wrong
            return objective_of_start(run)
    return value


def what_was_done(record: Record) -> dict[str, Any]:
    """Return what a step did: its phase, and of a method that swaps rows which ones, and whether it was accepted.

    The names are those of the info; None stands for a row that there is not, and where nothing was to be accepted.
    """
    info = record.step.info
    done: dict[str, Any] = {"phase": str(getattr(info, "phase", ""))}
    for name in ("removed", "proposed"):
        if hasattr(info, name):
            done[name] = getattr(info, name) if getattr(info, name) >= 0 else None
    if hasattr(info, "accepted"):
        done["accepted"] = bool(info.accepted) if done["phase"] == SWAP else None
    return done


def with_what_was_done(table: pd.DataFrame, records: Sequence[Record]) -> pd.DataFrame:
    """Return a table with one row per record, as `Run.table`, with the columns of `what_was_done` after "entries"."""
    done = pd.DataFrame([what_was_done(record) for record in records], index=table.index)
    kinds = {"removed": "Int64", "proposed": "Int64", "accepted": "boolean"}
    done = done.astype({name: kind for name, kind in kinds.items() if name in done})
    place = list(table).index("entries") + 1
    return pd.concat([table.iloc[:, :place], done, table.iloc[:, place:]], axis=1)


def steps_table(run: Run) -> pd.DataFrame:
    """Return `Run.table` with what each step did in further columns, and with the objective of the start."""
    table = run.table()
    records = run.trace[: len(table)]
    if records and "objective" in table:
        before = table["objective"].iloc[0]
        table.loc[0, "objective"] = value = channel_value(run, records[0], "objective")
        if "map_objective" in table and math.isnan(before) and run.method.learned_channel == "objective":
            table.loc[0, "map_objective"] = value - table["log_prior"].iloc[0]
    return with_what_was_done(table, records)
