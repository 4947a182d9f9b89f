"""New rows that are written otherwise than those of training are read as they are meant, or named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from gpexplorer.data.reader.column_reader import column_reader


def column(cells: list[Any]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(cells)])


@pytest.mark.parametrize(("trained", "mark", "other"), [(["1.5", "2.25"], ".", ","), (["1,5", "2,25"], ",", ".")])
def test_a_new_file_with_the_other_decimal_mark_is_not_read_as_thousands(
    trained: list[str], mark: str, other: str
) -> None:
    reader = column_reader("c", column(trained))
    cells = reader.cells(column([f"1{other}234", f"2{other}5", "3", ""]))
    assert cells.unreadable.tolist() == [True, True, False, False]
    np.testing.assert_array_equal(cells.values, [np.nan, np.nan, 3, np.nan])
    dates = column_reader("when", column(["2021-03-01", "2021-05-17"]))
    assert dates.cells(column(["03/02/2021", "03/16/2021", "2021-03-16"])).unreadable.tolist() == [True, True, False]
    assert dates.contradicted_by(column(["03/16/2021"]))  # in another strip of the file
    assert dates.cells(column(["03/02/2021", "2021-03-16"]), True).unreadable.tolist() == [True, False]
    assert not dates.contradicted_by(column(["03/02/2021"]))
    np.testing.assert_array_equal(
        reader.cells(column([f"1{other}234", f"1{other}234{mark}5", "x"])).values, [1234, 1234.5, np.nan]
    )


def test_durations_of_a_frame_are_those_of_its_file() -> None:
    lasted = pd.Series(pd.to_timedelta([40.5, 3.0, 0.25], unit="h"))
    typed = pa.chunked_array([pa.array(lasted.to_numpy().astype("timedelta64[us]"))])
    texts = column([str(cell) for cell in lasted])
    for reader in (column_reader("c", typed), column_reader("c", texts)):
        for cells in (typed, texts):
            np.testing.assert_allclose(reader.cells(cells).values, [40.5 / 24, 0.125, 0.25 / 24], rtol=1e-12)
    assert column_reader("c", column(["1:30:00", "2:00:00"])).kind == "time of day"
    assert column_reader("c", column(["5.5", "4.5"])).cells(column(["27:30:00"])).unreadable.all()
