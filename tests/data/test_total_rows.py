"""Rows of totals, which are no rows of their own, and columns that number the rows in spite of a gap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpexplorer as gpx

RNG = np.random.default_rng(7)
SALES = pd.DataFrame({
    "no": np.arange(501, 546), "units": RNG.integers(1, 40, 45), "price": RNG.uniform(2.0, 9.0, 45).round(2),
})  # fmt: skip
SALES["paid"] = (SALES.units * SALES.price).round(2)
SUMS = [f"{SALES.units.sum()}", f"{SALES.price.mean():.4f}", f"{SALES.paid.sum():.2f}"]


def loaded(folder: Path, table: pd.DataFrame, *lines: str, **options: Any) -> Any:
    path = folder / "t.csv"
    path.write_text(table.to_csv(index=False) + "".join(f"{line}\n" for line in lines), "utf-8")
    return gpx.load(path, split="all", **options)


@pytest.mark.parametrize("name", ["", "Total", "Summe", "n/a"])
@pytest.mark.parametrize("options", [{}, {"target": "paid", "inputs": ["units", "price"]}])
def test_a_last_row_of_sums_without_a_name_is_left_out(tmp_path: Path, name: str, options: Any) -> None:
    """It was learned from, and made a column that counts the rows an input."""
    alone = loaded(tmp_path, SALES, **options)
    split = loaded(tmp_path, SALES, ",".join([name, *SUMS]), **options)
    assert split.train.names == alone.train.names == ("units", "price")
    assert split.train.X.tolist() == alone.train.X.tolist()
    assert split.train.y.max() == SALES.paid.max()
    assert split.train.reader.to_json() == alone.train.reader.to_json()
    says = 'Row 46 has the sum of the rows above it in "units", "paid" and no name in "no": it was left out as a total.'
    assert says in split.notes


@pytest.mark.parametrize(
    "last",
    [
        ["", "17", "4.25", "72.25"],
        ["", SUMS[0], "3.10", SUMS[2]],
        ["546", *SUMS],
        ["", "", "", str(SALES.paid.mean())],
    ],
)
def test_a_last_row_that_is_no_sum_or_has_a_name_stays(tmp_path: Path, last: list[str]) -> None:
    split = loaded(tmp_path, SALES, ",".join(last))
    assert len(split.train) == 46
    late = loaded(tmp_path, SALES.assign(late=""), ",".join([*last, "4"]), target="paid")  # nothing but this one number
    assert len(late.train) == 46
    assert not any("as a total" in note for note in split.notes)


def test_a_table_in_memory_loses_its_total_and_arrays_keep_theirs() -> None:
    total = {"no": None, "units": SALES.units.sum(), "price": SALES.price.mean(), "paid": SALES.paid.sum()}
    frame = pd.concat([SALES.astype({"no": float}), pd.DataFrame([total])], ignore_index=True)
    assert len(gpx.load(frame, target="paid", split="all").train) == 45
    arrays = frame[["units", "price"]].to_numpy(), frame.paid.to_numpy()
    assert len(gpx.load(arrays, split="all").train) == 46


@pytest.mark.parametrize("gap", [0, 20, 44])
@pytest.mark.parametrize("first", [0, 501])
def test_a_column_that_counts_the_rows_is_no_input_in_spite_of_a_gap(gap: int, first: int, tmp_path: Path) -> None:
    table = SALES.assign(no=np.arange(first, first + 45)).astype({"no": float})
    table.loc[gap, "no"] = np.nan
    split = loaded(tmp_path, table)
    assert split.train.names == ("units", "price")
    assert 'Columns that were left out: "no" (only counts the rows).' in split.notes
    step = table.assign(no=np.delete(np.arange(46), 10))  # a number that was left out counts no longer, but names
    assert loaded(tmp_path, step.rename(columns={"no": "level"})).train.names == ("level", "units", "price")


@pytest.mark.parametrize(
    ("word", "is_said"),
    [("north total", True), ("Total North", True), ("south: sum", True), ("east total", False), ("totality", False)],
)
def test_a_total_of_one_part_is_mentioned(tmp_path: Path, word: str, is_said: bool) -> None:
    site = np.where(np.arange(45) % 2, "north", "south").astype(object)
    site[[9, 30]] = word
    notes = [note for note in loaded(tmp_path, SALES.assign(no=site)).notes if "totals" in note]
    says = f'2 rows above the last one, the first of them row 10, have words such as "{word}" in "no": remove totals of'
    assert [note.startswith(says) for note in notes] == [True] * is_said
