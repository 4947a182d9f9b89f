"""Odd files and arrays: each is read as it was meant, or refused with a sentence that says what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse
import torch

import gpexplorer as gpx
from gpexplorer.data.files.delimited import delimited_strips
from gpexplorer.data.files.reading import read_path, strips
from gpexplorer.data.in_memory import table_of
from gpexplorer.errors import DataError

ROWS = 12
A = 0.5 * np.arange(ROWS) + 3.0
Y = np.sin(A)
X = np.random.default_rng(0).normal(size=(ROWS, 3)) + 5.0
WORDS = ["CC", "CCO"] * (ROWS // 2)
CSV = "a,y\n" + "\n".join(f"{a},{y}" for a, y in zip(A, Y, strict=True))


def column(cell: Callable[[int], str], between: str = ",") -> str:
    return f"a{between}y\n" + "\n".join(f"{cell(i)}{between}{i % 3}" for i in range(ROWS))


def archive(save: Callable[..., None] = np.savez, **arrays: Any) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def matlab() -> bytes:
    scipy.io.savemat(buffer := io.BytesIO(), {"X": X})
    return buffer.getvalue()


def array_file() -> bytes:
    np.save(buffer := io.BytesIO(), X)
    return buffer.getvalue()


FILES = {
    "zip.csv": (archive(X=X, y=Y), "a spreadsheet or a zip archive, despite its name"),
    "packed.csv": (gzip.compress(CSV.encode()), "compressed by gzip: add .gz to its name"),
    "named.csv": (b"PAR1...", "ends in .parquet"),
    "office.csv": (b"\xd0\xcf\x11\xe0\xa1\xb1" + bytes(100), "a spreadsheet or another file of Office"),
    "pdf.csv": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + bytes(9), "a PDF document, despite its name: copy its table"),
    "png.csv": (b"\x89PNG\r\n\x1a\n" + bytes(9), "a PNG picture, despite its name: choose the file that has"),
    "jpeg.csv": (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "a JPEG picture"),
    "gif.csv": (b"GIF89a\x01\0\x01\0", "a GIF picture"),
    "hdf5.csv": (b"\x89HDF\r\n\x1a\n" + bytes(9), "an HDF5 file, despite its name: give pandas.read_hdf"),
    "lite.csv": (b"SQLite format 3\0" + bytes(9), "an SQLite database, despite its name: give pandas.read_sql"),
    "mat.csv": (matlab(), "a file of MATLAB, despite its name: give the arrays that scipy.io.loadmat"),
    "npy.csv": (array_file(), "an array of NumPy, despite its name: give numpy.load"),
    "rds.csv": (gzip.compress(b"X\n\0\0\0\3\0\4\3\0"), "an RDS file of R, despite its name: save its table there"),
    "rds.csv.gz": (gzip.compress(b"X\n\0\0\0\3\0\4\3\0"), "an RDS file of R, despite its name"),
    "rdata.csv": (gzip.compress(b"RDX3\nX\n\0\0\0\3"), "an RData file of R"),
    "bz2.csv": (bz2.compress(CSV.encode()), "compressed by bzip2: unpack it first"),
    "xz.csv": (lzma.compress(CSV.encode()), "compressed by xz: unpack it first"),
    "zstd.csv": (pa.compress(CSV.encode(), "zstd", asbytes=True), "compressed by zstd: unpack it first"),
    "pickle.csv": (pickle.dumps({"a": 1}), "a pickle of Python, despite its name: it is not opened"),
    "binary.csv": (
        np.random.default_rng(0).bytes(6000),
        "not text .it has control characters, as pictures and archives",
    ),
    "short.csv": (b"\x7fELF\x02\x01\x01\0\0", "not text .it has control characters"),
    "without.csv": (CSV.encode("utf-16-le"), "zero bytes, as UTF-16 without its mark has.: save it as UTF-8"),
    "photo.png": (b"\x89PNG", "photo.png is a picture: give a table as .csv"),
    "feather.csv": (b"ARROW1" + bytes(100), "an Arrow or Feather file.* give pandas.read_feather"),
    "records.csv": ('[\n  {"a": 1, "y": 2},\n  {"a": 2, "y": 3}\n]', "JSON, despite its name: give pandas.read_json"),
    "parts.npz": (archive(X_train=X, y_train=Y, X_test=X, y_test=Y), 'matrix "X_train" \\[12, 3\\] beside "y_train"'),
    "header.csv": ("a,b,y", "a header and no rows below it"),
    "commas.csv": ("a;y\n" + "\n".join(f"{i},5{'' if i else '.2'};{i % 3},1" for i in range(ROWS)), 'row 1: "0,5.2"'),
    "units.csv": (column(lambda i: f"{i} {'kg' if i else 'g'}"), '"a" has text in row 1: "0 g".* remove that row'),
    "large.csv": (column(lambda i: f"{i + 1}e200"), "beyond 1e\\+150, so that its square is not a 64-bit number"),
    "a" * 300 + ".csv": (None, "cannot be read \\(File name too long\\)"),
    "b" * 300: (None, "no data set or file"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_unexpected_contents_is_refused_with_a_sentence(tmp_path: Path, name: str) -> None:
    content, says = FILES[name]
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=says):
        gpx.load(tmp_path / name if content is not None or name.endswith(".csv") else name)


@pytest.mark.parametrize("first", ["BZh", "X", "GIF", "PK", "RDX", "PAR"])
def test_a_column_whose_name_begins_as_other_files_do_is_read(tmp_path: Path, first: str) -> None:
    (tmp_path / "t.csv").write_text(CSV.replace("a", first, 1))
    assert gpx.load(tmp_path / "t.csv").train.names == (first,)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("n.csv.gz", gzip.compress(CSV.encode())[:-9], "n.csv.gz is not a complete gzip file"),
        ("n.csv.gz", gzip.compress(CSV.encode())[:15] + bytes(20), "n.csv.gz is not a complete gzip file"),
        ("n.csv.gz", CSV.encode(), "n.csv.gz is not a complete gzip file"),
        ("n.csv", b'a,w\n1,"u\n2,v\n3,v\n', "opens a quote that is never closed"),
    ],
    ids=["cut", "changed", "not packed", "open quote"],  # gzip writes the time, and all workers need the same names
)
def test_a_damaged_file_is_named_where_new_rows_are_read(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=says):
        list(strips(tmp_path / name))


def test_new_rows_of_an_archive_need_no_targets(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", X=X, y=Y)
    np.savez(tmp_path / "new.npz", X=X[:2])
    table = next(strips(tmp_path / "new.npz")).table
    assert table.column_names == ["x0", "x1", "x2"]
    reader = gpx.load(pd.DataFrame(X, columns=["x0", "x1", "x2"]).assign(y=Y), split="all").train.reader
    np.testing.assert_array_equal(reader.read(table).X, X[:2])


@pytest.mark.parametrize("key", ["feature_names", "columns"])
def test_names_in_an_archive_are_those_of_the_columns(key: str, tmp_path: Path) -> None:
    for names in (["size", "depth", "age"], ["size", "depth"]):
        np.savez(tmp_path / "t.npz", X=X, y=Y, **{key: names})
        split = gpx.load(tmp_path / "t.npz", split="all")
        assert split.train.names == (tuple(names) if len(names) == 3 else ("x0", "x1", "x2"))
        assert any("were left out" in note for note in split.notes) == (len(names) < 3)
    np.savez(tmp_path / "t.npz", X=X, y=Y, **{key: ["size", "y", "size"]})
    with pytest.raises(DataError, match="more than once"):
        gpx.load(tmp_path / "t.npz")


def test_lines_in_quotes_have_a_way_out(tmp_path: Path) -> None:
    for rows in ([f"{k},{k * k % 7}" for k in range(9)], [f"{k},{k * k % 7},2" for k in range(9)]):
        (tmp_path / "t.csv").write_text(
            "\n".join(f'"{row}"' for row in ["size,y" + ",z" * (rows[0].count(",") - 1), *rows])
        )
        with pytest.raises(DataError, match="each of its lines is in quotes as a whole, so remove these quotes"):
            gpx.load(tmp_path / "t.csv")


def test_damaged_archives_always_give_a_data_error(tmp_path: Path) -> None:
    path, rng, refused = tmp_path / "t.npz", np.random.default_rng(1), 0
    content = archive(np.savez_compressed, X=X, y=Y)
    for _ in range(150):
        damaged = bytearray(content)
        for place in rng.integers(len(content), size=3):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            gpx.load(path)
        except DataError as error:
            refused += "t.npz" in str(error)
    assert refused > 100


def test_a_file_without_permission_to_read_gives_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(CSV)

    def locked(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", locked)
    with pytest.raises(DataError, match=r'mine.csv" cannot be read \(Permission denied\)'):
        gpx.load(path)


MEANT = {
    "other order of bytes": (X.astype(">f8"), Y.astype(">f4")),
    "longer than 64 bits": (X.astype(np.longdouble), Y),
    "bfloat16": (torch.tensor(X).bfloat16(), torch.tensor(Y)),
    "with a gradient": (torch.tensor(X, requires_grad=True), torch.tensor(Y, requires_grad=True)),
    "negated lazily": (torch._neg_view(torch.tensor(-X)), torch.tensor(Y)),
    "sparse": (torch.tensor(X).to_sparse(), torch.tensor(Y)),
    "every other, backwards": (np.repeat(X, 2, 0)[::2, ::-1][:, ::-1], Y),
}


@pytest.mark.parametrize("name", MEANT)
def test_numbers_are_read_from_any_container(name: str) -> None:
    split = gpx.load(MEANT[name], split={"test": 0.25})
    same = gpx.load((X, Y), split={"test": 0.25})
    assert torch.allclose(split.train.X, same.train.X, rtol=1e-2 if name == "bfloat16" else 1e-12)
    assert torch.allclose(split.train.y, same.train.y, rtol=1e-6)


def test_an_archive_with_another_byte_order_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(archive(X=X.astype(">f8"), y=np.arange(ROWS).astype(">i4")))
    (tmp_path / "columns.npz").write_bytes(archive(a=A.astype(np.longdouble), y=Y.astype(">f8")))
    assert set(gpx.load(tmp_path / "x.npz").train.y.tolist()) <= set(range(ROWS))
    assert set(gpx.load(tmp_path / "columns.npz").train.X[:, 0].tolist()) <= set(A.tolist())


@pytest.mark.parametrize("texts", [WORDS, tuple(WORDS), np.array(WORDS), pd.Series(WORDS)], ids=type)
def test_texts_are_objects_in_any_container(texts: Any) -> None:
    split = gpx.load((texts, Y))
    assert set(split.train.X) == {"CC", "CCO"}
    assert split.train.names == ("object",)


def test_masked_entries_of_an_array_are_missing_values() -> None:
    hidden = np.ma.masked_less(X, 4.5)
    with pytest.raises(DataError, match=f"has {int(hidden.mask.sum())} missing values"):
        gpx.load((hidden, Y))
    kept = gpx.load((hidden, Y), missing="drop")
    assert len(kept.train) + len(kept.test) == int((~hidden.mask.any(1)).sum())


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        (
            (scipy.sparse.csr_matrix(X), Y),
            "X is a csr_matrix and not rows of numbers: give an array, such as its toarray",
        ),
        ((X, None), "y is a NoneType and not rows of numbers"),
        (((v for v in A), Y), "X is a generator"),
        ((X, 1e200 * Y), "beyond 1e\\+150"),
        ((X, 1e-300 * Y), 'column "y" varies by 1.9.e-300 in all, less than 1e-150.* multiplied by 1e200'),
        ((1e-200 * X, Y), 'column "x0" varies by .*e-200 in all'),
        (
            (pd.DataFrame(X), pd.Series(Y).sort_values()),
            "y has the index of X in another order",
        ),
    ],
)
def test_a_pair_that_is_not_rows_and_targets_is_refused_with_a_sentence(pair: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        gpx.load(pair)


def test_targets_far_from_one_are_scored_as_those_near_one() -> None:
    scores = []
    for unit in (1.0, 1e-140, 1e140):
        run = gpx.Spec("cholesky", budget={"steps": 2}).open(data=(X, unit * Y))
        run.finish()
        scores.append(run.scores())
    for other in scores[1:]:
        assert {k: other[k] for k in ("smse", "snlp")} == pytest.approx({k: scores[0][k] for k in ("smse", "snlp")})


def test_frames_with_unusual_columns_are_read_or_refused() -> None:
    frame = pd.DataFrame({"a": A, "y": Y})
    days = pd.date_range("2020", periods=ROWS)
    for odd in ([np.arange(3)] * ROWS, [f"{word} {i}" for i, word in enumerate(WORDS)]):
        split = gpx.load(frame.assign(odd=odd), target="y")
        assert split.train.names == ("a",), odd
        assert 'left out: "odd"' in split.notes[0]
    split = gpx.load(frame.assign(odd=days.astype("datetime64[ns]")), target="y")
    assert split.train.names == ("a", "odd")  # days, whatever their unit in the frame
    assert split.train.X[:, 1].min() > 18262.0 - 1.0
    bins = gpx.load(frame.assign(odd=pd.cut(A, 3), month=pd.period_range("2020", periods=ROWS, freq="M")), target="y")
    assert bins.train.names[1:4] == tuple(f"odd = {level}" for level in sorted(map(str, pd.cut(A, 3).categories)))
    assert bins.train.names[-1] == "month"
    indexed = gpx.load(frame.assign(b=A % 2).set_index(days.rename("when")), target="y")
    assert indexed.notes == ('The index of the table ("when") is no column: frame.reset_index() makes it one.',)
    assert gpx.load(frame.set_index(pd.Index(A)), target="y").notes == ()
    numbered = pd.DataFrame(np.c_[A, A % 2, Y])
    assert gpx.load(numbered, target=2, inputs=0).train.names == ("0",)
    assert gpx.load(numbered, drop=0).train.names == ("1",)


@pytest.mark.parametrize(
    "words",
    [
        lambda words: pa.array(words, pa.string_view()),  # as polars lends texts
        lambda words: pa.DictionaryArray.from_arrays([0, 1] * (ROWS // 2), pa.array(words[:2], pa.string_view())),
        lambda words: pa.array(words, pa.large_string()).dictionary_encode(),
    ],
)
def test_tables_of_other_libraries_are_those_of_pandas_at_every_door(words: Any, tmp_path: Path) -> None:
    frame, table = pd.DataFrame({"a": A, "odd": WORDS, "y": Y}), pa.table({"a": A, "odd": words(WORDS), "y": Y})
    pq.write_table(table.set_column(1, "odd", pa.array(WORDS, pa.string_view())), tmp_path / "t.parquet")
    of_pandas = gpx.load(frame, split="all").train
    for source in (table, tmp_path / "t.parquet", table.to_batches()[0]):
        read = gpx.load(source, split="all").train
        assert read.names == of_pandas.names == ("a", "odd = CCO")
        assert torch.equal(read.X, of_pandas.X)
    for again in (table_of(table), *(strip.table for strip in strips(tmp_path / "t.parquet"))):
        np.testing.assert_array_equal(of_pandas.reader.read(again).X, of_pandas.X)
    X = table.select(["a", "odd"])
    model = gpx.Estimator("ml", kernel="linear", budget={"steps": 1}).fit(X, table["y"])
    np.testing.assert_array_equal(model.predict(X), model.predict(frame[["odd", "a"]]))
    assert list(model.feature_names_in_) == ["a", "odd"]


def test_a_column_of_lists_is_left_out_and_a_name_that_occurs_twice_is_named() -> None:
    nested = pa.table({"a": A, "odd": [[1.0, 2.0]] * (ROWS - 1) + [None], "y": Y})
    assert gpx.load(nested).notes == ('Columns that were left out: "odd" (cells of type list<item: double>).',)
    with pytest.raises(DataError, match='column "odd" has cells of type list<item: double>, where a number is needed'):
        gpx.load(nested, target="odd")
    with pytest.raises(DataError, match='has the column "a" more than once'):
        gpx.load(pa.Table.from_arrays([pa.array(A)] * 2, ["a", "a"]))
    with pytest.raises(DataError, match="or a DataFrame of columns"):
        gpx.load({"a": A, "y": Y})


@pytest.mark.parametrize("theta", [[1e9, 0.0, 0.0], [True, True, True], [float("nan")] * 3, "x"])
def test_a_draw_from_a_gaussian_process_refuses_a_wrong_theta(theta: Any) -> None:
    with pytest.raises(DataError, match="each from -100 to 100"):
        gpx.load("gp-draw", theta=theta)


@pytest.mark.parametrize(
    ("split", "says"),
    [
        ({}, "a split by nothing"),
        ({1: 2, "a": 3}, 'a split by "1", "a"'),
        ({"test": 10**400}, "is not a number"),  # beyond any float
        ({"before": -(10**400)}, "is not a number"),
    ],
)
def test_descriptions_of_splits_that_do_not_exist_are_refused(split: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        gpx.load("snelson-like", split=split)


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("size\n4\n\n5\n6\n", ["4", "", "5", "6"]),  # a cell without a value, as spreadsheets write it
        ("size\n4\n5\n6\n\n\n", ["4", "5", "6"]),  # lines that an editor left
        ("size\r\n\r\n4\r\n\r\n\r\n5\r\n\r\n", ["", "4", "", "", "5"]),
        ('size\n4\n""\n5\n""\n', ["4", "", "5", ""]),  # pandas writes gaps so
        ("\n\nsize\n4\n5", ["4", "5"]),
        ("size;place\n4;a\n\n5;b\n\n", ["4", "5"]),  # of several columns a gap is not a blank line
    ],
)
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_blank_lines_are_gaps_between_the_rows_of_one_column_and_nothing_elsewhere(
    tmp_path: Path, text: str, cells: list[str], ending: str
) -> None:
    path = tmp_path / f"new{ending}"
    path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    assert read_path(path).table["size"].to_pylist() == cells
    for block in (11, 1000):  # strips of two or three rows, and the whole file
        read = [cell for strip, _ in delimited_strips(path, path.name, block) for cell in strip["size"].to_pylist()]
        assert read == cells


@pytest.mark.parametrize(
    ("rows", "cells"),
    [
        (["2021-03-01 06:30", "2021-03-02 18:00"], None),
        (["3 May", "4 June"], ["May", "June"]),  # no date without a year: names of rows, as R writes them, and a column
        (["May 2021", "June 2021"], None),
        (["5 kg", "5.5 kg"], None),
        (["50 %"], None),
        (["2 h", "30 m"], None),
        (["02:00 PM", "3:15 AM"], None),
        (["5 000", "6 250"], None),
        (["1 000"], None),
        (["1 234", "2 567"], ["234", "567"]),  # counted rows
        (["1 0.5", "2 0.7"], ["0.5", "0.7"]),
        (["Mazda 21.0", "Volvo 18.5"], ["21.0", "18.5"]),
    ],
)
def test_a_blank_within_the_cells_of_one_column_separates_no_columns(
    tmp_path: Path, rows: list[str], cells: list[str] | None
) -> None:
    path = tmp_path / "new.csv"
    path.write_text("\n".join(["value", *rows]))
    assert read_path(path).table["value"].to_pylist() == (cells or rows)
    assert [cell for strip in strips(path) for cell in strip.table["value"].to_pylist()] == (cells or rows)
