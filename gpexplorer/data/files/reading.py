"""Reading of any known kind of file into a table of named columns. Its size is checked before it is opened."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import DataError
from ..quoting import display_name, quote
from .containers import parquet, read_npz, read_parquet, without_views
from .delimited import delimited_strips, first_lines, open_text, read_delimited
from .libsvm import is_libsvm, read_libsvm
from .other_kinds import BY_NAME
from .size_limits import LOCAL, Limits

SPARSE = (".libsvm", ".svm", ".svmlight")
TEXT = (".csv", ".tsv", ".txt", ".dat", ".data", *SPARSE)
KINDS = (*TEXT, *(f"{kind}.gz" for kind in TEXT), ".parquet", ".pq", ".npz")


class Raw(NamedTuple):
    """A table as it was read, its name for messages, and notes for the user about what the reader did.

    `whole` is the number of rows of the file if the table contains only the first of them.
    """

    table: pa.Table
    name: str
    notes: tuple[str, ...]
    whole: int | None = None

    @property
    def rows(self) -> int:
        """Number of rows of the file."""
        return self.table.num_rows if self.whole is None else self.whole


def kind_of(name: str) -> str:
    """Return the extension that decides how a file is read, in lower case, or "" if it is not known."""
    lower = name.lower()
    return max((k for k in KINDS if lower.endswith(k)), key=len, default="")


def read_path(path: Path, header: bool | None = None, also: Collection[str] = ()) -> Raw:
    """Read a file on this machine.

    Parameters
    ----------
    path : Path
        The file; its size is checked first.
    header : bool, optional
        Whether the first line of a text file contains column names; if omitted, it does unless all its cells are
        numbers.
    also : collection of str
        Columns that must be read: those of a Parquet file even if they contain text. A first row of a text file that
        has all of these contains names, even if they are numbers.

    Raises
    ------
    DataError
        If the file does not exist, cannot be read, or exceeds a limit.
    """
    name = display_name(path.name)
    with readable(path):
        _refuse_unknown(name)
        LOCAL.check_file(name, path.stat().st_size)
        data = path.read_bytes()
    return read_bytes(path.name, data, LOCAL, header, also)


def strips(path: Path, rows: int = 50_000, also: Collection[str] = ()) -> Iterator[Raw]:
    """Read a file in strips of rows, so that one larger than memory can be read; the cells of text stay text.

    Each strip has the notes of the whole file.

    Parameters
    ----------
    path : Path
        A text or Parquet file of any length, or an NPZ file.
    rows : int, default 50_000
        Rows of a strip of a Parquet file; strips of a text file have about 100 bytes for each of them.
    also : collection of str
        As for `read_path`.

    Raises
    ------
    DataError
        If the file does not exist, or cannot be read.
    """
    name = display_name(path.name)
    with readable(path):
        kind = _refuse_unknown(name)
        if path.stat().st_size == 0:
            LOCAL.check_file(name, 0)
        if kind in (".parquet", ".pq"):
            with parquet(name):
                for batch in pq.ParquetFile(path).iter_batches(batch_size=rows):
                    yield Raw(without_views(pa.Table.from_batches([batch])), name, ())
        elif kind == ".npz" or _is_sparse(path, kind):
            yield read_path(path, also=also)
        else:
            with complete_gzip(name):
                for table, notes in delimited_strips(path, name, 100 * rows, also):
                    yield Raw(table, name, notes)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn errors of reading this path, inside the context, into DataError with a sentence."""
    try:
        if not path.exists():
            raise DataError(f"There is no file {quote(path, 200)}: check the path, or see gpexplorer.data.available().")
        if not path.is_file():
            raise DataError(f"{quote(path, 200)} is not a file: give the path of a {', '.join(KINDS[:2])} or similar.")
        yield
    except OSError as error:
        raise DataError(f"{quote(path, 200)} cannot be read ({error.strerror or error}): check its path.") from None


def read_bytes(
    name: str, data: bytes, limits: Limits, header: bool | None = None, also: Collection[str] = (),
    most: int | None = None,
) -> Raw:  # fmt: skip
    """Read a file that is already in memory; `name` gives its extension, and `most` a number of rows for a preview."""
    shown, kind = display_name(name), _refuse_unknown(display_name(name))
    limits.check_file(shown, len(data))
    whole = None
    if kind in (".parquet", ".pq"):
        table, notes, whole = read_parquet(shown, data, limits, also, most)
    elif kind == ".npz":
        table, notes = read_npz(shown, data, limits)
    else:
        text = _unpack(shown, data, limits) if kind.endswith(".gz") else data
        if kind.removesuffix(".gz") in SPARSE or is_libsvm(first_lines(text)):
            table, notes = read_libsvm(shown, text, limits, also)
        else:
            table, notes = read_delimited(shown, text, limits, header, also)
    return Raw(table, shown, notes, whole)


def _refuse_unknown(name: str) -> str:
    kind = kind_of(name)
    if not kind:
        description = next((f" is {other}" for end, other in BY_NAME.items() if name.lower().endswith(end)), "")
        raise DataError(
            f"{name}{description or ' is of an unknown kind'}: give a table as {', '.join(KINDS[:2])}, "
            ".csv.gz, .parquet or .npz."
        )
    return kind


def _is_sparse(path: Path, kind: str) -> bool:
    """Whether a text file is in the format of LIBSVM."""
    with complete_gzip(display_name(path.name)), open_text(path) as file:
        return kind.removesuffix(".gz") in SPARSE or is_libsvm(first_lines(file.read(1 << 20)))


def _unpack(name: str, data: bytes, limits: Limits) -> bytes:
    """The bytes inside a gzip file, of which at most one more than the limit is unpacked."""
    with complete_gzip(name), gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        text = file.read(limits.unpacked_bytes + 1)
    limits.check_unpacked(name, len(text))
    return text


@contextmanager
def complete_gzip(name: str) -> Iterator[None]:
    """Turn errors of unpacking, inside the context, into DataError with a sentence."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{name} is not a complete gzip file: {quote(error)}. Compress it again.") from None
