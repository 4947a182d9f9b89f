"""A Parquet file larger than memory as memory-mapped rows: checked, split, scaled and written strip by strip, once.

    1. every cell is looked at: text, missing and infinite values meet the sentences that any other file meets
    2. mean and sd of the training rows
    3. scaled rows go to .npy files, training and test apart, in a folder named by what they hold

What comes back are tensors over those files. A method that writes into one writes to memory of its own, never to disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from ..errors import DataError
from ..problem import Dataset, Scale
from . import table_checks
from .files.columns import Choice, Column, parse, refuse_choice, refuse_text, roles
from .files.containers import number_columns, parquet
from .files.npy import Rows, created, mapped, safe_name, scratch
from .files.reading import there
from .files.size_limits import LOCAL
from .quoting import display_name, quote
from .sets.cache import Progress
from .splits import Given, How, Mask, Parts, Split, key_of, part
from .standardising import Moments, moments

STRIP = 2**20  # bytes of float64: a few thousand rows
BUFFER = 2**16  # bytes of a column read at once
PASSES = 3
ABOUT = "about.json"
DTYPES = ("float64", "float32")
Told = Callable[[int], None]  # rows looked at so far, over all passes


class Table(NamedTuple):
    """A Parquet file and the columns that it is read for."""

    path: Path
    name: str
    inputs: tuple[str, ...]
    target: str
    rows: int
    notes: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Inputs, then the target."""
        return (*self.inputs, self.target)


def load_mapped(
    path: Path, how: How, choice: Choice, dtype: str = "float64", progress: Progress | None = None
) -> Split:
    """A scaled split of a Parquet file in O(strip) memory, and one byte a row.

    `progress(done, total)` counts rows over three passes; what it raises ends the work, and no file is left behind.
    Raises DataError for what is not Parquet, for objects, and for a split in time (which needs a column at once).
    """
    name = display_name(path.name)
    _refuse(path, name, how, choice, dtype)
    with there(path):
        key = key_of(path.stem, [_content(path), asdict(choice), dtype], how)
    folder = scratch() / safe_name(key)
    if not folder.exists():
        table = _table(path, name, choice)
        told = partial(_told, progress, PASSES * table.rows)
        whole, notes = _whole(table, choice, told)
        parts = _parts(table, whole, how)
        with created(folder, int(whole.sum()) * len(table.columns) * np.dtype(dtype).itemsize) as into:
            scale = _write(into, table, parts, dtype, told)
            about = {"names": table.inputs, "target": table.target, "notes": notes, **scale}
            (into / ABOUT).write_text(json.dumps(about))
    return _opened(folder, path.stem, key)


def _told(progress: Progress | None, total: int, done: int) -> None:
    if progress is not None:
        progress(done, total)


def _refuse(path: Path, name: str, how: How, choice: Choice, dtype: str) -> None:
    if path.suffix.lower() not in (".parquet", ".pq"):
        raise DataError(f'{name}: memory="mapped" reads Parquet; save it as .parquet, or load it without.')
    if choice.objects is not None:
        raise DataError(f'{name}: memory="mapped" takes columns of numbers, and {quote(choice.objects)} holds objects.')
    if not isinstance(how, int) and "before" in how:
        raise DataError(
            f'{name}: memory="mapped" parts rows by folds or by a share, not in time: give {{"test": 0.1}}.'
        )
    if dtype not in DTYPES:
        raise DataError(f"{name}: dtype={quote(dtype)} is not known: choose one of {', '.join(DTYPES)}.")


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _table(path: Path, name: str, choice: Choice) -> Table:
    """The columns chosen, as the column picker would: a column counts as numbers by the first strip that fills it."""
    with parquet(name), pq.ParquetFile(path) as file:
        kept, notes = number_columns(name, file.schema_arrow, (*choice.named, *choice.drop))
        rows = file.metadata.num_rows
    refuse_choice(name, kept, choice)
    LOCAL.check_table(name, 0, len(kept))
    table_checks.refuse_few_rows(name, rows)
    wanted = [c for c in (choice.named if choice.is_full else kept) if c not in choice.drop]
    target, inputs, left = roles(name, _heads(path, name, wanted), choice)
    return Table(path, name, inputs, target, rows, notes + left)


def _heads(path: Path, name: str, wanted: list[str]) -> dict[str, Column]:
    """Each column in the first strip in which it holds anything, or in the last."""
    heads: dict[str, Column] = {}
    for strip in _strips(path, name, wanted):
        heads |= {c: parse(strip[c]) for c in wanted if c not in heads or not heads[c].has_any}
        if all(column.has_any for column in heads.values()):
            break
    return heads


def _strips(path: Path, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """A few thousand rows at a time, whatever the file's row groups."""
    with parquet(name), pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
        for batch in file.iter_batches(max(STRIP // (8 * len(columns)), 1), columns=list(columns), use_threads=False):
            yield pa.Table.from_batches([batch])


def _values(table: Table) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Rows of the file [b, k] with their place in it."""
    begin = 0
    for strip in _strips(table.path, table.name, table.columns):
        rows = slice(begin, begin + strip.num_rows)
        yield rows, np.column_stack([parse(strip[c]).values for c in table.columns])
        begin = rows.stop


def _whole(table: Table, choice: Choice, told: Told) -> tuple[Mask, tuple[str, ...]]:
    """The first pass: which rows of the file have every value, and notes; DataError for what is wrong."""
    survey, whole = table_checks.Survey(), np.zeros(table.rows, dtype=bool)
    seen: dict[str, Column] = {}
    for strip in _strips(table.path, table.name, table.columns):
        parsed = {c: parse(strip[c]) for c in table.columns}
        seen = {c: _joined(seen.get(c), column, survey.rows) for c, column in parsed.items()}
        rows = slice(survey.rows, survey.rows + strip.num_rows)
        whole[rows] = survey.add({c: column.values for c, column in parsed.items()})
        told(survey.rows)
    for c in table.columns:
        refuse_text(table.name, c, seen[c])
    survey.refuse(table.name, table.target, choice.missing)
    return whole, table.notes + survey.dropped + survey.notes_on(table.inputs)


def _joined(before: Column | None, strip: Column, begin: int) -> Column:
    """What a refusal needs of both: text counted, the first cell of it, and values of a strip that has any."""
    first = None if strip.first is None else (begin + strip.first[0], strip.first[1])
    if before is None:
        return Column(strip.values, strip.text, first)
    values = before.values if before.has_any else strip.values
    return Column(values, before.text + strip.text, before.first or first)


def _parts(table: Table, whole: Mask, how: How) -> Parts:
    """Masks over the rows of the file; the same rows in the same order as a table in memory would give."""
    n = int(whole.sum())
    nothing = torch.zeros(1, dtype=torch.float64)  # the shape of the rows is all that a split by number asks for
    found = part(Dataset(nothing.expand(n, len(table.inputs)), nothing.expand(n)), how, Given(), table.path.stem)
    spread = [whole.copy(), whole.copy()]
    for mask, chosen in zip(spread, found, strict=True):
        mask[whole] = chosen
    return Parts(*spread)


def _scale_of(table: Table, train: Mask, told: Told) -> Moments:
    """The second pass: means and deviations of the training rows, target last."""
    found: Moments | None = None
    for rows, values in _values(table):
        if train[rows].any():
            here = moments(torch.from_numpy(values[train[rows]]))
            found = here if found is None else found.joined(here)
        told(table.rows + rows.stop)
    assert found is not None  # a split has two training rows at least
    return found


def _write(into: Path, table: Table, parts: Parts, dtype: str, told: Told) -> dict[str, list[float]]:
    """The third pass: every row in the scale of the training rows, which is returned."""
    scale, d = _scale_of(table, parts.train, told), len(table.inputs)
    mean, sd = scale.mean.numpy(), scale.sd.numpy()
    with ExitStack() as stack:
        files = []
        for name, mask in parts._asdict().items():
            n = int(mask.sum())
            X, y = Rows(into / f"{name}-X.npy", (n, d), dtype), Rows(into / f"{name}-y.npy", (n,), dtype)
            files.append((stack.enter_context(X), stack.enter_context(y), mask))
        for rows, values in _values(table):
            scaled = (values - mean) / sd
            for X, y, mask in files:
                X.write(scaled[mask[rows], :d])
                y.write(scaled[mask[rows], d])
            told(2 * table.rows + rows.stop)
    return {"mean": mean.tolist(), "sd": sd.tolist()}


def _opened(folder: Path, name: str, key: str) -> Split:
    """The split that this folder holds."""
    about = json.loads((folder / ABOUT).read_text())
    (*x_mean, y_mean), (*x_sd, y_sd) = about["mean"], about["sd"]
    means, sds = (torch.tensor(held, dtype=torch.float64) for held in (x_mean, x_sd))
    held = {"names": tuple(about["names"]), "target": about["target"], "scale": Scale(means, sds, y_mean, y_sd)}
    train, test = (
        Dataset(mapped(folder / f"{one}-X.npy"), mapped(folder / f"{one}-y.npy"), **held) for one in Parts._fields
    )
    return Split(train, test, name, tuple(about["notes"]), f"{key}/scaled")
