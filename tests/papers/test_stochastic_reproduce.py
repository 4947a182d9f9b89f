"""Tables of the paper: their pieces, a row of work with the printed number beside it, and the picture."""

from __future__ import annotations

import math
from typing import Any

import holoviews as hv
import pandas as pd
import pytest

import papers
from papers import stochastic
from papers.stochastic_published import PRINTED, printed


def test_the_printed_numbers_are_found():
    assert printed("linear", "kin40k", 32, "scgd") == (-1.760, 0.056)
    assert printed("gaussian", "kin40k", 16, "bsgd") == (-0.515, 0.147)
    assert math.isnan(printed("linear", "friedman1", 32, "scgd")[0])
    assert {len(values) for pair in PRINTED.values() for values in pair} == {4}


@pytest.mark.parametrize("number", [2, 3, 4, 5])
def test_the_tables_are_listed_with_their_pieces(number: int):
    figure = papers.find(f"stochastic-table{number}")

    assert len(figure.units(True)) == 3 * 5 * 3 * 4
    assert {unit["split"] for unit in figure.units(True)} == set(range(5))
    assert len(figure.units(False)) == 8


@pytest.mark.usefixtures("data_dir")
def test_a_piece_leaves_a_row_that_is_drawn_beside_the_paper(monkeypatch: pytest.MonkeyPatch):
    small: dict[str, Any] = {"minibatches": 4, "evaluate_every": 1, "width": 8}
    monkeypatch.setattr(stochastic, "QUICK", small)
    monkeypatch.setattr(stochastic, "ROWS", 100)
    figure = papers.find("stochastic-table2")

    unit = {**figure.units(False)[0], "method": "scgd"}
    [row] = figure.work(unit)
    monkeypatch.setattr(stochastic, "FEW", 1)
    monkeypatch.setattr(stochastic, "MEASURED", 0.01)
    assert figure.estimate is not None
    assert 0.0 < figure.estimate(unit) < 100.0

    assert (row["data"], row["rows"], row["nlml_paper"], row["rmse_paper"]) == ("kin40k", 100, -1.760, 0.056)
    assert row["ended"] == "budget"
    assert 0.0 < row["rmse"] < 2.0
    assert math.isfinite(row["nlml"])
    drawn = figure.plot(pd.DataFrame([row, {**row, "batch": 128}, {**row, "data": "another"}]))
    assert isinstance(drawn, hv.Layout)
    assert [panel.opts["title"].split(",")[0] for panel in drawn] == [row["data"], "another"]
