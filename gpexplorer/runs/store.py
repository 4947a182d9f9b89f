"""A `Store` keeps runs on disk, one directory per run, so that no step that was computed is lost or computed again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import GPExplorerError, SettingError, StoreError, not_written, quoted
from ..methods.base import registry
from .run import Run
from .spec import LARGEST, Spec
from .storage.codec import classes_of
from .storage.journal import FILE, Journal, Kept, locked, restored
from .storage.json_lines import read, read_whole
from .storage.own_files import read_own, remove_left_overs, write_whole
from .trace import Trace

if TYPE_CHECKING:
    import pandas as pd

SPEC, NOTE = "spec.json", "note.txt"
LONGEST_NOTE = 2000  # characters
LONGEST_NAME = 100  # characters of the name of a run; the store itself gives names of 16
LISTED = 12  # names of runs in a message


class Store:
    """A directory of runs.

    A run's directory is named by the hash of its spec (`Spec.key`) and holds the spec, the journal of its records, and
    a note if someone wrote one. Any number of processes may read, and write different runs, at the same time. One
    run has one writer. A run that cannot be read, or whose files are links or pipes, does not affect other runs.

    Parameters
    ----------
    path : str or path
        The directory. It is made when the first run is kept.

    Examples
    --------
    >>> store = Store("runs-store")
    >>> run = store.open(Spec("cholqr", {"num_inducing": 16}))  # continues where an earlier process stopped
    >>> run.finish(steps=20)
    >>> store.table()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            self.path = Path(path).expanduser().resolve()
        except (TypeError, ValueError, OSError) as error:
            raise StoreError(f"A store is a directory, not {quoted(path)} ({error}): give its path.") from None

    def open(self, spec: Spec, data: Any = None) -> Run:
        """Open the run of this spec, which continues after its last stored record.

        Parameters
        ----------
        spec : Spec
            What to run.
        data : Split, arrays or frame, optional
            Rows in memory, as in `Spec.open`.

        Raises
        ------
        StoreError
            If another process writes this run, its journal is damaged, or the disk cannot be written.
        """
        if not isinstance(spec, Spec):
            raise SettingError(f"A store opens a Spec, not {quoted(spec)}: give Spec(...) or Spec.from_json(text).")
        return spec.open(store=self, data=data)

    def require_writable(self) -> None:
        """Make the directory if it is missing; StoreError if runs cannot be kept in it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.path).close()
        except OSError as error:
            reason = "it is no directory" if self.path.exists() and not self.path.is_dir() else error.strerror
            raise StoreError(
                f"Runs cannot be kept in {self.path} ({reason}): choose a directory that you can write."
            ) from None

    def names(self) -> list[str]:
        """The names of the runs kept here, those included that cannot be read."""
        entries: list[str] = []
        with _reading(self.path), suppress(FileNotFoundError):
            entries = os.listdir(self.path)
        possible = (name for name in entries if name.isprintable() and len(name) <= LONGEST_NAME)
        return sorted(name for name in possible if os.path.lexists(self.path / name / SPEC))

    def recent(self, most: int) -> list[str]:
        """The names of at most this many runs, the one that was written to last first."""
        written = dict[str, float]()
        for name in self.names():
            with suppress(OSError):
                written[name] = (self.path / name / FILE).lstat().st_mtime
        return sorted(written, key=lambda name: -written[name])[:most]

    def spec(self, name: str) -> Spec:
        """The spec of this run; SettingError if another version of gpexplorer wrote it."""
        path = self.directory(name) / SPEC
        with _reading(path):
            try:
                return Spec.from_json(read_own(path, LARGEST + 1))
            except SettingError as error:
                raise SettingError(f"{path}: {error}") from None
            except (FileNotFoundError, NotADirectoryError):
                raise StoreError(f"{self.path} has no run {name!r}; it has {self._listed()}.") from None

    def kept(self, name: str) -> Kept:
        """The records and the outcome stored so far, for reading only. The run may be written at the same time."""
        path = self.directory(name) / FILE
        with _reading(path):
            lines = read_whole(path).lines
        return restored(lines, classes_of(registry[self.spec(name).method]))

    def note(self, name: str) -> str:
        """The note that a person wrote about this run, or an empty text."""
        path = self.directory(name) / NOTE
        with _reading(path), suppress(FileNotFoundError):
            return read_own(path, 4 * LONGEST_NOTE).decode("utf-8", "replace")[:LONGEST_NOTE]
        return ""

    def annotate(self, name: str, note: str) -> None:
        """Keep a note with a stored run, in place of an earlier note. The run may be in progress.

        Parameters
        ----------
        name : str
            The name of a run in this store.
        note : str
            Plain text of at most 2000 characters. It must be escaped wherever it is shown as HTML.

        Raises
        ------
        StoreError
            If the note is too long, there is no such run, or the disk cannot be written.
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
            raise StoreError(
                f"The note on run {name} cannot be kept in {self.path} {not_written(error, 'let yourself write there')}"
            ) from error

    def table(self) -> pd.DataFrame:
        """One row per run, by name: its spec, steps and seconds, why it ended, and its last scores.

        The outcome of a run that cannot be read is "unreadable", and its message says why.
        """
        rows = {name: self._row(name) for name in self.names()}
        import pandas as pd

        return pd.DataFrame(list(rows.values()), index=pd.Index(list(rows), name="run"))

    def take_up(self, spec: Spec) -> tuple[Journal, Kept]:
        """The journal of this spec's run, open for writing, and its content. A run that is new gets a directory."""
        directory = self.directory(spec.key())
        with self._keeping():
            directory.mkdir(parents=True, exist_ok=True)
            journal = Journal(directory, classes_of(registry[spec.method]))
            try:
                path, text = directory / SPEC, spec.to_json()
                if not os.path.lexists(path) or read_own(path, LARGEST + 1) != text.encode():
                    write_whole(path, text)
                remove_left_overs(directory, NOTE)
            except BaseException:
                journal.close()
                raise
        return journal, journal.kept

    def put(self, run: Run) -> str:
        """Keep the records of a run that was made outside the store, after those that the store has of it.

        Returns
        -------
        str
            The name of the run.

        Raises
        ------
        StoreError
            If the run has no spec, was changed by hand (`Run.changes`), another process writes it, or the disk cannot
            be written.
        """
        if not isinstance(run.spec, Spec):
            raise StoreError("A run made without a Spec has no name to be kept under: open it with Spec.open.")
        run.changes.require_none()
        journal, kept = self.take_up(run.spec)
        with self._keeping(), closing(journal):
            journal.begin(run.method.cost(run.problem).memory, run.split.key if run.split else kept.rows)
            if not kept.records:
                journal.write_start(run.problem.theta.tolist(), run.start_note)
            journal.extend(run.trace[len(kept.records) :])
            if run.outcome is not None and kept.outcome != run.outcome:
                journal.end(run.outcome)
        return run.spec.key()

    def repair(self, name: str) -> int:
        """Keep the whole lines before a damaged one. The damaged file stays beside it, with the ending ".damaged".

        Returns
        -------
        int
            The number of lines kept.
        """
        directory = self.directory(name)
        path = directory / FILE
        with _reading(path), locked(directory):
            content = read(path)
            if content.damaged:
                whole = read_own(path, content.length).decode()
                os.replace(path, path.with_suffix(".damaged"))
                write_whole(path, whole)
        return len(content.lines)

    def directory(self, name: str) -> Path:
        """The directory of this run; StoreError for a name that leads out of the store, or that no run can have."""
        text = str(name)
        plain = 0 < len(text) <= LONGEST_NAME and text.isprintable() and text not in (".", "..")
        directory = self.path / text if plain else self.path
        if directory.parent != self.path or directory.is_symlink():
            raise StoreError(f"{quoted(name)} is no run: {self.path} has {self._listed()}, each a directory in it.")
        return directory

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        """Turn an error of the disk, inside the context, into a StoreError."""
        try:
            yield
        except StoreError:
            raise
        except OSError as error:
            way_out = not_written(error, "choose a directory that you can write")
            raise StoreError(f"The store cannot keep a run in {self.path} {way_out}") from error

    def _listed(self) -> str:
        """The names of the first runs, for a message."""
        names = self.names()
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        return (", ".join(names[:LISTED]) or "none") + more

    def _row(self, name: str) -> dict[str, Any]:
        try:
            spec, kept = self.spec(name), self.kept(name)
        except Exception as error:  # whatever a stranger's run raises, the other runs are shown
            return {"outcome": "unreadable", "message": reading_error(error)}
        row: dict[str, Any] = {"method": spec.method, "data": str(spec.data), "kernel": str(spec.kernel)}
        row["seed"] = spec.seed
        if len(trace := Trace(kept.records)):
            row |= {"steps": trace[-1].index, "seconds": trace[-1].seconds, **(trace[-1].scores or {})}
        if kept.outcome:
            row |= {"outcome": kept.outcome.reason, "message": kept.outcome.message}
        return row


def reading_error(error: Exception) -> str:
    """What to tell about a run that cannot be read: the sentence of the error if it has one."""
    if isinstance(error, GPExplorerError):
        return str(error)
    return f"The run cannot be read ({type(error).__name__}): another version may have written it, or it is damaged."


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn an error of the disk, inside the context, into a StoreError that names the path."""
    try:
        yield
    except StoreError:
        raise
    except NotADirectoryError:
        raise StoreError(f"{path} is no directory: give the path of a store, or of a run in it.") from None
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"{path} cannot be read ({reason}): check who owns it, or remove it.") from None
