"""The child process that parses one upload: `python -m gpexplorer.data.upload_child`, with a request on standard input.

Limits are set before any byte of the file is parsed. If a limit is reached, the process ends, and the parent reports
it. The traceback of an unexpected error goes to standard error, and the name of the error is the answer.
"""

from __future__ import annotations

import io
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import DataError
from .files.choice import Choice
from .files.columns import default_target, pick
from .files.described_columns import described_columns
from .files.inputs_by_name import ModelInputs, rows_read
from .files.parsed_columns import parsed
from .files.reading import read_bytes
from .files.size_limits import Limits
from .reader.table_reader import reader_from
from .total_rows import note_on_total

OUT_OF_MEMORY = 70  # exit code
HEAD_ROWS = 8  # rows of a preview


def main() -> None:
    """Read one request from standard input and write the answer to standard output."""
    line, data = sys.stdin.buffer.readline(), sys.stdin.buffer.read()
    confine(Limits(**json.loads(line)["limits"]))
    try:
        parts = answered(line, data)
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
    sys.stdout.buffer.writelines(parts)


def answered(line: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Return the answer to a request about a file: one line of JSON, and an archive of arrays, empty without arrays."""
    request = json.loads(line)
    try:
        task = {"preview": _preview, "read": _read, "rows": _rows}[request["task"]]
        answer, arrays = task(request, data, Limits(**request["limits"]))
    except DataError as error:
        answer, arrays = {"error": str(error)}, {}
    except MemoryError:
        raise
    except Exception as error:
        traceback.print_exc()
        answer, arrays = {"unexpected": type(error).__name__}, {}
    archive = io.BytesIO()
    if arrays:
        np.savez(archive, **arrays)
    return json.dumps(answer).encode() + b"\n", archive.getvalue()


def confine(limits: Limits) -> None:
    """Limit the memory and the processor time of this process, if the operating system can."""
    try:
        import resource
    except ImportError:  # not a POSIX system; the parent still limits the wall time
        return
    pa.set_cpu_count(1)
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statm = Path("/proc/self/statm")
    if statm.exists():  # Linux; elsewhere only the numbers of rows and columns are limited
        total = int(statm.read_text().split()[0]) * resource.getpagesize() + limits.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (total, total))


def _preview(request: dict[str, Any], data: bytes, limits: Limits) -> tuple[dict[str, Any], dict[str, Any]]:
    raw = read_bytes(request["name"], data, limits, most=HEAD_ROWS)
    whole = raw.table.num_rows == raw.rows  # of a Parquet file, only the first rows are read
    described = described_columns(raw.table, whole)
    columns = {name: parsed(name, raw.table[name]) for name in described}
    numbers = [name for name, column in columns.items() if column.is_number]
    first = raw.table.slice(0, HEAD_ROWS).to_pylist()
    head = [["" if v is None else str(v)[:40] for v in row.values()] for row in first]
    return {
        "columns": raw.table.column_names,
        "numbers": numbers,
        "about": [about._asdict() for about in described.values()],
        "rows": raw.rows,
        "target": default_target(raw.name, columns, Choice()),
        "head": head,
        "notes": raw.notes + (note_on_total(raw.table) if whole else ()),
    }, {}


def _read(request: dict[str, Any], data: bytes, limits: Limits) -> tuple[dict[str, Any], dict[str, Any]]:
    choice = Choice(**{name: as_tuples(value) for name, value in request["choice"].items()})
    numbers = pick(read_bytes(request["name"], data, limits, also=(*choice.named, *choice.drop)), choice)
    return _parts(numbers._asdict() | {"reader": numbers.reader and numbers.reader.to_json()})


def _rows(request: dict[str, Any], data: bytes, limits: Limits) -> tuple[dict[str, Any], dict[str, Any]]:
    """New rows for a model, for predictions."""
    own = request["inputs"]
    reader = None if own["reader"] is None else reader_from(own["reader"])
    inputs = ModelInputs(tuple(own["numbers"]), tuple(own["texts"]), own["d"], reader)
    raw = read_bytes(request["name"], data, limits, also=inputs.sources)
    rows = rows_read(inputs, raw)
    masks = {f"unknown {k}": mask for k, mask in enumerate(rows.unknown.values())}
    return _parts(rows._asdict() | {"unknown": list(rows.unknown)} | masks)


def as_tuples(value: Any) -> Any:
    """Return what JSON holds with tuples in place of its lists."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


def _parts(fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What JSON holds of these fields, and their arrays."""
    arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
    return {name: value for name, value in fields.items() if name not in arrays}, arrays


if __name__ == "__main__":
    main()
