"""The index of a DataFrame in a Parquet file or a table of Arrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gpexplorer as gpx

ROWS = 12
A = 0.5 * np.arange(ROWS) + 3.0
Y = np.sin(A)
WORDS = ["CC", "CCO"] * (ROWS // 2)


@pytest.mark.parametrize(("title", "index", "kind"), [
    ("lot", np.arange(ROWS)[::-1] * 3 + 40, "number"), ("season", WORDS, "words"),
    ("seen", pd.date_range("2020", periods=ROWS), "date"), (None, pd.date_range("2020", periods=ROWS), "date"),
])  # fmt: skip
def test_the_index_that_pandas_saves_is_no_column_unless_it_is_asked_for(
    title: str | None, index: Any, kind: str, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"a": A, "b": A**2 % 5.0, "y": Y}, index=pd.Index(index, name=title))
    frame.to_parquet(tmp_path / "t.parquet")
    own = title or "__index_level_0__"
    note = f'The index of the table ("{own}") is no column.\nkinds={{"{own}": "{kind}"}} makes it one.'
    for source in (tmp_path / "t.parquet", pa.Table.from_pandas(frame)):
        split = gpx.load(source, split="all")
        assert (split.train.target, split.train.names, split.notes) == ("y", ("a", "b"), (note,))
        assert gpx.load(source, split="all", drop=[own]).train.names == ("a", "b")
        asked = gpx.load(source, split="all", kinds={own: kind})
        assert (asked.train.target, len(asked.notes)) == ("y", 0)
        assert asked.train.names[0].startswith(own)
        np.testing.assert_array_equal(asked.train.y, Y)
    seen = gpx.data.preview("t.parquet", (tmp_path / "t.parquet").read_bytes())
    assert (seen.columns, seen.target, seen.notes) == (("a", "b", "y"), "y", (note,))
    assert gpx.load(tmp_path / "t.parquet", memory="mapped").notes[0] == note


def test_an_index_beside_a_single_column_is_its_input_and_one_without_a_meaning_is_not(tmp_path: Path) -> None:
    series = pd.DataFrame({"level": Y}, index=pd.date_range("2020", periods=ROWS, name="seen"))
    series.to_parquet(tmp_path / "t.parquet")
    split = gpx.load(tmp_path / "t.parquet", split="all")
    assert (split.train.target, split.train.names, split.notes) == ("level", ("seen",), ())
    pd.DataFrame({"a": A, "y": Y}, index=np.arange(ROWS)[::-1]).to_parquet(tmp_path / "u.parquet")
    assert gpx.load(tmp_path / "u.parquet").notes == ()
    table = pa.table({"a": A, "y": Y})
    for odd in (b"{", b"[1]", b'{"index_columns": 7}', b'{"index_columns": [{"kind": "range"}, "gone"]}', b"\xff"):
        pq.write_table(table.replace_schema_metadata({b"pandas": odd}), tmp_path / "v.parquet")
        assert gpx.load(tmp_path / "v.parquet", split="all").train.names == ("a",)
