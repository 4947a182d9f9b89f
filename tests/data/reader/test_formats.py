"""A file written in any format says what its plain twin says: in training, in new rows, and crossed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpexplorer as gpx
from gpexplorer.data.files.choice import Choice
from gpexplorer.data.files.columns import pick
from gpexplorer.data.files.reading import read_bytes
from gpexplorer.data.files.size_limits import LOCAL
from gpexplorer.data.in_memory import table_of
from gpexplorer.data.loading import as_split
from gpexplorer.data.reader.column_cells import ColumnReader
from gpexplorer.data.reader.column_reader import column_reader
from gpexplorer.data.reader.date_format import DateFormat

DAYS = [
    dt.datetime(2019, 12, 28) + dt.timedelta(days=17 * i, hours=(5 * i) % 24, minutes=(13 * i) % 60) for i in range(40)
]
EPOCH = dt.datetime(1970, 1, 1)
DATES = {  # each format, and what it keeps of a moment
    "%Y-%m-%d": "day", "%Y/%m/%d": "day", "%d.%m.%Y": "day", "%d/%m/%Y": "day", "%m/%d/%Y": "day", "%d-%m-%y": "day",
    "%m/%d/%y": "day", "%d %b %Y": "day", "%b %d, %Y": "day", "%B %d, %Y": "day", "%d-%b-%Y": "day", "%Y%m%d": "day",
    "%d %B %Y": "day", "%a, %d %b %Y": "day", "%Y-%m-%dT%H:%M:%S": "minute", "%Y-%m-%d %H:%M": "minute",
    "%Y-%m-%dT%H:%M:%SZ": "minute", "%Y-%m-%dT%H:%M:%S+00:00": "minute", "%Y-%m-%d %H:%M:%S.000": "minute",
    "%d.%m.%Y %H:%M": "minute", "%m/%d/%Y %I:%M %p": "minute", "%d/%m/%Y %I:%M:%S %p": "minute", "%Y-%j": "day",
    "%G-W%V-%u": "day", "%Y:%m:%d %H:%M:%S": "minute", "%Y%m%d%H%M": "minute", "%Y. %m. %d.": "day",
    "%d/%b/%Y:%H:%M": "minute",
    "%a %b %d %H:%M:%S %Y": "minute", "%d.%m.%Y, %H:%M Uhr": "minute", "%d/%m/%Y %Hh%M": "minute",
    "%Y\u5e74%m\u6708%d\u65e5": "day",
    "%dth of %B %Y": "day", "%d de %B de %Y": "day",
}  # fmt: skip
NUMBERS = [
    "{:.2f}", "{:,.2f}", "${:,.2f}", "{:.2f} kg", "{:.2f}%", "\u20ac {:.2f}", "{:.2f} EUR", "+{:.2f}", "{:.4e}",
    "CHF {:.2f}", "{:.2f} kr", "\u00a3{:,.2f}", " {:.2f} ", "{:.2f} \u00b0C", "{:.2f} km/h", "comma", "points",
    "spaces", "quotes", "kr commas",
]  # fmt: skip
WORDS = ["red", "Dark blue", "green"]


def number(value: float, form: str) -> str:
    """A number as people write it."""
    text = f"{value:,.2f}"
    swaps = {
        "comma": ("", ","),
        "points": (".", ","),
        "spaces": ("\u00a0", ","),
        "quotes": ("'", "."),
        "kr commas": (".", ","),
    }
    if form not in swaps:
        return form.format(value)
    thousands, decimal = swaps[form]
    text = text.replace(",", "\0").replace(".", decimal).replace("\0", thousands)
    return f"kr {text}" if form == "kr commas" else text


def column(cells: list[Any]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(cells)])


def truth(day: dt.datetime, form: str) -> float:
    seconds = (day - EPOCH).total_seconds()
    return float(seconds // 86400) if DATES[form] == "day" else seconds / 86400


@pytest.mark.parametrize("form", DATES)
def test_dates_of_every_format_are_read_and_kept_for_new_rows(form: str) -> None:
    reader = column_reader("when", column([day.strftime(form) for day in DAYS]))
    assert (reader.kind, reader.dates.certain, reader.examples) == ("date", True, ())
    assert isinstance(reader.dates.certain, bool)  # it is written into the file of a model
    early = [dt.datetime(2021, 5, 6), dt.datetime(2021, 2, 3)]  # alone, these could be read in more than one order
    cells = reader.cells(column([day.strftime(form) for day in early]))
    np.testing.assert_allclose(cells.values, [truth(day, form) for day in early], atol=1e-9)
    plain = reader.cells(column([day.strftime("%Y-%m-%d") for day in early]))  # a year of four digits first is certain
    np.testing.assert_allclose(plain.values, [truth(day, "%Y-%m-%d") for day in early])
    typed = reader.cells(pa.chunked_array([pa.array(early, pa.timestamp("ms"))]))
    np.testing.assert_allclose(typed.values, plain.values)


@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_of_every_format_are_read_and_kept_for_new_rows(form: str) -> None:
    values = np.random.default_rng(0).uniform(0.2, 5000.0, 30).round(2)
    reader = column_reader("c", column([number(v, form) for v in values]))
    assert reader.kind == "number"
    want = [float(form.format(v)) if "e" in form and "{" in form else v for v in values]
    np.testing.assert_allclose(reader.cells(column([number(v, form) for v in values])).values, want, rtol=1e-3)
    new = np.array([1234.5, 2.25])
    np.testing.assert_allclose(reader.cells(column([number(v, form) for v in new])).values, new, rtol=1e-3)
    np.testing.assert_array_equal(reader.cells(column(new.tolist())).values, new)


def test_marks_that_could_be_both_follow_the_other_columns() -> None:
    table = {"a": ["1.250", "2.500", "3.750", "4.125"], "b": ["1,5", "2,75", "3,1", "4,2"], "y": ["1", "3", "2", "5"]}
    split = gpx.load(pd.DataFrame(table), target="y", split="all")
    np.testing.assert_array_equal(split.train.X.numpy(), [[1250, 1.5], [2500, 2.75], [3750, 3.1], [4125, 4.2]])
    assert column_reader("a", column(table["a"])).cells(column(table["a"])).values[0] == 1.25
    prices = {"x": ["1", "2", "4", "7"], "y": ["8,907 \u20ac", "12,193 \u20ac", "9,000 \u20ac", "7,100 \u20ac"]}
    [note] = gpx.load(pd.DataFrame(prices), split="all").notes
    assert 'read as marks of thousands.\nkinds={"y": "number 1.234,5"}' in note
    other = gpx.load(pd.DataFrame(prices), split="all", kinds={"y": "number 1.234,5"})
    assert other.train.y.tolist() == [8.907, 12.193, 9.0, 7.1]


@pytest.mark.parametrize("unit", ["", " \u20ac"])
def test_points_separate_thousands_where_numbers_without_them_are_smaller(unit: str) -> None:
    written = {"1.234": 1234.0, "567": 567.0, "2.890": 2890.0, "45": 45.0, "10.500": 10500.0, "1.250.000": 1.25e6}
    for missing, values in ((set(), list(written.values())), ({"1.250.000"}, [1234.0, 567.0, 2890.0, 45.0, 10500.0])):
        x = [text + unit for text in written if text not in missing]
        frame = pd.DataFrame({"x": x, "y": np.arange(len(x)) ** 2.0})
        split = gpx.load(frame, split="all")
        assert split.train.X[:, 0].tolist() == values
        new = split.train.reader.read(pa.table({"x": [f"3.000{unit}", f"300{unit}"]}))
        assert new.X[:, 0].tolist() == [3000.0, 300.0]
    assert "its points were read as marks of thousands" in " ".join(split.notes)
    other = gpx.load(frame, split="all", kinds={"x": "number 1,234.5"})
    assert other.train.X[:, 0].tolist() == [1.234, 567.0, 2.89, 45.0, 10.5]
    # a point elsewhere, a number without three digits, or one of four: the points are decimal marks
    for beside, change in ((["1.5", "2.5"] * 2 + ["3.5"], {}), (None, {"567": "5"}), (None, {"45": "4500"})):
        cells = [change.get(text, text) + unit for text in written if text != "1.250.000"]
        columns = {"x": cells} | ({} if beside is None else {"b": beside}) | {"y": frame["y"]}
        assert gpx.load(pd.DataFrame(columns), split="all", inputs=["x"]).train.X[0, 0] == 1.234


def test_codes_that_begin_like_durations_are_words() -> None:
    for cells in (["P1", "P2", "P3"], ["P3M", "P6M", "P3M"], ["3d", "5x", "7s"]):
        assert column_reader("c", column(cells)).kind == "words"


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["(12)", "13", "-2"], [-12, 13, -2]),
        (["12%", "30 %", "5"], [12, 30, 5]),
        (["\u22123,5", "2,0"], [-3.5, 2]),
        (["5-", "3"], [-5, 3]),
        (["1,2E3", "3,0"], [1200, 3]),
        (["\ufeff7", " 8\u00a0"], [7, 8]),
        (["12,34,567", "8"], [1234567, 8]),
        (["1'234'567", "8"], [1234567, 8]),
        (["1.090,-", "999,-"], [1090, 999]),
        (["CHF 12.-", "CHF 1'250.--"], [12, 1250]),
        (["$(1,090.60)", "$ 12"], [-1090.6, 12]),
        (["1.5k", "12k", "300"], [1500, 12000, 300]),
        (["1.5K", "2M", "300"], [1500, 2e6, 300]),
        (["$1.5M", "$2M"], [1.5e6, 2e6]),
        (["1,5 Mio \u20ac", "2 Mrd. \u20ac", "300 Tsd \u20ac"], [1.5e6, 2e9, 3e5]),
        (["300 K", "295 K"], [300, 295]),  # kelvin
        (["12 m", "3 M"], [12, 3]),
        (["12", "14B", "13", "15"], [12, 14, 13, 15]),
        (["5 Bft", "3 Bft"], [5, 3]),
        (["5.2*", "3", "4 \u2020"], [5.2, 3, 4]),
        (["<0.5", "1.2", "3", "7"], [0.5, 1.2, 3, 7]),
        (["79_124.28", "1.5D-2", "\u20130.5"], [79124.28, 0.015, -0.5]),
        (["\u0667\u0669\u066b\u0665", "\uff11\uff12"], [79.5, 12]),
        (['="79.5"', "'007", "3"], [79.5, 7, 3]),
        (["27:30:00", "0:45:00"], [27.5 / 24, 0.75 / 24]),
        (["1 day, 6:00:00", "-1 days +12:00:00"], [1.25, -0.5]),
        (["3h 30m", "100 h 0 min", "90 min", "2d", "1:30:00"], [3.5 / 24, 100 / 24, 1.5 / 24, 2, 1.5 / 24]),
        (["2 hours 6 minutes", "1 hour", "-30 seconds"], [7560 / 86400, 1 / 24, -30 / 86400]),
        (["P1DT12H", "PT30M", "P2D"], [1.5, 0.5 / 24, 2]),
        (["10:30.5", "2:15.25"], [10 + 30.5 / 60, 2 + 15.25 / 60]),
        (["3 weeks, 2 days", "1 week"], [23, 7]),
        (["2 hrs", "1 hr", "45 mins"], [2 / 24, 1 / 24, 0.75 / 24]),
        (["6 months", "1 year", "2 weeks"], [182.625, 365.25, 14]),
        (["12 h", "3 h"], [12, 3]),
        (["4 rooms", "1 room", "2 Rooms"], [4, 1, 2]),
        (["1 class", "3 classes"], [1, 3]),
        (["RM 1,250.50", "RM 7"], [1250.5, 7]),
        (["Rp 2.500.000", "Rp 750"], [2.5e6, 750]),
        (["\u20b11,250.50", "\u20b17"], [1250.5, 7]),
        (["S/. 1,250.50", "S/ 7"], [1250.5, 7]),
        (["$1,250.50/mo", "$7/mo"], [1250.5, 7]),
        (["Rs. 1,250.5/-", "Rs. 7/-"], [1250.5, 7]),
        (["349:-", "1249:-"], [349, 1249]),
        (["2.5\u00d710^4", "7 x 10^-1"], [25000, 0.7]),
        (["42 [3]", "7[12]"], [42, 7]),
        (["7,125e+02", "2,5e1"], [712.5, 25]),
        (["5 m", "30 m"], [5, 30]),
    ],
)
def test_signs_and_groups(cells: list[str], values: list[float]) -> None:
    reader = column_reader("c", column(cells))
    np.testing.assert_array_equal(reader.cells(column(cells)).values, values)


def test_two_prices_per_time_and_thousands_of_a_mantissa_are_no_one_format() -> None:
    for cells in (["$12/mo", "$30/yr"], ["1,250.5", "3,000e2"]):
        assert column_reader("c", pa.chunked_array([cells])).examples == ((1, cells[1]),)


def test_a_singular_is_read_where_training_has_plurals_alone() -> None:
    reader = column_reader("age", pa.chunked_array([["4 months", "7 months"]]))
    assert reader.cells(pa.chunked_array([["1 month", "1 Monat"]])).unreadable.tolist() == [False, True]


@pytest.mark.parametrize("cells", [["0", "1", "FALSE", "TRUE"], ["1", "no", "0", "yes"], ["0", "1", "true"]])
def test_bits_beside_words_for_them_are_the_same_values(cells: list[str]) -> None:
    column = pa.chunked_array([cells])
    values = column_reader("flag", column).cells(column).values
    assert values.tolist() == [float(cell.lower() in ("1", "true", "yes")) for cell in cells]


def test_a_scale_is_kept_for_new_rows_and_a_letter_alone_stays_a_unit() -> None:
    followers = column_reader("c", column(["1.5k", "12k", "300"]))
    assert followers.cells(column(["1500", "1.5K", "2M"])).values.tolist() == [1500, 1500, 2e6]
    kelvin = column_reader("c", column(["300 K", "295 K"]))
    assert kelvin.cells(column(["300", "300K"])).values.tolist() == [300, 300]
    assert kelvin.cells(column(["2M"])).unreadable.all()


def test_texts_without_digits_among_numbers_are_gaps_where_they_are_repeated() -> None:
    cells = ["1", "unknown", "2", "3", "unknown", "4", "\u00d7"]
    reader = column_reader("c", column(cells))
    assert (reader.kind, reader.examples, set(reader.gap_words)) == ("number", (), {"unknown", "\u00d7"})
    assert reader.cells(column(["unknown", "5", "nothing"])).gap.tolist() == [True, False, False]
    assert reader.cells(column(["unknown", "5", "nothing"])).unreadable.tolist() == [False, False, True]
    assert column_reader("c", column(["1", "2", "once"])).examples == ((2, "once"),)
    ages = column_reader("c", column(["<25", "25-34", ">65", "<25", ">65"]))  # most are no numbers: words
    assert ages.kind == "words"
    days = [f"2021-03-{k + 1:02d}" for k in range(20)]
    assert {column_reader("c", column([*days, "open", end])).gap_words for end in ("open", "open ")} == {("open",)}
    split = gpx.load(pd.DataFrame({"c": cells, "y": [f"<{k}" if k == 5 else str(k) for k in range(7)]}), split="all")
    assert 'cells that say "unknown", "\u00d7" were read as gaps' in "".join(split.notes)
    assert "of cells such as <0.5" in "".join(split.notes)
    assert len(split.train) == 7


def test_numbers_of_different_units_are_no_numbers_and_a_new_unit_is_unreadable() -> None:
    assert (
        column_reader("c", column(["12 kg", "500 g", "3 kg"])).kind != "number"
        or column_reader("c", column(["12 kg", "500 g", "3 kg"])).examples
    )
    reader = column_reader("c", column(["12 kg", "3 kg"]))
    assert reader.cells(column(["5 g", "5", "5 KG"])).unreadable.tolist() == [True, False, False]


@pytest.mark.parametrize("gap", ["", "NA", "n/a", "NaN", "null", "None", "-", "?", "#N/A", "<NA>", " ", "."])
def test_gaps_of_every_spelling(gap: str) -> None:
    for cells in (["1.5", gap, "2"], ["2021-01-01", gap, "2021-02-01"], ["red", gap, "red"]):
        reader = column_reader("c", column(cells))
        assert reader.cells(column(cells)).gap.tolist() == [False, True, False]
        assert reader.examples == ()


@pytest.mark.parametrize(
    "pair",
    ["true false", "yes no", "Y N", "ja nein", "Oui Non", "TRUE FALSE", "T F", "on off", "WAHR FALSCH", "vrai faux"],
)
def test_yes_and_no_are_read_in_every_spelling(pair: str) -> None:
    yes, no = pair.split()
    reader = column_reader("c", column([yes, no, yes]))
    assert reader.kind == "yes/no"
    for cells in ([yes, no, yes], ["1", "0", "yes"], [True, False, True], [1, 0, 1]):
        np.testing.assert_array_equal(reader.cells(column(cells)).values, [1, 0, 1])


def test_words_are_matched_in_every_spelling() -> None:
    reader = column_reader("c", column(["red", "Dark blue", "red", "green"]))
    new = column([" Red", "dark  BLUE ", "green", "violet", ""])
    cells = reader.cells(new)
    assert [reader.levels.names[int(v)] for v in cells.values[:3]] == ["red", "Dark blue", "green"]
    assert cells.unseen.tolist() == [False, False, False, True, False]
    codes = column_reader("c", column(["1", "2", "3", "1"]), "words")
    assert codes.cells(column(["1.0", "3", "02"])).values.tolist() == [0, 2, 1]
    assert codes.cells(column([1.0, 3.0, float("nan")])).values[:2].tolist() == [0, 2]
    alleles = column_reader("c", column(["A", "a", "A", "B"]))  # two words of one letter, which differ
    assert len(alleles.levels.names) == 3
    assert alleles.cells(column(["a", "A", "b"])).values.tolist() == [2, 0, 1]


FRAMES: dict[str, Any] = {
    "Int64": lambda v: pd.array(v, "Int64"), "object": lambda v: pd.array(v, object), "category": pd.Categorical,
    "Decimal": lambda v: [Decimal(int(x)) for x in v], "float": lambda v: v.astype(float),
    "text": lambda v: v.astype(str),
    "unused": lambda v: pd.Categorical(v, categories=range(9)), "string": lambda v: pd.array(v.astype(str), "string"),
    "pyarrow": lambda v: pd.array(v, "int32[pyarrow]"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FRAMES)
def test_numbers_in_every_type_of_a_frame(kind: str) -> None:
    values = np.array([3, 1, 2, 5, 8, 1])
    table = table_of(pd.DataFrame({"c": FRAMES[kind](values)}))
    reader = column_reader("c", table["c"])
    assert reader.kind == "number"
    np.testing.assert_array_equal(reader.cells(table["c"]).values, values)


@pytest.mark.parametrize("kind", ["ns", "s", "tz", "date", "object", "arrow", "numpy"])
def test_dates_in_every_type_of_a_frame(kind: str) -> None:
    days = pd.date_range("2021-03-27", periods=6, freq="12h")
    columns: dict[str, Any] = {
        "ns": days.as_unit("ns"), "s": days.as_unit("s"), "tz": days.tz_localize("Europe/Berlin"),
        "date": [day.date() for day in days], "object": pd.array(list(days), object),
        "arrow": pd.array(list(days), "timestamp[us][pyarrow]"), "numpy": days.to_numpy(),
    }  # fmt: skip
    table = table_of(pd.DataFrame({"c": columns[kind]}))
    reader = column_reader("c", table["c"])
    want = (days - pd.Timestamp(0)) / pd.Timedelta(days=1)
    assert reader.kind == "date"
    np.testing.assert_allclose(reader.cells(table["c"]).values, np.floor(want) if kind == "date" else want)


def test_a_nullable_boolean_with_a_gap_is_yes_or_no() -> None:
    table = table_of(pd.DataFrame({"c": pd.array([True, False, None], "boolean")}))
    cells = column_reader("c", table["c"]).cells(table["c"])
    np.testing.assert_array_equal(cells.values, [1, 0, np.nan])


FORMS = st.tuples(
    st.sampled_from(sorted(DATES)), st.sampled_from(NUMBERS), st.sampled_from(["plain", "upper", "blank"])
)


@settings(max_examples=40, deadline=None)
@given(FORMS, st.integers(0, 10**6), st.sampled_from([",", ";", "\t"]))
def test_a_file_in_any_format_is_its_plain_twin(forms: tuple[str, str, str], seed: int, mark: str) -> None:
    when, price, spelling = forms
    rng = np.random.default_rng(seed)
    days = [dt.datetime(2015, 1, 1) + dt.timedelta(minutes=int(m)) for m in np.sort(rng.integers(0, 2_000_000, 30))]
    values, words = rng.uniform(0.5, 9000.0, 30).round(2), rng.choice(WORDS, 30)
    y = rng.normal(size=30).round(3)
    spell = {"plain": str, "upper": str.upper, "blank": lambda w: f" {w}  "}[spelling]
    strange = pd.DataFrame({
        "when": [day.strftime(when) for day in days], "price": [number(v, price) for v in values],
        "word": [spell(w) if i % 3 else w for i, w in enumerate(words)], "y": y,
    })  # fmt: skip
    plain = pd.DataFrame({"when": [truth(day, when) for day in days], "price": values, "word": words, "y": y})
    raw = read_bytes("t.csv", strange.to_csv(index=False, sep=mark).encode(), LOCAL)
    read = [as_split(pick(raw, Choice()), "all"), gpx.load(plain, split="all")]
    first, second = (
        split.train.reader.read(table_of(frame)) for split, frame in zip(read, (strange, plain), strict=True)
    )
    names = [tuple(name.casefold() for name in split.train.names) for split in read]
    assert {n for n in names[0] if ":" not in n} == {n for n in names[1] if ":" not in n}
    for name in ("when", "price", *(n for n in names[1] if n.startswith("word"))):
        np.testing.assert_allclose(
            first.X[:, names[0].index(name)], second.X[:, names[1].index(name)], rtol=1e-4, atol=1e-9, err_msg=name
        )
    assert first.answered.all()


def test_a_reader_of_one_column_says_what_it_is() -> None:
    assert ColumnReader("c", "date").decision == "date"
    assert ColumnReader("c", "date", dates=DateFormat("mdy")).decision == "date mdy"
