"""How a `Spec` becomes a `Run`: its rows are read and scaled, its kernel is made, and stored records are resumed.

This module knows a spec by its fields alone (`Description`), so that `spec` can import it and not the reverse.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import torch

from .. import data as data_sets
from .. import kernels
from ..data import Split
from ..data.edits import edited
from ..data.in_memory import is_frame
from ..data.loading import CHOICES, choice_entries
from ..errors import DataError, SettingError, quoted
from ..kernels.composites import compared_columns
from ..kernels.row_scaled import with_row_noise
from ..kernels.theta.restrictions import restricted_problem
from ..methods.base import Method, registry
from ..problem import Problem
from ..starts import Race, race
from .description import Description
from .run import Run
from .setting_checks import method_of
from .storage.journal import Journal, Kept

FILE_ENTRIES = ("file", *CHOICES)  # the entries of `Spec.data` from which an uploaded file is read again
OF_COLUMNS = ("target", "inputs", "drop", "objects", "texts", "groups", "encode", "dates", "kinds")  # not of a pair
SEVERAL_STARTS, ONE_START = "several", "one"  # of learning, where no theta is given: the best of some, or the kernel's
LEARNED_START = "learned"  # where the best of them arrived on some rows, so that a short run has less to learn
STARTS = (SEVERAL_STARTS, ONE_START, LEARNED_START)
DTYPES = {"float64": torch.float64, "float32": torch.float32}

SpecT = TypeVar("SpecT", bound=Description)


class JournalSource(Protocol):
    """A place that keeps runs, such as a `Store`."""

    def take_up(self, spec: Any) -> tuple[Journal, Kept]:
        """The journal of this spec's run, open for writing, and what it holds already."""


def open_run(spec: Description, store: JournalSource | None = None, data: Any = None) -> Run:
    """Make the run that a spec describes.

    Parameters
    ----------
    spec : Description
        The spec, which has been checked.
    store : JournalSource, optional
        Where records are kept. The run continues after the last record kept there.
    data : Split, arrays or frame, optional
        Rows in memory, in place of the rows that the spec names.

    Returns
    -------
    Run
        Its own `spec` names rows that were in memory by a hash of their content.

    Raises
    ------
    SettingError
        If theta has the wrong length, there is no such device, or `store` is not a store.
    DataError
        If the rows cannot be read, or are not the rows that the spec was made for.
    """
    if not (store is None or hasattr(store, "take_up")) or isinstance(store, type):
        example = quoted(str(store)) if isinstance(store, (str, os.PathLike)) else '"runs-store"'
        raise SettingError(
            f"store is {quoted(store)}; give a Store, say gpexplorer.Store({example}). Rows go to open(data=...)."
        )
    spec, split, problem, method = _prepared(spec, data)
    if store is None:
        problem, start = _raced(spec, problem)
        return Run(method, problem, split, spec=spec, start_note=str(start))
    journal, kept = store.take_up(spec)
    try:
        journal.begin(method.cost(problem).memory, split.key)
        if kept.records:
            return _continued(spec, split, problem, method, kept, journal)
        kernels_own = problem.theta
        problem, start = _raced(spec, problem)
        if str(start) or not torch.equal(problem.theta, kernels_own):
            journal.write_start(problem.theta.tolist(), str(start))
    except BaseException:
        journal.close()
        raise
    return Run(method, problem, split, spec=spec, store=journal, outcome=kept.outcome, start_note=str(start))


def reopened(spec: Description, kept: Kept) -> Run:
    """A stored run with its records, for reading only: from the theta that it began with."""
    spec, split, problem, method = _prepared(spec, None)
    kept.require_rows(split.key)
    return _continued(spec, split, problem, method, kept)


def _continued(
    spec: Description, split: Split, problem: Problem, method: Method, kept: Kept, journal: Journal | None = None
) -> Run:
    """A run with its stored records, from the theta that it began with."""
    if kept.start is not None:
        problem = replace(problem, theta=problem.theta.new_tensor(kept.start))
    earlier: dict[str, Any] = {"resume": kept.records, "outcome": kept.outcome, "start_note": kept.start_note}
    return Run(method, problem, split, spec=spec, store=journal, **earlier)


def _prepared(spec: SpecT, data: Any) -> tuple[SpecT, Split, Problem, Method]:
    """The spec with its rows, the scaled split, the problem with all that the spec says of it, and the method."""
    spec, split = opened_rows(spec, data)
    problem, split = _scaled_problem(spec, split)
    problem = _with_row_noise(spec, problem)
    restricted = restricted_problem(problem, spec.kernel if isinstance(spec.kernel, dict) else {})
    if restricted is not problem:
        registry[spec.method].check_restrictions(restricted)
    return spec, split, restricted, method_of(spec)


def _raced(spec: Description, problem: Problem) -> tuple[Problem, Race]:
    """The problem that begins at the best of several starts; the kernel's own where theta is given or not learned."""
    entries = spec.kernel if isinstance(spec.kernel, dict) else {}
    learns = not registry[spec.method].own_kernel and spec.settings.get("learn", True)
    given = set(entries.get("values", ())) - set(entries.get("fixed", ()))  # learning begins there
    if "theta" in entries or entries.get("start") == ONE_START or not learns or given:
        return problem, Race((), 0)
    follow = entries.get("start") == LEARNED_START
    result = race(problem, int(spec.settings.get("num_inducing", 0)), follow)
    theta = result.learned if follow and result.learned is not None else result.starts[0].theta
    theta = registry[spec.method].beginning(problem.kernel, theta.clone())
    return replace(problem, theta=theta), result


def _with_row_noise(spec: Description, problem: Problem) -> Problem:
    """The problem of equal noise that is equivalent to this one; SettingError if the method cannot use it."""
    noise = problem.train.noise
    if noise is not None and noise.common is not None and spec.target_transform:
        raise SettingError(
            f"The noise of each row is known in units of the target, and {spec.target_transform!r} changes these: give "
            "sample_weight in place of noise, or leave target_transform out."
        )
    kind = "relative" if noise is None or noise.common is None else "known"
    if noise is not None and kind not in registry[spec.method].row_noise:
        able = ", ".join(sorted(key for key, method in registry.items() if kind in method.row_noise))
        instead = "sample_weight, or " if "relative" in registry[spec.method].row_noise else ""
        reason = "learns its noise itself" if instead else "treats all rows as equally accurate"
        raise SettingError(
            f"Method {spec.method!r} takes no {kind} noise per row, because it {reason}. Give {instead}one of the "
            f"methods {able}."
        )
    return with_row_noise(problem)


def opened_rows(spec: SpecT, data: Any) -> tuple[SpecT, Split]:
    """The rows of a spec, and the spec, which names rows in memory by a hash of their content before its edits."""
    content = spec.data.get("content") if isinstance(spec.data, dict) else None
    edits = {"edits": spec.data["edits"]} if isinstance(spec.data, dict) and spec.data.get("edits") else {}
    if data is None and content is not None:
        raise _were_in_memory(content, row_entries(spec.data) | edits)
    if data is None:
        # Rows mapped from a file are written in the precision in which they are used, since a cast would copy them.
        mapped = isinstance(spec.data, dict) and spec.data.get("memory") == "mapped" and "dtype" not in spec.data
        return spec, data_sets.load(spec.data, split=spec.split, **({"dtype": spec.dtype} if mapped else {}))
    entries = row_entries(spec.data)
    if isinstance(data, Split):
        split = data
        edits = edits if content is not None else {}  # whoever reads the rows of a spec edits them, too
        if content is None and "file" not in entries:
            _refuse_other_columns(split, entries)
            entries = {}  # the split has its columns already
    else:
        own = data if isinstance(data, Mapping) else {}
        others = {"file", *own, *(OF_COLUMNS if isinstance(data, tuple) and not is_frame(data[0]) else ())}
        choice = {name: value for name, value in entries.items() if name not in others}
        split = data_sets.load(data, split=spec.split, **choice)
        edits = {} if "edits" in own else edits
    key = split.key.removesuffix("/scaled")
    if content not in (None, key):
        raise DataError(f"These data are {quoted(key)}; the spec was made for {quoted(content)}.")
    spec = replace(spec, data={"content": key, **entries, **_kinds(entries, split), **edits})
    return spec, edited(split, edits["edits"]) if edits else split


def _were_in_memory(content: Any, entries: dict[str, Any]) -> DataError:
    """How to give the rows of a spec again that names them by their content."""
    named = json.dumps({"name": entries.pop("file", "FILE"), **entries}, ensure_ascii=False)
    return DataError(
        f"The data {quoted(content)} were in memory: pass them again, open(data=...), or run a spec that names "
        f"their file, on the command line with --set {shlex.quote(f'data={named}')}."
    )


def _refuse_other_columns(split: Split, entries: Mapping[str, Any]) -> None:
    """Raise DataError if a spec chooses other columns than a split has."""
    train, choice = split.train, choice_entries(entries)
    inputs = set(train.names if train.reader is None else train.reader.sources)
    allowed = {*choice.get("inputs", inputs), *choice.get("texts", ())}
    differs = {
        "target": choice.get("target", train.target) != train.target,
        "inputs": not inputs <= allowed,
        "drop": bool(inputs & {*choice.get("drop", ())}),
    }
    for name in (name for name in differs if differs[name]):
        raise DataError(
            f"The data of the spec say {name}={quoted(choice[name])}, and the split that was passed predicts "
            f"{quoted(train.target)} from {', '.join(map(quoted, sorted(inputs)))}: give {name} to gpx.load, or pass "
            "the table."
        )


def _kinds(entries: Mapping[str, Any], split: Split) -> dict[str, Any]:
    """How the columns of an uploaded file were read, so that a link or a program reads the same file alike."""
    reader = split.train.reader
    if reader is None or "file" not in entries or "kinds" in entries or not reader.decisions:
        return {}
    return {"kinds": reader.decisions}


def row_entries(data: Any) -> dict[str, Any]:
    """The file name of an upload and the choice of columns in the data of a spec."""
    if not isinstance(data, dict):
        return {}
    names = FILE_ENTRIES if isinstance(data.get("file"), str) else CHOICES
    return {name: data[name] for name in names if data.get(name)}


def _scaled_problem(spec: Description, split: Split) -> tuple[Problem, Split]:
    """The scaled problem on its device, and the scaled split that it came from."""
    if spec.device.startswith("cuda") and not torch.cuda.is_available():
        raise SettingError(f'device is {spec.device!r}, but torch sees no GPU here; give "cpu".')
    kernel_entries = spec.kernel if isinstance(spec.kernel, dict) else {"name": spec.kernel}
    kernel = kernels.make(kernel_entries["name"], split.train.d, split.train.columns)
    compared = compared_columns(kernel)
    split = replace(split, train=split.train.read_as_new(compared), test=split.test.read_as_new(compared))
    scaled = split.scaled(kernel.inputs != "counts", spec.target_transform, spec.input_transform)
    target = (spec.device, DTYPES[spec.dtype])
    split = replace(scaled, train=scaled.train.to(*target), test=scaled.test.to(*target))
    given = kernel_entries.get("theta")
    theta = kernel.start(split.train) if given is None else split.train.y.new_tensor(given)  # [p]
    if len(theta) != len(kernel.names):
        expected = f"{len(kernel.names)} ({', '.join(kernel.names)})"
        raise SettingError(
            f"theta has {len(theta):,} entries; {kernel_entries['name']} on these data takes {expected}."
        )
    return Problem(split.train, kernel, theta), split
