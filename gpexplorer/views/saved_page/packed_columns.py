"""The columns of moving pictures in few bytes: each content once, and of later ones what differs from the one before.

A column of a source takes the same value in many frames, or values close to those before. An entry of numbers is
combined with the entry before it bit by bit (exclusive or), and its bytes are sorted by their place in the number, so
that equal leading bytes become runs of zeros, which deflate stores in almost no space. A grid is seen as colours: it is
rounded to levels, and a level is stored as its difference from the one before and from the row above. The player undoes
this.

It stands apart because it knows bytes only, and no pictures: the player in the browser undoes it line by line.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from typing import Any

import numpy as np

LONG = 64  # numbers in an entry from which it is rounded to what can be seen
INVISIBLE = 2.0**-16  # part of the entry's range; a picture has less than 4000 pixels
LARGEST_INTEGER = 2**31 - 1
GRID_LEVELS = 2**12  # in the frame of a grid with the smallest range; a scale has 256 colours
FEWEST_LEVELS = 2**10  # where the ranges of the frames differ much; otherwise grids stay numbers


class PackedColumns:
    """Entries of columns, packed one after another.

    Attributes
    ----------
    blob : bytearray
        The bytes of all entries so far.
    """

    def __init__(self) -> None:
        self.blob = bytearray()

    def add(self, history: Sequence[Any], exact: bool = False) -> dict[str, Any]:
        """Pack the contents of one column, one per frame.

        Parameters
        ----------
        history : sequence
            Arrays, or lists of arrays or plain values; None in frames without this column.
        exact : bool, default False
            Keep long columns to the last bit of float32 or better, as a logarithmic axis needs it.

        Returns
        -------
        dict
            "at": for each frame, the number of its entry; "entries": for each entry its kind, and its length or shape.
            An entry of kind "json" has its content in place of the length.
        """
        numbers: dict[bytes, int] = {}
        places: list[int] = []
        entries: list[list[Any]] = []
        previous: tuple[str, bytes] = ("", b"")
        levels = None if exact else _levels(history)
        for content in history:
            entry: tuple[str, Any, bytes] = ("json", None, b"")
            kind, extent, raw = entry if content is None else _plain(content, exact, levels)
            key = kind.encode() + repr(extent).encode() + raw
            if key not in numbers:
                numbers[key] = len(entries)
                entries.append([kind, extent])
                if kind != "json":
                    before = previous[1] if previous[0] == kind else b""
                    self.blob += (
                        _level_change(raw, before, extent[1]) if kind == "q2" else _difference(raw, before, kind)
                    )
                    previous = (kind, raw)
            places.append(numbers[key])
        return {"at": places, "entries": entries}

    def compressed(self) -> bytes:
        """Return all entries, compressed with gzip; the same bytes each time."""
        return gzip.compress(bytes(self.blob), 9, mtime=0)


def _is_grid(content: Any) -> bool:
    return isinstance(content, list) and len(content) == 1 and np.ndim(content[0]) == 2


def _levels(history: Sequence[Any]) -> tuple[float, float] | None:
    """The lowest value and the distance of two levels for all grids of a column; None where they stay numbers."""
    grids = [np.asarray(content[0], float) for content in history if content is not None and _is_grid(content)]
    ranges = [extent for grid in grids if grid.size and (extent := float(np.ptp(grid))) != 0]
    if not ranges or not np.isfinite(ranges).all():
        return None
    low, high = min(float(grid.min()) for grid in grids), max(float(grid.max()) for grid in grids)
    unit = max(min(ranges) / GRID_LEVELS, (high - low) / 65_000)
    return (low, unit) if 1e-30 < unit <= min(ranges) / FEWEST_LEVELS else None


def _plain(content: Any, exact: bool, levels: tuple[float, float] | None) -> tuple[str, Any, bytes]:
    """Kind, length or shape, and bytes of an entry: f4, f8, i4 are numbers, g4 is a grid of float32, q2 of levels."""
    if _is_grid(content) and levels is not None:
        low, unit = levels
        codes = np.round((np.asarray(content[0], float) - low) / unit).astype("<u2")
        return "q2", [*codes.shape, low, unit], codes.tobytes()
    if _is_grid(content):
        grid = np.asarray(content[0], np.float32)
        return "g4", list(grid.shape), np.ascontiguousarray(grid).tobytes()
    values = np.asarray(content)
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        return "json", [value if isinstance(value, int | str | None) else str(value) for value in content], b""
    if values.dtype.kind in "iub" and (not len(values) or np.abs(values.astype(float)).max() < LARGEST_INTEGER):
        return "i4", len(values), values.astype("<i4").tobytes()
    rounded = _rounded(values.astype(float), exact)
    return f"f{rounded.itemsize}", len(rounded), rounded.astype(rounded.dtype.newbyteorder("<")).tobytes()


def _rounded(values: np.ndarray, exact: bool) -> np.ndarray:
    """A long entry in float32, where that is fine enough, without the digits that nobody can see."""
    finite = values[np.isfinite(values)]
    extent = float(np.ptp(finite)) if len(finite) else 0.0
    if len(values) < LONG or not 1e-30 < extent < 1e30:
        return values
    if exact:
        return values.astype(np.float32) if 1e-30 < np.abs(finite[finite != 0]).min() else values
    unit = 2.0 ** np.floor(np.log2(extent * INVISIBLE))
    rounded = (np.round(values / unit) * unit).astype(np.float32)
    close = np.abs(rounded[np.isfinite(values)] - finite).max() <= unit
    return rounded if close else values  # far from the origin float32 is too coarse


def _difference(raw: bytes, before: bytes, kind: str) -> bytes:
    """What differs from the entry before, with the bytes of all numbers that stand at the same place together."""
    bits = np.frombuffer(raw, np.uint8)
    if len(before) == len(raw):
        bits = bits ^ np.frombuffer(before, np.uint8)
    return bits.reshape(-1, int(kind[1])).T.tobytes()


def _level_change(raw: bytes, before: bytes, width: int) -> bytes:
    """The same for levels: how much each has changed since the entry before, minus the change of the row above it."""
    codes = np.frombuffer(raw, "<u2").reshape(-1, width)
    if len(before) == len(raw):
        codes = codes - np.frombuffer(before, "<u2").reshape(-1, width)  # modulo 2^16
    change = np.concatenate([codes[:1], codes[1:] - codes[:-1]]).astype("<u2")
    return change.view(np.uint8).reshape(-1, 2).T.tobytes()
