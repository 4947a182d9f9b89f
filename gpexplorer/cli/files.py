"""Files named on the command line: specs are read from them, with `--set` applied, and results are written to them."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import SettingError, not_written, quoted
from ..runs.setting_checks import typed_value
from ..runs.spec import LARGEST, Spec, parsed
from ..runs.storage.own_files import replacing
from ..runs.studies.comparison import Finished, table
from ..runs.studies.sweep import Swept, grid, with_digest
from .output import format_duration, to_stderr

MOST_RUNS = 100_000  # in one sweep
TABLE_SECONDS = 2.0  # between two versions of the table while runs end
PIPE_SECONDS = 10.0  # without a byte from a pipe
PARQUET, PAGES, SPECS = (".parquet", ".pq"), (".html", ".htm"), (".json",)
TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", *PARQUET)
NO_MODEL = (*TABLES, ".npz", ".txt", ".xlsx", ".pkl", *PAGES, *SPECS)  # they say another kind of file


def read_spec(source: str, changes: Sequence[str]) -> Spec:
    """Read a spec, change it, and only then check it.

    Parameters
    ----------
    source : str
        A file of spec JSON, or "-" for standard input.
    changes : sequence of str
        The values of `--set`, such as "seed=3", "num_inducing=64" or "budget.seconds=10".

    Raises
    ------
    SettingError
        If the file cannot be read, or a field cannot be used.
    """
    fields = _read(source)
    for change in changes:
        _apply(fields, change)
    return Spec.from_json(json.dumps(fields))


def read_sweep(source: str) -> dict[str, Spec]:
    """Read the specs of a sweep from a file: {"spec": the spec, "over": {field or setting: list of values}}."""
    fields = _read(source)
    for entry in ("spec", "over"):
        if entry not in fields:
            raise SettingError(
                f'The sweep has no "{entry}": give {{"spec": {{...}}, "over": {{"num_inducing": [8, 32]}}}}.'
            )
    for entry in fields:
        if entry not in ("spec", "over"):
            raise SettingError(f'The sweep has an entry {quoted(entry)}, and takes "spec" and "over" only.')
    return grid(Spec.from_json(json.dumps(fields["spec"])), fields["over"], MOST_RUNS)


def write_sweep_table(runs: Iterator[Swept], count: int, out: Path, report: Callable[[str], object]) -> pd.DataFrame:
    """Write the table of a sweep while its runs end, so that an interrupt leaves what was done.

    Parameters
    ----------
    runs : iterator of Swept
        The runs, each as it ends.
    count : int
        How many runs there will be.
    out : Path
        The Parquet file of the table.
    report : callable
        Receives one line of text per run that is in the table; others are printed on standard error.

    Returns
    -------
    DataFrame
        The table of all runs.
    """
    finished, begin, last_write = dict[str, Finished](), time.monotonic(), 0.0
    require_writable(out)
    number = written = 0
    try:
        for number, run in enumerate(runs, 1):
            elapsed = time.monotonic() - begin
            to_go = f"about {format_duration(elapsed / number * (count - number))} to go"
            said = report if run.finished else to_stderr  # what is not in the table is said in any case
            said(f"{number} of {count}, {to_go} · {run.name} · {run.sentence}")
            finished |= {run.name: run.finished} if run.finished else {}
            if elapsed - last_write > TABLE_SECONDS or number == 1:
                last_write, written = elapsed, number
                _write_table(finished, out)
    except KeyboardInterrupt:  # of runs on workers, which keep what they have
        pass
    if written < number:
        _write_table(finished, out)
    return table(finished)


def _write_table(finished: dict[str, Finished], out: Path) -> None:
    """Replace the table whole: a reader, a full disk and a kill find the table before or the one after."""
    with writable(out), replacing(out, private=False) as fresh:
        with_digest(table(finished)).to_parquet(fresh)


@contextmanager
def writable(out: Path, option: str = "--out") -> Iterator[None]:
    """Turn an error of the disk into a SettingError that names the option."""
    try:
        yield
    except OSError as error:
        raise SettingError(f"Cannot write {out} {not_written(error, f'choose another {option}')}") from None


def require_writable(
    out: Path | None,
    option: str = "--out",
    endings: Sequence[str] = (),
    others: Sequence[str] = (),
    sources: Sequence[str | Path] = (),
) -> None:
    """Raise SettingError if the file cannot be written, so that no work is lost later; None is no file.

    Parameters
    ----------
    option : str
        The option that names it, for messages.
    endings, others : sequence of str
        One of these its name must have, or none of these. A device or a pipe may have any name.
    sources : sequence of str or Path
        Files that are read, which it must not replace.
    """
    if out is None:
        return
    existed, name = out.exists(), out.name.lower()
    if existed and any(os.path.exists(source) and out.samefile(source) for source in sources):
        raise SettingError(f"Cannot write {out}, which is a file that is read here: choose another {option}.")
    is_other = name.endswith(tuple(others)) or (endings and not name.endswith(tuple(endings)))
    if is_other and (out.is_file() or not existed):
        kinds = f"whose name ends in {' or '.join(endings)}" if endings else "such as model.safetensors"
        raise SettingError(f"Cannot write {out} as what its name says: choose another {option}, {kinds}.")
    with writable(out, option):
        out.open("ab").close()
        if not existed:
            out.unlink()  # an interrupt leaves no empty file


def _read(source: str) -> dict[str, Any]:
    """The JSON object in this file, or on standard input for a dash."""
    try:
        text = sys.stdin.buffer.read(LARGEST + 1) if source == "-" else _read_file(source)
    except (OSError, ValueError) as error:  # a file name with a zero byte is a ValueError
        raise SettingError(
            f"Cannot read the spec {source!r}: {getattr(error, 'strerror', None) or error}: "
            "give a file of Spec JSON, or - for standard input."
        ) from None
    try:
        return parsed(text)
    except SettingError as error:
        raise SettingError(f"{source}: {error}") from None


def _read_file(path: str) -> bytes:
    """The first bytes of a file. A pipe may be given as well, if something arrives in it soon."""
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb", buffering=0) as file:
        if not stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            return file.read(LARGEST + 1) or b""
        text, last_arrival = b"", time.monotonic()
        while len(text) <= LARGEST:
            chunk = file.read(LARGEST + 1 - len(text))  # None while a writer is silent, empty without a writer
            if chunk:
                text, last_arrival = text + chunk, time.monotonic()
            elif (text and chunk == b"") or time.monotonic() - last_arrival > PIPE_SECONDS:
                break
            else:
                time.sleep(0.02)
    if not text:
        raise SettingError(f"Nothing arrived in the pipe {path!r} within {PIPE_SECONDS:g} s: write the spec into it.")
    return text


def _apply(fields: dict[str, Any], change: str) -> None:
    """Apply one --set: to a field of the spec, an entry of a field (budget.seconds), or a setting of the method."""
    path, equals, text = change.partition("=")
    if not equals or not path:
        raise SettingError(f"--set {change!r} names no value: write key=value, such as seed=3.")
    value = typed_value(text)
    field, dot, entry = path.partition(".")
    if not dot and field not in Spec.__dataclass_fields__:
        field, dot, entry = "settings", ".", path
    if not dot:
        fields[field] = value
        return
    entries = fields.setdefault(field, {})
    if not isinstance(entries, dict):
        raise SettingError(f"--set {change!r}: {field} is {entries!r} in this spec, which has no entries.")
    entries[entry] = value
