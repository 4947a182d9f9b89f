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


MADE = {
    "Sum": lambda x: x.sum(), "Mean": lambda x: round(x.mean(), 2), "Average:": lambda x: x.mean(),
    "Min": lambda x: x.min(), "max": lambda x: x.max(), "std": lambda x: round(x.std(), 3), "count": len,
    "50%": lambda x: x.median(), "25%": lambda x: x.quantile(0.25), "Minimum": lambda x: x.min(),
}  # fmt: skip


@pytest.mark.parametrize("is_top", [False, True])
@pytest.mark.parametrize(
    "names",
    [("Sum", "Mean"), ("Mean", "Sum"), ("Average:",), ("Min", "max"),
     ("count", "Mean", "std", "Minimum", "25%", "50%", "max")],
)  # fmt: skip
def test_rows_of_statistics_at_either_end_are_left_out(tmp_path: Path, names: tuple[str, ...], is_top: bool) -> None:
    """Of several, only the last one was mentioned and the others were learned from; in front, none was."""
    table = SALES.assign(no=[f"item {k}" for k in range(45)])
    made = pd.DataFrame([{"no": name, **{c: MADE[name](table[c]) for c in SALES.columns[1:]}} for name in names])
    whole = pd.concat([made, table] if is_top else [table, made], ignore_index=True)
    split = loaded(tmp_path, whole, target="paid")
    assert split.train.y.tolist() == SALES.paid.tolist()
    assert split.train.X.tolist() == SALES[["units", "price"]].to_numpy().tolist()
    first = 1 if is_top else 46
    rows = ", ".join(str(first + k) for k in range(len(names)))
    (note,) = (own for own in split.notes if "statistic" in own)
    assert f"({rows}), with " in note
    assert note.startswith(f"{len(names)} row")
    assert all(f'"{name}"' in note for name in names)
    assert note.endswith(
        "left out." if not is_top else f"rows are counted without {'it' if first == len(names) else 'them'}."
    )
    raw = gpx.load(whole, target="paid", split="all")  # a frame
    assert len(raw.train) == 45


@pytest.mark.parametrize("lines", [["Sum,{0},{1},{2}"], [",{0},{1},{2}"], ["Sum,{0},{1},{2}", "Mean,,,120.0367"]])
def test_remarks_below_a_total_do_not_keep_it(tmp_path: Path, lines: list[str]) -> None:
    mean = f"{SALES.paid.mean():.4f}"
    below = [*(line.format(*SUMS).replace("120.0367", mean) for line in lines), "Source: the shop,,,", ",,,"]
    split = loaded(tmp_path, SALES.assign(no=[f"item {k}" for k in range(45)]), *below)
    assert split.train.y.tolist() == SALES.paid.tolist()
    assert any("left out" in note and "46" in note for note in split.notes)


@pytest.mark.parametrize(
    ("names", "change", "is_said"),
    [(("Total",), 1.01, True),
     (("Max",), 1.0, False), (("Max",), 1.01, False), (("Min", "Max"), 1.01, True), (("Sum", "Mean"), 1.01, True),
     (("Mean",), 1.01, True), (("Maxine", "Minnie"), 1.0, False)],
)  # fmt: skip
def test_rows_that_only_have_such_names_stay_and_are_mentioned(
    tmp_path: Path, names: tuple[str, ...], change: float, is_said: bool
) -> None:
    table = SALES.assign(no=[f"item {k}" for k in range(45)])
    made = {"Total": table.sum, "Sum": table.sum, "Mean": table.mean, "Min": table.min, "Minnie": table.min}
    rows = [{"no": name, **(change * made.get(name, table.max)(numeric_only=True)).to_dict()} for name in names]
    for parts in ([table, pd.DataFrame(rows)], [pd.DataFrame(rows[:1]), table]):
        split = loaded(tmp_path, pd.concat(parts, ignore_index=True), target="paid")
        assert len(split.train) == 45 + len(parts[1 if parts[0] is table else 0])
        is_first_name = parts[0] is not table and names[0] in ("Min", "Max")
        assert any("remove th" in own for own in split.notes) == (is_said and not is_first_name)


def test_a_total_in_front_is_left_out_unless_other_rows_have_its_name(tmp_path: Path) -> None:
    first = pd.DataFrame([{**SALES.sum().to_dict(), "no": "Total"}])
    for names, left in ((np.arange(45).astype(str), 45), (np.where(np.arange(45) % 9, "Rest", "Total"), 46)):
        split = loaded(tmp_path, pd.concat([first, SALES.assign(no=names)], ignore_index=True))
        assert len(split.train) == left
        assert any("rows are counted without it." in note for note in split.notes) == (left == 45)
