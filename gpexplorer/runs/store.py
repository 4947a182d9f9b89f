"""Runs on disk, a directory each, named by what they compute: what was finished is never lost or computed again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import SettingError, StoreError
from ..methods.base import registry
from .run import Run
from .setting_checks import quoted
from .spec import Spec
from .storage.codec import classes_of
from .storage.journal import FILE, Journal, Kept, restored
from .storage.json_lines import read, read_whole, write_whole
from .trace import Trace

SPEC, NOTE = "spec.json", "note.txt"
LONGEST_NOTE = 2000  # characters


class Store:
    """A directory of runs. Any number may read, and different runs be written, at once; a run has one writer."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            self.path = Path(path).expanduser().resolve()
        except (TypeError, ValueError, OSError) as error:
            raise StoreError(f"A store is a directory, not {quoted(path)} ({error}): give its path.") from None

    def open(self, spec: Spec, data: Any = None) -> Run:
        """The run of this spec, going on from its last stored record; `data` as in `Spec.open`.

        StoreError where the run is being written elsewhere, is damaged, or the disk refuses.
        """
        if not isinstance(spec, Spec):
            raise SettingError(f"A store opens a Spec, not {quoted(spec)}: give Spec(...) or Spec.from_json(text).")
        return spec.open(store=self, data=data)

    def names(self) -> list[str]:
        """The runs kept here, by name."""
        return sorted(found.parent.name for found in self.path.glob(f"*/{SPEC}"))

    def recent(self, most: int) -> list[str]:
        """The runs that were written to last, the newest first."""
        written = {path.parent.name: path.stat().st_mtime for path in self.path.glob(f"*/{FILE}")}
        return sorted((name for name in self.names() if name in written), key=lambda name: -written[name])[:most]

    def spec(self, name: str) -> Spec:
        """What this run computes; SettingError where another version of gpexplorer wrote it."""
        try:
            return Spec.from_json((self.directory(name) / SPEC).read_bytes())
        except FileNotFoundError:
            raise StoreError(f"{self.path} has no run {name!r}; it has {', '.join(self.names()) or 'none'}.") from None

    def kept(self, name: str) -> Kept:
        """Records and outcome stored so far, for reading alone: also while the run is being written."""
        lines = read_whole(self.directory(name) / FILE).lines
        return restored(lines, classes_of(registry[self.spec(name).method]))

    def note(self, name: str) -> str:
        """What a person wrote about this run; empty where nobody did."""
        try:
            with (self.directory(name) / NOTE).open("rb") as file:
                return file.read(4 * LONGEST_NOTE).decode("utf-8", "replace")[:LONGEST_NOTE]
        except FileNotFoundError:
            return ""

    def annotate(self, name: str, note: str) -> None:
        """Keep this text with a run that is here, in place of what was written before; also while the run is going on.

        It is plain text to be escaped where it is shown. StoreError where it is too long, or the disk refuses.
        """
        if not isinstance(note, str):
            raise StoreError(f"The note on run {name} is {quoted(note)}; give text.")
        if len(note) > LONGEST_NOTE:
            raise StoreError(f"The note on run {name} has {len(note)} characters; shorten it to {LONGEST_NOTE}.")
        if name not in self.names():
            raise StoreError(f"{self.path} has no run {name!r} to write a note on: store the run first.")
        try:
            write_whole(self.directory(name) / NOTE, note)
        except OSError as error:
            raise StoreError(f"The note on run {name} cannot be kept in {self.path}: {error.strerror}.") from error

    def table(self) -> pd.DataFrame:
        """One row a run, by name: what it is, how far it came, why it ended, and its last scores."""
        return pd.DataFrame([self._row(name) for name in self.names()], index=pd.Index(self.names(), name="run"))

    def take_up(self, spec: Spec) -> tuple[Journal, Kept]:
        """The journal of this spec's run, open for writing, and what it holds; made if it is new."""
        directory = self.directory(spec.key())
        try:
            directory.mkdir(parents=True, exist_ok=True)
            journal = Journal(directory, classes_of(registry[spec.method]))
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(f"The store cannot keep a run in {directory}: {error.strerror}.") from error
        try:
            self._write_spec(directory, spec)
        except BaseException:
            journal.close()
            raise
        return journal, journal.kept

    def put(self, run: Run) -> str:
        """Keep the records of a run that was made outside the store, after those it has of it; returns its name.

        StoreError where the run has no spec, is being written elsewhere, or the disk refuses.
        """
        if run.spec is None:
            raise StoreError("A run made without a Spec has no name to be kept under: open it with Spec.open.")
        journal, kept = self.take_up(run.spec)
        try:
            journal.weigh(run.method.cost(run.problem).memory)
            journal.extend(run.trace[len(kept.records) :])
            if run.outcome is not None and kept.outcome != run.outcome:
                journal.end(run.outcome)
        except OSError as error:
            raise StoreError(f"The store cannot keep a run in {self.path}: {error.strerror}.") from error
        finally:
            journal.close()
        return run.spec.key()

    def repair(self, name: str) -> int:
        """Keep the whole lines before a damaged one and set the file aside as it was; returns how many are kept."""
        path = self.directory(name) / FILE
        content = read(path)
        if content.damaged:
            whole = path.read_bytes()[: content.length].decode()
            os.replace(path, path.with_suffix(".damaged"))
            write_whole(path, whole)
        return len(content.lines)

    def directory(self, name: str) -> Path:
        """Where this run is kept; StoreError for a name that leads anywhere else."""
        found = (self.path / str(name)).resolve()
        if found.parent != self.path:
            raise StoreError(f"{name!r} is not the name of a run: it leads out of {self.path}.")
        return found

    def _write_spec(self, directory: Path, spec: Spec) -> None:
        path, text = directory / SPEC, spec.to_json()
        if not path.exists() or path.read_text("utf-8") != text:
            write_whole(path, text)

    def _row(self, name: str) -> dict[str, Any]:
        try:
            spec, kept = self.spec(name), self.kept(name)
        except (StoreError, SettingError) as error:
            return {"outcome": "unreadable", "message": str(error)}
        what = {"method": spec.method, "data": str(spec.data), "kernel": str(spec.kernel), "seed": spec.seed}
        last = Trace(kept.records)[-1:]
        how = {"steps": last[0].index, "seconds": last[0].seconds, **(last[0].scores or {})} if last else {}
        ended = {"outcome": kept.outcome.reason, "message": kept.outcome.message} if kept.outcome else {}
        return {**what, **how, **ended}
