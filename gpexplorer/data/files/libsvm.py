"""Files in the format of LIBSVM, such as `3.2 1:0.5 4:2`: a target, and the inputs that are not 0 with their numbers.

It is apart because its cells are numbers and its columns have no names: nothing of `delimited` applies to it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection

import pyarrow as pa

from ...errors import DataError
from ..quoting import quote
from ..reader.cells import PLAIN_NUMBER
from .size_limits import Limits

_LINE = re.compile(rf"\s*{PLAIN_NUMBER}(?P<pairs>(?:\s+[0-9]+:{PLAIN_NUMBER})*)\s*(?:#.*)?")
_TIME = re.compile(r"(?:[01]?[0-9]|2[0-4]):[0-5][0-9]")
_NUMBERS = re.compile(r"[0-9]+:")
_NAME = re.compile(r"x([0-9]+)")


def is_libsvm(lines: list[str]) -> bool:
    """Whether these first lines of a text, without comments above them, are rows of this format and not of times.

    Pairs that may all be times, as 1:30, are inputs where each of three rows or more counts them from 1.
    """
    matches = [_LINE.fullmatch(line) for line in lines if not line.startswith("#")]
    rows = [match["pairs"].split() for match in matches if match]
    if not rows or len(rows) < len(matches):
        return False
    counted = [f"{number}:" for number, _ in enumerate(rows[0], 1)]
    are_counted = len(counted) > 1 and all(_NUMBERS.findall(" ".join(pairs)) == counted for pairs in rows)
    return (len(rows) > 2 and are_counted) or not all(_TIME.fullmatch(pair) for pairs in rows for pair in pairs)


def read_libsvm(name: str, data: bytes, limits: Limits, also: Collection[str] = ()) -> tuple[pa.Table, tuple[str, ...]]:
    """Read all rows, with 0 where nothing is written.

    Parameters
    ----------
    name : str
        The file, for messages.
    data : bytes
        Its text.
    limits : Limits
        Upper bounds, which are checked before zeros are written out.
    also : collection of str
        Columns that the table must have, such as the inputs of a model: 0 where no row has them.

    Returns
    -------
    tuple
        Columns x1, x2, ... as the file counts its inputs (from x0 if one of them is 0), and y; and a note.

    Raises
    ------
    DataError
        If there is no row, a line has another form, or inputs are too many or not in rising order.
    """
    from sklearn.datasets import load_svmlight_file  # a second of imports, which other files do not need

    try:
        sparse, y = load_svmlight_file(io.BytesIO(data), zero_based=True)
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"{name} is not in the format of LIBSVM, such as 3.2 1:0.5 4:2: {quote(error, 120)}. Save it again."
        ) from None
    known = [int(match[1]) for match in map(_NAME.fullmatch, also) if match]
    first = int(sparse.indices.min(initial=1) > 0 and 0 not in known)
    columns = max(sparse.shape[1], *(number + 1 for number in known), 0)
    if not len(y) or columns <= first:
        raise DataError(f"{name} has no rows in the format of LIBSVM, such as 3.2 1:0.5 4:2. Save it again.")
    limits.check_table(name, len(y), columns - first + 1)
    sparse.resize(len(y), columns)
    by_column = sparse.tocsc()
    table = {f"x{i}": by_column[:, [i]].toarray().ravel() for i in range(first, columns)}
    note = f"{name} is in the format of LIBSVM: inputs are x{first} to x{columns - 1}, the target is y."
    return pa.table(table | {"y": y}), (note,)
