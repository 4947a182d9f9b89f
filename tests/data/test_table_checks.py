"""Which numbers of a table are asked about."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gpexplorer as gpx
from gpexplorer.data.reader.table_reader import reader_from
from gpexplorer.data.table_checks import note_on_stand_in, stand_ins


@pytest.mark.parametrize(
    ("others", "code", "rows", "is_asked"),
    [
        ([1.0, 2.0], -999, 3, True),
        ([1.0, 2.0, 3.0], -999, 1, True),
        ([1.0, 2.0, 3.0], 8, 3, True),
        ([1.0, 2.0, 3.0], 88, 5, True),
        ([0.25, 0.5, 7.5], 99, 3, True),
        ([1.0, 2.0, 3.0], -88, 3, True),
        ([1.0, 2.0, 3.0], 88, 2, False),
        ([1.0, 2.0], 99, 3, False),
        ([1.0, 2.0, 4.0], 9, 3, False),
        ([1.0, 2.0, 4.0], 77, 3, False),
        ([10.0, 20.0, 40.0], 99, 30, False),
        ([1.0, 2.0, 3.0], 98, 3, False),
    ],
)
def test_short_codes_are_asked_about_where_they_are_repeated_far_from_the_others(
    others: list[float], code: float, rows: int, is_asked: bool
) -> None:
    notes = note_on_stand_in("a", np.array(others * 10 + [code] * rows))
    says = f'"a" is {code} in {rows} cell{"s" * (rows > 1)} and from {others[0]:g} to {others[-1]:g} in the others: '
    assert [note.startswith(says) for note in notes] == [True] * is_asked


def repeated(values: list[float], codes: list[float], rows: int = 4) -> np.ndarray:
    return np.array(values * 6 + codes * rows, dtype=float)


AGES = [float(age) for age in range(21, 84)]


@pytest.mark.parametrize(
    ("others", "codes"),
    [
        ([0.0, 1.0, 2.0, 3.0], [-99, -88]),
        ([0.0, 1.0, 2.0, 3.0, 8.0], [88, 99]),  # 8 is one of the others
        ([0.0, 1.0, 2.0, 3.0], [97, 98, 99]),
        (AGES, [998, 999]),
        (AGES, [-999, 9999]),
        ([12.5, -3.0, 28.0], [-9999, -8888]),
        ([12.5, -3.0, 28.0], [-999.9, -99.9]),
        ([-5.0, 310.0, 42.0], [-32767]),
        ([4.0, 9.0, 9.5], [-(2.0**31) + 1]),
    ],
)
def test_several_codes_of_one_column_are_asked_about_together(others: list[float], codes: list[float]) -> None:
    values = repeated(others, codes)
    assert stand_ins(values) == codes
    (note,) = note_on_stand_in("a", values)
    shown = ", ".join(f"{code:.10g} in 4 cells" for code in codes)
    assert note.startswith(f'"a" is {shown} and from {min(others):g} to {max(others):g} in the others: ')
    kind = re.search('kinds={"a": "(number missing [^"]+)"}', note)[1]
    for kinds in ({"a": kind}, {"a": kind.replace("number", "number 1,234.5")}):
        frame = pd.DataFrame({"a": values, "y": np.arange(len(values)) % 7})
        reader = gpx.load(frame, split="all", kinds=kinds).train.reader
        read = reader_from(reader.to_json()).read(pa.table({"a": values}))
        assert [why == "filled: a" for why in read.why] == np.isin(values, codes).tolist()
        assert reader.decisions == {"a": kind.replace("number", "number 1,234.5")}


@pytest.mark.parametrize(
    "values",
    [
        [*AGES, 88.0, 99.0],  # some people are as old as that
        [1.0, 2.0, 3.0, *map(float, range(990, 1000))],  # two clusters
        [10.0, 20.0, 33.0, 98.0],  # 98 alone is none
        [512.0, 1024.0, 2048.0, 32768.0, 65536.0],
        [8.0, 9.0, 88.0, 99.0],
    ],
)
def test_numbers_that_may_be_meant_are_not_asked_about(values: list[float]) -> None:
    assert stand_ins(repeated(values, [])) == []


def test_two_dates_that_stand_for_gaps_are_found_together() -> None:
    days = np.array([17500.0, 17900.0, 18400.0] * 5 + [float(np.datetime64("9999-12-31", "D").astype(int)), -25567.0])
    assert note_on_stand_in("seen", days, are_dates=True) == (
        '"seen" is 1900-01-01 in 1 cell, 9999-12-31 in 1 cell and from 2017-11-30 to 2020-05-18 in the others: '
        "leave such cells empty if they are gaps.",
    )
