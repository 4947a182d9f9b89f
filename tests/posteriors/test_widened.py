"""Variances that grow after the last training row: beside dense algebra, in files, and with further rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gpexplorer.errors import PosteriorError
from gpexplorer.kernels import make
from gpexplorer.posteriors import (
    AveragePosterior,
    InUnits,
    MarginalPosterior,
    WidenedPosterior,
    Widening,
    exact_gp_posterior,
    load_posterior,
    widened,
)
from gpexplorer.posteriors.in_units import in_units_of
from gpexplorer.problem import Dataset, Prediction, Scale
from gpexplorer.target_transforms import fitted_transform
from model_files import parts_of, rewritten

WIDENING = Widening("day", 50.0, (2.0, 10.0), (1.5, 4.0))
FACTORS = {49.0: 1.0, 50.0: 1.0, 51.0: 1.25, 52.0: 1.5, 56.0: 2.75, 60.0: 4.0}  # by day
NEW = torch.tensor([[day, 0.3 * day] for day in FACTORS], dtype=torch.float64)


def of_rows(transform: str = "", logs: bool = False, last: float = 50.0) -> InUnits:
    """An exact GP of the days before and at 50, or as many before another one, and of one more input."""
    day = torch.linspace(last - 29.0, last, 30, dtype=torch.float64)
    X = torch.stack([day, 0.3 * day], 1)
    y = 5.0 + torch.sin(day)
    fitted = fitted_transform(transform, y) if transform else None
    scale = Scale(X.mean(0), X.std(0), 5.0 if fitted is None else 1.6, 0.7, fitted)
    if logs:
        c = torch.tensor([40.0, 0.0], dtype=torch.float64)
        scale = replace(scale, x_mean=torch.zeros(2).double(), x_sd=torch.ones(2).double(), x_log=c)
    kernel = make("se", 2)
    rows = Dataset(scale.scaled_inputs(X), scale.scaled_target(y), ("day", "b"), "y", scale)
    return in_units_of(exact_gp_posterior(kernel, kernel.start(rows), rows), rows)


@pytest.mark.parametrize("transform", ["", "log"])
def test_an_observation_has_so_many_times_the_variance_and_means_stay(transform: str) -> None:
    plain = of_rows(transform)
    wide, factors = widened(plain, WIDENING).asked_for("y"), torch.tensor(list(FACTORS.values()), dtype=torch.float64)

    narrow = plain.asked_for("y").marginals(NEW)
    expected = narrow.widened(factors)
    torch.testing.assert_close(wide.marginals(NEW).moments, expected.moments)
    levels = torch.tensor([0.1, 0.9], dtype=torch.float64)
    torch.testing.assert_close(wide.quantile(NEW, (0.1, 0.9)), expected.quantile(levels))
    y = torch.full((len(NEW),), 6.1, dtype=torch.float64)
    torch.testing.assert_close(expected.standardised(y) * factors.sqrt(), narrow.standardised(y))
    if not transform:
        torch.testing.assert_close(wide.mean(NEW), plain.mean(NEW))
        torch.testing.assert_close(wide.var(NEW), factors * plain.var(NEW, noise=True))


def test_the_last_row_of_a_logarithm_of_days_is_the_same_row() -> None:
    plain = of_rows(logs=True)
    ratio = widened(plain, WIDENING).var(NEW, noise=True) / plain.var(NEW, noise=True)
    known = torch.tensor([1.0, 1.0, 1.5, 4.0], dtype=torch.float64)  # on the horizons themselves
    torch.testing.assert_close(ratio[[0, 1, 3, 5]], known)


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_beyond_the_last_horizon_what_was_added_grows_as_the_variance_of_a_walk(power: float) -> None:
    """The variance of the inner posterior grows with this power of the time beyond 50."""

    def moments(X: torch.Tensor) -> Prediction:
        return Prediction(torch.zeros_like(X[:, 0]), 0.2 * X[:, 1] * (X[:, 0] - 50.0).clamp_min(0.0) ** power)

    knots = torch.tensor([50.0, 52.0, 60.0], dtype=torch.float64)
    inner = MarginalPosterior(moments, knots, 0.5)
    wide = WidenedPosterior(inner, 0, knots, torch.tensor([1.0, 1.5, 4.0], dtype=torch.float64))
    X = torch.tensor([[60.0, 1.0], [60.0001, 1.0], [75.0, 1.0], [55.0, 3.0], [150.0, 3.0]], dtype=torch.float64)
    own = moments(X).var
    at_last = moments(torch.stack([torch.full_like(X[:, 0], 60.0), X[:, 1]], 1)).var + 0.5
    factor = 1.5 + 2.5 * 3.0 / 8.0  # at 55, between the knots
    expected = own + 3.0 * at_last * ((X[:, 0] - 50.0) / 10.0)
    expected[3] = own[3] + (factor - 1.0) * (own[3] + 0.5)
    torch.testing.assert_close(wide.moments(X)[1], expected, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(wide.moments(X[2:])[1], expected[2:], rtol=1e-12, atol=0.0)


def test_the_covariance_is_that_of_the_samples_and_of_the_paths() -> None:
    wide = widened(of_rows(), WIDENING)
    K = wide.cov(NEW)
    torch.testing.assert_close(K.diagonal(), wide.var(NEW), rtol=1e-6, atol=1e-9)
    assert torch.linalg.eigvalsh(K).min() > -1e-8
    for values in (wide.sample(NEW, 4000), wide.paths(4000)(NEW)):
        torch.testing.assert_close(torch.cov(values.T), K, rtol=0.15, atol=0.02)


def test_a_file_and_a_torch_module_predict_the_same_also_in_an_average(tmp_path: Path) -> None:
    wide = widened(of_rows(), WIDENING).asked_for("y")
    for posterior in (wide, AveragePosterior([wide, of_rows().asked_for("y")], [0.7, 0.3])):
        posterior.save(tmp_path / "model")
        loaded = load_posterior(tmp_path / "model")
        torch.testing.assert_close(tuple(loaded(NEW)), tuple(posterior(NEW)), rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(posterior.to_torch()(NEW), tuple(posterior(NEW)), rtol=1e-8, atol=1e-10)


def test_a_file_whose_factors_fall_or_whose_column_there_is_not_is_refused(tmp_path: Path) -> None:
    widened(of_rows(), WIDENING).save(tmp_path / "good")
    tensors, description = parts_of(tmp_path / "good")
    falling = {**tensors, "factors": tensors["factors"].flip(0)}
    with pytest.raises(PosteriorError, match="do not grow from 1"):
        load_posterior(rewritten(tmp_path / "bad", falling, description))
    description["inner"]["column"] = 7
    with pytest.raises(PosteriorError, match="an input that it does not have"):
        load_posterior(rewritten(tmp_path / "bad", tensors, description))


def test_times_count_from_further_rows_that_are_later_and_nothing_is_widened_by_1() -> None:
    wide = widened(of_rows(), WIDENING)
    later = torch.tensor([[54.0, 16.2]], dtype=torch.float64)
    more, again = wide.with_rows(later, [5.2]), wide.with_rows(later - 20.0, [5.2])
    assert isinstance(more.inner, WidenedPosterior)
    for updated, shift in ((more, 4.0), (again, 0.0)):
        plain = of_rows().with_rows(later if shift else later - 20.0, [5.2])
        at = torch.tensor([[52.0 + shift, 20.0], [60.0 + shift, 20.0]], dtype=torch.float64)
        ratio = updated.var(at, noise=True) / plain.var(at, noise=True)
        torch.testing.assert_close(ratio, torch.tensor([1.5, 4.0], dtype=torch.float64))
    plain = of_rows()
    assert widened(plain, None) is plain
    assert widened(plain, replace(WIDENING, factors=(1.0, 1.0))) is plain


@pytest.mark.parametrize("last", [50.0, 20_050.0])
def test_days_far_from_the_origin_are_widened_alike(last: float) -> None:
    plain = of_rows(last=last)
    at = NEW[:, :1] + torch.tensor([[last - 50.0, last - 50.0]], dtype=torch.float64)
    ratio = widened(plain, replace(WIDENING, last=last)).var(at, noise=True) / plain.var(at, noise=True)
    torch.testing.assert_close(ratio, torch.tensor(list(FACTORS.values()), dtype=torch.float64))


def test_the_larger_of_two_widenings_counts_at_each_horizon() -> None:
    early = Widening("day", 50.0, (10.0, 20.0, 40.0), (1.5, 1.5, 1.5))
    late = Widening("day", 80.0, (5.0, 25.0), (1.0, 3.0))  # its horizons count from another last row
    larger = early.at_least(late)
    assert (larger.column, larger.last, larger.horizons) == ("day", 50.0, early.horizons)
    assert larger.factors == pytest.approx((1.5, 2.5, 3.0))  # 1 + 2 (h - 5) / 20 of the later one, up to 25
    assert late.at_least(early).factors == pytest.approx((1.25, 3.0))
    assert early.at_least(replace(early, factors=(1.0, 1.0, 1.0))) == early
