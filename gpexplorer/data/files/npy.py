"""Arrays on disk as .npy files that anybody can read: written row by row, opened as tensors never read whole."""

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
    """The folder that mapped files are kept in; deleting what is in it costs no more than writing it again."""
    return Path(os.environ.get(ENV) or Path(pooch.os_cache("gpexplorer")) / "mapped").expanduser()


def safe_name(key: str) -> str:
    """A key as the name of a folder on any system; its hash stands last and stays."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", key)[-80:]


@contextmanager
def created(folder: Path, nbytes: int) -> Iterator[Path]:
    """A folder to fill, put in its place when all is written and removed when anything goes wrong.

    DataError where there is no room for `nbytes`, or no right to write.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        free, into = (
            shutil.disk_usage(folder.parent).free,
            Path(tempfile.mkdtemp(prefix=".writing-", dir=folder.parent)),
        )
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        if free < nbytes:
            raise DataError(f"{quote(folder.parent, 200)} has {size(free)} free and {size(nbytes)} are needed: {_WAY}")
        yield into
        if not folder.exists():  # another process may have been faster: its files are the same
            into.replace(folder)
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        shutil.rmtree(into, ignore_errors=True)


_WAY = f"set {ENV} to a folder on a larger disk, or delete what is no longer needed there."


def _unwritable(folder: Path, error: OSError) -> DataError:
    return DataError(f"{quote(folder.parent, 200)} cannot be written to ({error.strerror or error}): {_WAY}")


class Rows:
    """A .npy file of a known shape, its rows appended in order."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: str) -> None:
        self._file, self._dtype = path.open("wb"), np.dtype(dtype)
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def write(self, rows: np.ndarray) -> None:
        """The next rows."""
        self._file.write(np.ascontiguousarray(rows, dtype=self._dtype).data)

    def __enter__(self) -> Rows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def mapped(path: Path) -> Tensor:
    """The array in a .npy file as a tensor whose pages are read when they are used, and let go when memory is short.

    Pages are private: what is written to the tensor stays in memory. Nothing is reserved for them, so that a file
    larger than memory can be mapped (numpy's mode "c" reserves all of it).
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
