"""A Parquet file larger than memory as memory-mapped rows: checked, split, scaled and written once, strip by strip.

    1. Every cell is checked. Text, missing and infinite values give the same messages as in any other file.
    2. The mean and the standard deviation of the training rows are computed.
    3. Scaled rows are written to .npy files, training and test rows apart, in a folder that is named by their content.

The result contains tensors that map those files. A method that writes into one changes its own memory, never the disk.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pooch
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError
from ..problem import Dataset, Scale
from . import table_checks
from .files.choice import Choice, refuse_choice
from .files.columns import refuse_text, roles
from .files.containers import is_readable, number_columns, parquet
from .files.parsed_columns import Column, parsed
from .files.reading import readable
from .files.size_limits import LOCAL
from .quoting import display_name, listing, quote, size
from .reader.column_cells import ColumnReader
from .sets.cards import Progress
from .splits import Given, How, Mask, Parts, Split, key_of, part
from .standardising import Moments, moments

STRIP_BYTES = 2**20  # of float64: a few thousand rows
BUFFER_BYTES = 2**16  # of a column, read at once
PASSES = 3
DESCRIPTION = "about.json"
DTYPES = ("float64", "float32")
Report = Callable[[int], None]  # receives the rows that were read so far, over all passes
ENV = "GPEXPLORER_MAPPED_DIR"  # names the folder of mapped files
_WAY_OUT = f"set {ENV} to a folder on a larger disk, or delete files there that are no longer needed."
_PRIVATE: dict[str, Any] = {"access": mmap.ACCESS_COPY}
if hasattr(mmap, "MAP_PRIVATE"):
    _FLAGS = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
    _PRIVATE = {"flags": _FLAGS, "prot": mmap.PROT_READ | mmap.PROT_WRITE}


class Table(NamedTuple):
    """A Parquet file, and the columns to be read from it."""

    path: Path
    name: str
    inputs: tuple[str, ...]
    target: str
    rows: int
    notes: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The inputs, then the target."""
        return (*self.inputs, self.target)


def load_mapped(
    path: Path, how: How, choice: Choice, dtype: str = "float64", progress: Progress | None = None
) -> Split:
    """Return a scaled split of a Parquet file whose rows need not fit into memory.

    Parameters
    ----------
    path : Path
        The Parquet file.
    how : int or mapping
        The split, by a fold or by a share. A division in time is refused, because it needs a whole column at once.
    choice : Choice
        The columns. One text column as input is refused.
    dtype : {"float64", "float32"}
        Precision of the rows on disk.
    progress : callable, optional
        Called as progress(done, total) with numbers of rows over three passes. If it raises, no file remains.

    Returns
    -------
    Split
        Scaled rows, in tensors that map files.

    Raises
    ------
    DataError
        One sentence about the first thing that is wrong.

    Notes
    -----
    Memory for one strip of rows, and one byte per row.
    """
    name = display_name(path.name)
    _refuse(path, name, how, choice, dtype)
    key = key_of(path.stem, [sha256_of(path), choice.identity, dtype], how)
    folder = scratch() / safe_name(key)
    if not folder.exists():
        table = _table(path, name, choice)
        total = PASSES * table.rows
        report: Report = (lambda done: None) if progress is None else (lambda done: progress(done, total))
        complete, notes = _complete_rows(table, choice, report)
        parts = _parts(table, complete, how)
        with created(folder, int(complete.sum()) * len(table.columns) * np.dtype(dtype).itemsize) as into:
            scale = _write(into, table, parts, dtype, report)
            description = {"names": table.inputs, "target": table.target, "notes": notes, **scale}
            (into / DESCRIPTION).write_text(json.dumps(description))
    return _opened(folder, path.stem, key)


def _refuse(path: Path, name: str, how: How, choice: Choice, dtype: str) -> None:
    if path.suffix.lower() not in (".parquet", ".pq"):
        raise DataError(f'{name}: memory="mapped" reads Parquet; save it as .parquet, or load it without.')
    if choice.groups:
        raise DataError(f"{name}: groups of rows need the whole file in memory: leave memory out, or leave groups out.")
    if choice.encode or choice.dates or choice.kinds or choice.decimal != "." or choice.missing == "fill":
        raise DataError(
            f'{name}: memory="mapped" reads numbers as they are: write levels, days and filled values '
            "into the file, or read it whole."
        )
    text = choice.texts[0] if choice.texts else choice.objects
    if text is not None:
        raise DataError(f'{name}: memory="mapped" needs columns of numbers, but {quote(text)} contains texts.')
    if not isinstance(how, int) and "before" in how:
        raise DataError(
            f'{name}: memory="mapped" divides rows by folds or by a share, not in time: give {{"test": 0.1}}.'
        )
    if dtype not in DTYPES:
        raise DataError(f"{name}: dtype={quote(dtype)} is not known: choose one of {', '.join(DTYPES)}.")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file; DataError if it cannot be read."""
    with readable(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _table(path: Path, name: str, choice: Choice) -> Table:
    """The chosen columns. Whether a column contains numbers is decided by the first strip in which it has any value."""
    with parquet(name), pq.ParquetFile(path) as file:
        kept, notes = number_columns(name, file.schema_arrow, (*choice.named, *choice.drop), is_readable)
        rows = file.metadata.num_rows
    refuse_choice(name, kept, choice)
    LOCAL.check_table(name, 0, len(kept))
    table_checks.refuse_few_rows(name, rows)
    needed = [c for c in (choice.named if choice.is_full else kept) if c not in choice.drop]
    heads = _heads(path, name, needed)
    others = [c for c, column in heads.items() if not column.is_number and c not in choice.named]
    numbers = {c: column for c, column in heads.items() if c not in others}
    target, inputs, omitted = roles(name, numbers, choice, keep_all=True)
    omitted += (f"Columns that do not contain numbers were left out: {listing(others)}.",) if others else ()
    for c in (*inputs, target):
        if numbers[c].reader.kind not in ("number", "yes/no", "empty"):
            refuse_text(name, c, numbers[c], c == target, rows)
            raise DataError(f'{name}: memory="mapped" needs columns of numbers, but {quote(c)} contains text.')
    return Table(path, name, inputs, target, rows, notes + omitted)


def _heads(path: Path, name: str, needed: list[str]) -> dict[str, Column]:
    """Each column in the first strip in which it has any value, or in the last strip."""
    heads: dict[str, Column] = {}
    for strip in _strips(path, name, needed):
        heads |= {c: parsed(c, strip[c]) for c in needed if c not in heads or not heads[c].has_any}
        if all(column.has_any for column in heads.values()):
            break
    return heads


def _strips(path: Path, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield a few thousand rows at a time, independent of the row groups of the file."""
    with parquet(name), pq.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False) as file:
        for batch in file.iter_batches(
            max(STRIP_BYTES // (8 * len(columns)), 1), columns=list(columns), use_threads=False
        ):
            yield pa.Table.from_batches([batch])


def _values(table: Table) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Values [b, k] of consecutive rows, with their positions in the file."""
    begin = 0
    for strip in _strips(table.path, table.name, table.columns):
        rows = slice(begin, begin + strip.num_rows)
        yield rows, np.column_stack([ColumnReader(c, "number").cells(strip[c]).values for c in table.columns])
        begin = rows.stop


def _complete_rows(table: Table, choice: Choice, report: Report) -> tuple[Mask, tuple[str, ...]]:
    """The first pass: which rows of the file have no missing value, and notes; DataError for what is wrong."""
    survey, complete = table_checks.Survey(), np.zeros(table.rows, dtype=bool)
    seen: dict[str, Column] = {}
    for strip in _strips(table.path, table.name, table.columns):
        cells = {c: ColumnReader(c, "number").cells(strip[c]) for c in table.columns}
        for c, read in cells.items():
            if read.unreadable.any():
                wrong = np.flatnonzero(read.unreadable).tolist()
                examples = tuple((survey.rows + row, str(strip[c][row].as_py())) for row in wrong)
                reader = ColumnReader(c, "number", examples=examples)
                refuse_text(table.name, c, Column(reader, read), c == table.target, table.rows)
            if c not in seen or not seen[c].has_any:
                seen[c] = Column(ColumnReader(c, "number"), read)
        rows = slice(survey.rows, survey.rows + strip.num_rows)
        complete[rows] = survey.add({c: read.values for c, read in cells.items()})
        report(survey.rows)
    for c in table.columns:
        refuse_text(table.name, c, seen[c], c == table.target, table.rows)
    survey.refuse(table.name, table.target, choice.missing or "refuse")
    return complete, table.notes + survey.dropped + survey.notes_on(table.inputs)


def _parts(table: Table, complete: Mask, how: How) -> Parts:
    """Masks over the rows of the file; the same rows in the same order as for a table in memory."""
    n = int(complete.sum())
    zero = torch.zeros(1, dtype=torch.float64)  # a split by number needs only the shape of the rows
    of_complete = part(Dataset(zero.expand(n, len(table.inputs)), zero.expand(n)), how, Given(), table.path.stem)
    of_file = [complete.copy(), complete.copy()]
    for mask, chosen in zip(of_file, of_complete, strict=True):
        mask[complete] = chosen
    return Parts(*of_file)


def _scale_of(table: Table, train: Mask, report: Report) -> Moments:
    """The second pass: means and deviations of the training rows, target last."""
    total: Moments | None = None
    for rows, values in _values(table):
        if train[rows].any():
            strip = moments(torch.from_numpy(values[train[rows]]))
            total = strip if total is None else total.joined(strip)
        report(table.rows + rows.stop)
    assert total is not None  # a split has at least two training rows
    return total


def _write(into: Path, table: Table, parts: Parts, dtype: str, report: Report) -> dict[str, list[float]]:
    """The third pass: write every row, scaled by the training rows; return means and standard deviations."""
    scale, d = _scale_of(table, parts.train, report), len(table.inputs)
    mean, sd = scale.mean.numpy(), scale.sd.numpy()
    with ExitStack() as stack:
        files = []
        for name, mask in parts._asdict().items():
            n = int(mask.sum())
            X, y = npy_file(into / f"{name}-X.npy", (n, d), dtype), npy_file(into / f"{name}-y.npy", (n,), dtype)
            files.append((stack.enter_context(X), stack.enter_context(y), mask))
        for rows, values in _values(table):
            scaled = ((values - mean) / sd).astype(dtype)
            for X, y, mask in files:
                X.write(np.ascontiguousarray(scaled[mask[rows], :d]).data)
                y.write(np.ascontiguousarray(scaled[mask[rows], d]).data)
            report(2 * table.rows + rows.stop)
    return {"mean": mean.tolist(), "sd": sd.tolist()}


def _opened(folder: Path, name: str, key: str) -> Split:
    """The split in this folder."""
    description = json.loads((folder / DESCRIPTION).read_text())
    (*x_mean, y_mean), (*x_sd, y_sd) = description["mean"], description["sd"]
    means, sds = (torch.tensor(values, dtype=torch.float64) for values in (x_mean, x_sd))
    scale = Scale(means, sds, y_mean, y_sd)
    fields = {"names": tuple(description["names"]), "target": description["target"], "scale": scale}
    train, test = (
        Dataset(mapped(folder / f"{part}-X.npy"), mapped(folder / f"{part}-y.npy"), **fields) for part in Parts._fields
    )
    return Split(train, test, name, tuple(description["notes"]), f"{key}/scaled")


def scratch() -> Path:
    """Return the folder of mapped files. Its contents may be deleted, and are then written again when needed."""
    return Path(os.environ.get(ENV) or Path(pooch.os_cache("gpexplorer")) / "mapped").expanduser()


def safe_name(key: str) -> str:
    """Return a key as a folder name that every system accepts; the hash at its end is kept."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", key)[-80:]


@contextmanager
def created(folder: Path, nbytes: int) -> Iterator[Path]:
    """Give a temporary folder to write into, which becomes `folder` at the end, or is removed after an error.

    Parameters
    ----------
    folder : Path
        Where the files belong.
    nbytes : int
        Bytes that will be written.

    Raises
    ------
    DataError
        If the disk has less space, or if the folder cannot be written to.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder.parent).free
        temporary = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder.parent))
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        if free < nbytes:
            raise DataError(
                f"{quote(folder.parent, 200)} has {size(free)} free, and {size(nbytes)} are needed: {_WAY_OUT}"
            )
        yield temporary
        if not folder.exists():  # another process may have written the same files in the meantime
            temporary.replace(folder)
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _unwritable(folder: Path, error: OSError) -> DataError:
    return DataError(f"{quote(folder.parent, 200)} cannot be written to ({error.strerror or error}): {_WAY_OUT}")


def npy_file(path: Path, shape: tuple[int, ...], dtype: str) -> BinaryIO:
    """Open a .npy file of this shape, with its header, to which the numbers are then written in order."""
    file = path.open("wb")
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file


def mapped(path: Path) -> Tensor:
    """Return the array in a .npy file as a tensor whose pages are read when they are used.

    The system may drop pages when memory is short. Pages are private: what is written to the tensor stays in memory. No
    memory is reserved for them, so that a file larger than memory can be mapped (numpy's mode "c" reserves all of it).
    """
    with path.open("rb") as file:
        np.lib.format.read_magic(file)  # type: ignore[no-untyped-call]
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        offset, empty = file.tell(), 0 in shape
        if empty:
            return torch.from_numpy(np.empty(shape, dtype))
        pages = mmap.mmap(file.fileno(), 0, **_PRIVATE)
    return torch.from_numpy(np.frombuffer(pages, dtype, offset=offset).reshape(shape))
