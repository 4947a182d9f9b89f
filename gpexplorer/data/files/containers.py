"""Parquet and NPZ files, their shapes checked in the headers before anything is unpacked; nothing is unpickled."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import DataError
from ..quoting import listing, quote
from .size_limits import Limits

_INDEX = "__index_level_"


def read_parquet(
    name: str, data: bytes, limits: Limits, also: Collection[str] = (), most: int | None = None
) -> tuple[pa.Table, tuple[str, ...], int]:
    """The number columns of a Parquet file and those named in `also`, notes, and its rows; `most` rows for a preview.

    Text columns not asked for are never decoded: that is where a small file becomes a large one.
    """
    with parquet(name):
        file = pq.ParquetFile(pa.BufferReader(data), thrift_string_size_limit=10**7, thrift_container_size_limit=10**6)
        schema, rows = file.schema_arrow, file.metadata.num_rows
        limits.check_table(name, rows, len(schema.names))
        if most is not None:
            _refuse_twice(name, schema.names)
            return _first_rows(file, most), (), rows
        kept, notes = number_columns(name, schema, also)
        return file.read(columns=kept, use_threads=False), notes, rows


@contextmanager
def parquet(name: str) -> Iterator[None]:
    """What goes wrong in reading a Parquet file, as a sentence."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name} is not a Parquet file that can be read: {quote(error, 120)}. Save it again.") from None


def number_columns(name: str, schema: pa.Schema, also: Collection[str]) -> tuple[list[str], tuple[str, ...]]:
    """Columns of numbers and those named in `also`, and a note on the others; the index of a frame is no column."""
    _refuse_twice(name, schema.names)
    kept = [f.name for f in schema if f.name in also or (is_number(f.type) and not f.name.startswith(_INDEX))]
    left = [n for n in schema.names if n not in kept and not n.startswith(_INDEX)]
    return kept, (f"Columns that do not hold numbers were left out: {listing(left)}.",) if left else ()


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type becomes float64 without a decision."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def _refuse_twice(name: str, names: list[str]) -> None:
    twice = [n for n, times in Counter(names).items() if times > 1]
    if twice:
        raise DataError(f"{name} has the column {quote(twice[0])} more than once: give each its own name.")


def _first_rows(file: pq.ParquetFile, most: int) -> pa.Table:
    names = [n for n in file.schema_arrow.names if not n.startswith(_INDEX)]
    flat = [n for n in names if not pa.types.is_nested(file.schema_arrow.field(n).type)]
    batch = next(file.iter_batches(batch_size=most, columns=flat, use_threads=False), None)
    return pa.Table.from_batches([batch]) if batch is not None else file.schema_arrow.empty_table().select(flat)


def read_npz(name: str, data: bytes, limits: Limits) -> tuple[pa.Table, tuple[str, ...]]:
    """Columns of an NPZ archive: `X` [n, d] and `y` [n], or any number of one-dimensional arrays of one length."""
    with _npz(name):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            shapes = {m.filename.removesuffix(".npy"): _shape(name, archive, m) for m in archive.infolist()}
            limits.check_unpacked(name, sum(m.file_size for m in archive.infolist()))
        return _npz_table(name, data, shapes, limits)


@contextmanager
def _npz(name: str) -> Iterator[None]:
    """What goes wrong in reading an archive, damage to its bytes included, as a sentence."""
    try:
        yield
    except DataError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        what = quote(str(error) or type(error).__name__)
        raise DataError(f"{name} is not an NPZ archive that can be read: {what}. Save it with numpy.savez.") from None


def _npz_table(
    name: str, data: bytes, shapes: dict[str, tuple[int, ...]], limits: Limits
) -> tuple[pa.Table, tuple[str, ...]]:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        lower = {key.lower(): key for key in shapes}
        if "x" in lower and "y" in lower:
            columns = _matrix(name, shapes[lower["x"]], limits)
            X, y = np.asarray(arrays[lower["x"]]), np.asarray(arrays[lower["y"]])
            return _xy_table(name, X, y, columns), ()
        flat = {key: shape for key, shape in shapes.items() if len(shape) == 1}
        limits.check_table(name, max((s[0] for s in flat.values()), default=0), len(flat))
        return _flat_table(name, {key: np.asarray(arrays[key]) for key in flat}, [k for k in shapes if k not in flat])


def native(values: np.ndarray) -> np.ndarray:
    """The same numbers in this machine's order of bytes, and no wider than 64 bits: all that Arrow takes."""
    wide = values.dtype.kind == "f" and values.dtype.itemsize > 8
    return values.astype(np.float64 if wide else values.dtype.newbyteorder("="), copy=False)


def _shape(name: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[int, ...]:
    """The shape an array's own header claims, refused where the archive cannot hold that many bytes."""
    key = quote(member.filename.removesuffix(".npy"))
    with archive.open(member) as file:
        try:
            version = np.lib.format.read_magic(file)
            reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = reader(file)
        except ValueError as error:
            raise DataError(f"{name}: {key} is not an array: {quote(error)}. Save it with numpy.savez.") from None
    if dtype.kind not in "buif":
        raise DataError(
            f"{name}: array {key} holds {quote(dtype)}, not real numbers; objects are never unpickled. "
            "Save it as float64."
        )
    if math.prod(shape) * dtype.itemsize > member.file_size:
        raise DataError(f"{name}: array {key} claims shape {shape}, more than the file holds: save it again.")
    return shape


def _matrix(name: str, shape: tuple[int, ...], limits: Limits) -> int:
    if len(shape) not in (1, 2):
        raise DataError(f"{name}: X has shape {shape}; it must be [n] or [n, d].")
    columns = shape[1] if len(shape) == 2 else 1
    limits.check_table(name, shape[0], columns + 1)
    return columns


def _xy_table(name: str, X: np.ndarray, y: np.ndarray, columns: int) -> pa.Table:
    if y.size != len(y) or len(y) != len(X):
        raise DataError(f"{name}: X has shape {X.shape} and y {y.shape}; both need one row a case: X [n, d], y [n].")
    X = X.reshape(len(X), columns)
    names = [f"x{i}" for i in range(columns)] + ["y"]
    X, y = native(X), native(y)
    return pa.table([np.ascontiguousarray(X[:, i]) for i in range(columns)] + [y.reshape(-1)], names=names)


def _flat_table(name: str, columns: dict[str, np.ndarray], left: list[str]) -> tuple[pa.Table, tuple[str, ...]]:
    lengths = {key: len(column) for key, column in columns.items()}
    if not columns:
        raise DataError(f"{name} holds neither X and y nor columns: save arrays X [n, d] and y [n].")
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{quote(k)} {n}" for k, n in list(lengths.items())[:8])
        raise DataError(f"{name} holds columns of different lengths ({told}): give each as many rows.")
    note = (f"Arrays that are not columns were left out: {listing(left)}.",) if left else ()
    return pa.table({key: native(column) for key, column in columns.items()}), note
