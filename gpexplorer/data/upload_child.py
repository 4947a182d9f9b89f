"""The child process that parses one upload: `python -m gpexplorer.data.upload_child`, question on standard input.

Limits are set before a byte of the file is parsed; when one is reached the process dies, and the parent says so.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import DataError
from .files.columns import Choice, default_target, parse, pick
from .files.reading import read_bytes
from .files.size_limits import Limits

HEAD = 8  # rows shown


def main() -> None:
    """Answer one question."""
    question = json.loads(sys.stdin.buffer.readline())
    data = sys.stdin.buffer.read()
    limits = Limits(**question["limits"])
    confine(limits)
    try:
        told, arrays = (_preview if question["task"] == "preview" else _read)(question, data, limits)
    except DataError as error:
        told, arrays = {"error": str(error)}, {}
    except MemoryError:
        sys.exit(1)
    sys.stdout.buffer.write(json.dumps(told).encode() + b"\n")
    if arrays:
        held = io.BytesIO()
        np.savez(held, **arrays)
        sys.stdout.buffer.write(held.getvalue())


def confine(limits: Limits) -> None:
    """Cap this process's memory and processor time, where the system can."""
    try:
        import resource
    except ImportError:  # not a POSIX system: the wall clock in the parent still binds
        return
    pa.set_cpu_count(1)
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statm = Path("/proc/self/statm")
    if statm.exists():  # Linux; elsewhere the address space cannot be capped, and rows and columns bind
        most = int(statm.read_text().split()[0]) * resource.getpagesize() + limits.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _preview(question: dict[str, Any], data: bytes, limits: Limits) -> tuple[dict[str, Any], dict[str, Any]]:
    raw = read_bytes(question["name"], data, limits, most=HEAD)
    parsed = {name: parse(raw.table[name]) for name in raw.table.column_names}
    numbers = [name for name, column in parsed.items() if column.is_number]
    head = [["" if v is None else str(v)[:40] for v in row.values()] for row in raw.table.slice(0, HEAD).to_pylist()]
    return {
        "columns": raw.table.column_names,
        "numbers": numbers,
        "rows": raw.rows,
        "target": default_target(raw.name, parsed, Choice()),
        "head": head,
        "notes": raw.notes,
    }, {}


def _read(question: dict[str, Any], data: bytes, limits: Limits) -> tuple[dict[str, Any], dict[str, Any]]:
    asked: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in question["choice"].items()}
    choice = Choice(**asked)
    found = pick(read_bytes(question["name"], data, limits, also=(*choice.named, *choice.drop)), choice)
    texts = found.X if isinstance(found.X, list) else None
    told = {"texts": texts, "names": found.names, "target": found.target, "notes": found.notes}
    arrays = {"y": found.y, "kept": found.kept} | ({} if texts is not None else {"X": found.X})
    return told, arrays


if __name__ == "__main__":
    main()
