"""Where the hyperparameters of a kernel start, the random functions that have it as covariance, and its factors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import sparse

from gpexplorer import kernels
from gpexplorer.kernels import molecules, strings
from gpexplorer.kernels.base import registry
from gpexplorer.kernels.distances import distance_factors, squared_distances
from gpexplorer.kernels.molecules import MAX_COUNT, tokens
from gpexplorer.kernels.stationary import dominant_period
from gpexplorer.problem import Dataset

REAL = [key for key in kernels.available() if registry[key].inputs == "real"]
SEPARABLE = ["matern12-product", "matern32-product", "matern52-product", "anova", "anova-matern52"]


def rows(n: int = 40) -> Dataset:
    draw = torch.Generator().manual_seed(1)
    X = torch.randn(n, 3, generator=draw, dtype=torch.float64) * torch.tensor([0.5, 3.0, 1.0]) + 2.0
    X[:, 2] = 7.0  # a constant column
    return Dataset(X, 4.0 * torch.randn(n, generator=draw, dtype=torch.float64) + 9.0)


# -- initial values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["se-ard", "matern32-ard", "rq-ard", "matern52-product", "anova"])
def test_lengthscales_start_at_the_spread_of_their_input_times_the_root_of_the_number_of_inputs(key: str):
    train = rows()
    kernel = kernels.make(key, 3)
    start = dict(zip(kernel.names, kernel.start(train).tolist(), strict=True))
    spreads = [*train.X[:, :2].std(0, correction=0).tolist(), 1.0]  # 1 where the column is constant
    by_input = [value for name, value in start.items() if "lengthscale" in name]
    factor = 1.0 if key == "anova" else math.sqrt(3.0)
    assert by_input == pytest.approx([math.log(factor * spread) for spread in spreads])
    first = next(iter(start.values()))
    assert first == pytest.approx(math.log(float(train.y.std(correction=0))), abs=0.02)


def test_one_lengthscale_starts_at_the_geometric_mean_of_many():
    train = rows()
    single, many = (kernels.make(key, 3).start(train) for key in ("se", "se-ard"))
    assert float(single[1]) == pytest.approx(float(many[1:4].mean()))
    assert float(single[0]) == float(many[0])


@pytest.mark.parametrize("key", ["linear", "linear-ard"])
def test_slopes_start_where_all_inputs_together_explain_the_targets(key: str):
    train = rows()
    kernel = kernels.make(key, 3)
    theta = kernel.start(train)
    sd = float(theta[0].exp())  # of the bias, which is that of the targets
    magnitudes = train.X.square().mean(0).sqrt()
    wanted = sd / (math.sqrt(3.0) * magnitudes)
    if key == "linear":
        assert float(theta[1].exp()) == pytest.approx(math.exp(float(wanted.log().mean())))
    else:
        torch.testing.assert_close(theta[1:4].exp(), wanted)
        explained = (train.X.square() * theta[1:4].exp().square()).sum(1).mean()
        assert float(explained) == pytest.approx(sd**2)


def test_periodic_kernels_start_with_the_period_of_the_data_or_twice_the_spread():
    train = rows()
    periodic, local = (kernels.make(key, 3).start(train) for key in ("periodic", "lp"))
    spreads = [*train.X[:, :2].std(0, correction=0).tolist(), 1.0]
    assert float(periodic[1]) == 0.0
    assert float(periodic[2].exp()) == pytest.approx(2.0 * spreads[0])
    assert float(local[3].exp()) == pytest.approx(2.0 * math.sqrt(3.0) * sum(spreads) / 3.0)
    x = torch.linspace(0.0, 8.0, 200, dtype=torch.float64)[:, None]
    wave = Dataset(x, torch.sin(2.0 * math.pi * x[:, 0] / 0.5) + 3.0)
    assert float(kernels.make("periodic", 1).start(wave)[2].exp()) == pytest.approx(0.5)


@pytest.mark.parametrize("periods", [2, 3, 2.7, 49, 50, 23.37, 80])
def test_the_period_is_that_of_the_strongest_wave(periods: float):
    x = torch.linspace(5.0, 9.0, 201, dtype=torch.float64)[:200, None]
    span = float(x.max() - x.min())
    y = torch.cos(2.0 * math.pi * periods * (x[:, 0] - 5.0) / span + 0.7)
    assert dominant_period(Dataset(x, y)) == pytest.approx(span / periods)


def test_a_short_period_is_found_where_its_waves_stand_out_and_otherwise_a_quarter_of_the_rows_is_the_limit():
    x = torch.linspace(0.0, 1.0, 200, dtype=torch.float64)[:, None]
    assert dominant_period(Dataset(x, torch.cos(2.0 * math.pi * 70.3 * x[:, 0]))) == pytest.approx(1.0 / 70.3)
    noise = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert dominant_period(Dataset(x, noise)) >= 1.0 / 50.8
    x = torch.linspace(0.0, 1.0, 2000, dtype=torch.float64)[:, None]
    assert dominant_period(Dataset(x, torch.cos(2.0 * math.pi * 700.2 * x[:, 0]))) == pytest.approx(1.0 / 700.2)


def test_the_period_of_a_long_series_may_be_short():
    draw = torch.Generator().manual_seed(0)
    x = 3e8 + 2000.0 * torch.rand(20_000, 1, generator=draw, dtype=torch.float64)
    noise = torch.randn(20_000, generator=draw, dtype=torch.float64)
    assert dominant_period(Dataset(x, torch.sin(2.0 * math.pi * x[:, 0] / 1.7) + noise)) == pytest.approx(1.7, rel=2e-4)
    assert dominant_period(Dataset(x, noise)) >= 2000.0 / 257.0  # no peak


def test_few_rows_or_equal_ones_have_the_range_as_period():
    x = torch.tensor([1.0, 4.0, 2.0], dtype=torch.float64)[:, None]
    assert dominant_period(Dataset(x, x[:, 0])) == 3.0
    assert dominant_period(Dataset(torch.ones(20, 1, dtype=torch.float64), torch.arange(20.0).double())) == 1.0


# -- random functions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["linear", "linear-ard"])
def test_random_lines_have_the_linear_covariance(key: str):
    kernel, X = kernels.make(key, 2), rows(5).X[:, :2]
    theta = torch.tensor([0.4, -0.6, *([0.2] if key == "linear-ard" else []), 0.0], dtype=torch.float64)
    draws = kernel.random_features(theta, 200_000, torch.Generator().manual_seed(0))(X)
    torch.testing.assert_close(draws @ draws.T / 200_000, kernel(theta, X, X), rtol=0.03, atol=0.03)
    assert float(draws.mean()) == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize("key", ["periodic", "lp", "se-ard", "matern12-ard", "matern32-ard", "matern52-ard", "rq-ard"])
def test_random_waves_have_the_covariance_of_the_kernel(key: str):
    kernel, X = kernels.make(key, 2), rows(6).X[:, :2]
    theta = torch.linspace(-0.3, 0.9, kernel.size + 1, dtype=torch.float64)
    W = kernel.frequencies(theta, 200_000, torch.Generator().manual_seed(0)).double()
    assert W.shape == (200_000, 2)
    differences = X[:, None] - X[None]  # [n, n, d]
    mean = torch.stack([torch.cos(difference @ W.T).mean(1) for difference in differences])
    torch.testing.assert_close(torch.exp(2.0 * theta[0]) * mean, kernel(theta, X, X), rtol=0.0, atol=0.02)
    features = kernel.random_features(theta, 200_001, torch.Generator().manual_seed(1))(X)
    torch.testing.assert_close(features @ features.T / 200_001, kernel(theta, X, X), rtol=0.0, atol=0.02)
    torch.testing.assert_close(features.square().mean(1), kernel.diag(theta, X), rtol=1e-4, atol=0.0)


# -- factors and terms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [*SEPARABLE, "periodic", "lp", "se-ard"])
@pytest.mark.parametrize("sd", [0.3, 2.5])
def test_the_factors_of_the_inputs_multiply_to_the_kernel_and_the_first_has_the_variance(key: str, sd: float):
    kernel, X = kernels.make(key, 3), rows(6).X
    theta = torch.linspace(-0.5, 0.8, kernel.size + 1, dtype=torch.float64)
    theta[0] = math.log(sd)
    factors = kernel.by_input(theta)
    product = torch.stack([factor(X[:, q], X[:4, q]) for q, factor in enumerate(factors)]).prod(0)
    torch.testing.assert_close(product, kernel(theta, X, X[:4]))
    x = X[:1, 0]
    assert [float(factor(x, x)) for factor in factors] == pytest.approx([sd**2, 1.0, 1.0])


@pytest.mark.parametrize("key", ["linear", "linear-ard"])
def test_a_linear_kernel_is_its_bias_and_one_term_per_input(key: str):
    kernel, X = kernels.make(key, 3), rows(6).X
    theta = torch.linspace(-0.5, 0.8, kernel.size + 1, dtype=torch.float64)
    total = torch.zeros(6, 6, dtype=torch.float64)
    for term in kernel.terms(theta):
        total += torch.stack([factor(X[:, q], X[:, q]) for q, factor in enumerate(term)]).prod(0)
    torch.testing.assert_close(total, kernel(theta, X, X))
    assert len(kernel.terms(theta)) == 4
    assert all(len(term) == 3 for term in kernel.terms(theta))


@pytest.mark.parametrize("ard", [True, False])
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_distances_are_those_of_exact_differences(ard: bool, shift: float):
    X, scales = rows(9).X + shift, torch.tensor([0.5, 2.0, 4.0] if ard else 2.0, dtype=torch.float64)
    exact = ((X[:, None] - X[None, :4]) / scales).square().sum(2)
    torch.testing.assert_close(squared_distances(X, X[:4], scales), exact, rtol=1e-9, atol=1e-9)
    factors = distance_factors(X, X[:4], scales, -0.5, 0.25)
    assert factors is not None
    A, B = factors
    torch.testing.assert_close(A @ B.T, 0.25 - 0.5 * exact, rtol=1e-8, atol=1e-7)
    doubled = distance_factors(X, X[:4], scales, 3.0, 0.0)
    assert doubled is not None
    torch.testing.assert_close(doubled[0] @ doubled[1].T, 3.0 * exact, rtol=1e-8, atol=1e-6)


def test_no_rows_have_no_distances():
    X = rows(3).X
    assert squared_distances(X[:0], X, torch.ones(3, dtype=torch.float64)).shape == (0, 3)
    assert squared_distances(X, X[:0], torch.ones(3, dtype=torch.float64)).shape == (3, 0)


# -- texts and molecules -----------------------------------------------------------------------------------------------


def test_the_mismatch_features_count_every_way_to_a_pattern():
    features = strings.Mismatch.features("abababab")
    substrings = {"ababa"[: strings.LENGTH], "babab"[: strings.LENGTH]}
    assert {part for part in features if strings.REMOVED not in part} == substrings
    by_hand: dict[str, float] = {}
    text = "abababab"
    for i in range(len(text) - strings.LENGTH + 1):
        for pattern in strings._patterns(text[i : i + strings.LENGTH]):
            by_hand[pattern] = by_hand.get(pattern, 0.0) + 1.0
    for pattern, count in by_hand.items():
        weight = math.sqrt(strings.WEIGHTS[pattern.count(strings.REMOVED)])
        assert features[pattern] == pytest.approx(weight * count)


def test_rows_of_features_have_length_one_and_an_empty_text_has_none():
    columns: dict[str, int] = {}
    result = strings.unit_rows(["aaaabbbb", "", "aaaa"], strings.Spectrum.features, columns).toarray()
    assert np.square(result).sum(1).tolist() == pytest.approx([1.0, 0.0, 1.0])


@pytest.mark.parametrize("dense", [0, 10**9])
def test_jaccard_similarities_are_shares_of_common_tokens(dense: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(molecules, "MAX_DENSE", dense)
    X = np.array([[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 0]], dtype=np.float32)
    Z = np.array([[1, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 0, 1, 0]], dtype=np.float32)
    result = molecules.jaccard(sparse.csr_array(X), sparse.csr_array(Z))
    for i, x in enumerate(X.astype(bool)):
        for j, z in enumerate(Z.astype(bool)):
            union = (x | z).sum()
            assert result[i, j] == ((x & z).sum() / union if union else 1.0)


def test_the_cache_of_similarities_drops_the_oldest(monkeypatch: pytest.MonkeyPatch):
    kernel = kernels.make("molecules", 1)
    like = torch.zeros(1, dtype=torch.float64)
    texts = ["CCO", "CCN", "CCC", "c1ccccc1"]
    kernel.check(texts)
    for text in texts:
        kernel.similarities([text], texts, like)
    assert len(kernel._cache) == 4
    size = next(iter(kernel._cache.values())).nbytes
    monkeypatch.setattr(molecules, "CACHE_BYTES", 2 * size)
    kernel.similarities(["CCO"], texts, like)  # an entry that is used again is the newest
    assert [request[0][0] for request in kernel._cache] == ["c1ccccc1", "CCO"]


def test_a_token_stands_once_for_each_time_it_occurs_but_not_more_often_than_the_limit():
    result = tokens({5: 3, 9: 1, 7: MAX_COUNT + 10}).tolist()
    wanted = [5 * MAX_COUNT, 5 * MAX_COUNT + 1, 5 * MAX_COUNT + 2, 9 * MAX_COUNT]
    assert result == wanted + [7 * MAX_COUNT + k for k in range(MAX_COUNT)]
    assert len(tokens({})) == 0
