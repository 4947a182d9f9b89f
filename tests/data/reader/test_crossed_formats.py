"""New rows that are written otherwise than those of training are read as they are meant, or named."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gpexplorer as gpx
from gpexplorer.data.files.choice import Choice
from gpexplorer.data.files.columns import pick
from gpexplorer.data.files.reading import read_bytes
from gpexplorer.data.files.size_limits import LOCAL
from gpexplorer.data.in_memory import table_of
from gpexplorer.data.reader.column_reader import column_reader
from gpexplorer.data.reader.table_reader import reader_from
from gpexplorer.data.standardising import table_rows
from gpexplorer.errors import DataError


def column(cells: list[Any]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(cells)])


@pytest.mark.parametrize(("trained", "mark", "other"), [(["1.5", "2.25"], ".", ","), (["1,5", "2,25"], ",", ".")])
def test_a_new_file_with_the_other_decimal_mark_is_not_read_as_thousands(
    trained: list[str], mark: str, other: str
) -> None:
    reader = column_reader("c", column(trained))
    cells = reader.cells(column([f"1{other}234", f"2{other}5", "3", ""]))
    assert cells.unreadable.tolist() == [True, True, False, False]
    np.testing.assert_array_equal(cells.values, [np.nan, np.nan, 3, np.nan])
    dates = column_reader("when", column(["17/03/2021", "05/04/2021"]))
    assert dates.cells(column(["03/02/2021", "03/16/2021", "2021-03-16"])).unreadable.tolist() == [True, True, False]
    assert dates.contradicted_by(column(["03/16/2021"]))  # in another strip of the file
    assert dates.cells(column(["03/02/2021", "2021-03-16"]), True).unreadable.tolist() == [True, False]
    assert not dates.contradicted_by(column(["03/02/2021"]))
    np.testing.assert_array_equal(
        reader.cells(column([f"1{other}234", f"1{other}234{mark}5", "x"])).values, [1234, 1234.5, np.nan]
    )


@pytest.mark.parametrize(
    ("trained", "new", "days"),
    [  # days of March 2031; None where a cell is not read
        (["04/30/2019", "02/05/2020"], ["05/03/2031", "17/03/2031"], [None, None]),
        (["04/30/19", "02/05/20"], ["05/03/31", "17/03/31", "2031-03-05"], [None, None, 5]),
        (["4-30-2019", "2-5-2020"], ["3-5-2031", "3-17-2031"], [5, 17]),
        (["30/04/2019", "05/02/2020"], ["03/05/2031", "03/17/2031"], [None, None]),
        (["19-04-30", "20-02-05"], ["05-03-31", "17-03-98"], [None, None]),  # 98-03-17 would be no year but the last
        (["04/30/2019", "02/05/2020"], ["05.03.2031", "17.03.2031", "03.17.2031"], [5, 17, None]),
        (["04.30.2019", "02.05.2020"], ["03.05.2031", "03.17.2031"], [5, 17]),  # points in training
        (["20190430", "20200205", "20200206"], ["05.03.31", "05/03/31", "17/03/31", "20310305"], [5, None, None, 5]),
    ],
)
def test_dates_of_a_new_file_in_another_order_are_not_read_in_that_of_training(
    trained: list[str], new: list[str], days: list[int | None]
) -> None:
    frame = pd.DataFrame({"when": trained * 20, "y": np.arange(20 * len(trained)) % 7.0})
    reader = reader_from(gpx.load(frame, split="all", dates=["when"]).train.reader.to_json())
    read = reader.read(table_of(pd.DataFrame({"when": new})))
    first = float((np.datetime64("2031-03-01") - np.datetime64("1970-01-01")).astype(int)) - 1.0
    assert [x - first if ok else None for x, ok in zip(read.X[:, 0], read.answered, strict=True)] == days
    is_other = days[:2] == [None, None]
    assert [note.partition(" of training")[0] for note in read.notes] == (
        ['"when" has dates in another order than those'] if is_other else []
    )


@pytest.mark.parametrize(("mark", "other"), [(".", ","), (",", ".")])
def test_a_number_that_is_one_of_training_by_the_other_mark_alone_is_not_read_as_thousands(
    mark: str, other: str
) -> None:
    """Without a cell such as 2,5 beside it, 6,125 was 6125, a thousand times as large as all of training."""
    small = column_reader("c", column([f"0{mark}5", f"8{mark}75", "3"]))
    cells = column([f"6{other}125", f"7{other}250{mark}5", f"9{other}125", "41250", f"-6{other}125"])
    assert small.cells(cells).unreadable.tolist() == [True, False, False, False, False]
    assert small.cells(cells).values.tolist()[1:] == [7250.5, 9125, 41250, -6125]
    large = column_reader("c", column([f"0{mark}5", f"975{mark}75", "300"]))
    assert large.cells(column([f"1{other}375", f"1{other}950"])).values.tolist() == [1375, 1950]


@pytest.mark.parametrize(("mark", "other"), [(".", ","), (",", ".")])
@pytest.mark.parametrize("low", [0, 1500, 120_000])
def test_where_training_is_whole_a_new_number_with_thousands_in_the_other_mark_is_named(
    mark: str, other: str, low: int
) -> None:
    """1.875 was read as 1.875 where training has whole numbers up to 9000 alone, although 1875 is one of these."""
    sizes = low + 137 * np.arange(24)
    cells = [f"{n:,}".replace(",", other) if mark == "," else str(n) for n in sizes.tolist()]
    kind = {"size": f"number {'1.234,5' if mark == ',' else '1,234.5'}"}
    frame = pd.DataFrame({"size": cells, "y": np.arange(24.0) ** 2})
    reader = reader_from(gpx.load(frame, target="y", kinds=kind, split="all").train.reader.to_json())
    inside, beyond = f"{low + 1875:,}".replace(",", mark), f"912{mark}345"

    def read(*new: str) -> Any:
        return reader.read(table_of(pd.DataFrame({"size": list(new)})))

    both = read(inside, beyond, str(low + 1875))
    assert both.answered.tolist() == [False, True, True]
    assert both.X[1:, 0].tolist() == [912.345, low + 1875]
    assert both.why[0] == f'unreadable: size "{inside}"'
    assert f"such as {inside} that may be meant with another decimal mark" in both.notes[0]
    sure = read(inside, f"2{mark}5")  # a cell of one meaning
    is_near = low < 1e5  # 121.875 is far from all of training as well
    assert (sure.answered.tolist(), not sure.notes) == ([is_near, True], is_near)
    assert sure.X[sure.answered, 0].tolist() == [(low + 1875) / 1000, 2.5][-1 - is_near :]
    typed = reader.read(pa.table({"size": [1.875, (low + 1875) / 1000]}))
    assert typed.answered.all()


def test_numbers_of_rows_with_words_are_those_of_python(tmp_path: Path) -> None:
    """Where training had decimal commas, 4.125 beside a word was made a text, and read as 4125."""
    path, sizes = tmp_path / "kiln.csv", np.arange(24) * 173.125
    path.write_text(
        "glaze;heat;y\n"
        + "".join(f"{'ash' if k % 3 else 'tin'};{x:.3f};{k}\n".replace(".", ",") for k, x in enumerate(sizes))
    )
    train = gpx.load(path, split="all").train
    want = [[1.0, 4.125], [0.0, 2.25]]

    def read(X: Any) -> Any:
        rows = table_rows(X, train)
        return None if rows is None else rows.X.tolist()

    rows = [["tin", 4.125], ["ash", 2.25]]
    for same in (
        rows,
        [tuple(row) for row in rows],
        np.array(rows, object),
        pd.DataFrame(rows, columns=["glaze", "heat"]),
    ):
        assert read(same) == want
    assert read(rows[:1]) == want[:1]
    mixed = pd.DataFrame({"glaze": ["tin", "ash", "tin"], "heat": [4.125, "2,25", Decimal("1.125")]})
    assert read(mixed) == [*want, [1.0, 1.125]]
    assert read(np.array([["tin", "4,125"], ["ash", "2,25"]])) == want  # texts of a file
    assert read(np.array([["tin", "4125"], ["ash", "1.234,5"]])) == [[1.0, 4125.0], [0.0, 1234.5]]
    assert read(np.array([["tin", 4.125], ["ash", 2.25], ["ash", 0.5]])) == [*want, [0.0, 0.5]]  # texts of NumPy
    with pytest.raises(DataError, match=r'array of texts has "4\.125" in column "heat".*a list of rows'):
        read(np.array([["tin", 4.125], ["ash", 3.125]]))


def test_numbers_among_texts_of_training_have_the_mark_of_the_texts() -> None:
    heat = ["12,5", 4.125, "7,25", 2.5, None, 1125] * 4
    train = gpx.load(pd.DataFrame({"heat": heat, "y": np.arange(24.0) ** 2}), target="y", split="all").train
    assert train.X[:6, 0].tolist() == [12.5, 4.125, 7.25, 2.5, 7.25, 1125.0]


def test_durations_of_a_frame_are_those_of_its_file() -> None:
    lasted = pd.Series(pd.to_timedelta([40.5, 3.0, 0.25], unit="h"))
    typed = pa.chunked_array([pa.array(lasted.to_numpy().astype("timedelta64[us]"))])
    texts = column([str(cell) for cell in lasted])
    for reader in (column_reader("c", typed), column_reader("c", texts)):
        for cells in (typed, texts):
            np.testing.assert_allclose(reader.cells(cells).values, [40.5 / 24, 0.125, 0.25 / 24], rtol=1e-12)
    assert column_reader("c", column(["1:30:00", "2:00:00"])).kind == "time of day"
    assert column_reader("c", column(["5.5", "4.5"])).cells(column(["27:30:00"])).unreadable.all()


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["31:20", "9:45", "128:30"], [31 + 1 / 3, 9.75, 128.5]),  # minutes, or hours
        (["-0:15", "9:30", "-12:45"], [-0.25, 9.5, -12.75]),  # no time of a day is negative
        (["-0:15:00", "10:00:00"], [-0.25 / 24, 10 / 24]),
        (["-1 days +23:00:00", "2 days 12:00:00"], [-1 / 24, 2.5]),  # as pandas writes them
        (["-0:30", "-1:02:15"], [-0.5, -62.25]),
        (["31:20.5", "28:59.75"], [31 + 20.5 / 60, 28 + 59.75 / 60]),
        (["59:30", "1:02:15"], [59.5, 62.25]),  # hours in one cell: the others are minutes and seconds
        (["27:30:00", "1 day, 2:00:00"], [27.5 / 24, 26 / 24]),
    ],
)
def test_times_beyond_a_day_are_durations(cells: list[str], values: list[float]) -> None:
    reader = column_reader("pace", column([*cells, ""]))
    read = reader.cells(column([*cells, ""]))
    assert reader.kind == "number"
    np.testing.assert_allclose(read.values[:-1], values, rtol=1e-12)
    assert read.gap.tolist() == [*[False] * len(cells), True]
    assert reader.cells(column(["5:30", "x", "7:75"])).unreadable.tolist() == [
        cells[0].count(":") == 2, True, True
    ]  # fmt: skip


@pytest.mark.parametrize("cells", [["12:20", "9:45"], ["24:00", "0:10"], ["31:20", "late"], ["31:20", "31:75"]])
def test_times_of_a_day_and_other_texts_are_no_durations(cells: list[str]) -> None:
    assert column_reader("when", column(cells)).kind != "number"


def test_a_note_says_how_durations_of_two_parts_were_read() -> None:
    rows = "".join(f"{20 + k // 2}:{7 * k % 60:02d},{k}\n" for k in range(40))
    numbers = pick(read_bytes("runs.csv", f"pace,y\n{rows}".encode(), LOCAL), Choice())
    assert numbers.names == ("pace",)
    assert "durations; 20:00 was read as 20, in minutes or hours" in " ".join(numbers.notes)


@pytest.mark.parametrize(
    ("name", "kinds", "cells", "values", "says"),
    [
        ("gap", {}, ["0:50", "3:15", "11:06"], "clock", "such as 0:50 were read as times of day, none of which is in"),
        ("gap", {}, ["00:50:30", "03:15:06"], "clock", 'kinds={"gap": "number"} reads them as durations.'),
        ("gap", {}, ["0:50", "13:15"], "clock", ""),
        ("gap", {}, ["8:50 AM", "11:15 AM"], "clock", ""),
        ("gap", {"gap": "number"}, ["0:51", "3:15", "11:06"], [0.85, 3.25, 11.1], "0:51 was read as 0.85"),
        ("Trip duration", {}, ["0:51", "3:15", "13:06"], [0.85, 3.25, 13.1], "0:51 was read as 0.85"),
        ("Reisedauer", {}, ["00:36:00", "12:00:00"], [0.025, 0.5], ""),
    ],
)
def test_times_that_may_be_durations_are_mentioned_or_read_so(
    name: str, kinds: dict[str, str], cells: list[str], values: Any, says: str
) -> None:
    frame = pd.DataFrame({name: cells * 8, "y": np.arange(8 * len(cells)) % 7})
    train = (split := gpx.load(frame, target="y", kinds=kinds, split="all")).train
    assert says in "".join(split.notes) if says else not split.notes
    if values == "clock":
        assert train.names == (f"{name}: clock sin", f"{name}: clock cos")
        return
    np.testing.assert_allclose(train.X[: len(cells), 0], values, rtol=1e-12)
    again = gpx.load(frame, target="y", kinds=train.reader.decisions, split="all").train
    assert again.X.tolist() == train.X.tolist()
    read = reader_from(train.reader.to_json()).read(table_of(pd.DataFrame({name: [cells[0], "nonsense"]})))
    assert (read.X[0, 0], read.answered.tolist()) == (pytest.approx(values[0]), [True, False])
