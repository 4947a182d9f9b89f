"""One small unit of every figure of the ADMM paper is computed and drawn."""

from __future__ import annotations

import math

import holoviews as hv
import pandas as pd
import pytest
import torch

from gpexplorer.data.splits import Split
from gpexplorer.problem import Dataset
from papers import admm_co2, admm_synthetic, find, names


def test_all_four_figures_exist_with_the_numbers_of_the_paper():
    assert {name for name in names() if name.startswith("admm-")} == {
        "admm-co2",
        "admm-fig2",
        "admm-fig3",
        "admm-table1",
    }
    assert "1.307" in find("admm-co2").paper
    assert len(find("admm-table1").units(True)) == 450


def test_draws_have_the_stated_covariance():
    problem, test = admm_synthetic.drawn("SE+LP", 60, 3)
    repeated, _ = admm_synthetic.drawn("SE+LP", 60, 3)

    assert torch.equal(problem.train.y, repeated.train.y)
    assert (len(problem.train), len(test)) == (60, 20)
    many = torch.stack([admm_synthetic.drawn("SE", 40, k)[0].train.y for k in range(60)])
    assert float(many.var()) == pytest.approx(1.0 + admm_synthetic.NOISE**2, rel=0.15)


def test_table_1_has_both_methods_and_the_numbers_of_the_paper(monkeypatch: pytest.MonkeyPatch):
    paper = {
        name: truth._replace(paper={60: admm_synthetic.Published((0.1, 0.2), ((0.3,), (0.4,)))})
        for name, truth in admm_synthetic.TRUTHS.items()
    }
    monkeypatch.setattr(admm_synthetic, "TRUTHS", paper)
    monkeypatch.setitem(admm_synthetic.AS_PUBLISHED, "max_iterations", 5)
    rows = admm_synthetic.estimate({"kernel": "SE", "n": 60, "trial": 0})
    frame = pd.DataFrame(rows)

    assert frame["method"].tolist() == [
        "GPCV-ADMM", "GPCV-ADMM, from the truth", "GPCV-ADMM, as published", "maximum likelihood",
    ]  # fmt: skip
    assert frame["paper"].tolist() == [0.1, 0.1, 0.1, 0.2]
    assert frame["l (paper)"].tolist() == [0.3, 0.3, 0.3, 0.4]
    assert frame["CV error"][0] <= 1.05 * frame["CV error"][1]
    assert frame["CV error"][1] <= frame["CV error at the truth"][1]
    assert (frame["test MSE"] < 1.5).all()
    assert frame["l"].between(0.05, 5.0).all()
    assert isinstance(find("admm-table1").plot(frame), hv.Table)


def test_scaling_factors_are_those_of_the_paper():
    frame = pd.DataFrame({"method": ["a", "a", "b", "b"], "n": [500, 1000] * 2, "seconds": [1.0, 4.0, 2.0, 16.0]})
    drawn = admm_synthetic.factors(frame)

    lines = {curve.label: curve.dframe()["y"].tolist() for curve in drawn if isinstance(curve, hv.Curve)}
    assert lines["a"] == [1.0, 2.0]
    assert lines["b"] == lines["n^3"] == [1.0, 4.0]


def monthly() -> Split:
    """Months from 1958 to 2020, with another split than that of the figure."""
    X = torch.arange(1958.0, 2020.0, 1 / 12, dtype=torch.float64)[:, None]
    y = 315.0 + 1.5 * (X[:, 0] - 1958.0) + 3.0 * torch.sin(2 * torch.pi * X[:, 0])
    every = Dataset(X, y, ("year",), "CO2 [ppm]")
    return Split(every.rows(range(500)), every.rows(range(500, len(y))), "monthly")


def test_co2_is_trained_to_2008_and_tested_to_2015(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(admm_co2.data, "load", lambda name: monthly())
    problem, test = admm_co2.task()
    by = problem.train.scale
    assert by is not None

    years = [part.X[:, 0] * by.x_sd + by.x_mean for part in (problem.train, test)]
    assert float(years[0].max()) < 2009.0 <= float(years[1].min())
    assert float(years[1].max()) < 2016.0
    assert float(problem.train.y.std(correction=0)) == pytest.approx(1.0)
    assert float(problem.theta[problem.kernel.names.index("lp: period")].exp() * by.x_sd) == pytest.approx(1.0)


def test_co2_lists_every_run_and_draws_those_of_lowest_objective(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(admm_co2.data, "load", lambda name: monthly())
    short = {"gpcv-admm": {"max_iterations": 1}, "ml": {"evaluations": 2}}
    settings = {name: (key, own | short[key]) for name, (key, own) in admm_co2.SETTINGS.items()}
    monkeypatch.setattr(admm_co2, "SETTINGS", settings)
    units = admm_co2.units(full=False)
    frame = pd.DataFrame([row for unit in [*units[:6], units[-1]] for row in admm_co2.work(unit)])
    starts = frame.groupby("method")["trial"].agg(list).to_dict()
    assert starts == {**{name: [0, 1] for name in admm_co2.PAPER}, admm_co2.ESTIMATES: [0]}
    problem, test = admm_co2.task()

    for _, row in frame.iterrows():
        ratio = row["MSE over test variance"] / row["MSE over train variance"]
        assert ratio == pytest.approx(1.0 / float(test.y.var(correction=0)))
    learned, given = frame.dropna(subset="paper"), frame[frame["paper"].isna()].iloc[0]
    assert dict(zip(learned["method"], learned["paper"], strict=True)) == admm_co2.PAPER
    assert problem.train.scale is not None
    decay = math.exp(given["log lp: lengthscale"]) * problem.train.scale.x_sd
    assert (given["method"], decay) == (admm_co2.ESTIMATES, pytest.approx(51.0))

    drawn = find("admm-co2").plot(frame)
    shown = drawn.Table.I.dframe()
    kept = shown[shown["kept"]]
    lowest = learned.groupby("method")["lowered"].min().to_dict()
    assert kept.groupby("method")["lowered"].min().to_dict() == pytest.approx(lowest, rel=1e-4)  # small ones too


def test_both_methods_begin_at_the_same_thetas(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(admm_co2.data, "load", lambda name: monthly())
    problem, _ = admm_co2.task()

    assert torch.equal(admm_co2.start(problem, 0).theta, problem.theta)
    assert torch.equal(admm_co2.start(problem, 2).theta, admm_co2.start(problem, 2).theta)
    moved = (admm_co2.start(problem, 2).theta - problem.theta).abs() > 0
    assert [name for name, m in zip(problem.kernel.names, moved, strict=True) if not m] == ["lp: period"]


@pytest.mark.parametrize(("name", "count"), [("SE", 1), ("LP", 2), ("SE+LP", 3)])
def test_theta_has_the_free_numbers_of_the_paper(name: str, count: int):
    problem, _ = admm_synthetic.drawn(name, 60, 0)
    free = problem.kernel.restrictions.parameters
    assert len(free.lower) == count
    theta = free.full(torch.zeros(count, dtype=torch.float64)).exp()
    is_sd = [name.endswith("sd") for name in problem.kernel.names]
    assert theta[is_sd].tolist() == [1.0] * sum(is_sd)
    assert theta[-1] == pytest.approx(admm_synthetic.NOISE)


def test_the_kernel_with_a_tied_width_is_equation_20():
    problem, _ = admm_synthetic.drawn("LP", 60, 0)
    length, period = 0.6, 1.3
    theta = problem.kernel.restrictions.parameters.full(torch.tensor([length, period], dtype=torch.float64).log())
    x = problem.train.X[:9, 0]
    r = x[:, None] - x
    expected = torch.exp(-2.0 * torch.sin(math.pi * r / period) ** 2 / length**2 - r**2 / (2.0 * length**2))
    torch.testing.assert_close(problem.kernel(theta, x[:, None], x[:, None]), expected)
