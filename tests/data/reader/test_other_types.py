"""Cells of a type of their own, such as times of Parquet, where training had another one."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from pandas.core.arrays.arrow.extension_types import ArrowPeriodType

import gpexplorer as gpx
from gpexplorer.data.reader.column_reader import column_reader
from gpexplorer.errors import DataError

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


@pytest.mark.parametrize("freq", ["M", "Q", "W-SUN", "D"])
@pytest.mark.parametrize("is_known", [True, False])
def test_periods_of_a_file_are_the_days_on_which_they_begin(tmp_path: Path, freq: str, is_known: bool) -> None:
    """They were left out without a name, or numbers such as 160 where pandas had not been imported."""
    periods = pd.period_range("2019-01-07", periods=24, freq=freq)
    pd.DataFrame({"t": periods, "y": np.arange(24.0) ** 1.5}).to_parquet(tmp_path / "t.parquet")
    if not is_known:
        pa.unregister_extension_type("pandas.period")
    try:
        split = gpx.load(tmp_path / "t.parquet", split="all")
    finally:
        if not is_known:
            pa.register_extension_type(ArrowPeriodType("D"))
    first = periods.to_timestamp()
    assert split.train.X[:, 0].tolist() == ((first - pd.Timestamp(0)) / pd.Timedelta(days=1)).tolist()
    assert split.train.reader.column("t").kind == "date"


def test_a_column_of_another_type_beside_the_only_one_is_named(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"lists": [[1, 2]] * 9, "y": range(9)}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r't\.parquet has 1 column that can be used, and "lists" \("list<.*beside it'):
        gpx.load(tmp_path / "t.parquet")


def test_arrays_without_numbers_beside_a_pair_are_left_out(tmp_path: Path) -> None:
    """The whole archive was refused, although nothing of it was needed."""
    X, y = np.arange(40.0).reshape(20, 2) % 7, np.arange(20.0)
    beside = {"ids": np.array(["a", "b"] * 10), "days": np.array(["2021-03-01"] * 20, "M8[D]"), "about": np.array("t")}
    np.savez(tmp_path / "t.npz", X=X, y=y, **beside)
    split = gpx.load(tmp_path / "t.npz", split="all")
    assert split.train.X.tolist() == X.tolist()
    assert split.notes == ('Arrays beside X and y were left out: "ids", "days", "about".',)
    np.savez(tmp_path / "t.npz", X=X.astype(str), y=y)
    with pytest.raises(DataError, match='array "X" contains "<U32" and not real numbers'):
        gpx.load(tmp_path / "t.npz")


@pytest.mark.parametrize("before", ["", "% made by Weka\n%\n\n"])
def test_a_file_of_weka_is_named(tmp_path: Path, before: str) -> None:
    (tmp_path / "t.csv").write_text(f"{before}@RELATION t\n@ATTRIBUTE x NUMERIC\n@DATA\n1\n2\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"t\.csv is an ARFF file, despite its name: put the names of its attributes"):
        gpx.load(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"t\.arff is an ARFF file: give a table as"):
        gpx.load((tmp_path / "t.csv").rename(tmp_path / "t.arff"))


@pytest.mark.parametrize("cells", [[b"4.5", b"2.5", b"9"], [b"north", b"south", b"north"]])
def test_bytes_are_texts(cells: list[Any]) -> None:
    """As other programs store them: they were the words b'4.5', b'2.5' and b'9'."""
    targets = {"y": [1.0, 3.0, 2.0] * 4}
    frames = [pd.DataFrame({"c": texts * 4} | targets) for texts in (cells, [cell.decode() for cell in cells])]
    splits = [gpx.load(frame, target="y", split="all") for frame in frames]
    assert splits[0].train.X.tolist() == splits[1].train.X.tolist()
    assert splits[0].train.names == splits[1].train.names
