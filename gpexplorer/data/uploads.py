"""A stranger's file, parsed in a child process with its own limits on memory, processor time and wall time.

The child is told the name, the choice of columns and the bytes on its standard input, and answers with one line of
JSON and an NPZ archive: nothing is pickled in either direction, and nothing of the file reaches this process but
checked numbers and names.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from .files.columns import Choice, Numbers
from .files.size_limits import UPLOAD, Limits
from .quoting import display_name, size
from .splits import How, Split

CHILD = "gpexplorer.data.upload_child"
_ROOT = Path(__file__).resolve().parents[2]
_slots = threading.BoundedSemaphore(2)  # files read at once: more would share the memory that one is allowed


@dataclass(frozen=True)
class Preview:
    """What a file holds: its columns, those of numbers, its size, the target by default, and its first rows as text."""

    columns: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: int
    target: str
    head: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def preview(name: str, data: bytes, limits: Limits = UPLOAD) -> Preview:
    """The columns of an upload, before any is chosen; DataError in a sentence where it cannot be read."""
    told, _ = _ask("preview", name, data, None, limits)
    head = tuple(tuple(row) for row in told["head"])
    lists = {key: tuple(told[key]) for key in ("columns", "numbers", "notes")}
    return Preview(rows=told["rows"], target=told["target"], head=head, **lists)


def read_upload(name: str, data: bytes, choice: Choice | None = None, split: How = 0, limits: Limits = UPLOAD) -> Split:
    """The chosen columns of an upload as training and test rows."""
    from .loading import as_split

    told, arrays = _ask("read", name, data, choice or Choice(), limits)
    X: Any = told["texts"] if told["texts"] is not None else arrays["X"]
    numbers = Numbers(X, arrays["y"], tuple(told["names"]), told["target"], tuple(told["notes"]), arrays["kept"])
    return as_split(numbers, split, display_name(name))


def _ask(task: str, name: str, data: bytes, choice: Choice | None, limits: Limits) -> tuple[dict[str, Any], Any]:
    limits.check_file(display_name(name), len(data))
    question = {"task": task, "name": name, "choice": asdict(choice) if choice else None, "limits": asdict(limits)}
    if not _slots.acquire(timeout=limits.wall_seconds):
        raise DataError(f"{display_name(name)} waited too long for other files to be read: try again in a minute.")
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", CHILD],
            input=json.dumps(question).encode() + b"\n" + data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            timeout=limits.wall_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DataError(_too_long(name, limits)) from None
    finally:
        _slots.release()
    line, _, rest = done.stdout.partition(b"\n")
    if done.returncode != 0 or not line:
        raise DataError(_too_much(name, limits))
    told = json.loads(line)
    if "error" in told:
        raise DataError(told["error"])
    return told, np.load(io.BytesIO(rest), allow_pickle=False) if rest else {}


def _environment() -> dict[str, str]:
    """What the child sees: where this package lies and one thread; no secret of the server."""
    kept = {key: os.environ[key] for key in ("LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR") if key in os.environ}
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**kept, **one, "PYTHONPATH": str(_ROOT), "ARROW_DEFAULT_MEMORY_POOL": "system"}


def _too_long(name: str, limits: Limits) -> str:
    return (
        f"{display_name(name)} took more than {limits.wall_seconds:g} s to read and was given up: "
        "keep fewer rows or columns."
    )


def _too_much(name: str, limits: Limits) -> str:
    return (
        f"{display_name(name)} needs more than the {size(limits.memory_bytes)} of memory or {limits.cpu_seconds} s "
        "that reading an upload may take: keep fewer rows or columns, or save it as plain CSV."
    )
