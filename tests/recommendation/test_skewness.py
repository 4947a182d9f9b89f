"""Which transform of the target `recommend` tries: likelihoods against dense algebra, and targets of known skewness."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

import gpexplorer as gpx
from gpexplorer import kernels
from gpexplorer.data import Split
from gpexplorer.problem import Dataset, MixedRows, RowNoise
from gpexplorer.recommendation import skewness
from gpexplorer.recommendation.arguments import NO_ROWS
from gpexplorer.recommendation.candidates import Candidate
from gpexplorer.recommendation.lanes import step_until
from gpexplorer.recommendation.skewness import (
    LOG_PREFERRED,
    Transforms,
    best_of,
    likelihood_gains,
    suitable_transforms,
    with_transforms,
)
from gpexplorer.recommendation.stages import Progress, TimedSearch
from gpexplorer.runs import Run
from gpexplorer.target_transforms import fitted_transform


def smooth(n: int = 150, noise: float = 0.3) -> tuple[Tensor, Tensor]:
    """Inputs far from the origin, and a function of them with normal noise."""
    draw = torch.Generator().manual_seed(1)
    X = 20.0 + torch.randn(n, 2, generator=draw, dtype=torch.float64)
    return X, torch.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + noise * torch.randn(n, generator=draw, dtype=torch.float64)


def rows_of(y: Tensor, X: Tensor) -> Split:
    data = Dataset(X, y, ("a", "b"))
    return Split(data, data.rows(NO_ROWS), "rows", key="rows")


def suitable(split: Split, seconds: float = 20.0, **search: Any) -> str:
    """The transform of the target that suits these rows in a search of its own."""
    return both(split, seconds, **search).target


def both(split: Split, seconds: float = 20.0, **search: Any) -> Transforms:
    """The transforms of target and inputs."""
    begin, given = time.perf_counter(), {"on_progress": None, "should_stop": lambda: False, **search}
    return suitable_transforms(TimedSearch(split, begin, seconds, [], clock=time.perf_counter, **given), 0)


@pytest.mark.parametrize(("shift", "factor"), [(0.0, 1.0), (1e4, 1e-2), (0.0, 1e-6)])
def test_gains_are_those_of_dense_likelihoods(shift: float, factor: float) -> None:
    X, f = smooth(40)
    y = shift + factor * f.exp()
    kernel = kernels.make("se-ard", 2)
    theta = torch.tensor([0.1, -0.3, 0.2, -0.7], dtype=torch.float64)
    Z = (X - X.mean(0)) / X.std(0)
    K = kernel(theta, Z, Z) + (2 * theta[-1]).exp() * torch.eye(40)

    def log_likelihood(name: str) -> float:
        """With the scale of K at its maximum, found by a search."""
        transform = fitted_transform(name, y)
        z = y if transform is None else transform.forward(y)
        z = z - z.mean()
        log_derivatives = 0.0 if transform is None else float(transform.log_derivative(y).sum())
        quadratic = float(z @ torch.linalg.solve(K, z))
        scales = torch.linspace(-40, 40, 80_001, dtype=torch.float64).exp()
        values = -0.5 * (quadratic / scales + torch.logdet(K) + 40 * (2 * math.pi * scales).log())
        return float(values.max()) + log_derivatives

    gains = likelihood_gains(Z, y, kernel, theta)
    for name in ("yeo-johnson 0", "yeo-johnson 0.7", "yeo-johnson 2", "log"):
        assert gains[name] == pytest.approx(log_likelihood(name) - log_likelihood(""), abs=1e-3)
    assert gains["yeo-johnson 1"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("shift", "factor"), [(0.0, 1.0), (0.0, 1e5)])
def test_the_logarithm_is_found_for_log_normal_targets(shift: float, factor: float) -> None:
    X, f = smooth()
    assert suitable(rows_of(shift + factor * f.exp(), X)) == "log"


def test_a_power_is_found_where_there_is_no_logarithm() -> None:
    X, f = smooth()
    assert suitable(rows_of(f.exp() - 5000.0, X)) in ("yeo-johnson 0", "yeo-johnson 0.1", "yeo-johnson 0.2")


def test_where_no_transform_or_no_logarithm_is_tried() -> None:
    X, f = smooth()
    assert suitable(rows_of(f, X)) == ""
    assert suitable(rows_of(1e3 + f, X)) == ""
    assert suitable(rows_of(torch.full_like(f, 3.0), X)) == ""
    weighted = replace(rows_of(f.exp(), X).train, noise=RowNoise(torch.ones(150)))
    assert suitable(Split(weighted, weighted.rows(NO_ROWS), "rows")) == ""
    zero = rows_of((f - f.min()).square(), X)  # skewed, with one target that has no logarithm
    assert suitable(zero).startswith("yeo-johnson")
    mixed = Dataset(MixedRows(X[:, :1], (tuple("ab" * 75),)), f.exp(), ("a", "word"))
    assert suitable(Split(mixed, mixed.rows(NO_ROWS), "rows")) == ""


def test_the_logarithm_is_preferred_and_small_gains_are_not_used() -> None:
    power = "yeo-johnson 0.2"
    assert best_of({power: 19.0, "log": 19.0 - 0.9 * LOG_PREFERRED}, 15.0) == "log"
    assert best_of({power: 19.0, "log": 19.0 - 1.1 * LOG_PREFERRED}, 15.0) == power
    assert best_of({power: 15.0}, 15.0) == power
    assert best_of({power: 14.9, "log": -3.0}, 15.0) == ""


def test_the_time_decides_the_rows_and_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    X, f = smooth(900)
    asked, seen = list[float](), list[int]()
    monkeypatch.setattr(skewness, "rows_for", lambda n, seconds: asked.append(seconds) or 250)
    monkeypatch.setattr(skewness, "likelihood_gains", lambda X, *_: seen.append(len(X)) or {"log": 0.0})

    def step(run: Run, deadline: float, stopped: Any, clock: Any) -> None:
        asked.append(deadline - clock())
        step_until(run, deadline, stopped, clock)

    monkeypatch.setattr(skewness, "step_until", step)
    suitable(rows_of(f.exp(), X), 40.0)
    assert asked == [pytest.approx(0.04 * 40.0, abs=0.1)] * 2
    assert seen == [250]


def test_it_is_reported_and_can_be_stopped() -> None:
    X, f = smooth()
    reports = list[Progress]()
    answers = iter([False, True])  # asked before the work, and before its first step

    assert suitable(rows_of(f.exp(), X), on_progress=reports.append, should_stop=lambda: next(answers)) == ""
    assert [report.sentence for report in reports] == ["Looking at the skewness of the columns."]
    assert suitable(rows_of(f.exp(), X), on_progress=reports.append, should_stop=lambda: True) == ""
    assert len(reports) == 1


def test_a_small_part_of_the_rows_has_to_gain_more(monkeypatch: pytest.MonkeyPatch) -> None:
    X, f = smooth(900)
    monkeypatch.setattr(skewness, "rows_for", lambda n, seconds: min(n, 300))
    for rows, per_row, expected in ((600, 0.05, "log"), (900, 0.05, ""), (900, 0.09, "log"), (600, 0.01, "")):
        monkeypatch.setattr(skewness, "likelihood_gains", lambda *_, gain=300 * per_row: {"log": gain})
        assert suitable(rows_of(f[:rows].exp(), X[:rows])) == expected


def incomes(n: int = 250, seed: int = 2) -> tuple[Tensor, Tensor]:
    """An input with a long tail, one without, and a function of the logarithm of the first."""
    draw = torch.Generator().manual_seed(seed)
    income = (10.0 + 1.2 * torch.randn(n, generator=draw, dtype=torch.float64)).exp()
    other = 5.0 + torch.randn(n, generator=draw, dtype=torch.float64)
    noise = 0.1 * torch.randn(n, generator=draw, dtype=torch.float64)
    return torch.stack([income, other], 1), torch.sin(income.log()) + 0.3 * other + noise


def test_logarithms_of_inputs_are_taken_where_the_likelihood_is_larger() -> None:
    X, y = incomes()
    assert both(rows_of(y, X)) == both(rows_of(y, 1e-7 * X)) == Transforms("", "log")  # in any unit
    linear = (
        X[:, 0] / X[:, 0].std() + 0.3 * X[:, 1] + 0.1 * torch.randn(250, generator=torch.Generator().manual_seed(7))
    )
    assert both(rows_of(linear, X)).inputs == ""  # linear in the income itself
    assert both(rows_of(*smooth()[::-1])).inputs == ""  # no long tail


@pytest.mark.parametrize("power", [0.9, -1.3])
def test_logarithms_of_input_and_target_are_found_together(power: float) -> None:
    """Without that of the target, that of the input hardly helps, and predictions far out explode."""
    X, _ = incomes(300)
    noise = torch.randn(300, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    y = 100.0 * torch.exp(power * torch.log(X[:, 0] / X[:, 0].mean()) - 0.1 * X[:, 1] / X[:, 1].std() + 0.3 * noise)
    assert both(rows_of(y, X)) == Transforms("log", "log")
    assert both(rows_of(torch.log(y), X)) == Transforms("", "log")


@pytest.mark.usefixtures("few_trees")
def test_a_recommendation_takes_logarithms_of_inputs_and_keeps_their_units(tmp_path) -> None:
    X, y = incomes(160)
    X_new, y_new = incomes(400, seed=3)
    table = pd.DataFrame(X.numpy(), columns=["income", "age"]).assign(y=y.numpy())
    answer = gpx.recommend(table, target="y", seconds=2.0, prefer="gp", clock=time.process_time)
    assert answer.spec.input_transform == "log"
    assert any(line.startswith('"income" has a long tail') for line in answer.sentences)
    error = answer.predict(X_new).mean - y_new
    assert float(error.square().mean().sqrt()) < 0.35 * float(y_new.std())
    answer.posterior.save(tmp_path / "m.safetensors")
    torch.testing.assert_close(gpx.load_posterior(tmp_path / "m.safetensors")(X_new).mean, answer.predict(X_new).mean)


def test_two_transformed_candidates_precede_each_of_the_others() -> None:
    listed = [Candidate(name, "exact", "ml", name) for name in "abcde"]
    assert with_transforms(listed, Transforms()) == listed
    mixed = with_transforms(listed, Transforms("log"))
    names = ["a, log", "b, log", "a", "c, log", "d, log", "b", "e, log", "c", "d", "e"]
    assert [model.name for model in mixed] == names
    assert [model.target_transform for model in mixed] == ["log" if "log" in name else "" for name in names]


def test_the_trend_of_a_transformed_target_is_a_line_and_no_candidate_comes_twice() -> None:
    trends = ("linear[a] * linear[a]", "linear + linear[a] * linear[a]", "linear")
    kernels = [f"{trend} + lp[a] + matern12[a]" for trend in trends]
    listed = [Candidate(f"ml, {kernel}", "exact", "ml", kernel) for kernel in kernels]
    mixed = with_transforms(listed, Transforms("log"))
    assert [model.name for model in mixed if model.target_transform] == ["ml, linear + lp[a] + matern12[a], log"]
    assert [model.kernel for model in mixed if not model.target_transform] == kernels


@pytest.mark.usefixtures("few_trees")
def test_a_recommendation_for_log_normal_targets_is_skewed_and_positive(tmp_path) -> None:
    X, f = smooth(300)
    y = f.exp()
    answer = gpx.recommend(X[:200].numpy(), y[:200].numpy(), seconds=2.5, prefer="gp", clock=time.process_time)
    marginals = answer.posterior.marginals(X[200:])

    assert answer.spec.target_transform == "log"
    assert ", log" in answer.sentences[0]  # in the names of the models that are averaged
    low, middle, high = marginals.quantile(torch.tensor([0.025, 0.5, 0.975], dtype=torch.float64))
    assert (low > 0.0).all()
    assert float(((high - middle) / (middle - low)).median()) > 1.3
    inside = float(((y[200:] >= low) & (y[200:] <= high)).double().mean())
    assert 0.85 <= inside <= 1.0
    assert (
        answer.expected["nlpd"].low
        <= float(-marginals.log_density(y[200:]).mean())
        <= answer.expected["nlpd"].high + 0.2
    )
    answer.posterior.save(tmp_path / "model.safetensors")
    loaded = gpx.load_posterior(tmp_path / "model.safetensors")
    torch.testing.assert_close(loaded.quantile(X[200:], 0.975), high, rtol=1e-6, atol=0.0)
