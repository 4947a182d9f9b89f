"""Finished runs side by side: how their settings differ, which is best at what, and which no other one beats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from ...errors import SettingError, StoreError
from ...methods.base import registry
from ..run import Run
from ..setting_checks import quoted
from ..spec import Spec
from ..store import Store
from ..trace import Trace

SCORES = ("smse", "snlp", "rmse", "nlpd")
SPENT = ("seconds", "memory", "entries")
FIELDS = tuple(field.name for field in fields(Spec))
AXES = {"step": "index", "seconds": "seconds", "kernel entries": "entries"}


@dataclass(frozen=True, eq=False)
class Finished:
    """A run as a comparison knows it: its table, and the bytes its method's arrays take by formula (nan: not known)."""

    spec: Spec
    steps: pd.DataFrame  # a row a record, as Run.table gives it
    memory: float = float("nan")
    outcome: str = ""
    note: str = ""  # what a person wrote about it

    @classmethod
    def of(cls, run: Run) -> Finished:
        """From a run at hand; SettingError where it was made without a spec."""
        if not isinstance(run.spec, Spec):
            raise SettingError("A run made without a Spec cannot be compared by settings: open it with Spec.open.")
        reason = run.outcome.reason if run.outcome else ""
        return cls(run.spec, run.table(), run.method.cost(run.problem).memory, reason)

    @property
    def last(self) -> dict[str, float]:
        """Steps, seconds, kernel entries and memory spent, and the newest scores (nan where there are none)."""
        frame = self.steps
        ends: dict[Any, Any] = dict(frame.iloc[-1]) if len(frame) else {}
        spent = {"steps": ends.get("index", np.nan), "seconds": ends.get("seconds", np.nan)}
        spent |= {"entries": ends.get("entries", np.nan), "memory": self.memory}
        return {name: float(value) for name, value in (spent | self._scores()).items()}

    def _scores(self) -> dict[str, float]:
        held = {name: self.steps[name].dropna() for name in SCORES if name in self.steps}
        return {name: held[name].iloc[-1] if len(held.get(name, ())) else np.nan for name in SCORES}


def stored(store: Store, most: int | None = None) -> dict[str, Finished]:
    """The readable runs of a store, by name; `Store.table` says why one is not readable.

    With `most`, those last worked on alone.
    """
    found = {}
    for name in store.names() if most is None else sorted(store.recent(most)):
        try:
            spec, kept = store.spec(name), store.kept(name)
        except (StoreError, SettingError):
            continue
        frame = Trace(kept.records).table(registry[spec.method].channels)
        outcome = kept.outcome.reason if kept.outcome else ""
        found[name] = Finished(spec, frame, kept.memory, outcome, store.note(name))
    return found


def table(runs: Mapping[str, Finished], by: str = "smse", top: int | None = None) -> pd.DataFrame:
    """One row a run, the best by this column first (unscored ones last): method, outcome, spent, scores, `differs`.

    `differs` names what of the spec is not the same in the runs shown, settings among those of one method; the method
    has its own column. Where one has a note, `note` holds them.
    """
    rows = {name: {"method": run.spec.method, "outcome": run.outcome, **run.last} for name, run in runs.items()}
    frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("run")
    if not len(frame):
        return frame
    frame = frame.sort_values(_column(frame, by), kind="stable").head(len(frame) if top is None else top)
    changed = differences({name: runs[name].spec for name in frame.index}).drop(columns="method", errors="ignore")
    frame["differs"] = [_listed(changed.loc[name]) for name in frame.index]
    if any(run.note for run in runs.values()):
        frame["note"] = [runs[name].note for name in frame.index]
    return frame


def differences(specs: Mapping[str, Spec], baseline: str | None = None) -> pd.DataFrame:
    """One row a run, one column a field in which they differ, or a setting in which runs of one method do.

    A cell is nan where a method has no such setting. The row of the `baseline`, where there is one, comes first.
    """
    if baseline is not None and baseline not in specs:
        raise SettingError(f"The baseline {quoted(baseline)} is not among the runs: {', '.join(specs)}.")
    flat = {name: _flat(spec) for name, spec in specs.items()}
    order = sorted(specs, key=lambda name: name != baseline)
    rows = {column: [flat[name].get(column, np.nan) for name in order] for column in _changed(flat)}
    return pd.DataFrame(rows, index=order, dtype=object)  # as they are written: 10 stays a whole number


def best(runs: Mapping[str, Finished], metrics: Iterable[str] = SCORES) -> dict[str, str]:
    """The run with the lowest value of each metric; a metric nobody has is left out."""
    last = {name: run.last for name, run in runs.items()}
    found: dict[str, str] = {}
    for metric in metrics:
        known = {name: values[metric] for name, values in last.items() if np.isfinite(values[metric])}
        found |= {metric: min(known, key=lambda name: known[name])} if known else {}
    return found


def against(runs: Mapping[str, Finished], baseline: str) -> pd.DataFrame:
    """Each run's numbers beside the baseline's: scores as differences, what was spent as ratios."""
    if baseline not in runs:
        raise SettingError(f"The baseline {quoted(baseline)} is not among the runs: {', '.join(runs)}.")
    frame = pd.DataFrame.from_dict({name: run.last for name, run in runs.items()}, orient="index").rename_axis("run")
    base = frame.loc[baseline]
    scores = frame[list(SCORES)] - base[list(SCORES)]
    return (frame[list(SPENT)] / base[list(SPENT)].replace(0.0, np.nan)).add_suffix(" ratio").join(scores)


def pareto(runs: Mapping[str, Finished], spent: str = "seconds", score: str = "smse") -> pd.DataFrame:
    """A row a run in order of what it spent: run, method, spent, score, `front` (none other is as good for less).

    Runs without either number are left out.
    """
    rows = [{"run": name, "method": run.spec.method, **run.last} for name, run in runs.items()]
    frame = pd.DataFrame(rows, columns=["run", "method", _known(spent, SPENT), _known(score, SCORES)]).dropna()
    frame = frame.sort_values([spent, score], kind="stable", ignore_index=True)
    before = frame[score].cummin().shift(fill_value=np.inf)
    return frame.assign(front=frame[score] < before)


def overlay(runs: Mapping[str, Finished], channel: str, over: str = "step") -> dict[str, pd.DataFrame]:
    """One frame a run with x and y: a channel or score against "step", "seconds" or "kernel entries".

    Runs that do not report the channel are left out; gaps (steps that were not scored) are dropped, not bridged.
    """
    axis = AXES[_known(over, AXES)]
    found = {}
    for name, run in runs.items():
        if channel not in run.steps:
            continue
        frame = pd.DataFrame({"x": run.steps[axis].astype(float), "y": run.steps[channel].astype(float)})
        found[name] = frame[np.isfinite(frame["y"])].reset_index(drop=True)
        found[name].attrs |= {"xlabel": over, "ylabel": channel}
    return found


def channels(runs: Mapping[str, Finished]) -> list[str]:
    """What some of these runs report, scores first."""
    named = dict.fromkeys(str(name) for run in runs.values() for name in run.steps)
    held = [name for name in named if name not in AXES.values()]
    return sorted(held, key=lambda name: name not in SCORES)


def _flat(spec: Spec) -> dict[str, Any]:
    held = asdict(spec)
    return {**{name: held[name] for name in held if name != "settings"}, **held["settings"]}


def _changed(flat: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Fields that differ, and settings that do among the runs of one method."""
    said: dict[str, dict[str, set[str]]] = {}
    for held in flat.values():
        for column, value in held.items():
            method = "" if column in FIELDS else held["method"]
            said.setdefault(column, {}).setdefault(method, set()).add(_said(value))
    return [column for column, values in said.items() if any(len(found) > 1 for found in values.values())]


def _listed(row: pd.Series[Any]) -> str:
    return ", ".join(f"{name}={_said(value)}" for name, value in row.items() if _said(value) != "NaN")


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _column(frame: pd.DataFrame, by: str) -> str:
    return _known(by, [str(name) for name in frame if name not in ("method", "outcome")])


def _known(name: str, names: Sequence[str] | Mapping[str, str]) -> str:
    if name not in names:
        raise SettingError(f"There is no {quoted(name)} to compare by; choose one of {', '.join(names)}.")
    return name
