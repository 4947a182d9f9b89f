"""One small unit of every figure of Cao et al. is computed and drawn."""

from __future__ import annotations

from pathlib import Path

import holoviews as hv
import pandas as pd
import pytest

from gpexplorer import data
from gpexplorer.problem import Dataset
from papers import cholqr_continuous, cholqr_discrete, cholqr_fig1, find, names

hv.extension("bokeh")

pytestmark = pytest.mark.long


def wiggles() -> Dataset:
    """A substitute for Snelson's data set, which not every checkout has."""
    return data.load({"name": "snelson-like", "n": 60}).scaled().train


def test_all_five_figures_exist_with_units_in_both_versions() -> None:
    for k in range(1, 6):
        figure = find(f"cholqr-fig{k}")
        assert figure.name in names()
        assert 0 < len(figure.units(False)) <= len(figure.units(True))
        assert figure.paper.startswith("The paper")


def test_figure_1_ranks_candidates_by_both_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cholqr_fig1, "snelson", wiggles)
    frame = pd.DataFrame(cholqr_fig1.work({"seed": 0, "tries": 10}))  # one of the three moments of the figure
    assert frame["rank of approx"].corr(frame["rank of exact"]) > 0.9
    assert len(cholqr_fig1.plot(frame)) == 2


@pytest.mark.parametrize("method", ["CholQR-z16", "Titsias-16", "CSI"])
def test_figures_2_and_3_score_a_method_on_poses(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cholqr_discrete, "QUICK_ROWS", 60)
    monkeypatch.setattr(cholqr_discrete, "QUICK_EPOCHS", 1)
    cholqr_discrete.figures.cache_clear()
    unit = {"task": "poses", "method": method, "m": 6, "seed": 0, "full": False}
    [row] = cholqr_discrete.work2(unit)
    assert 0.0 < row["SMSE"] < 1.5
    assert row["ended"] in ("budget", "converged")
    along = pd.DataFrame(cholqr_discrete.work3(unit))
    assert along["seconds"].is_monotonic_increasing
    cholqr_discrete.figures.cache_clear()
    assert len(cholqr_discrete.plot2(pd.DataFrame([row]))) == 4
    assert len(cholqr_discrete.plot3(along)) == 2


@pytest.mark.parametrize(("method", "start"), [("CholQR-MLE", "left"), ("SPGP", "even")])
def test_figure_4_starts_at_the_requested_points(method: str, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cholqr_continuous, "snelson", wiggles)
    monkeypatch.setitem(cholqr_continuous.POINTS, 200, 6)
    frame = pd.DataFrame(cholqr_continuous.work4({"method": method, "rows": 200, "start": start, "steps": 25}))
    sizes = frame.groupby("kind").size().to_dict()
    assert sizes == {"band": 120, "begin": 6, "end": 6, "row": len(wiggles())}
    begin, rows = frame[frame["kind"] == "begin"]["x"], frame[frame["kind"] == "row"]["x"]
    assert begin.max() < rows.median() if start == "left" else begin.max() == pytest.approx(rows.max())
    assert frame["nll"].nunique() == 1
    assert len(cholqr_continuous.plot4(frame)) == 1


def test_figure_5_removes_the_linear_trend(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cholqr_continuous, "QUICK_ROWS", 120)
    cholqr_continuous.kin40k.cache_clear()
    train = cholqr_continuous.kin40k(False).train
    assert float((train.X.T @ train.y).abs().max()) < 1e-8 * len(train)
    [row] = cholqr_continuous.work5({"method": "IVM-VAR", "m": 8, "seed": 0, "full": False})
    assert row["rows"] == 120
    assert row["SMSE"] > 0.0
    cholqr_continuous.kin40k.cache_clear()
    assert len(cholqr_continuous.plot5(pd.DataFrame([row]))) == 2
