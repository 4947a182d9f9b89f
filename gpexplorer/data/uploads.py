"""An uploaded file, parsed in a child process with its own limits on memory, processor time and wall time.

The child reads the name, the choice of columns and the bytes from its standard input, and writes one line of JSON and
an NPZ archive. Nothing is pickled in either direction, and only checked numbers and names reach this process.
"""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from .files.choice import Choice
from .files.described_columns import ColumnNote
from .files.inputs_by_name import ModelInputs
from .files.parsed_columns import Numbers
from .files.size_limits import UPLOAD, Limits
from .quoting import display_name, size
from .reader.table_reader import RowsRead, reader_from
from .splits import How, Split
from .upload_child import OUT_OF_MEMORY, as_tuples

log = logging.getLogger(__name__)
LOGGED = 4000  # bytes of the child's standard error that are logged: the end of its traceback
CHILD = "gpexplorer.data.upload_child"
_ROOT = Path(__file__).resolve().parents[2]
_slots = threading.BoundedSemaphore(2)  # files read at the same time; each may use the whole memory limit


@dataclass(frozen=True)
class Preview:
    """The contents of a file: its columns, which of them contain numbers, its number of rows, the default target, its
    first rows as text, notes for the user, and what is known of each column."""

    columns: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: int
    target: str
    head: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    about: tuple[ColumnNote, ...] = ()


def preview(name: str, data: bytes, limits: Limits = UPLOAD) -> Preview:
    """Read the columns and the first rows of an uploaded file.

    Parameters
    ----------
    name : str
        Name of the file; only its extension is used.
    data : bytes
        Its contents.
    limits : Limits, default UPLOAD
        Limits of the child process.

    Raises
    ------
    DataError
        If the file cannot be read, or if a limit is reached.
    """
    answer, _ = _run_child("preview", name, data, None, limits)
    return Preview(**answer | {"about": tuple(ColumnNote(**note) for note in answer["about"])})


def read_upload(name: str, data: bytes, choice: Choice | None = None, split: How = 0, limits: Limits = UPLOAD) -> Split:
    """Read the chosen columns of an uploaded file as training and test rows; DataError as for `preview`."""
    from .loading import as_split

    answer, arrays = _run_child("read", name, data, choice or Choice(), limits)
    if answer["reader"] is not None:
        answer["reader"] = reader_from(answer["reader"], fitted=False)
    if "X" in answer:
        answer["X"] = list(answer["X"])  # texts
    return as_split(Numbers(**answer, **arrays), split, display_name(name), choice)


def read_rows(name: str, data: bytes, inputs: ModelInputs, limits: Limits = UPLOAD) -> RowsRead:
    """Read new rows for a model from an uploaded file.

    Parameters
    ----------
    name, data, limits : str, bytes, Limits, optional
        As for `preview`.
    inputs : ModelInputs
        What the model knows of its inputs.

    Raises
    ------
    DataError
        If the file cannot be read, a column is missing, or a limit is reached.
    """
    fields = inputs._asdict() | {"reader": None if inputs.reader is None else inputs.reader.to_json()}
    answer, arrays = _run_child("rows", name, data, None, limits, {"inputs": fields})
    answer["unknown"] = {source: arrays[f"unknown {k}"] for k, source in enumerate(answer["unknown"])}
    masks = {name: arrays[name] for name in ("answered", "beyond") if name in arrays}
    return RowsRead(X=arrays["X"], **answer, **masks)


def _run_child(
    task: str, name: str, data: bytes, choice: Choice | None, limits: Limits, more: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], Any]:
    """The child's answer to one request, with tuples in place of lists, and its arrays."""
    limits.check_file(display_name(name), len(data))
    request = {"task": task, "name": name, "choice": asdict(choice) if choice else None, "limits": asdict(limits)}
    request |= more or {}
    if not _slots.acquire(timeout=limits.wall_seconds):
        raise DataError(
            f"{display_name(name)} waited too long, because other files are being read: try again in a minute."
        )
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-m", CHILD],
            input=json.dumps(request).encode() + b"\n" + data,
            capture_output=True,
            env=_environment(),
            timeout=limits.wall_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DataError(
            f"{display_name(name)} took more than {limits.wall_seconds:g} s to read, so reading was stopped: "
            "keep fewer rows or columns."
        ) from None
    finally:
        _slots.release()
    line, _, rest = process.stdout.partition(b"\n")
    if process.returncode == OUT_OF_MEMORY or process.returncode < 0:  # the system ends a process at its limits
        raise DataError(
            f"{display_name(name)} needs more than the {size(limits.memory_bytes)} of memory or {limits.cpu_seconds} s "
            "that reading an upload may take: keep fewer rows or columns, or save it as plain CSV."
        )
    answer: dict[str, Any] = {"unexpected": f"end (code {process.returncode})"}
    if process.returncode == 0 and line:
        answer = json.loads(line)
    if "unexpected" in answer:
        log.warning(
            "The child process that reads uploads failed: %s", process.stderr[-LOGGED:].decode("utf-8", "replace")
        )
        raise DataError(
            f"{display_name(name)} could not be read because of an unexpected {answer['unexpected']}, which is in the "
            "log: save it as plain CSV."
        )
    if "error" in answer:
        raise DataError(answer["error"])
    fields = {key: as_tuples(value) for key, value in answer.items()}
    return fields, np.load(io.BytesIO(rest), allow_pickle=False) if rest else {}


def _environment() -> dict[str, str]:
    """Environment of the child: the path of this package, and one thread; nothing else of the server."""
    passed_on = {key: os.environ[key] for key in ("LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR") if key in os.environ}
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**passed_on, **one_thread, "PYTHONPATH": str(_ROOT), "ARROW_DEFAULT_MEMORY_POOL": "system"}
