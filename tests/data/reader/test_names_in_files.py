"""Names that are numbers, names of two lines, and letters with accents: the same columns and words at every door."""

from __future__ import annotations

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
from gpexplorer.errors import DataError
from gpexplorer.runs.studies.prediction_table import predictions_of_file

N = 40
RNG = np.random.default_rng(0)
LEFT, RIGHT = RNG.uniform(0, 5, N).round(3), RNG.uniform(0, 5, N).round(3)


def linear(data: Any, **choice: Any) -> Any:
    run = gpx.Spec("ml", kernel="linear", budget={"steps": 20}).open(data=gpx.load(data, split="all", **choice))
    run.finish()
    return run.posterior(of="y")


def rows_of(model: Any, path: Path, text: str) -> list[float]:
    path.write_text(text, "utf-8")
    table = pd.concat(list(predictions_of_file(model, path)))
    assert table.attrs["notes"] == []
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
    pd.DataFrame({"0": LEFT, "1": 10 * LEFT - RIGHT, "2": RIGHT}).to_csv(tmp_path / "t.csv", index=False)

    model = linear(tmp_path / "t.csv", target="1")

    assert model.columns.names == ("0", "2")
    assert rows_of(model, tmp_path / "new.csv", "2,0\n2,1\n") == pytest.approx([8], abs=0.5)
    assert (
        read_path(tmp_path / "t.csv").table.num_rows == N + 1
    )  # where nobody names a column, a line of numbers is a row


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("above", ["", "# measured twice\n", 'Yields,,\n"of all\nfields",,\n'])
@pytest.mark.parametrize("title", ['"left\n(kg)"', '"left \n  (kg)"'])
def test_a_name_of_two_lines_is_one_name(title: str, above: str, end: str, tmp_path: Path) -> None:
    lines = [f"{above}{title},right,y", *(f"{a},{b},{10 * a - b:.4f}" for a, b in zip(LEFT, RIGHT, strict=True))]
    (tmp_path / "t.csv").write_bytes("\n".join(lines).replace("\n", end).encode())

    model = linear(tmp_path / "t.csv")
    new = f'{above}right,{title},"of two\nlines"\n2,1,3\n0,3,4\n'.replace("\n", end)

    assert model.columns.names == ("left (kg)", "right")
    assert rows_of(model, tmp_path / "new.csv", new) == pytest.approx([8, 30], abs=0.5)
    assert [list(table.column_names) for table in strips(tmp_path / "new.csv")] == [
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
