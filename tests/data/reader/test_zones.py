"""Zones of dates: days and hours follow the clock of training, and a time with another kind of zone is named."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gpexplorer as gpx
from gpexplorer.data.reader.column_cells import ColumnReader
from gpexplorer.data.reader.column_reader import column_reader
from gpexplorer.data.reader.date_format import DateFormat
from gpexplorer.data.reader.doubts import doubts
from gpexplorer.data.reader.table_reader import reader_from
from gpexplorer.errors import DataError

EPOCH = dt.datetime(1970, 1, 1)
MADRID = pd.date_range("2022-10-27", periods=90, freq="95min", tz="Europe/Madrid")  # the clock changes on the 30th


def column(cells: Any) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(cells)])


def days_of(*moments: dt.datetime) -> list[float]:
    return [(moment - EPOCH) / dt.timedelta(days=1) for moment in moments]


def on_clock(stamps: pd.DatetimeIndex) -> list[float]:
    return days_of(*stamps.tz_localize(None).to_pydatetime())


@pytest.mark.parametrize(
    ("zone", "hours"),
    [
        ("+05:30", 5.5),
        ("+0530", 5.5),
        ("+5:30", 5.5),
        (" GMT-5", -5.0),
        ("UTC+1", 1.0),
        ("+14:00", 14.0),
        ("-12", -12.0),
    ],
)
def test_a_time_has_the_offset_of_its_zone(zone: str, hours: float) -> None:
    times = [dt.datetime(2021, 3, day, 6) for day in (1, 2, 3)]
    cells = column([f"{time:%Y-%m-%d %H:%M}{zone}" for time in times])
    moments = days_of(*(time - dt.timedelta(hours=hours) for time in times))

    trained = column_reader("when", cells)
    assert trained.cells(cells).values.tolist() == pytest.approx(days_of(*times), abs=1e-9)
    in_utc = column_reader("when", column([f"2020-01-{day:02d} 12:00Z" for day in (1, 2, 3)]))
    assert in_utc.cells(cells).values.tolist() == pytest.approx(moments, abs=1e-9)
    before = ColumnReader("when", "date", dates=DateFormat("dmy"))  # of a model that an earlier version saved
    assert before.cells(cells).values.tolist() == pytest.approx(moments, abs=1e-9)
    without = column([f"{time:%Y-%m-%d %H:%M}" for time in times])
    assert before.cells(without).values.tolist() == pytest.approx(days_of(*times), abs=1e-9)


@pytest.mark.parametrize("form", ["type", "text", "objects"])
def test_the_hour_is_that_of_the_clock_across_its_change(form: str) -> None:
    forms = {"type": MADRID, "text": MADRID.astype(str), "objects": pd.Series(list(MADRID), dtype=object)}
    table = pd.DataFrame({"when": forms[form], "y": np.sin(2 * np.pi * MADRID.hour / 24)})
    reader = gpx.load(table, target="y").train.reader.column("when")
    hours = gpx.load(table, target="y", split="all").train.X[:, 0].numpy()

    np.testing.assert_allclose(hours, on_clock(MADRID), atol=1e-8)
    for new in (column(MADRID), column(MADRID.astype(str).tolist())):
        np.testing.assert_allclose(reader.cells(new).values, on_clock(MADRID), atol=1e-8)
    in_utc = reader.cells(column(MADRID.tz_convert("UTC")))
    if form == "type":
        np.testing.assert_allclose(in_utc.values, on_clock(MADRID), atol=1e-8)
    else:  # which place has these two offsets is not known
        assert in_utc.unreadable.all()


@pytest.mark.parametrize(
    ("trained", "readable", "unreadable"),
    [
        (["2021-03-01 08:00", "2021-03-02 09:00"], ["2021-07-01 08:00", "2021-07-01"], ["2021-07-01 08:00Z"]),
        (["2021-03-01 08:00-05:00", "2021-03-02 09:00"], ["2021-07-01 08:00-04:00", "2021-07-01 08:00"], []),
        (["2021-03-01 08:00-05:00"], ["2021-07-01 08:00-04:00"], ["2021-07-01 08:00", "2021-07-01 08:00+02:00"]),
        (["2021-03-01 08:00+01:00"], ["2021-07-01 08:00+02:00", "2021-07-01"], ["2021-07-01 08:00Z"]),
        (["2021-03-01 08:00+00:00", "2021-07-01 08:00+01:00"], ["2021-03-03 08:00Z"], ["2021-07-01 08:00+02:00"]),
    ],
)
def test_a_new_time_is_read_as_it_is_written_where_its_zone_is_one_of_training(
    trained: list[str], readable: list[str], unreadable: list[str]
) -> None:
    reader = column_reader("when", column(trained * 3))
    cells = reader.cells(column([*readable, *unreadable]))
    assert cells.unreadable.tolist() == [False] * len(readable) + [True] * len(unreadable)
    hours = [8.0 if ":" in text else 0.0 for text in readable]
    np.testing.assert_allclose(cells.values[: len(readable)] % 1.0 * 24.0, hours, atol=1e-6)


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "+00:00", "Asia/Kathmandu", "-03:00"])
def test_moments_are_turned_to_the_clock_of_a_column_with_a_type(zone: str) -> None:
    stamps = pd.date_range("1999-05-01", periods=20, freq="37h", tz=zone)
    reader = column_reader("when", column(stamps))
    np.testing.assert_allclose(reader.cells(column(stamps)).values, on_clock(stamps), atol=1e-8)
    if zone != "-03:00":  # 1 in the night there may be meant as 4 in UTC
        new = column([*stamps.tz_convert("America/Lima").to_pydatetime(), None])
        cells = reader.cells(new)
        np.testing.assert_allclose(cells.values[:-1], on_clock(stamps), atol=1e-8)
        assert (cells.gap.tolist(), cells.unreadable.any()) == ([False] * 20 + [True], False)
    assert reader.cells(column(stamps.tz_localize(None))).unreadable.all()
    assert not len(reader.cells(column(stamps[:0])).values)


@pytest.mark.parametrize("zone", ["", "Z", "+02:00", "type", "Asia/Tokyo"])
def test_where_training_has_whole_days_a_midnight_is_that_day_in_any_zone(zone: str) -> None:
    days = pd.date_range("2020-06-01", periods=30)
    texts = [f"{day:%Y-%m-%d}" + (f"T00:00:00{zone}" if zone else "") for day in days]
    typed = {"type": days, "Asia/Tokyo": days.tz_localize("Asia/Tokyo")}
    reader = column_reader("when", column(typed.get(zone, texts)))
    for new in (days, days.tz_localize("UTC"), days.tz_localize("America/Lima"), [f"{day:%Y-%m-%d}" for day in days]):
        assert reader.cells(column(new)).values.tolist() == on_clock(days)
    late = reader.cells(column(["2020-06-04T22:00:00Z"]))
    np.testing.assert_allclose(late.values, {"Asia/Tokyo": 18418 + 7 / 24, "Z": 18417 + 22 / 24}.get(zone, np.nan))


def test_a_table_with_another_kind_of_zone_is_refused_with_the_reason(tmp_path: Any) -> None:
    """The answers were those of other hours, and every row was said to be predicted."""
    y = 3.0 * (MADRID.hour < 12) + 0.01 * np.arange(90)
    frame = pd.DataFrame({"when": MADRID})
    model = gpx.Estimator("ml", budget={"steps": 2}).fit(frame, y)
    with pytest.raises(DataError, match=r"unreadable: when .* the cells of training are times of Europe/Madrid\."):
        model.predict(pd.DataFrame({"when": MADRID[:3].tz_localize(None)}))
    as_array = model.predict(frame[:5].to_numpy())
    np.testing.assert_allclose(as_array, model.predict(frame[:5]), atol=1e-8)

    naive = gpx.Estimator("ml", budget={"steps": 2}).fit(pd.DataFrame({"when": MADRID.tz_localize(None)}), y)
    with pytest.raises(DataError, match="the cells of training have no zone"):
        naive.predict(frame[:3])
    naive.posterior_.save(tmp_path / "m.safetensors")
    read = gpx.load_posterior(tmp_path / "m.safetensors").columns.reader.read(
        pa.table({"when": ["2022-10-28 07:00", "2022-10-28T07:00:00+02:00"]})
    )
    assert read.answered.tolist() == [True, False]
    assert read.why[1] == 'unreadable: when "2022-10-28T07:00:00+02:00"'


def test_zones_that_are_mixed_are_mentioned() -> None:
    half = column(["2021-03-01 08:00+01:00", "2021-03-02 08:00"])
    assert "some cells have a zone and some have none" in doubts(column_reader("when", half), half)[0]
    wide = column(["2021-03-01 08:00+01:00", "2021-03-02 08:00-07:00"])
    reader = column_reader("when", wide)
    assert "differ by more than an hour; they were read as times in UTC" in doubts(reader, wide)[0]
    np.testing.assert_allclose(reader.cells(wide).values % 1 * 24, [7.0, 15.0], atol=1e-6)
    same = column(["2021-03-01 08:00Z", "2021-03-02 08:00+00:00"])
    assert not doubts(column_reader("when", same), same)


def test_a_saved_reader_without_zones_reads_as_before_and_a_strange_zone_is_refused() -> None:
    table = pd.DataFrame({"when": MADRID, "y": np.arange(90) ** 0.5})
    fields = json.loads(gpx.load(table, target="y").train.reader.to_json())
    assert fields["columns"][0]["dates"]["zone"] == "Europe/Madrid"
    for strange in ("Europe/Nowhere", "../../etc/passwd", "/etc/passwd", "Europe", "\x00"):
        fields["columns"][0]["dates"]["zone"] = strange
        with pytest.raises(DataError, match="not known on this machine"):
            reader_from(json.dumps(fields)).read(pa.table({"when": column(MADRID)}))
    fields["columns"][0]["dates"] |= {"zone": "local", "offsets": [3600.0]}
    with pytest.raises(DataError, match="a local time has no offsets"):
        reader_from(json.dumps(fields))
    for column_fields in (*fields["columns"], fields["target"]):
        for later in ("zone", "offsets", "whole_days"):
            del column_fields["dates"][later]
    before = reader_from(json.dumps(fields)).read(pa.table({"when": column(MADRID)})).X[:, 0]
    np.testing.assert_allclose(before, on_clock(MADRID.tz_convert("UTC")), atol=1e-8)
