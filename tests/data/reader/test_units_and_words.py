"""What stands behind a number: a unit, a sign, or a part of a word; and which words are one word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gpexplorer as gpx
from gpexplorer.data.reader.column_reader import column_reader
from gpexplorer.data.reader.doubts import doubts
from gpexplorer.data.reader.words import word_key
from gpexplorer.errors import DataError


def column(cells: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(cells)])


def notes_of(cells: list[str], **options: Any) -> str:
    frame = pd.DataFrame({"c": cells, "y": np.arange(len(cells)) ** 2 % 7})
    return " ".join(gpx.load(frame, target="y", **options).notes)


@pytest.mark.parametrize(
    "cells",
    [
        ["4-inch", "9-inch"], ["7-Feb", "19-Feb", "28-Feb"], ["2-pack", "6-pack"], ["6\u2013Oct", "7\u2013Oct"],
        ["1\u00bd", "4\u00bd", "6\u00bc"], ["3\u00bd rooms", "4\u00bd rooms"], ["7\u00b2", "8\u00b3"],
    ],
)  # fmt: skip
def test_what_stands_behind_a_number_without_a_blank_may_be_no_unit(cells: list[str]) -> None:
    """They were -4, -9 with the unit inch, and 1, 4 with a half as the unit."""
    reader = column_reader("c", column(cells * 4))
    assert (reader.kind, reader.levels.names) == ("words", tuple(sorted(cells)))


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["4,50-", "9,25"], [-4.5, 9.25]),
        (["4,50-\u20ac", "9,25\u20ac"], [-4.5, 9.25]),
        (["4,50- EUR", "9,25 EUR"], [-4.5, 9.25]),
        (["4,-Fr.", "9,25 Fr."], [4, 9.25]),
        (["4-%", "9%"], [-4, 9]),
        (["4 m\u00b2", "9 m\u00b2"], [4, 9]),
        (["4 inch", "9 INCH"], [4, 9]),
    ],
)
def test_a_minus_behind_a_number_and_units_are_read(cells: list[str], values: list[float]) -> None:
    assert column_reader("c", column(cells)).cells(column(cells)).values.tolist() == values


@pytest.mark.parametrize(
    ("first", "other", "is_same"),
    [
        ("mV", "MV", False),
        ("mHz", "MHz", False),
        ("mg", "Mg", False),
        ("mL", "ML", False),
        ("mm", "MM", True),
        ("min", "Min.", True),
        ("kg", "KG", True),
        ("km", "KM", True),
        ("lb", "lbs", True),
        ("mA", "mAs", False),
        ("m", "ms", False),
        ("Pa", "pA", False),
        ("PA", "Pa", True),
        ("nm", "nM", False),
        ("mS", "ms", False),
        ("Nm", "nm", False),
        ("MM", "mm", True),
    ],
)
def test_units_that_differ_by_a_factor_are_not_one_unit(first: str, other: str, is_same: bool) -> None:
    cells = [f"3 {first}", f"8 {first}", f"5 {other}"]
    reader = column_reader("c", column(cells))
    assert [text for _, text in reader.examples] == ([] if is_same else [cells[2]])
    trained = column_reader("c", column(cells[:2]))
    assert trained.cells(column([cells[2]])).unreadable[0] == (not is_same)


def test_of_two_units_among_plain_numbers_one_is_refused() -> None:
    """12 kg beside 7 g and numbers without a unit were all numbers, without a word."""
    frame = pd.DataFrame({"c": ["12 kg", "3", "7 g", "5", "4", "11 kg"] * 3, "y": np.arange(18) % 5})
    with pytest.raises(DataError, match='column "c" has text in row 3: "7 g"'):
        gpx.load(frame, target="y")
    notes = notes_of(["12%", "3", "unknown", "5", "4", "unknown"] * 3)
    assert '"c": 3 of 12 numbers have the sign %; the others were read as if they had it.' in notes


@pytest.mark.parametrize("sizes", [[2], [2, 3, 7]])
def test_a_column_in_two_units_is_refused_with_both(sizes: list[int]) -> None:
    cells = [f"{size}{unit}" for size in sizes for unit in (" km", "00 m")] * 6
    with pytest.raises(DataError, match=r'has text in row 2: "200 m".* others have the unit km: write all of them in'):
        notes_of(cells)


@pytest.mark.parametrize(
    ("cells", "text", "says"),
    [
        (["48.2N", "7.5N", "33.9S"], "33.9S", "N and S stand for signs: write plain numbers, with a minus for S."),
        (["48.2 W", "7.5 W", "33.9 E"], "33.9 E", "W and E stand for signs: write plain numbers, with a minus for W."),
        (["48.2\u00b0N", "7.5\u00b0N", "33.9\u00b0S"], "33.9\u00b0S", "with a minus for \u00b0S."),
        (["40 Cr", "75 Cr", "12 Dr"], "12 Dr", "Cr and Dr stand for signs: write plain numbers, with a minus for Dr."),
        (["1.25", "0.75", "2,5"], "2,5", "others have a point before the decimals, and it has a comma: write all of"),
        (["1,25", "0,75", "2.5"], "2.5", "others have a comma before the decimals, and it has a point: write all of"),
    ],
)
def test_a_cell_in_another_way_of_writing_is_refused_with_its_way_out(cells: list[str], text: str, says: str) -> None:
    """Signs were units, of which all had to be one; a decimal mark of two was a text."""
    with pytest.raises(DataError) as error:
        notes_of(cells * 5)
    assert f'has text in row 3: "{text}" (and 4 more cells like it), where a number is needed: ' in str(error.value)
    assert says in str(error.value)


def test_a_number_with_a_letter_and_a_digit_is_a_code() -> None:
    """Of 4A1, 4A2, 9A1 and 9A2, two were numbers with the unit A2, and the others were refused."""
    for cells in (["4A1", "4A2", "9A1", "9A2"], ["3K3", "5K3", "3K1", "7K1"]):
        assert column_reader("c", column(cells * 5)).kind == "words"
    for cells in (["4m2", "9m2"], ["4 s2", "9 s2"], ["4 kg/m3", "9 kg/m3"], ["4CO2", "9CO2"]):
        assert column_reader("c", column(cells * 5)).kind == "number"


@pytest.mark.parametrize(("new", "value"), [("5 trillion", 5e12), ("5 tn", 5e12), ("5T", None), ("5 bn", 5e9)])
def test_a_new_number_in_trillions_is_read_or_named(new: str, value: float | None) -> None:
    """It was 5, with a remark on its unit."""
    cells = column_reader("c", column([f"{k}500000000000" for k in range(1, 9)])).cells(column([new]))
    assert cells.unreadable.tolist() == [value is None]
    assert value is None or cells.values.tolist() == [value]


@pytest.mark.parametrize(
    ("cells", "example"),
    [
        (["R 2,500", "R 900", "R 1,750"], "R 1,750"),
        (["3 out of 10", "0 out of 10", "9 out of 10"], "0 out of 10"),
        (["7 of 12", "1 of 12"], "1 of 12"),
        (["25+", "30+", "45+"], "25+"),
        (["\u20ac7 CR", "\u20ac9 CR"], "\u20ac7 CR"),
        (["3 km", "700 m", "5 mi"], "3 km"),
        (["Room 1", "Room 2"], ""),
        (["10.0.0.1", "10.0.0.7"], ""),
        (["3 km", "near", "far", "further"], ""),
    ],
)
def test_amounts_that_are_words_are_mentioned(cells: list[str], example: str) -> None:
    notes = notes_of(cells * 6)
    assert (f'"c": cells such as "{example}" are words' in notes) == bool(example)


def test_words_with_other_units_stay_two_words() -> None:
    cells = ["20 mm", "20 cm", "20 mm", "S", "M", "large", "L"] * 4
    assert column_reader("c", column(cells)).levels.names == ("20 cm", "20 mm", "L", "M", "S", "large")
    assert len({word_key(text) for text in ("7 kg", "7 g", "7", "7-Jan", "7-Feb")}) == 5
    assert len({word_key(text) for text in ("7", "7.0", "+7", "07", "7e0")}) == 1


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (["04109", "80331", "20095"], '"c" has cells such as 04109, which were read as numbers, without the zero.'),
        (["0730", "1245", "0815"], 'kinds={"c": "words"} reads them as words.'),
        (["01", "12", "07"], ""),
        (["0.25", "0", "0.5"], ""),
        (["4109", "80331", "20095"], ""),
        (["2,125", "17.5", "0.25"], '"c": 2,125 was read as 2125, and all others have decimals: is 2.125 meant?'),
        (["2.125", "17,5", "0,25"], '"c": 2.125 was read as 2125, and all others have decimals: is 2,125 meant?'),
        (["2,125", "17.5", "250"], ""),
        (["2,125.5", "17.5", "0.25"], ""),
    ],
)
def test_numbers_that_may_be_meant_otherwise_are_mentioned(cells: list[str], says: str) -> None:
    notes = notes_of(cells * 6)
    assert says in notes if says else not notes
    assert "the zero" not in notes_of(cells * 6, kinds={"c": "number"})


@pytest.mark.parametrize(
    ("trained", "read", "with_unit", "unreadable"),
    [
        (["1.5k", "90k", "2k"], {"4k": 4000, "4 k": 4000, "4K": 4000, "4 K": 4000, "4M": 4e6, "40": 40}, [], ["4m"]),
        (["15", "90", "20"], {"4k": 4000, "40": 40}, ["4 M", "4 m", "4m", "$4", "4 USD", "4%"], ["4K", "4M", "4B"]),
        (["15M", "90M"], {"4M": 4, "4 M": 4}, ["40"], ["4K", "4 kg"]),
        (["5 m", "30 m"], {"4m": 4}, ["40", "4k"], ["4B", "4 km"]),
        (["70%", "15 %"], {"4%": 4}, ["0.4"], ["4 kg"]),
        (["70%", "15"], {"4%": 4, "0.4": 0.4}, [], []),
        (["\u20ac1.5m", "\u20ac90m"], {"\u20ac4m": 4e6, "\u20ac2bn": 2e9, "\u20ac3": 3}, ["4k", "400"], []),
        (["27:10:05", "31:00:00"], {"48:00:00": 2}, ["1.5"], []),
    ],
)
def test_a_letter_or_a_unit_that_training_lacks_is_never_dropped_without_a_word(
    trained: list[str], read: dict[str, float], with_unit: list[str], unreadable: list[str]
) -> None:
    """4K was 4 where training had 1.5k, and 0.4 was 0.4 % where it had 70%."""
    reader = column_reader("c", column(trained * 3))
    cells = reader.cells(column([*read, *with_unit, *unreadable]))
    assert cells.values[: len(read)].tolist() == list(read.values())
    assert cells.with_unit.tolist() == [False] * len(read) + [True] * len(with_unit) + [False] * len(unreadable)
    assert cells.unreadable.tolist() == [False] * (len(read) + len(with_unit)) + [True] * len(unreadable)


@pytest.mark.parametrize(
    ("cells", "values", "says"),
    [
        (["3.4B", "81.5M", "2B"], [3.4e9, 81.5e6, 2e9], ""),
        (["3.4 B", "81.5 M", "2 B"], [3.4e9, 81.5e6, 2e9], ""),
        (["3.4bn", "81.5m", "2bn"], [3.4e9, 81.5e6, 2e9], ""),
        (["3.4b", "81.5 m", "7k"], [3.4e9, 81.5e6, 7e3], ""),
        (["3.4 Mrd", "81.5M", "7"], [3.4e9, 81.5e6, 7], ""),
        (["81.5M", "81,500,000", "3,400,000"], [81.5e6, 81.5e6, 3.4e6], "4 of 12 numbers have the letter M, which was"),
        (["1.2K", "850", "3.4K"], [1200, 850, 3400], "read as 1,000; write a blank before it if it is a unit."),
        (["14B", "12", "15"], [14, 12, 15], "4 of 12 numbers have the unit B; the others were read as if they had it."),
        (["301 K", "295", "300 K"], [301, 295, 300], "8 of 12 numbers have the unit K"),
        (["5k", "800m", "10k"], [5000, 800, 10000], "4 of 12 numbers have the unit m"),
        (["5K", "800m", "10K"], [5000, 800, 10000], "4 of 12 numbers have the unit m"),
        (["20 k", "20000", "7.5 k"], [20000, 20000, 7500], ""),
        (["81.5M", "3M", "7M"], [81.5, 3, 7], ""),
        (["1.5T", "820B", "64M"], [1.5e12, 8.2e11, 6.4e7], ""),
        (["1.5 trillion", "820 bn", "2 tn"], [1.5e12, 8.2e11, 2e12], ""),
        (["1.5T", "3T", "7T"], [1.5, 3, 7], ""),
        (["0.5T", "12", "15"], [0.5, 12, 15], "4 of 12 numbers have the unit T; the others were read as if they had"),
    ],
)
def test_letters_of_a_column_are_magnitudes_or_a_unit_in_all_its_cells(
    cells: list[str], values: list[float], says: str
) -> None:
    """3.4B and 81.5M were 3.4 and 81.5, and 81.5M was 81.5 beside 81500000, without a note."""
    trained = column(cells * 4)
    reader = column_reader("c", trained)
    assert reader.cells(trained).values[: len(cells)].tolist() == pytest.approx(values, rel=1e-14)
    notes = " ".join(doubts(reader, trained))
    assert says in notes if says else not notes
    assert not reader.cells(trained).with_unit.any()


@pytest.mark.parametrize("new", [[0.5, 0.25], ["0.5", "25 %"]])
def test_a_number_without_the_unit_of_training_is_named_in_a_type_and_in_a_file(new: Any) -> None:
    frame = pd.DataFrame({"share": [f"{v}%" for v in range(10, 70)], "y": np.arange(60) ** 0.5})
    reader = gpx.load(frame, target="y").train.reader
    read = reader.read(pa.table({"share": new}))
    assert read.why[0] == 'without the unit of training: share "0.5"'
    with pytest.warns(UserWarning, match='without the unit of training: share "0.5"'):
        reader.inputs_of(pa.table({"share": new}))
    with pytest.raises(DataError, match=r'^The table has no column "share" but'):
        reader.inputs_of(pa.table({"part": new, "more": new}))


def test_a_word_that_stands_for_a_gap_does_so_in_other_capitals() -> None:
    reader = column_reader("c", column(["4.5", "open", "3", "6"] * 4))
    cells = reader.cells(column(["Open", "OPEN ", "opened", "4"]))
    assert (cells.gap.tolist(), cells.unreadable.tolist()) == ([True, True, False, False], [False, False, True, False])


@pytest.mark.parametrize("options", [{"kinds": {"c": "words"}}, {"encode": ["c"]}])
def test_equal_numbers_are_words_apart_where_words_were_asked_for(options: Any) -> None:
    """Versions 2.3 and 2.30 were one word, and so were the codes 9 and 009."""
    for cells in (["2.3", "2.30", "2.31", "Beta", "beta"], ["9", "009", "12", "Beta", "beta"]):
        frame = pd.DataFrame({"c": cells * 8, "y": [0.0, 5.0, 1.0, 2.0, 2.0] * 8})
        split = gpx.load(frame, target="y", split="all", **options)
        reader = split.train.reader.column("c")
        assert reader.levels.names == tuple(sorted([*cells[:3], "beta"]))
        assert f"c = {cells[1]}" in split.train.names
        new = reader.cells(column([cells[1], cells[0], f"{cells[0]}000", f"{cells[2]}.0", "BETA"]))
        assert new.unseen.tolist() == [False, False, True, "." in cells[2], False]
        again = gpx.load(frame, target="y", split="all", kinds=split.train.reader.decisions)
        assert again.train.names == split.train.names


def test_a_program_repeats_words_that_were_merged() -> None:
    frame = pd.DataFrame({"c": ["7", "7.0", "S", "M", "L"] * 8, "y": np.arange(40) % 7})
    split = gpx.load(frame, target="y", split="all")
    assert split.train.reader.decisions["c"] == "words merged"
    again = gpx.load(frame, target="y", split="all", kinds=split.train.reader.decisions)
    assert again.train.reader.to_json() == split.train.reader.to_json()


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (["elm", "Elm", "oak", ""] * 5, ("Elm", "elm", "oak")),
        (["elm", "oak", "ash", "fir", "elm"], ()),  # most rows have a text of their own
        (["c1ccccc1", "CC(=O)O", "C=C"] * 4, ()),  # capitals tell molecules apart
    ],
)
def test_words_of_a_kernel_are_known_where_they_are_repeated(cells: list[str], names: tuple[str, ...]) -> None:
    levels = column_reader("c", column(cells), "raw text").levels
    assert levels.names == names
    new = ["Elm", "ELM", "OAK", "C=c", "", "yew"]
    assert levels.spelled(new) == (("Elm", "ELM", "oak", "C=c", "", "yew") if names else tuple(new))
