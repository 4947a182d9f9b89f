"""Arrays on disk as .npy files, which are written row by row and opened as memory-mapped tensors."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pooch
import torch
from torch import Tensor

from ...errors import DataError
from ..quoting import quote, size

ENV = "GPEXPLORER_MAPPED_DIR"


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
        free, temporary = (
            shutil.disk_usage(folder.parent).free,
            Path(tempfile.mkdtemp(prefix=".writing-", dir=folder.parent)),
        )
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


_WAY_OUT = f"set {ENV} to a folder on a larger disk, or delete files there that are no longer needed."


def _unwritable(folder: Path, error: OSError) -> DataError:
    return DataError(f"{quote(folder.parent, 200)} cannot be written to ({error.strerror or error}): {_WAY_OUT}")


class Rows:
    """A .npy file of a given shape, to which rows are appended in order; a context manager that closes the file."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: str) -> None:
        self._file, self._dtype = path.open("wb"), np.dtype(dtype)
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def write(self, rows: np.ndarray) -> None:
        """Append the next rows."""
        self._file.write(np.ascontiguousarray(rows, dtype=self._dtype).data)

    def __enter__(self) -> Rows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


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


_PRIVATE: dict[str, Any] = (
    {
        "flags": mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0),
        "prot": mmap.PROT_READ | mmap.PROT_WRITE,
    }
    if hasattr(mmap, "MAP_PRIVATE")
    else {"access": mmap.ACCESS_COPY}
)
