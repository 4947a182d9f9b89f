"""A stranger's file: what a child process may take, what it may see, and what comes back from it."""

from __future__ import annotations

import gzip
import io
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gpexplorer as gpx
from gpexplorer.data import Choice
from gpexplorer.data.files.inputs_by_name import ModelInputs
from gpexplorer.data.files.size_limits import UPLOAD
from gpexplorer.data.reader.table_reader import reader_from
from gpexplorer.data.uploads import _environment
from gpexplorer.errors import DataError


def parquet(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    return buffer.getvalue()


def test_the_child_starts_without_torch_or_pandas(root: Path) -> None:
    code = "import sys, gpexplorer.data.upload_child; print({'torch', 'pandas', 'panel'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_child_sees_no_secret_and_needs_no_particular_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOKEH_SECRET_KEY", "hush")
    monkeypatch.chdir(tmp_path)
    assert "hush" not in _environment().values()
    assert gpx.data.preview("a.csv", b"a,y\n1,2\n").rows == 1


@pytest.mark.parametrize("shift", [0.0, 1e5])
def test_an_upload_and_a_file_are_the_same_split(tmp_path: Path, shift: float) -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.normal(size=(50, 3)) + shift, columns=["a", "b", "y"])
    for name, content in [
        ("t.parquet", parquet(frame)),
        ("t.csv.gz", gzip.compress(frame.to_csv(index=False).encode())),
    ]:
        (tmp_path / name).write_bytes(content)
        sent, read = gpx.data.read_upload(name, content, split=4), gpx.data.load(tmp_path / name, split=4)
        assert sent.train.X.tolist() == read.train.X.tolist()
        assert sent.test.y.tolist() == read.test.y.tolist()
        assert sent.train.names == ("a", "b")


@pytest.mark.usefixtures("uploads_here")
def test_a_preview_of_parquet_counts_all_rows_and_shows_the_first() -> None:
    frame = pd.DataFrame({"a": np.arange(500.0), "who": ["<b>x</b>"] * 500, "y": np.arange(500.0) ** 2})
    seen = gpx.data.preview("t.parquet", parquet(frame))
    assert (seen.rows, seen.columns, seen.numbers, seen.target) == (500, ("a", "who", "y"), ("a", "y"), "y")
    assert seen.head[2] == ("2.0", "<b>x</b>", "4.0")
    assert len(seen.head) == 8
    split = gpx.data.read_upload("t.parquet", parquet(frame), Choice(drop=("who",)))
    assert split.train.names == ("a",)


@pytest.mark.usefixtures("uploads_here")
def test_a_column_of_texts_is_loaded_as_texts() -> None:
    split = gpx.data.read_upload("m.csv", b"smiles,y\nCC,1\nCO,2\nCN,4\nCCl,3\n", Choice(objects="smiles"))
    assert sorted([*split.train.X, *split.test.X]) == ["CC", "CCl", "CN", "CO"]
    assert split.scaled().train.X == split.train.X


def test_a_small_parquet_that_unfolds_to_gigabytes_is_stopped() -> None:
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(4000, "int32")), pa.array(["C" * 1_000_000]))
    buffer = io.BytesIO()
    pq.write_table(
        pa.table({"smiles": text, "y": np.arange(4000.0), "a": np.arange(4000.0) % 7}), buffer, store_schema=False
    )
    bomb = buffer.getvalue()
    assert len(bomb) < 1_000_000
    with pytest.raises(DataError, match=r"bomb.parquet needs more than the 1.5 GB of memory or 20 s"):
        gpx.data.read_upload("bomb.parquet", bomb, Choice(target="y", objects="smiles"))
    assert gpx.data.read_upload("bomb.parquet", bomb).train.names == ("y",)  # its text is never unfolded


def test_an_archive_with_false_shapes_is_refused() -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("y.npy", header.getvalue())
    with pytest.raises(
        DataError, match=r'array "y" claims shape \(1000000000000,\), but the file is too small for that'
    ):
        gpx.data.read_upload("x.npz", buffer.getvalue())
    buffer = io.BytesIO()
    np.savez_compressed(buffer, X=np.zeros((900_000, 20)), y=np.arange(900_000.0))
    assert len(buffer.getvalue()) < UPLOAD.file_bytes
    with pytest.raises(DataError, match=r"x.npz exceeds 100 MB unpacked"):
        gpx.data.read_upload("x.npz", buffer.getvalue())


def test_processor_time_is_limited() -> None:
    rows = b"a,y\n" + b"".join(b"%d.5,%d\n" % (i, i % 9) for i in range(400_000))
    with pytest.raises(DataError, match=r"or 0 s that reading an upload may take"):
        gpx.data.read_upload("slow.csv", rows * 2, limits=replace(UPLOAD, cpu_seconds=0))


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("kin40k", True),
        ({"name": "friedman1", "n": 50}, True),
        ("/etc/passwd", False),
        ({"name": "t.csv"}, False),
        (3, False),
    ],
)
def test_a_link_may_request_a_name_and_never_a_path(source: object, named: bool) -> None:
    assert gpx.data.is_named(source) is named


@pytest.mark.usefixtures("uploads_here")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\n\n\n", "contains only blank lines"),
        ('a,y\n"1,234",2\n"2.345,1",3\n3.5,5\n', r'column "a" has text in row 2: "2\.345,1"'),
        ('a,y,c\n1,2,"x\n2,3,z\n3,4,z\n4,5,z\n', "opens a quote that is never closed"),
        ("a,b,y\n1,2\n2,3\n", "Row 1 of m.csv has 2 cells where the first line has 3"),
        ("a,y\nm,s\n1,2\n2,3\n3,5\n", 'column "a" has text in row 1: "m"'),
        ("n,m\na,b\nc,d\ne,f\n", "no column of numbers that could be the target"),
        ("\xff\xfea,y\n1,2\n2,3\n3,5\n0", "UTF-16"),
    ],
)
def test_ambiguous_texts_that_other_readers_accept_are_refused(text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        gpx.data.read_upload("m.csv", text.encode("utf-8" if text.isascii() else "latin-1"))


@pytest.mark.usefixtures("uploads_here")
@pytest.mark.parametrize(
    ("text", "names", "note"),
    [
        ("a;y\n1;2\n4;3\n3;5\n", ("a",), ""),
        ("a|y\r\n1|2\r\n4|3\r\n3|5\r\n", ("a",), ""),
        (" 1.0  2.0\n 4.0  3.0\n 3.0  5.0\n", ("column 1",), "only numbers, so it was read as data"),
        ("2019,2020,2021\n1,2,3\n4,9,6\n7,5,1\n", ("2019", "2020"), 'because "2019" to "2021" are years'),
        ("2001,2005\n1999,2003\n1990,2012\n", ("column 1",), "only numbers, so it was read as data"),
        ("2021,2019\n1.5,2\n4,9\n", ("column 1",), "only numbers, so it was read as data"),
        (",a,y\n0,3,1\n1,9,2\n2,4,5\n", ("a",), 'left out: "column 1" (only counts the rows)'),
        ("a,b,y\n1,7,1\n3,7,2\n2,7,5\n", ("a",), 'left out: "b" (always 7)'),
        ("a,b,y\ntrue,,1\nfalse,,2\ntrue,,5\n", ("a",), 'left out: "b"'),
    ],
)
def test_texts_that_are_read_and_the_notes_about_them(text: str, names: tuple[str, ...], note: str) -> None:
    split = gpx.data.read_upload("m.csv", text.encode())
    assert split.train.names == names
    assert len(split.train) + len(split.test) == 3
    assert note in " ".join(split.notes)


@pytest.mark.usefixtures("uploads_here")
def test_a_column_of_many_words_is_sent_before_its_means_are_known(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = [f"town {k % 40},{a:.3f},{a + k % 40:.3f}" for k, a in enumerate(rng.normal(size=160))]
    content = "\n".join(["town,a,y", *rows]).encode()
    (tmp_path / "towns.csv").write_bytes(content)

    sent, read = gpx.data.read_upload("towns.csv", content, split=2), gpx.data.load(tmp_path / "towns.csv", split=2)

    assert sent.train.names == ("town: mean of y", "a")
    assert sent.train.X.tolist() == read.train.X.tolist()
    new = gpx.data.read_rows("new.csv", b"town,a\ntown 3,0.5\nelsewhere,0.5\n", ModelInputs(reader=sent.train.reader))
    assert (
        new.X.tolist() == read.train.reader.read(pa.table({"town": ["town 3", "elsewhere"], "a": [0.5] * 2})).X.tolist()
    )
    with pytest.raises(DataError, match="not one number per word"):  # a saved model has its means
        reader_from(re.sub(r'"values": \[[^]]*\]', '"values": []', sent.train.reader.to_json()))


def table_with_totals(cell: str) -> bytes:
    """Forty rows, and a last one that begins with this word."""
    rows = [f"{1000 + k};{k * 37 % 11},5;{k * k % 17},25" for k in range(40)]
    return "\n".join(["number;a;price", *rows, f"{cell};;321,5"]).encode()


@pytest.mark.usefixtures("uploads_here")
@pytest.mark.parametrize("cell", ["Summe", "Total général", "Grand total (EUR)"])
def test_a_last_row_of_totals_is_noted_before_the_columns_are_chosen(cell: str) -> None:
    notes = gpx.data.preview("t.csv", table_with_totals(cell)).notes
    assert any(f'Row 41 has "{cell}" in "number"' in note for note in notes)


@pytest.mark.usefixtures("uploads_here")
def test_a_last_row_of_totals_is_left_out_where_it_has_no_value_of_an_input() -> None:
    cell, choice = "Summe", Choice(target="price", inputs=("a",))
    content = table_with_totals(cell)
    read = gpx.data.read_upload("t.csv", content, choice, "all")
    assert read.notes[-1].endswith("no value of an input: it was left out as a total.")
    assert (len(read.train), float(read.train.y.max())) == (40, 16.25)
    with_inputs = content.replace(f"{cell};;".encode(), f"{cell};200,5;".encode())  # this may be a row of its own
    assert len(gpx.data.read_upload("t.csv", with_inputs, choice, "all").train) == 41
    twice = content.replace(b"1003;", f"{cell};".encode())
    assert gpx.data.preview("t.csv", twice).notes == ()


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (
            ["a", "b", "c", ""],
            "3 different texts, each text an input of 0 and 1, 11 missing values, filled in as a text of",
        ),
        (["2023-01-05", "", "2023-02-20", ""], "dates: as an input, days since 1970, 22 missing values"),
        (["1.5", "n/a", "2.5", "3.5"], "11 missing values"),
    ],
)
def test_what_is_said_of_a_column_names_its_missing_values_whatever_its_kind(cells: list[str], words: str):
    rows = "".join(f"{cell};{k}.5\n" for k, cell in enumerate(cells * 11))
    about = gpx.data.preview("d.csv", f"shop;y\n{rows}".encode()).about[0]
    assert about.missing == 11 * sum(cell in ("", "n/a") for cell in cells)
    assert about.remark.startswith(words)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["2023-01-05", "2023-02-20", "2023-03-01"], "dates: as an input, days since 1970"),
        (["05.01.2023", "20.02.2023", "01.03.2023"], "dates, day/month/year: as an input, days since 1970"),
    ],
)
def test_what_is_said_of_dates_names_their_order_where_there_is_one(cells: list[str], words: str):
    rows = "".join(f"{cell};{k}.5\n" for k, cell in enumerate(cells * 4))
    assert gpx.data.preview("d.csv", f"day;y\n{rows}".encode()).about[0].remark == words
