"""Dates: the order of day and month, months, other languages, whole numbers, and what is no date."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gpexplorer as gpx
from gpexplorer.data.reader.column_reader import column_reader
from gpexplorer.data.reader.date_texts import PIVOT
from gpexplorer.data.reader.doubts import doubts
from gpexplorer.errors import DataError

DAYS = [*enumerate(range(13, 29))] * 2
EPOCH = dt.datetime(1970, 1, 1)


def column(cells: list[Any]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(cells)])


@pytest.mark.parametrize(
    ("cells", "order"),
    [
        (["06/05/2021", "03/22/2021"], "mdy"),
        (["06/05/2021", "22/03/2021"], "dmy"),
        (["01/02/2021", "02/02/2021", "05/02/2021", "02/03/2021"], "dmy"),  # in order as day/month alone
        (["01/02/2021", "01/09/2021", "02/03/2021", "03/01/2021"], "mdy"),
        (["21-03-04", "21-05-28", "20-01-02"], "ymd"),
        (["3.12.99", "4.1.00", "12.1.00"], "dmy"),
    ],
)
def test_the_order_of_day_and_month_comes_from_all_rows(cells: list[str], order: str) -> None:
    reader = column_reader("when", column(cells))
    assert (reader.kind, reader.dates.order) == ("date", order)


@pytest.mark.parametrize(
    "form",
    ["{y}{m:02d}", "{m:02d}.{y}", "{m:02d}/{y}", "{m:02d}-{y}", "{y}M{m:02d}", "{y}-{m:02d}", "{y}\u5e74{m}\u6708"],
)
def test_months_are_dates(form: str) -> None:
    months = [(2019 + k // 12, 1 + k % 12) for k in range(0, 60, 5)]
    cells = [form.format(y=y, m=m) for y, m in months]
    days = [float((dt.date(y, m, 1) - EPOCH.date()).days) for y, m in months]
    reader = column_reader("when", column(cells))
    assert (reader.kind, reader.cells(column(cells)).values.tolist()) == ("date", days)
    if form == "{y}{m:02d}":
        typed = column([int(cell) for cell in cells])
        assert column_reader("when", typed).cells(typed).values.tolist() == days
        assert column_reader("c", column(["201912", "201913", *cells])).kind == "number"  # there is no month 13


@pytest.mark.parametrize(
    "cells",
    [
        ["lundi 3 mai 2021", "1er f\u00e9vrier 2021"], ["3 de mayo de 2021", "1 de febrero de 2021"],
        ["3 maja 2021", "1 lutego 2021"],
        ["3 \u043c\u0430\u044f 2021", "1 \u0444\u0435\u0432\u0440\u0430\u043b\u044f 2021"],
        ["May 3, 2021", "Mon, Feb 1, 2021"], ["3 mei 2021", "1 februari 2021"],
    ],
)  # fmt: skip
def test_dates_are_read_in_other_languages(cells: list[str]) -> None:
    reader = column_reader("when", column(cells))
    assert (reader.kind, reader.cells(column(cells)).values.tolist()) == ("date", [18750.0, 18659.0])


def test_whole_numbers_that_are_dates_are_days_in_text_and_in_frames() -> None:
    cells = ["20210503", "20210814", "20201230"]
    days = [18750.0, 18853.0, 18626.0]
    forms = [
        column(cells),
        column([f"{cell}.0" for cell in cells]),
        column(list(map(int, cells))),
        column(list(map(float, cells))),
    ]
    for training in forms:
        reader = column_reader("when", training)
        assert reader.kind == "date"
        for new in forms:
            assert reader.cells(new).values.tolist() == days
    assert reader.cells(column([44319, 2021])).unreadable.all()
    saved_before = replace(reader, low=20201230.0, high=20210814.0)  # such models learned from the whole numbers
    assert saved_before.cells(column([20210503])).values.tolist() == [20210503.0]


def test_an_order_that_was_asked_for_is_kept_or_refused() -> None:
    either = column(["01/02/2021", "03/02/2021", "02/05/2021"])
    assert column_reader("when", either, "date mdy").dates.order == "mdy"
    assert column_reader("when", either, "date dmy").dates.order == "dmy"
    assert column_reader("when", column(["01/02/2021", "25/02/2021"]), "date mdy").examples == ((1, "25/02/2021"),)


@pytest.mark.parametrize(
    "training",
    [
        column(["2021-03-01", "2021-03-15", "2021-04-02"]),
        column(["1 Mar 2021", "15 Mar 2021", "2 Apr 2021"]),
        column(["5/5/2021", "6/6/2021", "7/7/2021"]),
        pa.chunked_array([pa.array([dt.datetime(2021, 5, 6), dt.datetime(2021, 2, 3)], pa.timestamp("ms"))]),
    ],
)
def test_where_training_shows_no_order_a_date_with_two_meanings_is_unreadable(training: pa.ChunkedArray) -> None:
    reader = column_reader("when", training)
    assert reader.kind == "date"
    one = ["2021-03-02", "22/03/2021", "03/22/2021", "02.03.2021", "3/3/2021", "22.03.2021 06:30:00.5", "2 March 2021"]
    new = reader.cells(column([*one, "02/03/2021", "2/3/2021 12:00", "02-03-21", "Tue 02/03/2021", "nonsense"]))
    assert new.unreadable.tolist() == [False] * len(one) + [True] * 5
    days = [18688, 18708, 18708, 18688, 18689, 18708 + (6.5 * 3600 + 0.5) / 86400, 18688]
    np.testing.assert_allclose(new.values[: len(one)], days, rtol=1e-12)


def test_a_date_in_another_order_is_unreadable_and_never_turned_round() -> None:
    reader = column_reader("when", column(["06/05/2021", "03/22/2021"]))
    assert reader.cells(column(["25/12/2021", "12/25/2021", ""])).unreadable.tolist() == [True, False, False]


@pytest.mark.parametrize("month_first", [2, 5, 9])
def test_dates_in_two_orders_are_not_taken_for_words(tmp_path: Path, month_first: int) -> None:
    """Where every other cell had its month first, the column was left out, or each date became a word."""
    days = [f"{day:02d}-05-2022 08:15" if k % 10 >= month_first else f"05-{day:02d}-2022 08:15" for k, day in DAYS]
    reader = column_reader("when", column(days))
    assert reader.kind == "date"
    assert {cell for _, cell in reader.examples if cell} < set(days)
    path = tmp_path / "t.csv"
    path.write_text("when,x,y\n" + "".join(f"{day},{k % 5},{k**2 % 7}\n" for k, day in enumerate(days)))
    with pytest.raises(DataError, match=r'"when" has text in row \d+: "\d\d-\d\d-2022 08:15".* no date like the'):
        gpx.load(path)
    assert gpx.load(path, drop=["when"]).train.names == ("x",)


@pytest.mark.parametrize(
    "cells",
    [["1-2", "2-3", "4-5"], ["1.2.3", "2.0.1", "3.1.4"], ["12:30", "3", "x"], ["A-1-2021", "B-2-2021", "C-1-2021"]],
)
def test_texts_with_marks_are_no_dates(cells: list[str]) -> None:
    assert column_reader("c", column(cells)).kind == "words"


DATED = ("Bestelldatum", "birthday", "orderDateUTC", "created_at_time", "dates", "Messzeit", "startdate")


@pytest.mark.parametrize(
    ("name", "cells", "kind"),
    [
        ("build", ["14.11.19", "11.14.19", "2.9.18", "8.15.21"], "words"),
        ("c", ["4.1.17", "4.16.10", "5.2.30", "12.3.11"], "words"),
        *(
            (name, ["14.11.19", "11.14.19", "2.9.18", "8.15.21"], "words")
            for name in ("update", "candidate", "estimate")
        ),
        ("sentiment", ["14.11.19", "11.14.19", "2.9.18", "8.15.21"], "words"),
        ("firmware version", ["1.4.10", "1.5.12", "2.11.11"], "words"),
        ("part", ["14-11-19", "11-14-19", "02-09-18", "08-15-21"], "words"),
        ("sort code", ["20 14 11", "11 20 14", "08 15 21"], "words"),
        ("address", ["10.1.0.7", "172.20.3.14", "192.168.2.9"], "words"),
        ("ratio", ["5/8", "11/16", "1/2", "3/4"], "words"),
        ("odds", ["1/1200", "7/4000", "11/1000"], "words"),
        ("score", ["3-1", "0-2", "1-1"], "words"),
        ("article", ["4811-07", "3050-11", "2250-3"], "words"),
        ("phone", ["5552-117", "4200-330", "3331-002"], "words"),
        ("when", ["14.11.19", "11.14.19", "12.10.19", "08.15.19"], "date"),
        *((name, ["14.11.19", "11.14.19", "12.10.19"], "date") for name in DATED),
        ("c", ["14/11/19", "11/14/19", "12/10/19"], "date"),
        ("c", ["14.11.2019", "11.14.2019", "12.10.2019"], "date"),
        ("c", ["14-11-2019", "11-14-2019", "12-10-2019"], "date"),
        ("version", ["14.11.2019", "9.12.2019", "1.1.2020"], "date"),
        ("c", ["11.14.19", "08.15.19", "02.09.18"], "date"),
        ("c", ["14.11.19", "8.9.19", "2.2.20"], "date"),
        ("c", ["7/1850", "11/1851", "3/2021"], "date"),
        ("c", ["1850-07", "1851-11", "2021-03"], "date"),
        ("c", ["1850-117", "2019-330", "2021-002"], "date"),
    ],
)
def test_versions_parts_and_ratios_are_words_and_dates_are_dates(name: str, cells: list[str], kind: str) -> None:
    reader = column_reader(name, column(cells * 5))
    assert reader.kind == kind
    two_orders = kind == "date" and any("14" == cell[:2] for cell in cells) and any("14" == cell[3:5] for cell in cells)
    assert bool(reader.examples) == two_orders


US = [dt.date(2020, 11, 5) + dt.timedelta(days=19 * k) for k in range(30)]


@pytest.mark.parametrize("written", ["{d.month}.{d.day}.{d:%y}", "{d.month}.{d.day}.{d:%y} 13:00", "{d:%m.%d.%y}"])
@pytest.mark.parametrize(("name", "rows"), [("c", 30), ("c", 8), ("when", 3), ("Datum", 2)])
def test_months_before_days_with_points_are_dates_where_nothing_else_fits(name: str, rows: int, written: str) -> None:
    cells = [written.format(d=day) for day in US[:rows]]
    reader = column_reader(name, column(cells))
    assert (reader.kind, reader.dates.order, reader.dates.certain) == ("date", "mdy", True)
    noon = 13.0 / 24.0 if "13:00" in written else 0.0
    expected = [(day - EPOCH.date()).days + noon for day in US[:rows]]
    np.testing.assert_allclose(reader.cells(column(cells)).values, expected)
    new = reader.cells(column(["3.16.21" + " 13:00" * (noon > 0.0), "16.3.21"]))
    assert new.values[0] == (dt.date(2021, 3, 16) - EPOCH.date()).days + noon
    assert new.unreadable.tolist() == [False, True]


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("c", ["3.4.21", "5.6.21", "7.8.21", "1.2.21", "9.9.21", "12.11.20"]),  # with points, the day comes first
        ("when", ["3.4.21", "5.6.21", "7.8.21"]),
        ("c", ["16.3.21", "2.4.21", "31.12.20"]),
    ],
)
def test_with_points_the_day_comes_first_where_it_can(name: str, cells: list[str]) -> None:
    reader = column_reader(name, column(cells))
    assert (reader.kind, reader.dates.order, reader.dates.certain) == ("date", "dmy", True)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("version", [f"{day.month}.{day.day}.{day:%y}" for day in US]),
        ("c", ["1.13.20", "1.14.10", "2.1.21", "2.20.11", "2.21.30", "3.13.14", "3.14.15"]),  # many "years"
        ("c", ["3.16.21", "4.2.21"]),  # few, without a name
        ("c", ["1.13.20", "1.13.21", "2.13.20", "2.13.21", "3.13.20", "4.13.21"]),
        ("c", ["13.16.21", "4.2.21", "4.3.21", "4.4.21", "5.30.21", "6.2.21", "7.2.21"]),
    ],
)
def test_versions_with_months_and_days_by_chance_stay_words(name: str, cells: list[str]) -> None:
    assert column_reader(name, column(cells)).kind == "words"


def test_seconds_since_1970_stay_numbers() -> None:
    cells = [str(1_600_000_000 + 3600 * i) for i in range(20)]
    reader = column_reader("c", column(cells))
    assert reader.kind == "number"
    assert reader.cells(column(cells)).values[3] == 1_600_010_800


@pytest.mark.parametrize(
    ("years", "pivot", "first", "last"),
    [
        (range(60, 76), 0, 1960, 1975),
        (range(20, 80, 5), 0, 1920, 1975),
        ([*range(45, 100), *range(6)], 45, 1945, 2005),
        ([99, 0, 1, 2], PIVOT, 1999, 2002),
        ([70, 75, 18, 24], PIVOT, 1970, 2024),  # the widest gap is that at the pivot
        (range(30, 60), PIVOT, 2030, 2059),
    ],
)
@pytest.mark.parametrize("form", ["{d:02d}.{m:02d}.{y:02d}", "{m}/{d}/{y:02d}", "{d:02d}-Mar-{y:02d} 06:30"])
def test_years_of_two_digits_do_not_fall_apart(form: str, years: Any, pivot: int, first: int, last: int) -> None:
    cells = [form.format(d=1 + 3 * k % 28, m=1 + k % 12, y=year) for k, year in enumerate(years)]

    reader = column_reader("when", column(cells))
    days = reader.cells(column(cells)).values

    assert (reader.kind, reader.dates.pivot) == ("date", pivot)
    found = [(EPOCH + dt.timedelta(days=float(day))).year for day in days]
    assert (min(found), max(found)) == (first, last)
    assert [year % 100 for year in found] == list(years)


@pytest.mark.parametrize("zone", ["-17:30", "+15:00", "+25", "-12:30", "+5", "+530"])
def test_what_is_no_zone_of_the_world_makes_no_date(zone: str) -> None:
    cells = [f"2021-03-{day:02d} 09:00{zone}" for day in (1, 2, 3, 4)]
    assert column_reader("when", column(cells)).kind != "date"


@pytest.mark.parametrize(
    ("form", "has_weekday"),
    [("quarter", False), ("month", False), ("last of month", False), ("day", True)],
)
def test_months_and_quarters_have_no_weekday(form: str, has_weekday: bool) -> None:
    months = np.arange("1990-01", "2020-01", dtype="datetime64[M]")
    days = {
        "quarter": months[::3].astype("datetime64[D]"),
        "month": months.astype("datetime64[D]"),
        "last of month": (months + 1).astype("datetime64[D]") - 1,
        "day": np.arange("2019-01-01", "2019-06-01", dtype="datetime64[D]"),
    }[form]
    weekday = (days.astype(int) + 3) % 7
    table = pd.DataFrame({"when": days.astype(str), "y": np.sin(2 * np.pi * weekday / 7) + 0.01 * weekday})
    names = gpx.load(table, target="y").train.names
    assert any("weekday" in name for name in names) == has_weekday, names


@pytest.mark.parametrize("cells", [["12 AM", "5 AM", "11 AM"], ["7 p.m.", "8 p.m."], ["12 PM", "3:30 am", "13:15"]])
def test_hours_of_half_a_day_are_times_of_day(cells: list[str]) -> None:
    column = pa.chunked_array([cells])
    hours = {
        "12 AM": 0,
        "5 AM": 5,
        "11 AM": 11,
        "7 p.m.": 19,
        "8 p.m.": 20,
        "12 PM": 12,
        "3:30 am": 3.5,
        "13:15": 13.25,
    }
    reader = column_reader("when", column)
    assert reader.kind == "time of day"
    assert reader.cells(column).values.tolist() == [hours[cell] for cell in cells]
    assert column_reader("radius", pa.chunked_array([["7 pm", "53 pm"]])).numbers.unit == "pm"


@pytest.mark.parametrize(
    ("name", "cells", "says"),
    [
        (
            "date",
            ["2019359", "2019361", "2020002"],
            "2019359 may be year and day of the year, and was read as a number",
        ),
        ("Week", ["202148", "202150", "202153"], "202148 may be year and week"),  # 2021 has 52
        ("weekday", ["202048", "202050", "202053"], ""),
        ("day", ["190228", "190301", "191231"], "190228 may be year, month and day"),
        ("Datum", ["05032019", "28022019", "31122018"], "05032019 may be day, month and year"),
        ("when", ["Feb 19", "Mar 19"], 'cells such as "Feb 19" are words'),
        ("when", ["19-feb", "19-mar"], 'cells such as "19-feb" are words'),
        ("when", ["02-19", "03-19"], 'cells such as "02-19" are words'),
        ("season", ["1998-99", "1999-00", "2000-01"], ""),
        ("season", ["2003-04", "2004-05", "2005-06"], "2003-04 was read as a month: if it is a season"),
        ("month", ["2003-04", "2003-05", "2003-06"], ""),
        ("size", ["190228", "190301", "191231"], ""),
        ("ages", ["10-19", "20-29"], ""),
        ("tree", ["oak 19", "elm 19"], ""),
    ],
)
def test_what_may_be_a_date_and_was_read_otherwise_is_mentioned(name: str, cells: list[str], says: str) -> None:
    column = pa.chunked_array([cells * 4])
    notes = doubts(column_reader(name, column), column)
    assert len(notes) == bool(says)
    assert f'"{name}": {says}' in "".join(notes) or not says
    assert not any("without the zero" in note for note in notes)
