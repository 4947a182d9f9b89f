"""Years and weeks, quarters and halves, such as 202005 and 2020-3: which columns have them, and the days they are."""

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


QUARTERS = [dt.date(2015 + k // 4, 3 * (k % 4) + 1, 1) for k in range(14)]


def days_of(dates: list[dt.date]) -> list[int]:
    return [(day - EPOCH).days for day in dates]


@pytest.mark.parametrize("name", ["quarter", "fiscal_Quarter", "Quartal", "trimestre", "qtr"])
@pytest.mark.parametrize("written", ["{y}-{q}", "{y}/{q}", "{y} {q}", "{q}/{y}", "{q}.{y}", "{y}-0{q}", "{y}-Q{q}"])
def test_years_and_quarters_are_their_first_days_where_the_name_says_so(name: str, written: str) -> None:
    """2015-2 was the February, without a word."""
    cells = [written.format(y=day.year, q=day.month // 3 + 1) for day in QUARTERS]
    reader = column_reader(name, column(cells))
    assert reader.cells(column(cells)).values.tolist() == days_of(QUARTERS)
    assert column_reader(name, column(cells), reader.decision).dates == reader.dates
    assert not doubts(reader, column(cells))
    new = reader.cells(column(["2015-Q3", "2015-07-01"]))
    assert new.values.tolist() == days_of([QUARTERS[2]] * 2)
    assert reader.dates.order != "quarter" or reader.cells(column(["2015-7", "2015-12"])).unreadable.all()


@pytest.mark.parametrize("name", ["month", "headquarters", "quarterly", "t"])
def test_years_and_two_digits_are_months_elsewhere(name: str) -> None:
    assert column_reader(name, column(["2015-1", "2015-4", "2016-3"])).cells(column(["2015-2"])).values == [16467.0]


@pytest.mark.parametrize(
    ("name", "cells", "kind", "first"),
    [
        ("Quarter", ["20151", "20152", "20164"], "date quarter", dt.date(2015, 1, 1)),
        ("quarter", ["2015.2", "2015.3", "2016.1"], "date quarter", dt.date(2015, 4, 1)),
        ("quarter", [20153, 20154, 20161], "date quarter", dt.date(2015, 7, 1)),
        ("Monat", ["2015.02", "2015.11", "2016.10"], "date", dt.date(2015, 2, 1)),
        ("week", ["202001", "202053", "202105"], "date week", dt.date(2019, 12, 30)),
    ],
)
def test_numbers_that_may_be_dates_are_named_with_the_kind_that_reads_them(
    name: str, cells: list[Any], kind: str, first: dt.date
) -> None:
    told = column_reader(name, column(cells), kind)
    assert told.cells(column(cells)).values[0] == days_of([first])[0]
    reader = column_reader(name, column(cells))
    notes = doubts(reader, column(cells))
    if name != "week":
        assert reader.kind == "number"
        assert notes[0].endswith(
            f'was read as a number: write dates as 2021-03-01.\nkinds={{"{name}": "{kind}"}} reads it as a date.'
        )
    assert not doubts(column_reader("level", column(cells)), column(cells))


@pytest.mark.parametrize("written", ["{y}H{h}", "{y}-H{h}", "{y} S{h}", "H{h} {y}", "H{h}/{y}"])
def test_halves_of_years_are_dates(written: str) -> None:
    """2015H2 was 2015 with the unit H2, so that 2015H1 was refused as a text."""
    cells = [written.format(y=2015 + k // 2, h=k % 2 + 1) for k in range(12)]
    reader = column_reader("half", column(cells))
    assert reader.cells(column(cells[:2])).values.tolist() == days_of([dt.date(2015, 1, 1), dt.date(2015, 7, 1)])


@pytest.mark.parametrize(
    ("cells", "is_said"),
    [
        (["Feb-03", "Feb-11", "Mar-02", "Mar-19"], True),
        (["Mar-19", "Feb-03", "Feb-11", "Jan-30"], True),
        (["Nov-19", "Dec-19", "Jan-20", "Feb-20"], False),  # rises by months
        (["Feb-20", "Jan-20", "Dec-19", "Nov-19"], False),
        (["Feb-03", "Feb-00", "Mar-02", "Jan-19"], False),  # there is no such day
        (["Feb-93", "Feb-91", "Mar-92", "Jan-19"], False),
        (["Feb '03", "Feb '11", "Mar '02", "Mar '19"], False),
    ],
)
def test_a_month_with_two_digits_that_may_be_a_day_is_named(cells: list[str], is_said: bool) -> None:
    reader = column_reader("c", column(cells))
    assert reader.kind == "date"
    says = f"{cells[0]} was read as a month of a year: if it is a month and a day, write dates as 2021-03-01."
    assert doubts(reader, column(cells)) == ((f'"c": {says}',) if is_said else ())
