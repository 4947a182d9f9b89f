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
from gpexplorer.errors import DataError

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


@pytest.mark.parametrize(("title", "index"), [
    ("seen", pd.date_range("2020", periods=ROWS)), (None, pd.date_range("2020", periods=ROWS)),
    (None, pd.date_range("2020", periods=ROWS, tz="UTC")), ("month", pd.period_range("2020", periods=ROWS, freq="M")),
    (None, pd.period_range("2020", periods=ROWS, freq="M")), (None, pd.timedelta_range("2h", periods=ROWS, freq="h")),
    ("metres", np.arange(ROWS) * 0.3), ("lot", np.arange(ROWS)[::-1] * 3 + 40), ("season", WORDS),
    ("row", pd.RangeIndex(5, 5 + ROWS)),
])  # fmt: skip
def test_the_index_of_a_frame_of_one_column_is_its_input(title: str | None, index: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame({"level": Y}, index=pd.Index(index, name=title))
    own = title or "index"
    beside = frame.reset_index(names=own)
    expected, split = gpx.load(beside, split="all"), gpx.load(frame, split="all")
    assert (split.train.target, split.train.names, split.notes) == ("level", expected.train.names, expected.notes)
    np.testing.assert_array_equal(split.train.X, expected.train.X)
    run = gpx.Spec("cholesky", budget={"steps": 1}, split="all").open(data=frame)
    run.finish()
    posterior = run.posterior(of="y")
    new = frame.iloc[3:7]
    for rows in (new, new[[]], beside.iloc[3:7]):  # the index alone, as of rows without a target
        np.testing.assert_allclose(posterior.mean(rows), posterior.mean(split.train.X[3:7]))
    if title is not None:
        posterior.save(tmp_path / "model")
        np.testing.assert_allclose(gpx.load_posterior(tmp_path / "model").mean(new), posterior.mean(new))


def test_an_index_of_several_parts_and_one_that_is_asked_for_are_columns() -> None:
    days = pd.date_range("2020", periods=ROWS, name="seen")
    pairs = pd.MultiIndex.from_arrays([days, WORDS], names=["seen", "place"])
    split = gpx.load(pd.DataFrame({"level": Y}, index=pairs), split="all")
    assert split.train.names[0] == "seen"
    assert {name.partition(" = ")[0] for name in split.train.names} == {"seen", "place"}
    frame = pd.DataFrame({"a": A, "level": Y}, index=days)
    assert gpx.load(frame, split="all", inputs=["seen"]).train.names == ("seen",)
    assert gpx.load(frame, split="all", kinds={"seen": "date"}).train.names == ("seen", "a")
    assert gpx.load(frame, split="all", drop=["seen"]).train.names == ("a",)


def test_a_frame_of_one_column_without_a_meaningful_index_is_refused_in_words_of_a_frame(tmp_path: Path) -> None:
    one = pd.DataFrame({"level": Y})
    for frame in (one, one.iloc[::-1], one.rename_axis("level"), pa.table({"level": Y}), one.set_axis(WORDS)):
        with pytest.raises(DataError, match=r'beside the target "level": add one') as error:
            gpx.load(frame)
        assert "semicolons" not in str(error.value)
        assert "frame.reset_index()" in str(error.value)
    with pytest.raises(DataError, match="add one"):
        gpx.load(pd.DataFrame({"word": WORDS}))
    one.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r'beside the target "level": add one\.'):
        gpx.load(tmp_path / "t.parquet")


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
