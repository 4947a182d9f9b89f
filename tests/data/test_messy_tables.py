"""Texts, dates, decimal commas, gaps and encodings of a messy table, and the same columns in a new file."""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gpexplorer as gpx
from gpexplorer.data.files.choice import Choice
from gpexplorer.data.files.inputs_by_name import as_inputs
from gpexplorer.data.files.reading import read_path, strips
from gpexplorer.data.loading import _file_identity
from gpexplorer.data.reader.column_reader import column_reader
from gpexplorer.errors import DataError
from messy_table import messy_csv


def texts(*cells: str) -> pa.ChunkedArray:
    return pa.chunked_array([list(cells)])


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1,5", "2,25", "3"], "number"),
        (["1.234,5", "2,1", "7,0"], "number"),
        (["2004-03-01", "2004-03-02", ""], "date"),
        (["01.03.2004", "2.3.2004", "na"], "date"),
        (["2004-03-01 12:30:00", "2004-03-01 12:31:00"], "date"),
        (["red", "blue", "red"], "words"),
        (["CCO", "CC(=O)O", "c1ccccc1", "C[N+](C)C"], "molecules"),
        (["Bob", "Anna", "Chris"], "words"),
        (["1-2", "2-3", "4-5"], "words"),
        (["CONCORD", "BOSON", "COFFIN"], "words"),
        (["C100001", "C100002", "C100003"], "words"),  # numbers of customers, and no rings
        (["N-17", "N-18", "P-3"], "words"),
        (["CN12-34", "CN12-35", "CO7-36"], "words"),
        (["C1CC%12CC1CC%12", "[13CH4]", "c1ccc2ccccc2c1"], "molecules"),
    ],
)
def test_texts_are_recognised(cells: list[str], kind: str) -> None:
    reader = column_reader("c", texts(*cells))
    assert reader.kind == kind
    assert bool(reader.left_out) == (kind == "molecules" or (kind == "words" and "red" not in cells))


def test_a_comma_that_may_separate_thousands_is_not_certain() -> None:
    assert column_reader("c", texts("1,234", "2,345")).numbers.evidence == "either"
    assert column_reader("c", texts("1,234", "2,3456")).numbers.evidence == "sure"


@pytest.mark.usefixtures("uploads_here")
def test_the_preview_of_a_messy_file_says_what_each_column_is() -> None:
    preview = gpx.data.preview("messy.csv", messy_csv())
    about = dict(zip(preview.columns, preview.about, strict=True))
    assert {name: note.kind for name, note in about.items()} == {
        "id": "number", "größe": "decimal comma", "colour": "levels", "when": "date", "unit": "number",
        "smiles": "SMILES", "empty": "empty", "price": "decimal comma",
    }  # fmt: skip
    assert [name for name, note in about.items() if note.use] == ["größe", "colour", "when", "price"]
    assert "only counts the rows" in about["id"].remark
    assert "always 5" in about["unit"].remark
    assert about["größe"].missing == 6
    assert preview.target == "price"
    assert any("Windows-1252" in note for note in preview.notes)


@pytest.mark.usefixtures("uploads_here")
@pytest.mark.parametrize(
    ("header", "copies", "change", "is_used"),
    [
        ("id,a,y", 0, "", False),  # all values differ
        ("id,a,y", 3, "", False),
        ("id,a,y", 20, "", False),  # every row twice
        ("sample_id,a,y", 3, "", False),
        ("Unnamed: 0,a,y", 3, "", False),
        ("dose,a,y", 3, "", True),  # not the name of an id
        ("id,a,y", 3, "y", True),  # measured again: the same id has another target
        ("id,a,y", 3, "a", True),
        ("id,a,y", 3, "id", True),  # 0.5 more: no whole numbers
        ("id,a,y", 60, "", True),  # few values, which are shared by many rows
    ],
)
def test_an_id_is_no_input_also_where_rows_are_copied(header: str, copies: int, change: str, is_used: bool) -> None:
    names = header.split(",")
    rows = [[101 + 7 * (i * i % 41), i % 5, i**2] for i in range(20)]  # 20 different ids in no order
    for i in range(copies):
        rows.append(list(rows[i % 20]))
        if change:
            rows[-1][names.index(change)] += 0.5
    text = "\n".join([header, *(",".join(map(str, row)) for row in rows)])
    about = dict(zip(names, gpx.data.preview("t.csv", text.encode()).about, strict=True))
    assert about[names[0]].use == is_used
    assert ("name of the row" in about[names[0]].remark) == (not is_used)
    assert about["a"].use


def test_a_messy_file_becomes_the_numbers_it_means(tmp_path: Path) -> None:
    path = tmp_path / "messy.csv"
    path.write_bytes(messy_csv())
    chosen = {"target": "price", "inputs": ["größe", "colour", "when"], "encode": ["colour"], "dates": ["when"]}
    whole = gpx.load(path, split={"test": 0.1, "seed": 0}, **chosen, decimal=",", missing="drop")
    rows = [line.split(";") for line in messy_csv().decode("cp1252").splitlines()[1:]]
    rows = [row for row in rows if row[1]]
    want = np.array([
        [float(row[1].replace(",", ".")), row[2] == "blue", row[2] == "green", row[2] == "red",
         (np.datetime64(row[3]) - np.datetime64("1970-01-01")).astype(int)] for row in rows
    ], dtype=float)  # fmt: skip
    X = np.vstack([whole.train.X.numpy(), whole.test.X.numpy()])
    assert whole.train.names == ("größe", "colour = blue", "colour = green", "colour = red", "when")
    np.testing.assert_array_equal(X[np.lexsort(X.T)], want[np.lexsort(want.T)])

    filled = gpx.load(path, **chosen, decimal=",", missing="fill", split="all")
    assert len(filled.train) == 240
    assert f"{np.median(want[:, 0]):.4f}" in {f"{x:.4f}" for x in filled.train.X[:, 0].tolist()}
    assert any("median" in note and "größe" in note for note in filled.notes)


def test_a_new_file_has_the_columns_of_the_training_rows() -> None:
    table = pa.table({
        "colour": ["red", "violet", ""], "when": ["2019-01-02", "", "2019-01-03"], "größe": ["1,5", "x", "2"],
    })  # fmt: skip
    X = as_inputs("new.csv", table, ["größe", "colour = red", "when"])
    day = 17898.0
    np.testing.assert_array_equal(X, [[1.5, 1, day], [np.nan, 0, np.nan], [2, np.nan, day + 1]])
    with pytest.raises(DataError, match='no column "size"'):
        as_inputs("new.csv", table, ["size"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"encode": ["t"], "drop": ["d"], "kinds": {"t": "wrods"}}, "is not known: choose one of"),
        ({"dates": ["t"]}, "does not contain dates"),
        ({"dates": ["d"]}, 'in row 601: "soon", which is no date like'),
        ({"decimal": ";"}, "decimal"),
        ({"dates": ["d"], "kinds": ["d"]}, "no mapping"),
        ({"missing": "guess"}, '"drop" or "fill"'),
    ],
)
def test_what_cannot_be_converted_is_named(tmp_path: Path, options: dict, says: str) -> None:
    days = [*(f"2004-03-{1 + i % 28:02d}" for i in range(600)), "soon"]  # beyond the cells that recognise dates
    lines = [f"{i},t{i % 40},{days[i]},{i % 7}" for i in range(601)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,t,d,y", *lines]) + "\n")
    with pytest.raises(DataError, match=says):
        gpx.load(path, **options)


@pytest.mark.usefixtures("uploads_here")
def test_files_of_windows_and_utf16_are_read(tmp_path: Path) -> None:
    text = "größe,y\n1,2\n2,3\n3,5\n"
    for encoding in ("utf-16", "cp1252"):
        split = gpx.data.read_upload("m.csv", text.encode(encoding))
        assert split.train.names == ("größe",)
        assert any("Windows-1252" in note for note in split.notes) == (encoding == "cp1252")


@pytest.mark.parametrize("delimiter", ";,\t")
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_delimiter_that_a_spreadsheet_writes_in_the_first_line_is_no_column(
    tmp_path: Path, delimiter: str, end: str
) -> None:
    lines = [f"sep={delimiter}", delimiter.join(("a", "b", "y"))]
    lines += [delimiter.join((str(k * k), str(k % 3), str(2 * k))) for k in range(6)]
    path = tmp_path / "t.csv"
    path.write_bytes((end.join(lines) + end).encode())

    assert gpx.load(path).train.names == ("a", "b")
    strip = next(strips(path)).table
    assert strip.column_names == ["a", "b", "y"]
    assert strip["y"].to_pylist() == ["0", "2", "4", "6", "8", "10"]


AROUND = {  # the same table, as programs and people write it: names, rows, what separates cells, and how lines end
    "plain": ("x,w,y", "{x},{w},{y}", "\n"),
    "remarks": ("# of logger 3, and its station\n# 5\n\nx,w,y", "{x},{w},{y}", "\n"),
    "names in a remark": ("# of logger 3\n#x,w,y", "{x},{w},{y}", "\r\n"),
    "titles": ("Report of 2021\n\nx;w;y", "{x};{w};{y}", "\n"),
    "titles in a cell": ("Report of 2021,,\n,,\nx,w,y", "{x},{w},{y}", "\r\n"),
    "blank lines": ("\n\nx,w,y", "{x},{w},{y}", "\n"),
    "a mark at the end of rows": ("x,w,y", "{x},{w},{y},", "\n"),
    "R": ('"x" "w" "y"', '"{i}" {x} "{w}" {y}', "\n"),
    "R with commas": ('"x","w","y"', '"{i}",{x},"{w}",{y}', "\n"),
    "sep": ("sep=;\nx;w;y", "{x};{w};{y}", "\r\n"),
    "no names": ("", "{x},{y}", "\n"),
}


@pytest.mark.parametrize("name", AROUND)
def test_what_programs_write_around_a_table_is_no_part_of_it(tmp_path: Path, name: str) -> None:
    names, row, end = AROUND[name]
    rows = [{"i": k + 1, "x": k * k + 0.5, "w": ("dark red", "blue")[k % 2], "y": 2 * k % 7} for k in range(9)]
    path = tmp_path / "t.csv"
    lines = [*(names.split("\n") if names else []), *(row.format(**cells) for cells in rows)]
    path.write_bytes((end.join(lines) + end).encode())
    columns = ("column 1", "column 2") if name == "no names" else ("x", "w", "y")

    split = gpx.load(path, split="all")
    assert split.train.target == columns[-1]
    assert split.train.X[:, 0].tolist() == [cells["x"] for cells in rows]
    [(strip, _, notes, _)] = strips(path)  # as new rows are read
    assert set(notes) <= set(split.notes)
    for column, key in zip(columns, ("x", "y") if name == "no names" else "xwy", strict=True):
        assert strip[column].to_pylist() == [str(cells[key]) for cells in rows]
    skipped = "".join(note for note in split.notes if "were skipped" in note)
    assert ("Report of 2021" in skipped) == name.startswith("titles")
    assert ("logger 3" in skipped) == ("remark" in name)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-be", "utf-8-sig", "cp1252"])
def test_strips_of_a_file_in_any_encoding_have_all_rows(tmp_path: Path, encoding: str) -> None:
    text = "größe,y\n" + "".join(f"{k},ü{k}\n" for k in range(1000))
    path = tmp_path / "new.csv"
    path.write_bytes((codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b"") + text.encode(encoding))

    tables = [strip.table for strip in strips(path, rows=10)]

    assert len(tables) > 1
    assert tables[0].column_names == ["größe", "y"]
    assert [cell for table in tables for cell in table["y"].to_pylist()] == [f"ü{k}" for k in range(1000)]


@pytest.mark.parametrize(("byte", "says"), [(b"\xf6", ""), (b"\x81", "is not UTF-8: byte 0x81")])
def test_a_byte_of_windows_after_a_million_others_is_found(tmp_path: Path, byte: bytes, says: str) -> None:
    (path := tmp_path / "new.csv").write_bytes(b"x,wood\n" + b"1.25,oak\n" * 150_000 + byte + b",2\n")
    if says:
        with pytest.raises(DataError, match=says):
            list(strips(path))
        return
    *_, last = strips(path)
    assert last.table.column(0).to_pylist()[-1] == "ö"
    assert last.notes == read_path(path).notes
    assert "(byte 0xf6 in line 150002); it was read as Windows-1252" in last.notes[0]


@pytest.mark.parametrize(
    ("text", "cells"), [("x\r\n1\r\n\r\n3\r\n", ["1", "", "3"]), ("x,w\n1,2\n\n3,4\n", ["1", "3"])]
)
def test_a_blank_line_of_one_column_is_a_row(tmp_path: Path, text: str, cells: list[str]) -> None:
    (tmp_path / "new.csv").write_bytes(text.encode())
    assert [cell for strip in strips(tmp_path / "new.csv") for cell in strip.table["x"].to_pylist()] == cells


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x,w\n1,2\n3\n4,5\n", 'Row 2 of new.csv has 1 cell where the first line has 2: "3"'),
        ("# a remark\nx,w\n1,2\n3,4,5\n", "Row 2 of new.csv has 3 cells where the first line has 2"),
    ],
)
def test_a_row_of_another_length_is_named_where_new_rows_are_read(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "new.csv").write_text(text)
    with pytest.raises(DataError, match=says):
        list(strips(tmp_path / "new.csv"))


def test_a_single_line_has_the_names_of_columns_and_no_rows(tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("x,w")
    assert list(strips(tmp_path / "new.csv")) == []


def test_units_and_words_that_are_nearly_numbers_are_mentioned(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "rows.csv"
    frame = pd.DataFrame({"x": rng.integers(1, 9, 40), "y": rng.normal(size=40)})
    odd = frame.assign(x=["300 mm", *frame["x"][1:].astype(str)], about=[f"~{k % 4}" for k in range(40)])
    odd["error"] = [f"{k} ± .2" for k in range(40)]
    odd[["x", "about", "error", "y"]].to_csv(path, index=False)

    notes = " ".join(gpx.load(path).notes)
    assert '"x": 1 of 40 numbers has the unit mm; the others were read as if they had it.' in notes
    assert '"about": cells such as "~0" are words: write a number alone, such as 5, to use it as one.' in notes
    assert '"error" (a different text in nearly every row, such as "0 ± .2")' in notes
    assert gpx.load(frame).notes == ()


def test_a_number_among_the_names_of_columns_is_mentioned(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for names, count in (("red,1.5", 1), ("colour,1960", 0), ("colour,y", 0)):
        path.write_text(names + "\n" + "".join(f"{'red' if k % 2 else 'blue'},{k}\n" for k in range(8)))
        assert sum("is a number: if it is a row" in note for note in gpx.load(path).notes) == count


def test_a_first_line_of_numbers_and_gaps_is_a_row_but_years_are_names(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for first, rows in (("1.5,,3", 5), ("1.5,2,3", 5), (",2019,2020", 4)):
        path.write_text(f"{first}\n" + "2.5,1,4\n3.5,2,7\n4.5,1,9\n5.5,4,8\n")
        assert len(gpx.load(path, split="all").train) == sum(strip.rows for strip in strips(path)) == rows


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (
            [1.5, -999, 3, 2.5, -999],
            '"x" is -999 in 2 cells and from 1.5 to 3 in the others: does it stand for a missing value?\nkinds={',
        ),
        ([1.5, 9999, 3, 2.5, 2], '"x" is 9999 in 1 cell'),
        ([1.5, "", 3, 2.5, 2], "1 row without a value of any input, the first of them row 2: all inputs were filled"),
        ([1.5, -9, 30, 2.5, -9], ""),
        ([-999, -999, 0, 1, -998], ""),
        ([1.5, 999.9, 3, 2.5, 999.9], '"x" is 999.9 in 2 cells'),
        ([1.5, 3, "1e30", 2.5, "1E+30"], '"x" is 1e+30 in 2 cells'),
        ([1.5, 3, 9.969209968386869e36, 2.5, 2], '"x" is 9.969209968386869e+36 in 1 cell'),
        ([1.5, -32768, 3, 2.5, 2], '"x" is -32768 in 1 cell'),
        ([1.5, 99, 3, 2.5, 2], ""),
        ([1.5, 9.9, 3, 2.5, 2], ""),
        ([1.5, 2e30, 3, 2.5, 2], ""),
        ([1.5, 1e6, 3, 2.5, 2], ""),
    ],
)
def test_numbers_that_stand_for_gaps_and_rows_without_inputs_are_mentioned(
    tmp_path: Path, x: list[Any], says: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{cell},{k**2}\n" for k, cell in enumerate(x)))
    split = gpx.load(path, split="all")
    notes = [note for note in split.notes if "filled in with the median" not in note]
    assert notes[0].startswith(says) if says else not notes
    if " is " in says:
        code = re.search("number missing [-+.0-9e]+", notes[0])[0]
        again = gpx.load(path, split="all", kinds={"x": code}).train
        assert 1.5 <= float(again.X.min()) <= float(again.X.max()) <= 3.0
        assert again.reader.decisions["x"].endswith(code.removeprefix("number "))  # with all its digits


def test_dates_that_stand_for_gaps_are_mentioned(tmp_path: Path) -> None:
    path, days = tmp_path / "t.csv", [f"2021-03-{day:02d}" for day in range(1, 20)]
    for odd, count in (("9999-12-31", 1), ("1900-01-01", 1), ("2021-05-01", 0), ("1990-05-01", 0)):
        path.write_text("d,y\n" + "".join(f"{odd if k == 7 else day},{k**2}\n" for k, day in enumerate(days)))
        notes = [note for note in gpx.load(path).notes if "leave such cells empty" in note]
        assert len(notes) == count
        assert all(note.startswith(f'"d" is {odd} in 1 cell and from 2021-03-01 to 2021-03-19') for note in notes)


def test_whole_numbers_that_become_equal_by_rounding_are_mentioned(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for step, is_rounded in ((100, True), (2**10, False)):
        numbers = [2**60 + step * k for k in range(20)]
        path.write_text("a,y\n" + "".join(f"{number},{k % 7}\n" for k, number in enumerate(numbers)))
        for data in (path, pd.DataFrame({"a": numbers, "y": np.arange(20) % 7})):
            notes = [note for note in gpx.load(data).notes if "beyond 2^53" in note]
            assert len(notes) == is_rounded
            assert all(f"20 different ones became {len(set(map(float, numbers)))}" in note for note in notes)


def test_what_stands_above_or_beside_the_numbers_of_a_sheet_is_named(tmp_path: Path) -> None:
    rows = [[0.5 * k, k**2] for k in range(9)]
    sheet = pd.DataFrame([["My table", None], ["x", "y"], *rows], columns=["Unnamed: 0", "Unnamed: 1"])
    with pytest.raises(DataError, match="the first 2 rows seem to have titles, units or a second header: remove them"):
        gpx.load(sheet)
    ids = pd.DataFrame(
        {"id": [f"A{k}" if k % 2 else k for k in range(9)], "x": np.arange(9) / 2, "y": np.arange(9) ** 2}
    )
    assert gpx.load(ids).train.names == ("x",)


def test_percent_beside_numbers_without_a_sign_is_mentioned(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for share in ("", "%"):
        path.write_text("a,y\n" + "".join(f"{k}{'%' if k % 2 else share},{k}\n" for k in range(8)))
        assert ('"a": 4 of 8 numbers have the sign %' in "".join(gpx.load(path).notes)) == (share == "")


def test_the_key_of_an_old_choice_has_not_changed() -> None:
    old = {"target": "y", "inputs": None, "drop": ("id",), "objects": None, "missing": "drop", "header": None}
    assert _file_identity(Choice(target="y", drop=("id",), missing="drop"), None) == old
    assert "encode" in _file_identity(Choice(encode=("c",)), None)


def test_a_column_called_target_that_is_an_input_is_noted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "Target,a,b\n" + "\n".join(f"{k * k % 7},{k * 3 % 11},{k * k % 13}.5" for k in range(20))
    )
    (note,) = gpx.load(tmp_path / "t.csv").notes
    assert note.startswith('The last column, "b", is the target, and "Target" is an input')
    assert gpx.load(tmp_path / "t.csv", target="b").notes == ()
    assert gpx.load(tmp_path / "t.csv", target="Target").notes == ()
