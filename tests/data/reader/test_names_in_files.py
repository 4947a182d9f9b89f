"""Names that are numbers, names of two lines, and letters with accents: the same columns and words at every door."""

from __future__ import annotations

import re
import unicodedata
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gpexplorer as gpx
from gpexplorer.data.files.reading import read_path, strips
from gpexplorer.data.reader.column_reader import column_reader
from gpexplorer.data.uploads import read_rows
from gpexplorer.errors import DataError
from gpexplorer.runs.studies.prediction_table import predictions_of_file

N = 40
RNG = np.random.default_rng(0)
LEFT, RIGHT = RNG.uniform(0, 5, N).round(3), RNG.uniform(0, 5, N).round(3)


def linear(data: Any, **choice: Any) -> Any:
    run = gpx.Spec("ml", kernel="linear", budget={"steps": 20}).open(data=gpx.load(data, split="all", **choice))
    run.finish()
    return run.posterior(of="y")


def rows_of(model: Any, path: Path, text: str, says: str = "") -> list[float]:
    path.write_text(text, "utf-8")
    table = pd.concat(list(predictions_of_file(model, path)))
    assert re.fullmatch(says, " ".join(table.attrs["notes"]))
    return [float(mean) for mean in table["mean"]]


@pytest.mark.parametrize(("first", "second"), [("0", "1"), ("2019", "1850"), ("0.5", "-3"), ("1", "0")])
def test_names_that_are_numbers_are_no_row_of_a_new_file(first: str, second: str, tmp_path: Path) -> None:
    model = linear(pd.DataFrame({first: LEFT, second: RIGHT, "y": 10 * LEFT - RIGHT}), target="y")

    assert rows_of(model, tmp_path / "new.csv", f"{first},{second}\n1,2\n3,0\n") == pytest.approx([8, 30], abs=0.5)
    assert rows_of(model, tmp_path / "new.csv", f"{second},{first}\n2,1\n") == pytest.approx([8], abs=0.5)
    assert rows_of(model, tmp_path / "new.csv", f"{second} {first}\n2 1\n0 3\n") == pytest.approx([8, 30], abs=0.5)


def test_names_that_are_numbers_are_no_row_of_a_file_of_several_strips(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(strips, "__defaults__", (8, ()))  # of 800 bytes
    model = linear(pd.DataFrame({"7": LEFT, "8": RIGHT, "y": 10 * LEFT - RIGHT}), target="y")

    means = rows_of(model, tmp_path / "new.csv", "8,7\n" + "2,1\n" * 600)

    assert means == pytest.approx([8] * 600, abs=0.5)


def test_a_column_that_is_asked_for_by_a_number_is_a_name(tmp_path: Path) -> None:
    pd.DataFrame({"0": LEFT, "7": 10 * LEFT - RIGHT, "2": RIGHT}).to_csv(tmp_path / "t.csv", index=False)

    model = linear(tmp_path / "t.csv", target="7")

    assert model.columns.names == ("0", "2")
    assert rows_of(model, tmp_path / "new.csv", "2,0\n2,1\n") == pytest.approx([8], abs=0.5)
    assert (
        read_path(tmp_path / "t.csv").table.num_rows == N + 1
    )  # where nobody names a column, a line of numbers is a row


@pytest.mark.parametrize("start", [0, 1])
def test_a_count_of_the_columns_names_them(start: int, tmp_path: Path) -> None:
    """As pandas writes a frame without names."""
    count = range(start, start + 3)
    pd.DataFrame(np.column_stack([LEFT, RIGHT, 10 * LEFT - RIGHT]), columns=count).to_csv(
        tmp_path / "t.csv", index=False
    )
    model = linear(tmp_path / "t.csv")
    assert model.columns.names == (str(start), str(start + 1))
    notes = gpx.load(tmp_path / "t.csv").notes
    assert any(f'because "{start}" to "{start + 2}" count the columns' in note for note in notes)

    of_arrays = linear((np.column_stack([LEFT, RIGHT]), 10 * LEFT - RIGHT))
    new = f"{start},{start + 1}\n1.5,2.0\n3.0,0.5\n"
    says = 'The first line was read as the names of the columns, because "{}" to "{}" count the columns: .*'
    says = says.format(start, start + 1)
    assert rows_of(of_arrays, tmp_path / "new.csv", new, says) == pytest.approx([13, 29.5], abs=0.5)


@pytest.mark.parametrize(
    "rows", ["0,1\n1,0.54\n2,-0.42\n", "1,2,3\n2,3,4\n4,4,5\n", "1,2\n2.5,4\n3.5,6\n", "0\n0.5\n0.75\n"]
)
def test_a_first_row_that_rises_by_one_is_a_row_where_the_others_are_alike(rows: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(rows)
    for raw in (read_path(tmp_path / "t.csv"), next(strips(tmp_path / "t.csv"))):
        assert raw.rows == 3
        assert "The first line contains only numbers, so it was read as data" in raw.notes[0]


@pytest.mark.parametrize("header", ["length", "LENGTH ", '"length"'])
@pytest.mark.parametrize(
    ("new", "means"),
    [
        (["2,5"], [25]),
        (["2,5", "1,0"], [25, 10]),
        (["0,25", "3", "4,75", "1,5"], [2.5, 30, 47.5, 15]),
    ],
)
def test_a_comma_below_the_only_name_is_a_decimal_mark(
    header: str, new: list[str], means: list[float], tmp_path: Path
) -> None:
    rows = [f"{x:.2f};{10 * x:.1f}".replace(".", ",") for x in LEFT]
    (tmp_path / "t.csv").write_text("\n".join(["length;y", *rows]))
    model, text = linear(tmp_path / "t.csv"), "\n".join([header, *new])

    assert rows_of(model, tmp_path / "new.csv", text) == pytest.approx(means, abs=0.2)
    (tmp_path / "new.csv").write_text(text)
    read = read_rows("new.csv", text.encode(), inputs=model.model_inputs)
    assert read.X[:, 0].tolist() == pytest.approx([mean / 10 for mean in means])
    assert read.notes == ()


def test_a_comma_is_a_mark_of_thousands_where_training_says_so_and_names_of_rows_stay(tmp_path: Path) -> None:
    model = linear(pd.DataFrame({"x": [f"{1000 * x:,.1f}" for x in LEFT], "y": 10000 * LEFT}))
    says = "The first line has one name fewer than rows have cells: they belong to the columns after the first."

    assert rows_of(model, tmp_path / "new.csv", "x\n1,500\n2,000\n2,250") == pytest.approx([15e3, 2e4, 22.5e3], 0.02)
    named = 'x\n"1",1500.5\n"2",2000\n'
    assert rows_of(model, tmp_path / "new.csv", named, f"{says} Columns .*") == pytest.approx([15e3, 2e4], rel=0.02)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("above", ["", "# measured twice\n", 'Yields,,\n"of all\nfields",,\n'])
@pytest.mark.parametrize("title", ['"left\n(kg)"', '"left \n  (kg)"'])
def test_a_name_of_two_lines_is_one_name(title: str, above: str, end: str, tmp_path: Path) -> None:
    lines = [f"{above}{title},right,y", *(f"{a},{b},{10 * a - b:.4f}" for a, b in zip(LEFT, RIGHT, strict=True))]
    (tmp_path / "t.csv").write_bytes("\n".join(lines).replace("\n", end).encode())

    model = linear(tmp_path / "t.csv")
    new = f'{above}right,{title},"of two\nlines"\n2,1,3\n0,3,4\n'.replace("\n", end)

    assert model.columns.names == ("left (kg)", "right")
    says = "Lines above the names of the columns were skipped: .*" if above else ""
    assert rows_of(model, tmp_path / "new.csv", new, says) == pytest.approx([8, 30], abs=0.5)
    assert [strip.table.column_names for strip in strips(tmp_path / "new.csv")] == [
        ["right", "left (kg)", "of two lines"]
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [('5" pipe,x', ""), ("plain,line", ""), ('a,"b', "closed|2 cells"), ('"a",b "c", d', "4 cells"), ('"a,",b', "")],
)
def test_a_quote_in_a_cell_takes_no_other_line(line: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"left,right,y\n{line},3\n" + "1,2,3\n" * 30)
    with pytest.raises(DataError, match=says) if says else nullcontext():
        table = read_path(tmp_path / "t.csv").table
        assert (table.num_rows, table.column_names) == (31, ["left", "right", "y"])


@pytest.mark.parametrize("trained", ["NFC", "NFD"])
def test_a_letter_and_its_accent_are_one_character_or_two(trained: str, tmp_path: Path) -> None:
    new = "NFD" if trained == "NFC" else "NFC"
    words = np.where(LEFT > 2.5, "Möwe", "é")
    frame = pd.DataFrame({"größe": RIGHT, "vogel": words, "y": RIGHT + 10.0 * (words == "é")})

    def composed(text: str, form: Any) -> str:
        return unicodedata.normalize(form, text)

    (tmp_path / "t.csv").write_text(composed(frame.to_csv(index=False), trained), "utf-8")
    of_file = linear(tmp_path / "t.csv")
    of_frame = linear(
        frame.map(lambda v: composed(v, trained) if isinstance(v, str) else v).rename(
            columns=lambda name: composed(name, trained)
        )
    )
    text = composed("größe,vogel\n1,Möwe\n1,é\n", new)

    for model in (of_file, of_frame):
        assert rows_of(model, tmp_path / "new.csv", text) == pytest.approx([1, 11], abs=0.5)


def test_a_word_in_both_forms_is_one_word() -> None:
    forms = [unicodedata.normalize(form, word) for word in ("né", "Möwe") for form in ("NFC", "NFD")]

    levels = column_reader("word", pa.chunked_array([forms * 3 + ["plain"] * 4])).levels

    assert dict(zip(levels.names, levels.counts, strict=True)) == {"Möwe": 6, "né": 6, "plain": 4}
