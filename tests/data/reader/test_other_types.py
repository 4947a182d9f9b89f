"""Cells of a type of their own, such as times of Parquet, where training had another one."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import gpexplorer as gpx
from gpexplorer.data.reader.column_reader import column_reader

TRAINED = {
    "number": [4.5, 2.0, 7.25], "date": ["2022-05-02", "2022-06-30"], "time of day": ["9:40", "17:05"],
    "yes/no": ["yes", "no"], "days": ["31:30:00", "2:15:00"], "minutes": ["59:30", "1:02:15"],
}  # fmt: skip
NEW = {
    "number": pa.array([5.0]), "decimal": pa.array([5]).cast(pa.decimal128(21, 0)), "one": pa.array([1]),
    "truth": pa.array([True]), "day": pa.array([dt.date(2022, 5, 9)]), "moment": pa.array([dt.datetime(2022, 5, 9, 6)]),
    "time": pa.array([dt.time(18, 30)]), "duration": pa.array([dt.timedelta(hours=36)]),
}  # fmt: skip
READ = {
    ("number", "number"): 5.0, ("number", "decimal"): 5.0, ("number", "one"): 1.0, ("number", "truth"): 1.0,
    ("date", "day"): 19121.0, ("date", "moment"): 19121.25, ("time of day", "time"): 18.5, ("yes/no", "one"): 1.0,
    ("yes/no", "truth"): 1.0, ("days", "number"): 5.0, ("days", "decimal"): 5.0, ("days", "one"): 1.0,
    ("days", "truth"): 1.0, ("days", "time"): 18.5 / 24, ("days", "duration"): 1.5, ("minutes", "number"): 5.0,
    ("minutes", "decimal"): 5.0, ("minutes", "one"): 1.0, ("minutes", "truth"): 1.0, ("minutes", "time"): 1110.0,
    ("minutes", "duration"): 2160.0,
}  # fmt: skip


@pytest.mark.parametrize("trained", TRAINED)
@pytest.mark.parametrize("new", NEW)
def test_a_cell_of_another_type_is_read_as_its_text_or_named(trained: str, new: str) -> None:
    """A moment was a number of days where training had numbers or times of day, and a time was a date of 1970."""
    reader = column_reader("c", pa.chunked_array([pa.array(TRAINED[trained])]))
    assert reader.kind == {"days": "number", "minutes": "number"}.get(trained, trained)
    cells = reader.cells(pa.chunked_array([NEW[new]]))
    value = READ.get((trained, new))
    assert cells.unreadable.tolist() == [value is None]
    assert value is None or cells.values.tolist() == [pytest.approx(value, rel=1e-12)]


@pytest.mark.parametrize("cells", [[b"4.5", b"2.5", b"9"], [b"north", b"south", b"north"]])
def test_bytes_are_texts(cells: list[Any]) -> None:
    """As other programs store them: they were the words b'4.5', b'2.5' and b'9'."""
    targets = {"y": [1.0, 3.0, 2.0] * 4}
    frames = [pd.DataFrame({"c": texts * 4} | targets) for texts in (cells, [cell.decode() for cell in cells])]
    splits = [gpx.load(frame, target="y", split="all") for frame in frames]
    assert splits[0].train.X.tolist() == splits[1].train.X.tolist()
    assert splits[0].train.names == splits[1].train.names
