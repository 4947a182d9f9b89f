"""Files as other programs export them: blank rows at the end, repeated headers, pages of the web, and rare marks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpexplorer as gpx
from gpexplorer.data.reader.words import name_key
from gpexplorer.errors import DataError

ROWS = [f"{3.5 * k % 11},{k % 4},{k * k % 13}" for k in range(15)]


def file(path: Path, lines: list[str], between: str = ",") -> Path:
    (path / "t.csv").write_text("\n".join(line.replace(",", between) for line in lines) + "\n", encoding="utf-8")
    return path / "t.csv"


def test_cells_of_rows_that_are_left_out_are_not_said_to_be_filled(tmp_path: Path) -> None:
    blank = gpx.load(file(tmp_path, ["a,b,y", *ROWS, ",,", ",,", ",,"]), split="all")
    assert blank.notes == ("3 rows of 18 had a missing value and were left out.",)
    one = gpx.load(file(tmp_path, ["a,b,y", *ROWS, ",2,5", ",,"]), split="all")
    assert len(one.train) == 16
    assert one.notes[0].endswith('where these explain it: "a" (1).')


@pytest.mark.parametrize("place", [6, 14])
def test_a_repeated_header_is_named(tmp_path: Path, place: int) -> None:
    """As where files were put together. Where it is there several times, its words are gaps, and its rows left out."""
    says = rf'column "a" has text in row {place + 1}: "a".*such rows repeat the names of the columns: remove them'
    with pytest.raises(DataError, match=says):
        gpx.load(file(tmp_path, ["a,b,y", *ROWS[:place], "a,b,y", *ROWS[place:]]))
    twice = gpx.load(file(tmp_path, ["a,b,y", *ROWS[:place], "a,b,y", "a,b,y", *ROWS[place:]]), split="all")
    assert (len(twice.train), twice.notes[-1]) == (15, "2 rows of 17 had a missing value and were left out.")


@pytest.mark.parametrize("between", ["~", "^", ":"])
def test_a_mark_that_is_not_known_has_a_way_out(tmp_path: Path, between: str) -> None:
    with pytest.raises(DataError, match=r"separate its cells by commas, semicolons, tabs or \|\."):
        gpx.load(file(tmp_path, ["a,b,y", *ROWS], between))


@pytest.mark.parametrize(
    "page", ["<!DOCTYPE html>\n<html>\n<body>\nSign in\n", '<table border="1">\n<tr>\n', '<?xml version="1.0"?>\n<a/>']
)
def test_a_page_of_the_web_is_named(tmp_path: Path, page: str) -> None:
    with pytest.raises(DataError, match=r"t\.csv is a page of the web or XML, despite its name"):
        gpx.load(file(tmp_path, [page, *ROWS]))
    assert gpx.load(file(tmp_path, ["<A>,<B>,<Y>", *ROWS])).train.names == ("<A>", "<B>")


def test_signs_that_cannot_be_seen_are_no_part_of_a_name(tmp_path: Path) -> None:
    split = gpx.load(file(tmp_path, ["\ufeff\ufeffa\u200b,\u200bb,y\u200b", *ROWS]), split="all")
    assert (*split.train.names, split.train.target) == ("a", "b", "y")
    assert name_key("flow\u200b rate\ufeff") == name_key("flow rate")


def test_numbers_that_are_equal_by_rounding_alone_are_not_said_to_be_always_the_same() -> None:
    frame = pd.DataFrame({"big": 2**62 + np.arange(15), "a": np.arange(15) ** 2 % 7, "y": np.arange(15) % 4})
    assert any('"big" (always 4.61169e+18 after rounding)' in note for note in gpx.load(frame, target="y").notes)
    assert any('"big" (always 5)' in note for note in gpx.load(frame.assign(big=5), target="y").notes)


def test_names_that_are_moved_by_one_column_are_mentioned(tmp_path: Path) -> None:
    """As where a comma is a decimal mark in a file with commas between cells: 3,5 is two cells."""
    says = "The first line has one name fewer than rows have cells: they belong to the columns after the first."
    assert says in gpx.load(file(tmp_path, ["a,y", *ROWS])).notes
    assert says not in gpx.load(file(tmp_path, [",a,y", *ROWS])).notes
    assert says not in gpx.load(file(tmp_path, ["a,b,y", *(f"{row}," for row in ROWS)])).notes


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["* revised,,", "** see page 3,,"], "the last 2 rows seem to have totals or remarks: remove them"),
        (["* revised,,"], "row 16 seems to have a total or a remark: remove that row"),
        (["* revised,,", "7,1,2"], r'correct the cell, or leave the column out with drop=\["a"\]'),
    ],
)
def test_remarks_in_the_last_rows_have_a_way_out(tmp_path: Path, lines: list[str], says: str) -> None:
    with pytest.raises(DataError, match=says):
        gpx.load(file(tmp_path, ["a,b,y", *ROWS, *lines]))


@pytest.mark.parametrize(
    ("word", "is_said"), [("Subtotal", 1), ("Grand total", 1), ("Zwischensumme Nord", 1), ("Total", 0), ("subtle", 0)]
)
def test_rows_of_subtotals_are_mentioned(tmp_path: Path, word: str, is_said: int) -> None:
    rows = [f"{'north' if k % 2 else 'south'},{row}" for k, row in enumerate(ROWS)]
    path = file(tmp_path, ["site,a,b,y", *rows[:7], f"{word},20,9,30", *rows[7:], f"{word},20,9,40", *rows[:3]])
    notes = [note for note in gpx.load(path).notes if "totals" in note]
    assert len(notes) == is_said
    says = (
        f'2 rows above the last one, the first of them row 8, have words such as "{word}" in "site": remove totals of'
    )
    assert all(note.startswith(says) for note in notes)
