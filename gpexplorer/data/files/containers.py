"""Parquet and NPZ files. Shapes are checked in the headers before anything is unpacked, and nothing is unpickled."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from tokenize import TokenError

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import DataError
from ..quoting import count, joined, listing, quote
from ..reader.cells import is_number, is_text
from .size_limits import LOCAL, Limits

NAMES = ("feature_names", "columns")  # arrays of an NPZ archive
PERIOD = "pandas.period"  # a type of whole numbers, which Arrow only knows once pandas was imported
_INDEX = "__index_level_"  # the index of a DataFrame, which is not a column


def read_parquet(
    name: str, data: bytes, limits: Limits, also: Collection[str] = (), most: int | None = None
) -> tuple[pa.Table, tuple[str, ...], int]:
    """Read the number columns of a Parquet file.

    Parameters
    ----------
    name : str
        The file, for messages.
    data : bytes
        Its contents.
    limits : Limits
        Upper bounds, which are checked in the header.
    also : collection of str
        Columns to read even if they contain text. Other text columns of an upload are never decoded, because they can
        make a small file very large in memory.
    most : int, optional
        If given, read only this many rows, with all columns, for a preview.

    Returns
    -------
    tuple
        The table, notes for the user, and the number of rows of the file.
    """
    with parquet(name):
        file = pq.ParquetFile(pa.BufferReader(data), thrift_string_size_limit=10**7, thrift_container_size_limit=10**6)
        schema, rows = file.schema_arrow, file.metadata.num_rows
        limits.check_table(name, rows, len(schema.names))
        if most is not None:
            refuse_duplicates(name, schema.names)
            columns, note = without_index(schema, also)
            return _first_rows(file, columns, most), note, rows
        wanted = is_readable if limits == LOCAL else is_number_or_date
        kept, notes = number_columns(name, schema, also, wanted)
        return without_views(file.read(columns=kept, use_threads=False).select(kept)), notes, rows


@contextmanager
def parquet(name: str) -> Iterator[None]:
    """Turn errors of reading a Parquet file, inside the context, into DataError with a sentence."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name} is not a Parquet file that can be read: {quote(error, 120)}. Save it again.") from None


def is_readable(kind: pa.DataType) -> bool:
    """Whether the cells of this type are numbers, dates or words."""
    if pa.types.is_dictionary(kind):
        return is_readable(kind.value_type)
    return is_number_or_date(kind) or is_text(kind)


def is_number_or_date(kind: pa.DataType) -> bool:
    """Whether the cells of this type are numbers or dates, which take no more memory than the file says."""
    return is_number(kind) or bool(pa.types.is_temporal(kind)) or getattr(kind, "extension_name", "") == PERIOD


def number_columns(
    name: str, schema: pa.Schema, also: Collection[str], is_wanted: Callable[[pa.DataType], bool] = is_number
) -> tuple[list[str], tuple[str, ...]]:
    """Return the columns of numbers and those named in `also`, and notes on the others. An index is not a column."""
    refuse_duplicates(name, schema.names)
    columns, notes = without_index(schema, also)
    kept = [column for column in columns if column in also or is_wanted(schema.field(column).type)]
    others = [column for column in columns if column not in kept]
    if others and len(kept) < 2:
        types = joined(f"{quote(column)} ({quote(schema.field(column).type, 40)})" for column in others)
        raise DataError(
            f"{name} has {count(len(kept), 'column')} that can be used, and {types} beside it: an input and a target "
            "are needed, so save such columns as numbers or dates, or as texts in a CSV file."
        )
    return kept, notes + (f"Columns that do not contain numbers were left out: {listing(others)}.",) * bool(others)


def without_index(schema: pa.Schema, also: Collection[str]) -> tuple[list[str], tuple[str, ...]]:
    """The columns without the index of the DataFrame that was saved, and a note if it may be meant as a column.

    An index that is named in `also` is a column, and so is one beside a single column, such as the dates of a series;
    it is the first one, since the last one is the default target.
    """
    try:
        described = schema.pandas_metadata
    except (ValueError, RecursionError):  # whoever wrote the file may have written anything
        described = None
    written = described.get("index_columns") if isinstance(described, dict) else None
    says_so = [name for name in written if isinstance(name, str)] if isinstance(written, list) else []
    index = [name for name in schema.names if name in says_so or name.startswith(_INDEX)]
    columns = [name for name in schema.names if name not in index]
    left_out = [name for name in index if name not in also]
    may_be_meant = [n for n in left_out if not n.startswith(_INDEX) or pa.types.is_temporal(schema.field(n).type)]
    if len(columns) == 1 and may_be_meant == left_out:
        left_out = may_be_meant = []
    kinds = ", ".join(f'{quote(n)}: "{_kind_of_cells(schema.field(n).type)}"' for n in may_be_meant)
    note = f"The index of the table ({listing(may_be_meant)}) is no column.\nkinds={{{kinds}}} makes it one."
    return [name for name in index if name not in left_out] + columns, (note,) if may_be_meant else ()


def _kind_of_cells(kind: pa.DataType) -> str:
    return "date" if pa.types.is_temporal(kind) else "number" if is_number(kind) else "words"


def without_views(table: pa.Table) -> pa.Table:
    """The table with its texts as strings, and periods such as quarters of pandas as the moments at which they begin.

    Views of strings, which polars lends, Arrow can neither filter nor take.
    """
    text = pa.large_string()
    for place, field in enumerate(table.schema):
        if freq := _freq_of_periods(field):
            table = table.set_column(place, field.name, _beginnings(table.column(place), freq))
            continue
        column, of_dictionary = table.column(place), pa.types.is_dictionary(field.type)
        if not pa.types.is_string_view(field.type.value_type if of_dictionary else field.type):
            continue
        if of_dictionary:
            chunks = [pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(text)) for c in column.chunks]
            column = pa.chunked_array(chunks, pa.dictionary(field.type.index_type, text))
        table = table.set_column(place, field.name, column if of_dictionary else column.cast(text))
    return table


def _freq_of_periods(field: pa.Field) -> str:
    """The length of periods of pandas, such as "Q-DEC"; "" for a column of another type."""
    if getattr(field.type, "extension_name", "") == PERIOD:
        return str(field.type.freq)
    described = field.metadata or {}
    if described.get(b"ARROW:extension:name") != PERIOD.encode():
        return ""
    try:
        return str(json.loads(described[b"ARROW:extension:metadata"])["freq"])
    except (LookupError, TypeError, ValueError, RecursionError):  # whoever wrote the file may have written anything
        return ""


def _beginnings(column: pa.ChunkedArray, freq: str) -> pa.Array:
    """The moments at which periods of this length begin."""
    import pandas as pd

    numbers = pa.chunked_array([getattr(chunk, "storage", chunk) for chunk in column.chunks], pa.int64())
    gap = numbers.is_null().to_numpy()
    try:
        periods = pd.arrays.PeriodArray(numbers.fill_null(0).to_numpy(), dtype=pd.PeriodDtype(freq))
        moments = periods.to_timestamp().to_numpy().astype("datetime64[us]")
    except (ValueError, OverflowError) as error:
        raise DataError(f"A column of periods cannot be read: {quote(error, 80)}. Save its dates.") from None
    return pa.array(moments, mask=gap)


def refuse_duplicates(name: str, names: list[str]) -> None:
    """Raise DataError if a name occurs twice."""
    duplicates = [n for n, occurrences in Counter(names).items() if occurrences > 1]
    if duplicates:
        raise DataError(f"{name} has the column {quote(duplicates[0])} more than once: give each its own name.")


def _first_rows(file: pq.ParquetFile, columns: list[str], most: int) -> pa.Table:
    flat = [name for name in columns if not pa.types.is_nested(file.schema_arrow.field(name).type)]
    batch = next(file.iter_batches(batch_size=most, columns=flat, use_threads=False), None)
    table = file.schema_arrow.empty_table() if batch is None else pa.Table.from_batches([batch])
    return without_views(table.select(flat))


def read_npz(name: str, data: bytes, limits: Limits) -> tuple[pa.Table, tuple[str, ...]]:
    """Read an NPZ archive: `X` [n, d] and `y` [n], `X` alone, or one-dimensional arrays of the same length.

    Texts in `feature_names` or `columns` [d], which belong to X, are the names of its columns.
    Of `x`, `y` and other arrays of the same length, `y` is the last column, which is the target.
    """
    with _npz(name):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            stems = {m.filename.removesuffix(".npy"): m for m in archive.infolist()}
            has_pair = {"x", "y"} <= {key.lower() for key in stems}
            found = {
                key: _shape(name, archive, m, has_pair and key.lower() not in ("x", "y")) for key, m in stems.items()
            }
            shapes = {key: shape for key, shape in found.items() if shape is not None}
            limits.check_unpacked(name, sum(m.file_size for m in archive.infolist()))
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            key_of = {key.lower(): key for key in shapes}
            flat = {key: shape for key, shape in shapes.items() if len(shape) == 1}
            is_pair = "x" in key_of and ("y" in key_of or len(shapes[key_of["x"]]) == 2)
            of_pair = [key_of[key] for key in ("x", "y") if key in key_of]
            beside = [key for key in flat if is_pair and key not in of_pair and flat[key] == shapes[of_pair[0]]]
            if is_pair and not beside:
                columns = _matrix(name, shapes[key_of["x"]], limits)
                X = np.asarray(arrays[key_of["x"]])
                y = np.asarray(arrays[key_of["y"]]) if "y" in key_of else None
                names = next((key for key in NAMES if shapes.get(key) == (columns,)), "")
                titles = [str(title) for title in arrays[names]] if names else [f"x{i}" for i in range(columns)]
                refuse_duplicates(name, [*titles, *key_of.keys() & {"y"}])
                shown = f"{titles[0]} to {titles[-1]}"
                notes = [] if "y" in key_of else [f"{name} has X and no y: X has the columns {shown}."]
                others = [key for key in found if key not in (*of_pair, names)]
                notes += [f"Arrays beside {' and '.join(of_pair)} were left out: {listing(others)}."] if others else []
                return _xy_table(name, X, y, titles), tuple(notes)
            if beside and "y" in key_of:
                flat[key_of["y"]] = flat.pop(key_of["y"])
            limits.check_table(name, max((s[0] for s in flat.values()), default=0), len(flat))
            _refuse_matrix_of_rows(name, shapes, flat)
            others = [key for key in found if key not in flat]
            return _flat_table(name, {key: np.asarray(arrays[key]) for key in flat}, others)


@contextmanager
def _npz(name: str) -> Iterator[None]:
    """Turn errors of reading an archive, inside the context, into DataError with a sentence."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except Exception as error:  # each compression and the parser of headers raise errors of their own kinds
        message = quote(str(error) or type(error).__name__)
        raise DataError(
            f"{name} is not an NPZ archive that can be read: {message}. Save it with numpy.savez."
        ) from None


def native(values: np.ndarray) -> np.ndarray:
    """Return the same numbers in the byte order of this machine and with at most 64 bits, as Arrow needs them."""
    wide = values.dtype.kind == "f" and values.dtype.itemsize > 8
    return values.astype(np.float64 if wide else values.dtype.newbyteorder("="), copy=False)


def _shape(
    name: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo, is_beside: bool = False
) -> tuple[int, ...] | None:
    """The shape in the header of an array; None if it has no numbers and stands beside X and y, which do without it.

    DataError if the archive is too small for it.
    """
    key = quote(member.filename.removesuffix(".npy"))
    with archive.open(member) as file:
        try:
            version = np.lib.format.read_magic(file)
            reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = reader(file)
        except (ValueError, SyntaxError, TokenError) as error:
            raise DataError(f"{name}: {key} is not an array: {quote(error)}. Save it with numpy.savez.") from None
    if dtype.kind not in ("buifU" if member.filename.removesuffix(".npy") in NAMES else "buif"):
        if is_beside:
            return None
        raise DataError(
            f"{name}: array {key} contains {quote(dtype)} and not real numbers; objects are never unpickled. "
            "Save it as float64."
        )
    if math.prod(shape) * dtype.itemsize > member.file_size:
        raise DataError(f"{name}: array {key} claims shape {shape}, but the file is too small for that: save it again.")
    return shape


def _matrix(name: str, shape: tuple[int, ...], limits: Limits) -> int:
    if len(shape) not in (1, 2):
        raise DataError(f"{name}: X has shape {shape}; it must be [n] or [n, d].")
    columns = shape[1] if len(shape) == 2 else 1
    limits.check_table(name, shape[0], columns + 1)
    return columns


def _xy_table(name: str, X: np.ndarray, y: np.ndarray | None, titles: list[str]) -> pa.Table:
    if y is not None and (y.ndim == 0 or y.size != len(y) or len(y) != len(X)):
        raise DataError(f"{name}: X has shape {X.shape} and y {y.shape}; both need one row per case: X [n, d], y [n].")
    X = native(X.reshape(len(X), len(titles)))
    table = {title: np.ascontiguousarray(X[:, i]) for i, title in enumerate(titles)}
    return pa.table(table if y is None else table | {"y": native(y).reshape(-1)})


def _refuse_matrix_of_rows(
    name: str, shapes: Mapping[str, tuple[int, ...]], flat: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise DataError for a matrix with as many rows as a column, as of X_train beside y_train: it has the inputs."""
    for key, shape in shapes.items():
        column = next((own for own, (rows,) in flat.items() if len(shape) == 2 and shape[0] == rows), None)
        if column is not None:
            raise DataError(
                f"{name} has the matrix {quote(key)} {list(shape)} beside {quote(column)} of as many rows: save the "
                "inputs as X [n, d] and the targets as y [n], without other rows such as those of a test."
            )


def _flat_table(name: str, columns: dict[str, np.ndarray], others: list[str]) -> tuple[pa.Table, tuple[str, ...]]:
    lengths = {key: len(column) for key, column in columns.items()}
    if not columns:
        raise DataError(f"{name} contains neither X and y nor columns: save arrays X [n, d] and y [n].")
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{quote(k)} {n}" for k, n in list(lengths.items())[:8])
        raise DataError(f"{name} contains columns of different lengths ({shown}): give each the same number of rows.")
    note = (f"Arrays that are not columns were left out: {listing(others)}.",) if others else ()
    return pa.table({key: native(column) for key, column in columns.items()}), note
