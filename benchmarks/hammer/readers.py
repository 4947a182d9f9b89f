"""The readers that the experiment `fuzz` of `benchmarks hammer` tries, with cases and checks of answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpexplorer.data.files.choice import Choice
from gpexplorer.data.files.columns import pick
from gpexplorer.data.files.reading import read_bytes
from gpexplorer.data.files.size_limits import UPLOAD
from gpexplorer.data.loading import as_split, is_named
from gpexplorer.runs import link
from gpexplorer.runs.spec import Spec
from gpexplorer.runs.store import Store
from gpexplorer.runs.studies.comparison import read_store

from . import hostile_files, hostile_inputs

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

START = Spec("cholqr", {"num_inducing": 16})
VIEWS = ("fit", "convergence")


class Reader(NamedTuple):
    """A reader, with cases for it.

    Attributes
    ----------
    what : str
        What the cases are, for the table.
    cases : callable
        Gives the strategy of the cases.
    read : callable
        Reads a case, using a directory for files, and raises an AssertionError if the answer is wrong.
    """

    what: str
    cases: Callable[[], SearchStrategy[Any]]
    read: Callable[[Any, Path], None]


def read_spec(text: bytes, _: Path) -> None:
    """Read a spec, which must survive being written and keep its name."""
    spec = Spec.from_json(text)
    reread = Spec.from_json(spec.to_json())
    assert reread == spec, f"it is read back as {reread}"
    assert reread.key() == spec.key(), "it has another name when it is read back"
    if is_named(spec.data):
        linked = link.read(link.write(spec), START, VIEWS)
        assert linked.corrected or linked.spec == spec, f"its link is read back as {linked}"


def read_link(query: str, _: Path) -> None:
    """Read a link, which never raises and whose spec must survive being written as a link."""
    try:
        answer = link.read(query, START, VIEWS)
    except Exception as error:
        raise AssertionError(f"a link raised {type(error).__name__}: {error}") from error
    assert len(answer.corrected) <= link.MOST_CORRECTIONS + 1, "too many sentences"
    reread = link.read(link.write(answer.spec, answer.view, answer.at), START, VIEWS)
    assert reread == replace(answer, corrected=()), f"its link is read back as {reread}"


def read_table(file: tuple[str, bytes], _: Path) -> None:
    """Read a data file, whose rows must be finite numbers."""
    name, data = file
    split = as_split(pick(read_bytes(name, data, UPLOAD), Choice(missing="drop")), {"test": 0.3}).scaled()
    for part in (split.train, split.test):
        assert bool(part.X.isfinite().all() and part.y.isfinite().all()), "its numbers are not finite"


def read_run(files: tuple[bytes, bytes], folder: Path) -> None:
    """Read a stored run, which must be a row of the table as well and stay as it is on the disk."""
    directory = folder / "0000"
    directory.mkdir(exist_ok=True)
    for name, content in zip(("spec.json", "journal.jsonl"), files, strict=True):
        (directory / name).write_bytes(content)
    store = Store(folder)
    runs, unreadable = read_store(store)
    [row] = store.table().to_dict("records")
    assert (directory / "journal.jsonl").read_bytes() == files[1], "reading changed the journal"
    assert len(runs) + len(unreadable) == 1, "the run is neither shown nor named"
    if row.get("outcome") == "unreadable":
        assert unreadable, "the table names the run and the page shows it"
    store.kept("0000")


READERS = {
    "spec": Reader("texts as the JSON of a spec", hostile_inputs.spec_texts, read_spec),
    "link": Reader("queries as a link", hostile_inputs.link_queries, read_link),
    "file": Reader("data files: text, gzip, NPZ, Parquet", hostile_files.data_files, read_table),
    "run": Reader("specs and journals of stored runs", hostile_files.journals, read_run),
}
