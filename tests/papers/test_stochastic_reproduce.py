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
    assert printed("linear", "kin40k", 32, "scgd") == {"nlml": (-1.760, 0.090), "rmse": (0.056, 0.011)}
    assert printed("gaussian", "kin40k", 16, "bsgd") == {"nlml": (-0.515, 0.042), "rmse": (0.147, 0.007)}
    assert math.isnan(printed("linear", "friedman1", 32, "scgd")["nlml"][0])
    assert {len(values) for rows in PRINTED.values() for values in rows} == {4}
    assert all(spread > 0.0 for rows in PRINTED.values() for spread in (*rows[1], *rows[3]))


@pytest.mark.parametrize("number", [2, 3, 4, 5])
def test_the_tables_are_listed_with_their_pieces(number: int):
    figure = papers.find(f"stochastic-table{number}")

    pieces = 3 * 5 * 3 * 4
    assert len(figure.units(True)) == pieces * (1 + 5)  # by rows set aside, and each rate of the grid
    assert sum("rate" in unit for unit in figure.units(True)) == 5 * pieces
    assert {unit["split"] for unit in figure.units(True)} == set(range(5))
    assert len(figure.units(False)) == 8


def test_the_rule_of_the_paper_takes_the_least_likelihood_where_all_rates_were_tried():
    place = {"data": "elevators", "batch": 32, "method": "scgd", "rmse": 1.0, "rule": stochastic.BY_LIKELIHOOD}
    tried = [{**place, "split": 0, "rate": rate, "nlml": k - 3.0} for k, rate in enumerate(stochastic.GRID)]
    tried[0]["nlml"], tried[1]["nlml"] = math.nan, math.inf  # they diverged
    some = [{**place, "split": 1, "rate": rate, "nlml": -9.0} for rate in stochastic.GRID[1:]]
    aside = {**place, "split": 0, "rate": 0.1, "nlml": -9.0, "rule": None}
    rules = stochastic.by_rule(pd.DataFrame([*some, aside, *tried]))
    assert rules[stochastic.BY_LIKELIHOOD][["split", "rate", "nlml"]].to_numpy().tolist() == [[0, 1.0, -1.0]]
    assert rules[stochastic.BY_ROWS]["nlml"].tolist() == [-9.0]
    assert stochastic.by_rule(pd.DataFrame([aside]).drop(columns="rule"))[stochastic.BY_LIKELIHOOD].empty


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

    [tried] = figure.work({**unit, "rate": 0.02})
    assert (row["rule"], tried["rule"], tried["rate"]) == (stochastic.BY_ROWS, stochastic.BY_LIKELIHOOD, 0.02)
    assert (row["data"], row["rows"], row["nlml_paper"], row["rmse_paper"]) == ("kin40k", 100, -1.760, 0.056)
    assert row["ended"] == "budget"
    assert 0.0 < row["rmse"] < 2.0
    assert math.isfinite(row["nlml"])
    drawn = figure.plot(pd.DataFrame([row, {**row, "batch": 128}, {**row, "data": "another"}]))
    assert isinstance(drawn, hv.Layout)
    assert [panel.opts["title"].split(",")[0] for panel in drawn] == [row["data"], "another"]


@pytest.mark.usefixtures("data_dir")
def test_a_piece_with_a_falling_rate_says_its_optimiser(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stochastic, "QUICK", {"minibatches": 4, "evaluate_every": 1, "width": 8})
    monkeypatch.setattr(stochastic, "ROWS", 100)
    figure = papers.find("stochastic-schedules")
    unit, other = figure.units(False)

    [row] = figure.work(unit)
    assert (row["optimiser"], row["rate"], other["optimiser"]) == ("adadelta", 10.0**0.5, "adam")
    method, *_ = stochastic._prepared(unit)
    assert (method.optimiser, method.schedule) == ("adadelta", "cosine")
    drawn = figure.plot(pd.DataFrame([row, {**row, "batch": 128}, {**row, "optimiser": "adam"}]))
    assert [panel.opts["title"] for panel in drawn] == ["kin40k, 100 rows"]
    assert {unit["split"] for unit in figure.units(True)} == {0}
    assert len(figure.units(True)) == 3 * 3 * 2 * 5  # sets, sizes, methods and rates
