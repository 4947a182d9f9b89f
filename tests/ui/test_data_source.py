"""The list of data sets: their sizes, and that of the one that is open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpexplorer import Spec
from gpexplorer.data.reader.date_format import DateFormat
from gpexplorer.data.reader.number_format import NumberFormat
from gpexplorer.data.table_checks import note_on_stand_in
from gpexplorer.ui.inputs.data_source import DataSource


def titles(sources: DataSource) -> list[str]:
    return [label for _, labels in sources.names.groups for label in labels]


def sources(data: Any) -> DataSource:
    return DataSource(Spec("cholqr", data=data), lambda *_: None, lambda _: None, lambda _: None)


def test_what_is_open_has_the_size_that_was_asked_for() -> None:
    source = sources({"name": "friedman1", "n": 2000, "d": 6})

    assert source.names.value == "friedman1"
    assert "friedman1 · 2,000 × 6" in titles(source)
    source.adopt(Spec("cholqr", data="sin-product"))
    assert source.names.value == "sin-product"
    assert "friedman1 · 1,000 × 10" in titles(source)


@pytest.mark.parametrize("data", [{"name": "friedman1", "n": "many"}, {"name": "upload"}])
def test_what_has_no_size_or_no_name_changes_nothing(data: dict[str, str]) -> None:
    source = sources(data)

    assert titles(source) == titles(sources("sin-product"))
    assert source.names.value == ("friedman1" if data["name"] == "friedman1" else None)


def test_a_note_on_a_file_names_no_option_of_a_program() -> None:
    areas = np.r_[np.linspace(25.0, 139.0, 50), [-999.0] * 5]
    (note,) = note_on_stand_in("area (m2)", areas)
    assert "kinds=" in note
    marks = '"a": ' + NumberFormat().doubt(["1,234"]).format(name='"a"')
    (order,) = DateFormat(order="dmy", certain=False).doubts('"when"', 0.0, 1.0)
    assert all("\nkinds=" in each for each in (note, marks, order))
    source = sources({"name": "upload"})

    source.describe(50, 5, 1, (note, marks, order))

    assert "in the others: does it stand for a missing value?" in source.note.object
    assert "its commas were read as marks of thousands." in source.note.object
    assert source.note.object.endswith("they were read in the order dmy.</span>")
    assert "kinds" not in source.note.object
    assert "kinds" not in source.names.hint


def test_rows_that_are_not_open_yet_have_no_size() -> None:
    """The list said "mine.csv", and the line below it had the numbers of rows of the data before."""
    source = DataSource(Spec("cholqr"), lambda *_: None, lambda _: None, lambda _: None)
    source.describe(180, 20, 1, ())
    assert "180 training rows" in source.note.object

    source.names.enter("friedman1")

    assert "not open yet" in source.note.object
    assert source.summary == "friedman1"
    source.describe(40, 4, 10, ())
    assert "40 training rows, 4 test rows" in source.note.object
    assert source.summary == "friedman1, 40 rows"
