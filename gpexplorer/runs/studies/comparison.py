"""Finished runs side by side: how their settings differ, which is best by each score, and which no other run beats."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from ...data.quoting import count
from ...errors import SettingError, is_one_of, number, quoted
from ...methods.base import registry
from ..opening import DTYPES
from ..rounding import first_rise
from ..run import Run
from ..setting_checks import resolve
from ..spec import Spec
from ..store import Store, reading_error
from ..trace import Trace
from .setting_labels import setting_in_words

SCORES = ("smse", "snlp", "rmse", "nlpd")
SPENT = ("seconds", "memory", "entries")
FIELDS = tuple(field.name for field in fields(Spec))
AXES = {"step": "index", "seconds": "seconds", "kernel entries": "entries"}


@dataclass(frozen=True, eq=False)
class Finished:
    """A run as a comparison knows it.

    Attributes
    ----------
    spec : Spec
        What was run.
    steps : DataFrame
        One row per record, as `Run.table` gives it.
    memory : float
        Bytes of the method's arrays by its formula; nan if they are not known.
    outcome : str
        The reason why the run ended, such as "budget".
    note : str
        What a person wrote about the run.
    test_errors : ndarray or None
        Squared errors [t] of the test rows behind the newest scores; None where they are not known.
    changes : str
        What a person has changed in the run, so that it is not the run of its spec; empty if nothing.
    """

    spec: Spec
    steps: pd.DataFrame
    memory: float = float("nan")
    outcome: str = ""
    note: str = ""
    test_errors: np.ndarray | None = None
    changes: str = ""

    @classmethod
    def of(cls, run: Run) -> Finished:
        """Make one from a run in this process; SettingError if the run was made without a spec."""
        if not isinstance(run.spec, Spec):
            raise SettingError("A run made without a Spec cannot be compared by settings: open it with Spec.open.")
        reason = run.outcome.reason if run.outcome else ""
        errors = None if run.test_errors is None else run.test_errors[1].detach().cpu().double().numpy()
        memory = run.method.cost(run.problem).memory
        return cls(run.spec, run.table(), memory, reason, test_errors=errors, changes=str(run.changes))

    @property
    def last(self) -> dict[str, float]:
        """Steps, seconds, kernel entries and memory at the end, and the newest scores (nan if there are none)."""
        columns = ["index", "seconds", "entries", *SCORES]
        newest = self.steps.reindex(columns=columns).astype(float).ffill().to_numpy()
        steps, seconds, entries, *scores = newest[-1].tolist() if len(newest) else [math.nan] * len(columns)
        spent = {"steps": steps, "seconds": seconds, "entries": entries, "memory": float(self.memory)}
        return spent | dict(zip(SCORES, scores, strict=True))

    def has_steps_of(self, other: Finished) -> bool:
        """Whether both have the same steps, such as a run and its file: no two runs take the same seconds."""
        seconds, of_other = self.steps["seconds"], other.steps["seconds"]
        is_same = len(seconds) == len(of_other) and bool((seconds.to_numpy() == of_other.to_numpy()).all())
        return is_same and (self.spec.key(), self.changes) == (other.spec.key(), other.changes)

    def repeats(self, other: Finished) -> bool:
        """Whether both computed the same: one spec, with one budget or up to the same step."""
        is_as_long = self.spec.budget == other.spec.budget or self.last["steps"] == other.last["steps"]
        return is_as_long and (self.spec.key(), self.changes) == (other.spec.key(), other.changes)


def read_store(store: Store, most: int | None = None) -> tuple[dict[str, Finished], dict[str, str]]:
    """The runs of a store. Every run stands alone: one that cannot be read is named and hides no other.

    Parameters
    ----------
    store : Store
        Where the runs are kept.
    most : int, optional
        Read at most this many runs, those that were written to last.

    Returns
    -------
    runs : dict of str to Finished
        The readable runs, by name.
    unreadable : dict of str to str
        What is wrong with each of the others, by name.
    """
    runs, unreadable = dict[str, Finished](), dict[str, str]()
    for name in store.names() if most is None else sorted(store.recent(most)):
        try:
            spec, kept = store.spec(name), store.kept(name)
            frame = Trace(kept.records).table(registry[spec.method].channels)
            outcome = kept.outcome.reason if kept.outcome else ""
            runs[name] = Finished(spec, frame, kept.memory, outcome, store.note(name))
        except Exception as error:  # whatever a stranger's run raises, the other runs are shown
            unreadable[name] = reading_error(error)
    return runs, unreadable


def table(runs: Mapping[str, Finished], by: str = "smse", top: int | None = None, labels: bool = False) -> pd.DataFrame:
    """One row per run: method, outcome, what was spent, the last scores, and how the specs differ.

    Parameters
    ----------
    runs : mapping
        The runs by name.
    by : str
        The column to sort by, the lowest value first. Runs without a value come last.
    top : int, optional
        Keep this many rows.
    labels : bool, default False
        Whether methods and settings have the titles and labels of the page in place of their names in Python.

    Returns
    -------
    DataFrame
        The column "differs" names the fields of the spec that are not the same in the runs shown, and settings that
        differ among the runs of one method, and what a person has changed in a run. The column "note" is there if one
        of the runs has a note.
    """
    titles = {run.spec.method: registry[run.spec.method].title if labels else run.spec.method for run in runs.values()}
    rows = {name: {"method": titles[run.spec.method], "outcome": run.outcome, **run.last} for name, run in runs.items()}
    frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("run")
    if not len(frame):
        return frame
    by = checked_choice(by, [str(name) for name in frame if name not in ("method", "outcome")])
    top = len(frame) if top is None else number("top", top, whole=True, low=0)
    frame = frame.sort_values(by, kind="stable").head(top)
    specs = {name: runs[name].spec for name in frame.index}
    changes = {name: runs[name].changes for name in frame.index}
    frame["differs"] = list(what_differs(specs, ["method"], labels, changes).values())
    if any(run.note for run in runs.values()):
        frame["note"] = [runs[name].note for name in frame.index]
    return frame


def differences(specs: Mapping[str, Spec], baseline: str | None = None) -> pd.DataFrame:
    """One row per run, one column per field in which the runs differ or setting in which runs of one method differ.

    Parameters
    ----------
    specs : mapping
        The specs by the names of their runs.
    baseline : str, optional
        The run whose row comes first.

    Returns
    -------
    DataFrame
        A cell is nan if the method has no such setting.
    """
    if baseline is not None and baseline not in specs:
        raise SettingError(f"The baseline {quoted(baseline)} is not among the runs: {', '.join(specs)}.")
    values = {name: asdict(spec) for name, spec in specs.items()}
    texts: dict[str, dict[str, set[str]]] = {}  # column -> method (or "" for a field) -> values as text
    for each in values.values():
        each |= each.pop("settings")
        for column, value in each.items():
            method = "" if column in FIELDS else each["method"]
            texts.setdefault(column, {}).setdefault(method, set()).add(_text(value))
    differing = [column for column, kinds in texts.items() if any(len(different) > 1 for different in kinds.values())]
    order = sorted(specs, key=lambda name: name != baseline)
    rows = {column: [values[name].get(column, np.nan) for name in order] for column in differing}
    return pd.DataFrame(rows, index=order, dtype=object)  # of objects, so that 10 stays a whole number


def what_differs(
    specs: Mapping[str, Spec],
    without: Sequence[str] = (),
    labels: bool = False,
    changes: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Say of each run in which fields and settings it differs from the others, such as "num_inducing=20, seed=3".

    Parameters
    ----------
    specs : mapping
        The specs by the names of their runs.
    without : sequence of str
        Fields that are left out.
    labels : bool, default False
        Whether settings have the labels of the page, such as "Inducing points m = 20, seed = 3".
    changes : mapping of str to str, optional
        What a person has changed in the runs (`Finished.changes`), which is named after the settings.
    """
    frame = differences(specs).drop(columns=list(without), errors="ignore")
    written = {
        name: [
            setting_in_words(spec.method, str(column), value, labels)
            for column, value in frame.loc[name].items()
            if _text(value) != "NaN"
        ]
        for name, spec in specs.items()
    }
    return {name: ", ".join(filter(None, [*each, changes.get(name, "")])) for name, each in written.items()}


def differences_of_two(specs: Sequence[Spec], changes: Sequence[str] = ("", "")) -> list[str]:
    """Say of each of two runs in what it differs from the other, with the labels of the page.

    Parameters
    ----------
    specs : sequence of Spec
        The specs of both.
    changes : sequence of str
        What a person has changed in each (`Finished.changes`).

    Returns
    -------
    list of str
        Fields and settings, as `what_differs` names them. Of two methods, which have no settings in common, those
        settings of each that are not its defaults.
    """
    differing = list(what_differs({str(number): spec for number, spec in enumerate(specs)}, labels=True).values())
    own: list[list[str]] = [[], []]
    if specs[0].method != specs[1].method:
        own = [[setting_in_words(spec.method, *setting) for setting in not_default(spec).items()] for spec in specs]
    parts = zip(differing, own, changes, strict=True)
    return [", ".join(filter(None, [fields, *settings, change])) for fields, settings, change in parts]


def name_among(name: str, run: Finished, others: Mapping[str, Finished], labels: bool = False) -> str:
    """Return the name under which a run joins others, so that it takes the place of none but its own repetition.

    Parameters
    ----------
    name : str
        The name that is wanted. If another run has it, what distinguishes the two is added to it.
    run : Finished
        The run.
    others : mapping of str to Finished
        The runs that have names already.
    labels : bool, default False
        Whether settings have the labels of the page.

    Examples
    --------
    >>> name_among("num_inducing=8", of_fitc, {"num_inducing=8": of_cholqr})  # doctest: +SKIP
    'num_inducing=8, method=fitc'
    """
    if name not in others or run.repeats(others[name]):
        return name
    pair = {"": others[name], name: run}
    specs, changes = {key: each.spec for key, each in pair.items()}, {key: each.changes for key, each in pair.items()}
    differs = what_differs(specs, labels=labels, changes=changes)[name]
    if differs:
        return name_among(f"{name}, {differs}", run, others, labels)
    numbered = (f"{name} ({number})" for number in itertools.count(2))  # that one was changed by hand
    return next(each for each in numbered if each not in others or run.repeats(others[each]))


def not_default(spec: Spec) -> dict[str, Any]:
    """Return the settings of a spec that are not the defaults of its method."""
    defaults = resolve(registry[spec.method], {})
    return {name: value for name, value in spec.settings.items() if value != defaults[name]}


def aligned(tables: Sequence[pd.DataFrame], by: str, most: int = 10_000) -> tuple[np.ndarray, np.ndarray]:
    """Place several runs on one axis of steps or of seconds.

    Parameters
    ----------
    tables : sequence of DataFrame
        The tables of the runs, or some of their rows.
    by : {"step", "seconds"}
        What the runs have in common at a place.
    most : int
        The largest number of places; of more of them, evenly spaced ones are kept.

    Returns
    -------
    places : array
        Steps or seconds, in increasing order, [p].
    rows : array of int
        For each place, the row of each table that is the newest there, [p, runs]. A run that has ended stays at its
        last row, and one that has not begun at its first.
    """
    axis = AXES[checked_choice(by, ("step", "seconds"))]
    return newest_rows([table[axis].to_numpy(float) for table in tables], most)


def newest_rows(values: Sequence[np.ndarray], most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of `aligned`, and the newest row of each of several columns there.

    Parameters
    ----------
    values : sequence of array
        Increasing columns.
    most : int
        The largest number of places.

    Returns
    -------
    places : array
        Some or all of the values, in increasing order, [p].
    rows : array of int
        For each place, the newest row of each column, [p, columns]; the first row where none has begun.
    """
    places = np.unique(np.concatenate(values))
    if len(places) > most:
        places = places[np.unique(np.linspace(0, len(places) - 1, most).round().astype(int))]
    rows = [np.clip(np.searchsorted(column, places, side="right") - 1, 0, None) for column in values]
    return places, np.stack(rows, 1)


def best(runs: Mapping[str, Finished], metrics: Iterable[str] = SCORES) -> dict[str, str]:
    """The run with the lowest value of each metric. A metric that no run has is left out."""
    last = pd.DataFrame({name: run.last for name, run in runs.items()}).replace([np.inf, -np.inf], np.nan)
    return {
        metric: str(last.loc[metric].idxmin()) for metric in metrics if len(runs) and last.loc[metric].notna().any()
    }


def not_told_apart(runs: Mapping[str, Finished], name: str) -> list[str]:
    """Return the runs whose squared errors on the test rows differ from those of a run by no more than by chance.

    Parameters
    ----------
    runs : mapping
        The runs by name. Those on other rows, or without known errors, are left out.
    name : str
        The run that the others are compared with.

    Notes
    -----
    The mean of the differences row by row is compared with twice its standard error.
    """
    rows = {key: (repr(run.spec.data), repr(run.spec.split)) for key, run in runs.items()}
    return alike_by_rows({key: run.test_errors for key, run in runs.items() if rows[key] == rows[name]}, name)


def alike_by_rows(terms: Mapping[str, np.ndarray | None], name: str) -> list[str]:
    """Return the names whose terms differ in the mean from those of one of them by no more than by chance.

    Parameters
    ----------
    terms : mapping of str to ndarray or None
        For each name, the terms [t] of a score, such as squared errors, one per test row. None where they are unknown.
    name : str
        The one that the others are compared with.
    """
    own, alike = terms.get(name), []
    for other_name, other in terms.items():
        if other_name == name or own is None or other is None:
            continue
        difference = other - own
        if len(own) < 2 or abs(difference.mean()) <= 2 * difference.std(ddof=1) / len(own) ** 0.5:
            alike.append(other_name)
    return alike


def doubt_in_words(rows: int, score: str, alike: Sequence[str]) -> str:
    """Say that test rows cannot tell the score of one run from those of others; "" where there are no others.

    Parameters
    ----------
    rows : int
        The number of test rows.
    score : str
        The score as it is written, such as "SMSE".
    alike : sequence of str
        The names of the others, as `not_told_apart` returns them.
    """
    if not alike:
        return ""
    others = alike[0] if len(alike) == 1 else f"{len(alike)} others"
    return f"{count(rows, 'test row')} cannot tell its {score} from that of {others}: compare on more rows or splits."


def against(runs: Mapping[str, Finished], baseline: str) -> pd.DataFrame:
    """The numbers of each run compared with the baseline's: scores as differences, what was spent as ratios."""
    if baseline not in runs:
        raise SettingError(f"The baseline {quoted(baseline)} is not among the runs: {', '.join(runs)}.")
    frame = pd.DataFrame.from_dict({name: run.last for name, run in runs.items()}, orient="index").rename_axis("run")
    base = frame.loc[baseline]
    scores = frame[list(SCORES)] - base[list(SCORES)]
    return (frame[list(SPENT)] / base[list(SPENT)].replace(0.0, np.nan)).add_suffix(" ratio").join(scores)


def pareto(runs: Mapping[str, Finished], spent: str = "seconds", score: str = "smse") -> pd.DataFrame:
    """One row per run, in order of what it spent: run, method, spent, score, front.

    Parameters
    ----------
    runs : mapping
        The runs by name. A run that lacks one of the two numbers is left out.
    spent : str
        "seconds", "memory" or "entries".
    score : str
        The score.

    Returns
    -------
    DataFrame
        "front" is true for a run that no other run equals or beats for less.
    """
    rows = [{"run": name, "method": run.spec.method, **run.last} for name, run in runs.items()]
    columns = ["run", "method", checked_choice(spent, SPENT), checked_choice(score, SCORES)]
    frame = pd.DataFrame(rows, columns=columns).dropna()
    frame = frame.sort_values([spent, score], kind="stable", ignore_index=True)
    best_before = frame[score].cummin().shift(fill_value=np.inf)
    return frame.assign(front=frame[score] < best_before)


def overlay(runs: Mapping[str, Finished], channel: str, over: str = "step") -> dict[str, pd.DataFrame]:
    """One frame per run, with columns x and y.

    Parameters
    ----------
    runs : mapping
        The runs by name. Runs that do not report the channel are left out.
    channel : str
        The channel or score of the y axis. Steps without a value are dropped. If the method declares the channel
        monotone and it rises, the values from there on are dropped as well, because they are not trustworthy.
    over : {"step", "seconds", "kernel entries"}
        The x axis.
    """
    axis, labels, frames = AXES[checked_choice(over, AXES)], channels(runs), dict[str, pd.DataFrame]()
    for name, run in runs.items():
        if channel not in run.steps:
            continue
        frame = pd.DataFrame({"x": run.steps[axis].astype(float), "y": run.steps[channel].astype(float)})
        if channel in {declared.name for declared in registry[run.spec.method].channels if declared.monotone}:
            frame = frame[: first_rise(frame["y"], DTYPES[run.spec.dtype])]
        frames[name] = frame[np.isfinite(frame["y"])].reset_index(drop=True)
        frames[name].attrs |= {"xlabel": over, "ylabel": labels[channel]}
    return frames


def channels(runs: Mapping[str, Finished]) -> dict[str, str]:
    """The channels and scores that some of these runs report, by name with what an axis calls them, scores first.

    A channel that has another label or unit in another of these methods is called by its name.
    """
    names = dict.fromkeys(str(name) for run in runs.values() for name in run.steps if name not in AXES.values())
    labels = dict[str, set[str]]()
    for channel in {channel for run in runs.values() for channel in registry[run.spec.method].channels}:
        labels.setdefault(channel.name, set()).add(channel.axis)
    called = {name: names_of.pop() for name, names_of in labels.items() if len(names_of) == 1}
    called |= {name: name.upper() for name in SCORES}
    ordered = sorted(names, key=lambda name: name not in SCORES)
    return {name: called.get(name, name.replace("_", " ")) for name in ordered}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def checked_choice(name: str, names: Sequence[str] | Mapping[str, str]) -> str:
    """Return the name if it is one of the names; SettingError otherwise."""
    if not is_one_of(name, names):
        raise SettingError(f"There is no {quoted(name)} to compare by; choose one of {', '.join(names)}.")
    return name
