"""Limits on the size of a file, which are checked before it is read, before it is unpacked, and before it is parsed."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import DataError
from ..quoting import count, size

NEEDED = "choose a file with the names of its columns and rows below them"


@dataclass(frozen=True)
class Limits:
    """Upper bounds for one file. The last three apply only to the child process that parses uploads."""

    file_bytes: int
    unpacked_bytes: int  # after decompression, and for the cells of a table at 8 bytes each
    rows: int
    columns: int
    cpu_seconds: int = 0
    memory_bytes: int = 0  # in addition to what the interpreter and its libraries use before the file is opened
    wall_seconds: float = 0.0

    def check_file(self, name: str, nbytes: int) -> None:
        """Raise DataError if the file is too large or empty."""
        if nbytes > self.file_bytes:
            raise DataError(
                f"{name} has {size(nbytes)}, and the limit is {size(self.file_bytes)}: keep fewer rows or columns, "
                "or save it as Parquet or as .csv.gz."
            )
        if nbytes == 0:
            raise DataError(f"{name} is empty (0 bytes): {NEEDED}.")

    def check_unpacked(self, name: str, nbytes: int) -> None:
        """Raise DataError if the contents of an archive are too large."""
        if nbytes > self.unpacked_bytes:
            raise DataError(f"{name} exceeds {size(self.unpacked_bytes)} unpacked: keep fewer rows or columns.")

    def check_table(self, name: str, rows: int, columns: int) -> None:
        """Raise DataError if a table has too many rows, columns or cells, before any cell is parsed."""
        if columns > self.columns:
            raise DataError(
                f"{name} has {count(columns, 'column')} and the limit is {self.columns:,}: "
                "drop columns, or transpose the table if its rows are columns."
            )
        if rows > self.rows:
            raise DataError(
                f"{name} has {count(rows, 'row')} and the limit is {self.rows:,}: keep a random sample of the rows."
            )
        self.check_unpacked(name, 8 * rows * columns)


LOCAL = Limits(file_bytes=2 * 10**9, unpacked_bytes=4 * 10**9, rows=20_000_000, columns=10_000)
UPLOAD = Limits(
    file_bytes=10 * 10**6,
    unpacked_bytes=100 * 10**6,
    rows=1_000_000,
    columns=1_000,
    cpu_seconds=20,
    memory_bytes=1_500 * 10**6,
    wall_seconds=30.0,
)
