"""Years and weeks such as 202005: which columns have them, and the days that they are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gpexplorer as gpx
from gpexplorer.data.reader.column_reader import column_reader
from gpexplorer.data.reader.doubts import doubts

EPOCH = dt.date(1970, 1, 1)
WEEKS = [dt.date.fromisocalendar(2020, w, 1) for w in range(1, 54)] + [dt.date.fromisocalendar(2021, 1, 1)]


def column(cells: list[Any]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(cells)])


@pytest.mark.parametrize("name", ["week", "Year_Week", "KW", "Kalenderwoche", "iso week", "semaine"])
@pytest.mark.parametrize("written", ["%G%V", "%G-%V", "%G/%V", "%V/%G", "%V-%G", "%G %V", "%G-W%V", "%G%V.0"])
def test_years_and_weeks_are_mondays_where_the_name_says_so(name: str, written: str) -> None:
    expected = [(day - EPOCH).days for day in WEEKS]
    for rows in (slice(0, 12), slice(None)):  # the first twelve could be months
        cells = [day.strftime(written) for day in WEEKS[rows]]
        reader = column_reader(name, column(cells))
        assert reader.kind == "date"
        assert reader.cells(column(cells)).values.tolist() == expected[rows]
        assert column_reader(name, column(cells), reader.decision).dates == reader.dates
        assert reader.cells(column(["2020-W05", "2020-01-27"])).values.tolist() == [expected[4]] * 2
        assert not doubts(reader, column(cells))
    if written == "%G%V":
        for numbers in ([int(cell) for cell in cells], [float(cell) for cell in cells]):
            reader = column_reader(name, column([*numbers, None]))
            assert reader.cells(column(numbers)).values.tolist() == expected
            assert reader.cells(column(["202154"])).unreadable.tolist() == [True]


def test_years_and_weeks_without_such_a_name_are_asked_for() -> None:
    cells = [day.strftime("%G%V") for day in WEEKS]
    for own in (cells, list(map(int, cells))):
        assert column_reader("t", column(own)).kind == "number"
        assert column_reader("t", column(own), "date week").cells(column(own)).values[1] == 18267.0
    for name in ("month", "weekday", "hours per weekend"):
        assert column_reader(name, column(cells[:12])).cells(column(cells[1:2])).values.tolist() == [18293.0]
    assert column_reader("week", column(cells[:12]), "date ymd").dates.order == "ymd"
    assert column_reader("week", column(list(range(1, 54)))).kind == "number"
    assert column_reader("week", column(["20200106", "20200113", "20200120"])).dates.compact


@pytest.mark.parametrize("name", ["week", "yearweek"])
def test_a_model_of_weeks_reads_new_weeks(name: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({name: [int(day.strftime("%G%V")) for day in WEEKS], "y": np.sin(np.arange(54) / 5.0)})
    frame.to_csv(tmp_path / "weeks.csv", index=False)
    for source in (tmp_path / "weeks.csv", frame):
        split = gpx.load(source, split="all")
        assert (split.train.names, split.notes) == ((name,), ())
        assert split.train.X[:, 0].diff().unique().tolist() == [7.0]  # across the years
    run = gpx.Spec("cholesky", budget={"steps": 2}, split="all").open(data=frame)
    run.finish()
    run.posterior(of="y").save(tmp_path / "model")
    loaded = gpx.load_posterior(tmp_path / "model")
    np.testing.assert_allclose(loaded.mean(frame[50:]), run.posterior().mean(split.train.X[50:]))
