"""Figures of Evans and Nair (2018): a small part of each, with its picture."""

from __future__ import annotations

import holoviews as hv
import pandas as pd
import pytest

from papers import grief_figures as figures
from papers import grief_table as table


def test_each_method_is_scored_on_a_surface_from_ten_rows():
    rows = figures.work1(figures.units1(full=False)[0])

    assert [row["method"] for row in rows] == list(figures.surfaces())
    assert all(0.05 < row["rmse"] < 0.8 for row in rows)
    hv.render(figures.plot1(pd.DataFrame(rows)), backend="bokeh")


def test_the_grid_is_closest_to_the_best_approximation_in_many_inputs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(figures, "SIZES", (1, 5, 20))
    monkeypatch.setattr(figures, "D", 30)
    monkeypatch.setattr(figures, "MBAR", 15)
    frame = pd.DataFrame([
        row for way in ("best", "GP-GRIEF", "Fourier", "Nystrom")
        for row in figures.work2({"way": way, "seed": 0, "n": 120})
    ])  # fmt: skip

    for _, part in frame.groupby(["judged", "p"]):
        error = part.set_index("way")["error"]
        assert error["best"] <= error["GP-GRIEF"] + 1e-9
        if part["p"].iloc[0] <= 20:
            assert error["GP-GRIEF"] < error["Nystrom"]
        assert error["GP-GRIEF"] < error["Fourier"]
    hv.render(figures.plot2(frame), backend="bokeh")


def test_the_table_has_both_types_every_fold_and_the_published_numbers():
    quick, full = table.units(full=False), table.units(full=True)
    assert len(full) == 2 * 10 * len(table.PUBLISHED)
    assert {unit["type"] for unit in quick} == {"I", "II"}
    assert table.method("II", 506, 0).num_eigenfunctions == 100
    assert table.method("II", 36_000, 0).num_eigenfunctions == 1000
    assert table.method("I", 23, 90).samples == 90

    rows = [
        {**unit, "rmse": table.PUBLISHED[unit["set"]][unit["type"]][0], "paper": 1.0, "paper sd": 0.1, "seconds": 1.0}
        for unit in quick
    ]
    hv.render(table.plot(pd.DataFrame(rows)), backend="bokeh")
